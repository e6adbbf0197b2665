//! Two ends, what lies between them, and chance: a run from a seed to its verdict.

use rsock_core::stream::{RecvState, SendState};

use crate::end::{Check, End};
use crate::faults::Fault;
use crate::net::Net;
use crate::rng::Rng;

/// One step in so many brings something from outside, or a decision of a program.
const OUTSIDE: u64 = 8;

/// How a run is drawn: probabilities are in a thousand for each step, those of what comes
/// from outside in a hundred thousand.
#[derive(Clone, Copy)]
struct Weather {
    steps: u64,
    ring: u64,
    hop: u64,
    open: u64,
    plan: u64,
    receiver_close: u64,
    loss: u64,
    noticing: u64,
    reconnect: u64,
    kill: u64,
    rst: u64,
    shutdown: u64,
    close: u64,
    /// How eagerly the programs read.
    reading: [u64; 2],
    sending: [u64; 2],
    flushing: u64,
    link: u64,
    /// How soon a wait for an answer is over.
    impatience: u64,
}

impl Weather {
    fn draw(rng: &mut Rng) -> Self {
        let steps = rng.one_of(&[500, 2500, 6000]);
        let rare = |rng: &mut Rng, of_1000: u64, most: u64| match rng.permille(of_1000) {
            true => rng.within(1, most) * OUTSIDE * 100_000 / steps,
            false => 0,
        };
        Weather {
            steps,
            ring: rng.one_of(&[1, 2, 4, 8, 16, 64]),
            hop: rng.one_of(&[100, 500, 1000]),
            open: rng.one_of(&[100, 1000]),
            plan: rare(rng, 600, 6),
            receiver_close: rare(rng, 600, 6),
            loss: rare(rng, 400, 3),
            noticing: rng.one_of(&[50, 400]),
            reconnect: rng.one_of(&[100, 1000]),
            kill: rare(rng, 250, 1),
            rst: rare(rng, 100, 1),
            shutdown: rare(rng, 150, 1),
            close: rare(rng, 150, 1),
            reading: [rng.one_of(&[50, 300, 1000]), rng.one_of(&[50, 300, 1000])],
            sending: [rng.one_of(&[20, 200, 1000]), rng.one_of(&[20, 200, 1000])],
            flushing: rng.one_of(&[50, 300, 1000]),
            link: rng.one_of(&[100, 500, 1000]),
            impatience: rng.one_of(&[1, 5, 100]),
        }
    }
}

/// What a run went through, so that a test can tell that the runs go everywhere.
#[derive(Default, Clone, Copy, Debug)]
pub struct Seen {
    pub runs: u64,
    pub lane_bytes: u64,
    pub asked: u64,
    pub hops: u64,
    pub kills: u64,
    pub losses: u64,
    pub resets: u64,
    pub clean_ends: u64,
    pub lanes: u64,
    pub returns: u64,
    pub skips: u64,
    /// Readers that came back from the kernel with control bytes.
    pub strips: u64,
}

pub struct World {
    pub net: Net,
    pub ends: [End; 2],
    weather: Weather,
    pub seen: Seen,
}

impl World {
    pub fn new(seed: u64, fault: Fault, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let weather = Weather::draw(&mut rng);
        let memory = rng.permille(500);
        let capacity = [
            rng.one_of(&[1, 2, 5, 40, 200]),
            rng.one_of(&[1, 2, 5, 40, 200]),
        ];
        let budget = [0; 2].map(|_: u64| rng.one_of(&[0, 40, 400, 400, 4000, 4000]));
        World {
            net: Net::new(rng, memory, capacity, fault, trace),
            ends: [End::new(0, budget[0]), End::new(1, budget[1])],
            weather,
            seen: Seen::default(),
        }
    }

    /// The whole run; an error says what broke.
    pub fn run(&mut self) -> Check {
        for step in 0..self.weather.steps {
            if step % OUTSIDE == 0 {
                self.outside()?;
            }
            self.step()?;
        }
        self.settle()?;
        self.seen.runs = 1;
        self.seen.lanes = self.net.rings.len() as u64;
        for end in &self.ends {
            self.seen.clean_ends += u64::from(end.eof);
            self.seen.resets += u64::from(end.reset);
            self.seen.lane_bytes += end.lane_bytes;
            self.seen.strips += end.strips;
        }
        Ok(())
    }

