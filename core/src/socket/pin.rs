//! Putting a stream on TCP for good, before something that only the kernel's socket can do: urgent data, kTLS, stdio, passing
//! the descriptor on, exec. Both directions hop back; the peer's has to come back by its own RESUME, which is waited for.

use super::stream::{self, Mode, Stream, StreamId};
use super::{incoming, lanes, outgoing};
use crate::calls::{Next, Wait};
use crate::log::{debug, warn};
use crate::process::family;
use crate::stats::Reason;
use crate::stream::RecvState;
use crate::sys;
use core::sync::atomic::Ordering::*;
use libc::{c_int, pollfd};

/// Longest wait for the peer to come back, in nanoseconds. A peer that does not (stopped, or hostile) costs the connection:
/// an error, never silence.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How long is waited for the peer's resent bytes to be in our kernel, in nanoseconds.
const FILL_NS: u64 = 200_000_000;

/// A hop back in progress.
pub struct Pin {
    id: Option<StreamId>,
    reason: Reason,
    /// What the stream becomes at the end.
    then: Mode,
    started: Option<u64>,
    filling_since: Option<u64>,
}

impl Pin {
    /// Hop `fd` back, never hop it again, for a reason that the statistics will show.
    pub fn because(fd: c_int, reason: Reason) -> Self {
        Pin {
            id: stream::of(fd).map(Stream::id),
            reason,
            then: Mode::Pinned,
            started: None,
            filling_since: None,
        }
    }

    /// For a stream that is at hand.
    pub fn stream(s: &Stream, reason: Reason) -> Self {
        Pin {
            id: Some(s.id()),
            reason,
            then: Mode::Pinned,
            started: None,
            filling_since: None,
        }
    }

    /// What to do now. `Next::Kernel` means: it is on TCP.
    pub fn step(&mut self) -> Next<c_int> {
        let Some(s) = self.id.and_then(StreamId::stream) else {
            return Next::Kernel;
        };
        match s.mode() {
            Mode::Plain => {
                s.asked.store(true, Relaxed);
                s.stays_on_tcp(self.reason);
                s.set_mode(self.then);
                family::returned(s);
                Next::Kernel
            }
            Mode::Careful => self.back(s),
            Mode::Foreign => self.ask_owner(s),
            Mode::Free | Mode::Fresh | Mode::Listener | Mode::Pinned => Next::Kernel,
        }
    }

    fn late(&mut self) -> bool {
        let now = sys::now();
        now - *self.started.get_or_insert(now) > PATIENCE_NS
    }

    /// The socket's receive buffer may be too small for all that comes again.
    fn slow_to_fill(&mut self) -> bool {
        let now = sys::now();
        now - *self.filling_since.get_or_insert(now) > FILL_NS
    }

    fn back(&mut self, s: &'static Stream) -> Next<c_int> {
        if self.started.is_none() {
            debug!(
                "stream {}: going back to TCP for good ({})",
                s.fd(),
                self.reason.name()
            );
            lanes::give_up_unread(s, self.reason);
        }
        let late = self.late();
        let mut events = 0;
        let mut filling = false;
        if let Some(mut tx) = s.tx.lock()
            && !outgoing::flush(s, &mut tx)
        {
            events |= libc::POLLOUT;
        }
        if let Some(mut rx) = s.rx.lock() {
            incoming::pump(s, &mut rx);
            let ended = matches!(rx.engine.state(), RecvState::Eof | RecvState::Dead);
            match rx.engine.raw_with_floor() {
                _ if ended => {}
                None => events |= libc::POLLIN,
                // What comes again on TCP should be here before the kernel serves it: an end before that would look clean.
                Some(floor) => {
                    let there = sys::ioctl_int(s.fd(), libc::FIONREAD).unwrap_or(0) as u64;
                    filling = rx.engine.position() + there < floor && !self.slow_to_fill();
                }
            }
        }
        incoming::settle(s);
        if filling && events == 0 && !late {
            return wait(-1, 0, 1_000_000);
        }
        if events == 0 {
            lanes::release_if_done(s);
            s.stays_on_tcp(self.reason);
            super::options::pinned(s);
            s.set_mode(self.then);
            super::watch::update(s);
            family::returned(s);
            return Next::Kernel;
        }
        if late {
            warn!(
                "stream {}: the peer did not come back to TCP; resetting the connection",
                s.fd()
            );
            outgoing::abort(s.fd());
            s.set_mode(self.then);
            family::returned(s);
            return Next::Kernel;
        }
        wait(s.fd(), events, 1_000_000_000)
    }

