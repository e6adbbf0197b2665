//! Random programs of socket calls on one connection, of which TCP determines every answer.
//!
//! [`Step`]s are plain numbers, so that shrinking is easy. [`script`] turns them into a script: it keeps a small model of
//! the connection, leaves out what could block for ever, and waits after each step until its effect has arrived at the
//! other end, so that no answer depends on time.

use std::fmt::Write;

/// Raw material for one step.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Which end acts.
    pub end: bool,
    /// Which kind of call, modulo the number of kinds.
    pub kind: u8,
    /// A size, made to fit.
    pub size: u16,
    /// A choice among flags, masks and ways.
    pub choice: u8,
}

/// No direction ever holds more than this unread: every buffer takes it, so no send blocks or comes back short.
const MOST: usize = 40_000;

/// What the model knows of one end.
#[derive(Default)]
struct Side {
    /// Bytes that arrived here and are not read.
    pending: usize,
    /// It has sent its FIN.
    finished: bool,
    /// It has shut its receiving direction.
    deaf: bool,
    /// Open descriptors: `s`, then `d`.
    open: [bool; 2],
    nonblocking: bool,
    epoll: bool,
    /// A reset arrived or was sent: nothing blocks any more.
    reset: bool,
}

struct Model {
    sides: [Side; 2],
    text: String,
}

const NAMES: [&str; 2] = ["a", "b"];
const SEND_FLAGS: [&str; 4] = ["-", "DONTWAIT", "NOSIGNAL", "NOSIGNAL|DONTWAIT"];
const RECEIVE_FLAGS: [&str; 8] = [
    "-",
    "PEEK",
    "DONTWAIT",
    "WAITALL",
    "TRUNC",
    "PEEK|TRUNC",
    "WAITALL|DONTWAIT",
    "PEEK|DONTWAIT",
];
const MASKS: [&str; 6] = ["IN", "OUT", "IN|OUT", "IN|OUT|RDHUP", "RDHUP", "-"];

impl Model {
    fn line(&mut self, who: usize, what: &str) {
        let _ = writeln!(self.text, "{} {what}", NAMES[who]);
    }