    fn step(&mut self) -> Check {
        let e = self.net.rng.below(2) as usize;
        let w = self.weather;
        let (net, end) = (&mut self.net, &mut self.ends[e]);
        if net.killed[e] {
            return Ok(());
        }
        let before = (end.send.state(), end.recv.state());
        match net.rng.below(17) {
            0 | 1 if net.rng.permille(w.sending[e]) => end.program_sends(net, w.hop)?,
            2 | 3 if net.rng.permille(w.reading[e]) => end.program_receives(net)?,
            4 if net.rng.permille(w.flushing) && net.fault != Fault::NoBackgroundFlush => {
                end.flush(net);
            }
            5 | 6 if net.rng.permille(w.link) => end.read_link(net).map(|_| ())?,
            7 if net.rng.permille(w.link) => end.flush_link(net),
            8 => end.read_tcp(net, 1, false)?,
            9 => end.poll_consumed(net)?,
            10 => end.leave_kernel(net)?,
            11 if net.rng.permille(w.impatience) => end.give_hop_up(net),
            12 => end.tell_consumed(net),
            13 if net.rng.permille(300) => end.enter_kernel(net),
            14 => end.progress |= net.rng.permille(200) && end.send.nop(),
            15 if net.rng.permille(100) => end.end_lane(net),
            16 => end.orphan(net)?,
            _ => {}
        }
        self.observe(e, before);
        Ok(())
    }

    fn observe(&mut self, e: usize, before: (SendState, RecvState)) {
        let end = &self.ends[e];
        let after = (end.send.state(), end.recv.state());
        if before == after {
            return;
        }
        self.net
            .note(|| format!("end {e}: {before:?} -> {after:?}"));
        let to = |state| before.0 != state && after.0 == state;
        self.seen.asked += u64::from(to(SendState::HopSent));
        self.seen.hops += u64::from(to(SendState::Lane));
        self.seen.returns += u64::from(to(SendState::Resuming));
        self.seen.skips += u64::from(before.1 != RecvState::Skip && after.1 == RecvState::Skip);
    }

    /// What happens to a connection from outside, and what its programs decide.
    fn outside(&mut self) -> Check {
        let w = self.weather;
        let net = &mut self.net;
        let e = net.rng.below(2) as usize;
        let dead = net.killed[e];
        if net.rng.permille(w.open) && !net.killed[0] {
            self.ends[0].open(net, w.ring);
        }
        let hopped = self.ends[e].send.state() == SendState::Lane
            || matches!(self.ends[e].recv.state(), RecvState::Lane | RecvState::Skip);
        let worth = hopped || net.rng.permille(100);
        if net.rng.of_100_000(5 * w.plan) && !dead && worth {
            // A RESUME says as much as a CLOSE.
            let silent = matches!(
                self.ends[e].send.state(),
                SendState::TokenOut | SendState::Lane
            );
            let say = !silent || net.rng.permille(500);
            self.ends[e].close_lane(net, say);
        }
        let holds = self.ends[e].recv.lane_open() || self.ends[e].recv.state() == RecvState::Skip;
        if net.rng.of_100_000(5 * w.receiver_close) && worth && !dead && holds {
            net.note(|| format!("end {e} gives its unread ring up"));
            self.ends[e].recv.freeze_at_delivered();
            self.ends[e].close_lane(net, true);
        }
        if net.rng.of_100_000(w.loss) && net.up {
            self.seen.losses += 1;
            net.lose_link();
        }
        if net.rng.permille(w.noticing) && !dead {
            self.ends[e].notice_loss(net);
        }
        let noticed = self.ends[0].lost && self.ends[1].lost && net.killed == [false; 2];
        if noticed && net.rng.permille(w.reconnect) {
            net.reconnect();
            self.ends[0].lost = false;
            self.ends[1].lost = false;
        }
        if net.rng.of_100_000(w.kill) && !dead && !self.ends[e].finished {
            self.seen.kills += 1;
            let send = &self.ends[e].send;
            net.lost_byte[e] =
                u64::from(send.state() == SendState::Tcp && !send.control().is_empty());
            // Verbs: what is in a dead process's ring is gone, and only that.
            let in_ring = matches!(send.state(), SendState::Lane | SendState::Resuming);
            net.error_allowed[e] |= in_ring && !net.memory;
            net.kill(e);
            self.ends[e].finished = true;
        }
        if net.rng.of_100_000(w.rst) && !dead && !self.ends[e].finished {
            net.error_allowed = [true; 2];
            net.pipes[0].rst = true;
            net.pipes[1].rst = true;
            net.note(|| "somebody resets TCP".into());
        }
        if net.rng.of_100_000(w.shutdown) && !dead {
            self.ends[e].shutdown(net);
        }
        if net.rng.of_100_000(w.close) && !dead {
            self.ends[e].close(net)?;
        }
        Ok(())
    }

