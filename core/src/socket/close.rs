//! close, dup, exit: where a stream's descriptors end. What was accepted arrives, or the peer gets an error (rule 4).

use super::pin::Pin;
use super::stream::{self, Mode, Stream, flag};
use super::{incoming, outgoing};
use crate::calls::{Next, Wait};
use crate::log::{debug, warn};
use crate::process::{background, family};
use crate::readiness::{self, registration};
use crate::stats::Reason;
use crate::stream::{Message, RecvState, SendState};
use crate::sys;
use crate::table::{self, Entry};
use core::sync::atomic::Ordering::*;
use libc::{c_int, pollfd};

/// How long exit waits for the kernel to take what is left, in nanoseconds; then the connection is reset.
const EXIT_PATIENCE_NS: u64 = 5_000_000_000;

/// How long the rest of a closed stream is waited for, in nanoseconds: as long as Linux keeps an orphan in FIN-WAIT-2
/// (tcp(7), tcp_fin_timeout).
const KEEP_NS: u64 = 60_000_000_000;
/// How long exit waits for a peer's control bytes once everything is in the kernel, in nanoseconds.
const EXIT_ANSWER_NS: u64 = 1_000_000_000;

/// A close in progress.
pub struct Close {
    fd: c_int,
    pin: Option<Pin>,
    /// CLOCK_MONOTONIC in ns until which SO_LINGER waits.
    linger: Option<u64>,
    begun: bool,
    /// The background thread finishes it.
    kept: bool,
}

impl Close {
    /// Before `close(fd)`.
    pub fn new(fd: c_int) -> Self {
        Close {
            fd,
            pin: None,
            linger: None,
            begun: false,
            kept: false,
        }
    }

    /// What to do now. `Next::Kernel` means: close it now.
    pub fn step(&mut self) -> Next<c_int> {
        if !crate::process::is_this() {
            return Next::Kernel;
        }
        match table::get(self.fd) {
            Entry::Epoll(_) => {
                readiness::instance::closed(self.fd);
                Next::Kernel
            }
            Entry::Stream(_) => match stream::of(self.fd) {
                Some(s) => self.stream(s),
                None => Next::Kernel,
            },
            Entry::None | Entry::Internal => Next::Kernel,
        }
    }

    /// As for [`super::receive::Receive::woke`].
    pub fn woke(&mut self, _result: c_int, _errno: c_int) {}

    fn stream(&mut self, s: &'static Stream) -> Next<c_int> {
        if s.refs.load(Acquire) > 1 {
            one_less(s, self.fd);
            return Next::Kernel;
        }
        if s.shared.load(Acquire) {
            // A fork child may go on with it: hop back, without an end of any kind (H25).
            if s.mode() == Mode::Careful || self.pin.is_some() {
                let pin = self
                    .pin
                    .get_or_insert_with(|| Pin::stream(s, Reason::PinnedFork));
                if let Next::Wait(w) = pin.step() {
                    return Next::Wait(w);
                }
            }
            family::leave(s);
        } else if s.mode() == Mode::Careful
            && let Some(wait) = self.leave(s)
        {
            return Next::Wait(wait);
        }
        // A stream that was kept is the background thread's from that moment on, and may be another one by now.
        if !self.kept {
            forget(s, self.fd);
        }
        Next::Kernel
    }

    /// Takes a careful stream off its lane; Some: wait and come again.
    fn leave(&mut self, s: &'static Stream) -> Option<Wait> {
        let none = libc::linger {
            l_onoff: 0,
            l_linger: 0,
        };
        let (linger, _) =
            sys::getsockopt(self.fd, libc::SOL_SOCKET, libc::SO_LINGER, none).unwrap_or((none, 0));
        if !self.begun {
            self.begun = true;
            if linger.l_onoff != 0 && linger.l_linger > 0 && !s.nonblocking.load(Relaxed) {
                self.linger = Some(sys::now() + linger.l_linger as u64 * 1_000_000_000);
            }
            if unread(s) || linger.l_onoff != 0 && linger.l_linger == 0 {
                // As TCP: whoever closes with unread data, or asks for it, resets (RFC 2525, 2.17; socket(7)).
                reset(s);
                return None;
            }
        }
        let (flushed, answered) = depart(s);
        if flushed && answered {
            return None;
        }
        if self.linger.is_some_and(|until| sys::now() < until) {
            const UNUSED: pollfd = pollfd {
                fd: -1,
                events: 0,
                revents: 0,
            };
            let events = if flushed { libc::POLLIN } else { libc::POLLOUT };
            let first = pollfd {
                fd: self.fd,
                events,
                revents: 0,
            };
            return Some(Wait {
                fds: [first, UNUSED, UNUSED],
                count: 1,
                timeout: Some(sys::span(100_000_000)),
            });
        }
        self.kept = keep(s, self.fd);
        None
    }
}