    /// The slot that this step uses, if any is open.
    fn slot(&self, who: usize, choice: u8) -> Option<&'static str> {
        match self.sides[who].open {
            [true, true] => Some(if choice & 64 == 0 { "s" } else { "d" }),
            [true, false] => Some("s"),
            [false, true] => Some("d"),
            [false, false] => None,
        }
    }

    /// Does this end answer bytes with a reset? Closed, or shut both ways (RFC 1122, section 4.2.2.13).
    fn gone(&self, who: usize) -> bool {
        let side = &self.sides[who];
        side.open == [false; 2] || (side.deaf && side.finished)
    }

    /// Waits until the other end sees what `who` did.
    fn settle(&mut self, who: usize) {
        let other = 1 - who;
        let Some(slot) = self.slot(other, 0) else {
            return;
        };
        let side = &self.sides[other];
        let line = if side.reset {
            format!("await {slot} - ERR")
        } else if self.sides[who].finished {
            format!("await {slot} {} RDHUP", side.pending)
        } else {
            format!("await {slot} {}", side.pending)
        };
        self.line(other, &line);
    }

    fn send(&mut self, who: usize, step: Step) {
        let Some(slot) = self.slot(who, step.choice) else {
            return;
        };
        let other = 1 - who;
        let room = MOST.saturating_sub(self.sides[other].pending);
        let size = usize::from(step.size) % 9000;
        if size > room {
            return;
        }
        if self.gone(other) && !self.sides[who].finished && !self.sides[who].reset {
            // The first byte brings back a reset; a second one would race with it.
            self.line(who, &format!("send {slot} {}", size.max(1)));
            self.line(who, &format!("await {slot} - ERR"));
            self.sides[who].reset = true;
            self.sides[other].reset = true;
            return;
        }
        let flags = SEND_FLAGS[usize::from(step.choice) % 4];
        let parts = format!(
            "{},{},{}",
            size / 3,
            size % 7,
            size - size / 3 - (size % 7).min(size - size / 3)
        );
        let part_sum = size / 3 + size % 7 + (size - size / 3 - (size % 7).min(size - size / 3));
        let (line, sent) = match (step.choice / 4) % 6 {
            0 => (format!("write {slot} {size}"), size),
            1 => (format!("writev {slot} {parts}"), part_sum),
            2 => (format!("sendmsg {slot} {parts} {flags}"), part_sum),
            3 => (
                format!("sendmmsg {slot} {size}/{parts} {flags}"),
                size + part_sum,
            ),
            4 => (format!("sendfile {slot} f {} 0", size.max(1)), size.max(1)),
            _ => (format!("send {slot} {size} {flags}"), size),
        };
        self.line(who, &line);
        if self.sides[who].finished || self.sides[who].reset {
            return;
        }
        self.sides[other].pending += sent;
        self.settle(who);
    }

    fn receive(&mut self, who: usize, step: Step) {
        let Some(slot) = self.slot(who, step.choice) else {
            return;
        };
        let size = usize::from(step.size) % 12_000;
        let flags = RECEIVE_FLAGS[usize::from(step.choice) % 8];
        let side = &self.sides[who];
        let (pending, ended) = (
            side.pending,
            side.deaf || side.reset || self.sides[1 - who].finished,
        );
        let dont_wait = side.nonblocking || flags.contains("DONTWAIT");
        let enough = if flags.contains("WAITALL") {
            size <= pending
        } else {
            pending > 0
        };
        if !(ended || dont_wait || enough) {
            return;
        }
        // read and readv have no flags: they wait unless the descriptor does not.
        let plain_waits = !ended && !side.nonblocking && pending == 0;
        let parts = format!("{},0,{}", size / 4, size - size / 4);
        let way = (step.choice / 8) % 5;
        let (line, flags) = match way {
            0 if !plain_waits && size > 0 => (format!("read {slot} {size}"), "-"),
            1 if !plain_waits && size > 0 => (format!("readv {slot} {parts}"), "-"),
            2 => (format!("recvmsg {slot} {parts} {flags}"), flags),
            3 => (format!("recvfrom {slot} {size} {flags}"), flags),
            _ => (format!("recv {slot} {size} {flags}"), flags),
        };
        if size == 0 && plain_waits && !dont_wait {
            return;
        }
        self.line(who, &line);
        if !flags.contains("PEEK") {
            let side = &mut self.sides[who];
            side.pending -= size.min(side.pending);
        }
    }

    fn wait(&mut self, who: usize, step: Step) {
        let Some(slot) = self.slot(who, step.choice) else {
            return;
        };
        let mask = MASKS[usize::from(step.size) % MASKS.len()];
        let line = match step.choice % 6 {
            0 => format!("ppoll {slot}:{mask} 0"),
            1 => format!("select r={slot} w={slot} e={slot} 0"),
            2 if !self.sides[who].epoll => {
                self.sides[who].epoll = true;
                format!("epadd e {slot} {mask}")
            }
            2 => format!("epmod e {slot} {mask}"),
            3 => "epwait e 4 0".to_owned(),
            _ => format!("poll {slot}:{mask} 0"),
        };
        self.line(who, &line);
    }

    fn look(&mut self, who: usize, step: Step) {
        let Some(slot) = self.slot(who, step.choice) else {
            return;
        };
        let line = match step.size % 6 {
            0 => format!("getsockopt {slot} SO_ERROR"),
            1 => format!("getpeername {slot}"),
            2 => format!("fcntl {slot} GETFL"),
            3 => format!("getsockopt {slot} TCP_NODELAY"),
            4 => format!("wrong recv-fault {slot}"),
            _ => format!("ioctl {slot} FIONREAD"),
        };
        self.line(who, &line);
    }

    fn set(&mut self, who: usize, step: Step) {
        let Some(slot) = self.slot(who, step.choice) else {
            return;
        };
        let line = match step.size % 4 {
            0 => {
                self.sides[who].nonblocking = step.choice & 1 == 0;
                let flags = if self.sides[who].nonblocking {
                    "NONBLOCK"
                } else {
                    "-"
                };
                format!("fcntl {slot} SETFL {flags}")
            }
            1 => {
                self.sides[who].nonblocking = step.choice & 1 == 0;
                format!(
                    "ioctl {slot} FIONBIO {}",
                    u8::from(self.sides[who].nonblocking)
                )
            }
            2 => format!("setsockopt {slot} TCP_NODELAY {}", step.choice & 1),
            _ => format!("setsockopt {slot} SO_KEEPALIVE {}", step.choice & 1),
        };
        self.line(who, &line);
    }

    fn duplicate(&mut self, who: usize, step: Step) {
        match (self.sides[who].open, step.choice % 3) {
            ([true, false], _) => {
                self.line(who, "dupfd s d 300");
                self.sides[who].open[1] = true;
            }
            ([true, true], 0) => {
                self.line(who, "close s");
                self.sides[who].open[0] = false;
            }
            ([true, true], 1) => {
                self.line(who, "close d");
                self.sides[who].open[1] = false;
            }
            ([true, true], _) => self.line(who, "dup2 s d d"),
            _ => {}
        }
    }

    fn shut(&mut self, who: usize, step: Step) {
        let Some(slot) = self.slot(who, step.choice) else {
            return;
        };
        // Ends are rare, or programs would be short.
        let how = match step.choice % 16 {
            0 | 1 => "WR",
            2 => "RD",
            3 => "RDWR",
            _ => return,
        };
        self.line(who, &format!("shutdown {slot} {how}"));
        if self.sides[who].reset {
            return;
        }
        self.sides[who].deaf |= how != "WR";
        if how != "RD" && !self.sides[who].finished {
            self.sides[who].finished = true;
            self.settle(who);
        }
    }

    fn close(&mut self, who: usize, step: Step) {
        let abrupt = step.choice % 16 == 1;
        if step.choice % 16 > 2 || self.sides[who].open == [false; 2] {
            return;
        }
        if abrupt {
            let slot = self.slot(who, step.choice).unwrap_or("s");
            self.line(who, &format!("setsockopt {slot} SO_LINGER 1,0"));
        }
        for (at, slot) in ["s", "d"].into_iter().enumerate() {
            if self.sides[who].open[at] {
                self.line(who, &format!("close {slot}"));
                self.sides[who].open[at] = false;
            }
        }
        let over = self.sides[0].finished && self.sides[1].finished;
        if self.sides[who].reset || over {
            return;
        }
        let unread = self.sides[who].pending > 0;
        self.sides[who].finished = true;
        if abrupt || unread {
            self.sides[1 - who].reset = true;
        }
        self.settle(who);
    }

    fn step(&mut self, step: Step) {
        let who = usize::from(step.end);
        match step.kind % 16 {
            0..=4 => self.send(who, step),
            5..=9 => self.receive(who, step),
            10 | 11 => self.wait(who, step),
            12 => self.look(who, step),
            13 => self.set(who, step),
            14 => self.duplicate(who, step),
            _ if step.size.is_multiple_of(2) => self.shut(who, step),
            _ => self.close(who, step),
        }
    }
}

/// The script of these steps.
pub fn script(steps: &[Step]) -> String {
    let start = "connect\nwarm\na file f 10000\nb file f 10000\na epcreate e\nb epcreate e\n\
                 a handle PIPE ignore\nb handle PIPE ignore\n";
    let open = || Side {
        open: [true, false],
        ..Side::default()
    };
    let mut model = Model {
        sides: [open(), open()],
        text: start.to_owned(),
    };
    for step in steps {
        model.step(*step);
    }
    model.text
}