    /// Nothing happens from outside any more; whatever is under way has to come to its end.
    fn settle(&mut self) -> Check {
        self.net
            .note(|| "---- nothing new from here on ----".into());
        self.net.quiet = true;
        for e in 0..2 {
            if !self.net.killed[e] {
                self.ends[e].budget = 0;
                match self.net.rng.below(10) {
                    0..4 => self.ends[e].shutdown(&mut self.net),
                    4..6 => self.ends[e].close(&mut self.net)?,
                    _ => {}
                }
            }
        }
        for _ in 0..100_000 {
            let mut progress = false;
            for e in 0..2 {
                if !self.net.killed[e] {
                    self.work(e)?;
                    progress |= std::mem::take(&mut self.ends[e].progress);
                }
            }
            if !progress {
                return self.verdict();
            }
        }
        Err("the two ends keep each other busy for ever".into())
    }

    /// Everything that a driver does by itself, and a program that reads.
    fn work(&mut self, e: usize) -> Check {
        let (net, end) = (&mut self.net, &mut self.ends[e]);
        let before = (end.send.state(), end.recv.state());
        while end.read_link(net)? {}
        end.notice_loss(net);
        end.flush_link(net);
        if end.send.state() == SendState::HopSent || !end.waiting.is_empty() {
            // X elapses some time.
            if net.rng.permille(200) {
                end.give_hop_up(net);
            }
            end.progress = true;
        }
        end.poll_consumed(net)?;
        if net.fault != Fault::NoBackgroundFlush {
            end.flush(net);
        }
        if net.rng.permille(200) || end.send.drained() {
            end.end_lane(net);
        } else if end.ended && end.send.state() == SendState::Lane {
            end.progress = true;
        }
        end.leave_kernel(net)?;
        end.program_receives(net)?;
        end.read_tcp(net, 1, false)?;
        end.tell_consumed(net);
        end.orphan(net)?;
        self.observe(e, before);
        Ok(())
    }

    /// All is quiet: is everything where it belongs?
    fn verdict(&self) -> Check {
        if self.net.control_to_closed {
            return Err("a connection is reset for the sake of control bytes".into());
        }
        for (e, end) in self.ends.iter().enumerate() {
            if end.finished {
                continue;
            }
            let d = 1 - e;
            if end.closed && !end.send_failed {
                return Err(format!(
                    "end {e} closed, but never gets done: {:?}",
                    end.send
                ));
            }
            if end.closed || end.reset {
                continue;
            }
            let sent = self.net.log[d].len() as u64 - self.net.lost_byte[d];
            let x = end.recv.position().get();
            if x != sent {
                return Err(format!(
                    "end {e} waits for ever at {x} of {sent}: {:?}",
                    end.recv
                ));
            }
            if (self.net.ended[d] || self.net.killed[d]) && !end.eof {
                return Err(format!(
                    "end {e} waits for ever for the end at {x}: {:?}",
                    end.recv
                ));
            }
        }
        let both = self
            .ends
            .iter()
            .all(|end| !end.finished && !end.closed && !end.send_failed);
        if both && self.net.up {
            let open = self
                .ends
                .each_ref()
                .map(|end| (end.send.lane_open(), end.recv.lane_open()));
            if open != [(true, true); 2] && open != [(false, false); 2] {
                return Err(format!("the halves disagree on the lane: {open:?}"));
            }
        }
        Ok(())
    }
}

impl Seen {
    pub fn add(&mut self, other: &Seen) {
        self.runs += other.runs;
        self.lane_bytes += other.lane_bytes;
        self.asked += other.asked;
        self.hops += other.hops;
        self.kills += other.kills;
        self.losses += other.losses;
        self.resets += other.resets;
        self.clean_ends += other.clean_ends;
        self.lanes += other.lanes;
        self.returns += other.returns;
        self.skips += other.skips;
        self.strips += other.strips;
    }
}