/// Goes back to TCP with both directions, and ends the sending one behind its last byte. What is still missing before the
/// socket may be closed: (everything owed is in the kernel, the peer's control bytes have come). A socket that is closed before
/// the latter answers them with a reset, which throws away what the peer's kernel has not got yet (H40).
fn depart(s: &Stream) -> (bool, bool) {
    let flushed = s.tx.lock().is_none_or(|mut tx| {
        outgoing::resume(s, &mut tx, true);
        // The kernel may have to take a whole ring at once, for nobody is there to wait for it.
        outgoing::flush(s, &mut tx) || outgoing::widen(s, &tx) && outgoing::flush(s, &mut tx)
    });
    let answered = s.rx.lock().is_none_or(|mut rx| {
        rx.engine.freeze();
        incoming::pump(s, &mut rx);
        !rx.engine.awaits_control()
            || s.tx
                .try_lock()
                .is_some_and(|tx| tx.engine.state() == SendState::Dead)
    });
    (flushed, answered)
}

/// Whether the program leaves bytes unread.
fn unread(s: &Stream) -> bool {
    let Some(mut rx) = s.rx.lock() else {
        return false;
    };
    // Control bytes in TCP are not the program's, and would turn the kernel's close into a reset.
    incoming::pump(s, &mut rx);
    if rx.engine.state() == RecvState::Dead {
        return false;
    }
    !rx.engine.pushback().is_empty()
        || incoming::available(s, &mut rx) > 0
        || super::options::in_tcp(s, &rx) > 0
}

/// The connection ends in a reset when its descriptor is closed.
fn reset(s: &Stream) {
    // The kernel refuses only for a socket that is gone, which needs no reset.
    let _ = sys::setsockopt(
        s.fd(),
        libc::SOL_SOCKET,
        libc::SO_LINGER,
        libc::linger {
            l_onoff: 1,
            l_linger: 0,
        },
    );
    if let Some(mut tx) = s.tx.lock() {
        tx.engine.reset();
        if let Some(lane) = &tx.lane {
            lane.link.send(&Message::Close { lane: lane.id }, None);
        }
        outgoing::refresh(s, &tx);
    }
}

/// One descriptor number less.
fn one_less(s: &Stream, fd: c_int) {
    table::clear(fd);
    s.refs.fetch_sub(1, AcqRel);
    if s.fd() == fd
        && let Some((other, _)) =
            table::entries(0, u32::MAX).find(|(_, e)| *e == Entry::Stream(s.index))
    {
        super::watch::moved(s, fd, other);
        s.set_fd(other);
    }
}

/// The kernel has not taken everything: a duplicate of our own (true, unless there are no descriptors left) keeps the connection until the background thread is done.
fn keep(s: &Stream, fd: c_int) -> bool {
    match sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).and_then(|n| sys::move_high(n as c_int)) {
        Ok(kept) => {
            debug!("stream {fd}: closed by the program with bytes to send; kept as {kept}");
            table::set_internal(kept);
            registration::closed(s, true);
            super::watch::moved(s, fd, kept);
            table::clear(fd);
            s.set_fd(kept);
            s.keep_until.store(sys::now() + KEEP_NS, Release);
            s.kept.store(kept, Release);
            super::watch::update_with(s, true);
            background::keep(s);
            true
        }
        Err(e) => {
            warn!(
                "stream {fd}: no descriptor to finish sending with (error {}): resetting",
                e.0
            );
            reset(s);
            false
        }
    }
}

/// One of our descriptors has another number: it may be a duplicate that [`keep`] made.
pub fn moved(fd: c_int, new: c_int) {
    if let Some(s) = stream::all().find(|s| s.kept.load(Acquire) == fd) {
        crate::process::renumber(&s.kept, fd, new);
        super::watch::moved(s, fd, new);
        s.set_fd(new);
    }
}

/// The background thread looks after a stream that the program closed: true when it is gone, or not one of these.
pub fn finish_if_done(s: &Stream) -> bool {
    let kept = s.kept.load(Acquire);
    if kept < 0 || s.mode() != Mode::Careful {
        return true;
    }
    let late = sys::now() > s.keep_until.load(Acquire);
    if depart(s) != (true, true) && !late {
        return false;
    }
    if s.kept.swap(-1, AcqRel) == kept {
        if late {
            debug!("stream {kept}: the peer does not answer, resetting");
            reset(s);
        }
        table::clear(kept);
        super::watch::forget(s);
        release(s);
        sys::close(kept);
        s.end();
    }
    true
}