    /// The stream's lane belongs to another process: have it hop back.
    fn ask_owner(&mut self, s: &'static Stream) -> Next<c_int> {
        match family::ask(s) {
            family::Answer::OnTcp => {
                s.set_mode(Mode::Pinned);
                s.stays_on_tcp(Reason::PinnedFork);
                Next::Kernel
            }
            family::Answer::OwnerGone => {
                warn!(
                    "stream {}: the process that had it on a lane is gone; resetting the connection",
                    s.fd()
                );
                outgoing::abort(s.fd());
                s.set_mode(Mode::Pinned);
                Next::Kernel
            }
            family::Answer::NotYet if self.late() => {
                warn!(
                    "stream {}: the process that has it on a lane does not answer; resetting the connection",
                    s.fd()
                );
                outgoing::abort(s.fd());
                s.set_mode(Mode::Pinned);
                Next::Kernel
            }
            family::Answer::NotYet => wait(-1, 0, 500_000),
        }
    }

    /// The sleep that `step` asked for is over.
    pub fn woke(&mut self, _result: c_int, _errno: c_int) {}
}

fn wait(fd: c_int, events: i16, ns: u64) -> Next<c_int> {
    const UNUSED: pollfd = pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    };
    Next::Wait(Wait {
        fds: [
            pollfd {
                fd,
                events,
                revents: 0,
            },
            UNUSED,
            UNUSED,
        ],
        count: 1,
        timeout: Some(sys::span(ns)),
    })
}

/// Before any exec, and before daemon(): streams that survive it hop back.
pub struct BeforeExec {
    next: i32,
    begun: bool,
    /// Also those that exec closes.
    all: bool,
    current: Option<Pin>,
}

impl Default for BeforeExec {
    fn default() -> Self {
        Self::new()
    }
}

impl BeforeExec {
    /// Before execve and kin, in the calling process: streams without close-on-exec.
    pub fn new() -> Self {
        BeforeExec {
            next: 0,
            begun: false,
            all: false,
            current: None,
        }
    }

    /// Before daemon(3), whose parent ends without a word to us.
    pub fn daemon() -> Self {
        BeforeExec {
            all: true,
            ..Self::new()
        }
    }

    fn survives(&self, fd: i32) -> bool {
        stream::of(fd).is_some_and(|s| matches!(s.mode(), Mode::Careful | Mode::Foreign))
            && (self.all
                || sys::fcntl(fd, libc::F_GETFD, 0)
                    .is_ok_and(|f| f & libc::FD_CLOEXEC as usize == 0))
    }

    /// What to do now. `Next::Kernel` means: go on.
    pub fn step(&mut self) -> Next<c_int> {
        if !self.begun {
            self.begun = true;
            // All at once: two ends of one connection in this process wait for each other.
            for (fd, _) in crate::table::entries(0, u32::MAX) {
                if self.survives(fd)
                    && let Some(s) = stream::of(fd)
                {
                    lanes::start_back(s, Reason::PinnedExec);
                }
            }
        }
        loop {
            if let Some(pin) = &mut self.current {
                if let Next::Wait(w) = pin.step() {
                    return Next::Wait(w);
                }
                self.current = None;
            }
            let found = crate::table::entries(self.next as u32, u32::MAX)
                .find(|(fd, _)| self.survives(*fd));
            let Some((fd, _)) = found else {
                return Next::Kernel;
            };
            self.next = fd + 1;
            self.current = Some(Pin::because(fd, Reason::PinnedExec));
        }
    }

    /// The sleep that `step` asked for is over.
    pub fn woke(&mut self, _result: c_int, _errno: c_int) {}
}