/// Frees what a stream has, whatever its state.
fn release(s: &Stream) {
    // Taken out under both locks: a lane is freed once, for its place may be another stream's a moment later.
    let lane = {
        let (tx, rx) = (s.tx.lock(), s.rx.lock());
        let sent = tx.and_then(|mut tx| tx.lane.take());
        rx.and_then(|mut rx| rx.lane.take()).or(sent)
    };
    s.view.hide_lane();
    if let Some(lane) = lane {
        lane.link.send(&Message::Close { lane: lane.id }, None);
        if let Some(link) = crate::link::memory::get(lane.link.index()) {
            link.free_lane(lane.id);
        }
    }
}

/// The program's last descriptor of a stream goes: the slot is free for another one.
pub fn forget(s: &Stream, fd: c_int) {
    registration::closed(s, false);
    super::watch::forget(s);
    table::clear(fd);
    if !matches!(s.mode(), Mode::Foreign) {
        release(s);
    }
    s.end();
}

/// `new` is a duplicate of `old`.
pub fn duplicated(old: c_int, new: c_int) {
    match table::get(old) {
        Entry::Stream(index) => {
            if let Some(s) = stream::of(old) {
                if !crate::process::is_this() {
                    return;
                }
                s.refs.fetch_add(1, AcqRel);
                if !table::set(new, Entry::Stream(index)) {
                    s.refs.fetch_sub(1, AcqRel);
                }
            }
        }
        Entry::Epoll(_) if crate::process::is_this() => readiness::instance::duplicated(old, new),
        Entry::Epoll(_) | Entry::None | Entry::Internal => {}
    }
}

/// close_range(first, last, flags) with everything of ours spared. None: nothing of ours is there.
pub fn close_range(first: u32, last: u32, flags: c_int) -> Option<c_int> {
    const CLOEXEC: c_int = libc::CLOSE_RANGE_CLOEXEC as c_int;
    if first > last || !crate::process::is_this() {
        return None;
    }
    table::entries(first, last).next()?;
    let mut from = first;
    let range = |from: u32, to: u32| {
        if from > to {
            return Ok(());
        }
        sys::close_range(from, to, flags)
    };
    for (fd, entry) in table::entries(first, last) {
        let at = fd as u32;
        match entry {
            Entry::Internal => {
                if at > from
                    && let Err(e) = range(from, at - 1)
                {
                    sys::set_errno(e.0);
                    return Some(-1);
                }
                from = at + 1;
            }
            _ if flags & CLOEXEC != 0 => {}
            Entry::Stream(_) | Entry::Epoll(_) => run(Close::new(fd)),
            Entry::None => {}
        }
    }
    if let Err(e) = range(from, last) {
        sys::set_errno(e.0);
        return Some(-1);
    }
    Some(0)
}

/// Runs a close up to where the kernel has to close: sleeps here, bounded by SO_LINGER and the patience of [`Pin`].
fn run(mut close: Close) {
    while let Next::Wait(mut w) = close.step() {
        // A signal or a time-out: look again either way.
        let _ = sys::poll(&mut w.fds[..w.count as usize], w.timeout);
    }
}

/// The process ends: every stream goes the way of close, and what the kernel does not take at once is waited for.
pub fn at_exit() {
    if !crate::process::is_this() {
        return;
    }
    let until = sys::now() + EXIT_PATIENCE_NS;
    for s in stream::all().filter(|s| s.mode() == Mode::Careful) {
        if s.shared.load(Acquire) {
            let mut pin = Pin::stream(s, Reason::PinnedFork);
            while let Next::Wait(mut w) = pin.step() {
                let _ = sys::poll(&mut w.fds[..w.count as usize], w.timeout);
            }
            family::leave(s);
            continue;
        }
        if s.view.rx.load(Acquire) & (flag::LANE | flag::BETWEEN) != 0 && unread(s) {
            reset(s);
            continue;
        }
        let mut answer_by = None;
        loop {
            let now = sys::now();
            let (flushed, answered) = depart(s);
            let until = if flushed {
                *answer_by.get_or_insert(now + EXIT_ANSWER_NS)
            } else {
                until
            };
            if flushed && answered {
                break;
            }
            if now >= until {
                if !flushed {
                    warn!(
                        "stream {}: the peer does not read, resetting at exit",
                        s.fd()
                    );
                    reset(s);
                }
                break;
            }
            let events = if flushed { libc::POLLIN } else { libc::POLLOUT };
            let mut one = [pollfd {
                fd: s.fd(),
                events,
                revents: 0,
            }];
            let _ = sys::poll(&mut one, Some(sys::span(until - now)));
        }
    }
}
