//! send, sendto, sendmsg, write, writev on a stream.
//!
//! The way of a sent byte: the exported symbol (preload/) → [`Transmit::step`] → the lane's ring and
//! [`crate::link::Link::publish`], or the kernel's send with MSG_DONTWAIT. Nothing here sleeps; see [`super::wait`].

use super::iov::{self, Cursor};
use super::stream::{self, Mode, Stream, Tx, flag};
use super::wait::{For, Sleep};
use super::{inflight::InFlight, outgoing};
use crate::calls::Next;
use crate::link::Lane;
use crate::readiness::spin;
use crate::stream::SendState;
use crate::sys::{self, Errno, set_errno};
use core::sync::atomic::Ordering::*;
use libc::{c_int, iovec, msghdr, ssize_t};

/// How long a blocked send finds the ring full before the stream goes back to TCP, in nanoseconds. TCP's buffers grow to
/// megabytes; a program that writes so much before it reads must not wait for ever because a ring is smaller.
const STALL_NS: u64 = 100_000_000;

/// A send in progress.
pub struct Transmit {
    fd: c_int,
    flags: c_int,
    cursor: Option<Cursor>,
    control: bool,
    done: usize,
    sleep: Option<Sleep>,
    pin: Option<super::pin::Pin>,
    /// The peer's cursor when the ring was found full, and since when.
    stuck: Option<(u64, u64)>,
}

enum Put {
    Bytes(usize),
    Failed(c_int),
    /// The direction has ended: EPIPE.
    Ended,
    /// Only the kernel knows what to say.
    Kernel,
    Full(Option<Lane>),
    Again,
}

impl Transmit {
    /// `iov` must stay valid while the operation lives.
    pub fn new(fd: c_int, iov: *const iovec, count: usize, flags: c_int) -> Self {
        // SAFETY: the exported function's caller vouches for its buffers as long as the call lasts.
        let cursor = unsafe { Cursor::new(iov, count) };
        Transmit {
            fd,
            flags,
            cursor: Some(cursor),
            control: false,
            done: 0,
            sleep: None,
            pin: None,
            stuck: None,
        }
    }

    /// For sendmsg.
    pub fn message(fd: c_int, msg: *const msghdr, flags: c_int) -> Self {
        // SAFETY: the program's msghdr, as long as the call lasts.
        let cursor = unsafe { iov::of_message(msg) };
        // SAFETY: as above; null was sorted out.
        let control = cursor.is_some() && unsafe { (*msg).msg_controllen } > 0;
        Transmit {
            fd,
            flags,
            cursor,
            control,
            done: 0,
            sleep: None,
            pin: None,
            stuck: None,
        }
    }

    /// What to do now.
    pub fn step(&mut self) -> Next<ssize_t> {
        let Some(s) = stream::of(self.fd) else {
            return if self.done > 0 {
                Next::Return(self.done as ssize_t)
            } else {
                Next::Kernel
            };
        };
        match s.mode() {
            Mode::Careful => self.careful(s),
            // The program's call is half done: the kernel must not do it from the start.
            _ if self.done > 0 => self.rest(s),
            Mode::Plain => {
                if let Some(counted) = InFlight::send(s) {
                    return Next::Counted(counted);
                }
                self.step()
            }
            Mode::Foreign => self.pinned(s),
            Mode::Fresh if self.flags & libc::MSG_FASTOPEN != 0 => {
                s.connector.store(true, Relaxed);
                s.set_mode(Mode::Plain);
                Next::Kernel
            }
            Mode::Free | Mode::Fresh | Mode::Listener | Mode::Pinned => Next::Kernel,
        }
    }

    /// The result of the `ppoll` that `step` asked for (negative: `errno` is the failure).
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        if let Some(pin) = &mut self.pin {
            pin.woke(result, errno);
        } else if let Some(sleep) = &mut self.sleep {
            sleep.woke(result, errno);
        }
    }

    /// For sendfile, whose buffer moves: the bytes still to be sent are here now.
    pub fn aim(&mut self, iov: *const iovec, count: usize) {
        // SAFETY: valid until the next `step` returns, which is as long as it is used.
        self.cursor = Some(unsafe { Cursor::new(iov, count) });
        self.done = 0;
    }

    /// Bytes accepted since [`Transmit::aim`].
    pub fn accepted(&self) -> usize {
        self.done
    }

    fn pinned(&mut self, s: &'static Stream) -> Next<ssize_t> {
        let reason = if self.flags & libc::MSG_OOB != 0 {
            crate::stats::Reason::PinnedOob
        } else {
            crate::stats::Reason::PinnedCall
        };
        let pin = self
            .pin
            .get_or_insert_with(|| super::pin::Pin::stream(s, reason));
        match pin.step() {
            Next::Wait(w) => Next::Wait(w),
            _ => Next::Kernel,
        }
    }

    fn careful(&mut self, s: &'static Stream) -> Next<ssize_t> {
        if self.flags & (libc::MSG_OOB | libc::MSG_ZEROCOPY) != 0 || self.control {
            return self.pinned(s);
        }
        let Some(mut cursor) = self.cursor else {
            return Next::Kernel;
        };
        if cursor.nowhere() {
            // EFAULT, after what is in front of it.
            return self.pinned(s);
        }
        if cursor.left() == 0 && self.done == 0 {
            return Next::Kernel;
        }
        let blocking = !s.nonblocking.load(Relaxed) && self.flags & libc::MSG_DONTWAIT == 0;
        loop {
            match self.attempt(s, &mut cursor) {
                Put::Bytes(n) => {
                    self.done += n;
                    self.cursor = Some(cursor);
                    if cursor.left() == 0 {
                        return Next::Return(self.done as ssize_t);
                    }
                }
                Put::Again => {
                    if s.mode() != Mode::Careful {
                        return self.step();
                    }
                }
                Put::Kernel if self.done == 0 => return Next::Kernel,
                Put::Kernel => return Next::Return(self.done as ssize_t),
                Put::Ended => {
                    if self.done == 0 {
                        // Whoever has heard of a reset from the kernel notes it under this lock.
                        drop(s.rx.lock());
                        if let Some(errno) = s.take_error().filter(|e| *e != libc::EPIPE) {
                            return self.so_far(errno);
                        }
                    }
                    if self.done == 0 && self.flags & libc::MSG_NOSIGNAL == 0 {
                        sys::raise(libc::SIGPIPE);
                    }
                    return self.so_far(libc::EPIPE);
                }
                Put::Failed(errno) => return self.so_far(errno),
                Put::Full(lane) => {
                    if !blocking {
                        return self.so_far(libc::EAGAIN);
                    }
                    if let Some(next) = self.block(s, lane) {
                        return next;
                    }
                }
            }
        }
    }

    /// The stream went back to TCP in the middle of a call: sends what is left of it there.
    fn rest(&mut self, s: &'static Stream) -> Next<ssize_t> {
        let Some(mut cursor) = self.cursor else {
            return self.so_far(0);
        };
        let blocking = !s.nonblocking.load(Relaxed) && self.flags & libc::MSG_DONTWAIT == 0;
        loop {
            // An error is the next call's to report, so the kernel must not tell us.
            if cursor.left() == 0 || sys::poll_now(s.fd(), 0) & (libc::POLLERR | libc::POLLHUP) != 0
            {
                return self.so_far(0);
            }
            let counted = InFlight::send(s);
            match s.mode() {
                Mode::Plain if counted.is_none() => continue,
                Mode::Plain | Mode::Pinned => {}
                _ => return self.so_far(0),
            }
            let mut window = iov::EMPTY;
            let count = cursor.window(&mut window, usize::MAX);
            let message = sys::msg(window.as_mut_ptr(), count);
            match sys::sendmsg(
                s.fd(),
                &message,
                self.flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            ) {
                Ok(n) => {
                    if let Some(counted) = counted {
                        counted.finish(n as ssize_t);
                    }
                    self.done += n;
                    cursor.advance(n);
                    self.cursor = Some(cursor);
                }
                Err(Errno(libc::EINTR)) => {}
                Err(Errno(libc::EAGAIN)) if blocking => {
                    drop(counted);
                    if let Some(next) = self.block(s, None) {
                        return next;
                    }
                }
                Err(_) => return self.so_far(0),
            }
        }
    }

    fn so_far(&self, errno: c_int) -> Next<ssize_t> {
        if self.done > 0 {
            return Next::Return(self.done as ssize_t);
        }
        set_errno(errno);
        Next::Return(-1)
    }

    fn block(&mut self, s: &'static Stream, lane: Option<Lane>) -> Option<Next<ssize_t>> {
        let sleep = self.sleep.get_or_insert_with(|| Sleep::new(s, For::Send));
        if sleep.interrupted() {
            return Some(self.so_far(libc::EINTR));
        }
        if sleep.timed_out() {
            return Some(self.so_far(libc::EAGAIN));
        }
        let Some(lane) = lane else {
            return Some(Next::Wait(sleep.wait(libc::POLLOUT)));
        };
        let consumed = lane.out.consumed();
        let now = sys::now();
        match self.stuck {
            Some((at, since)) if at == consumed => {
                if now - since > STALL_NS {
                    self.stuck = None;
                    sleep.stop();
                    super::lanes::give_up(s, crate::stats::Reason::Stalled);
                    return None;
                }
            }
            _ => self.stuck = Some((consumed, now)),
        }
        if sleep.armed() {
            return Some(Next::Wait(sleep.wait_at_most(libc::POLLRDHUP, STALL_NS)));
        }
        let full_at = s
            .view
            .tx_position
            .load(Relaxed)
            .saturating_sub(lane.out.0.size());
        let news = || {
            lane.out.consumed() > full_at
                || s.view.tx.load(Acquire) & (flag::LOOK | flag::LANE | flag::END) != flag::LANE
        };
        if spin::spin(&s.tx_spin, news) {
            return None;
        }
        if !sleep.arm(Some(lane)) {
            super::lanes::give_up(s, crate::stats::Reason::NoMemory);
        }
        // With the bell armed, look once more.
        None
    }

    #[inline]
    fn attempt(&mut self, s: &'static Stream, cursor: &mut Cursor) -> Put {
        if s.view.tx.load(Acquire) & flag::LOOK != 0 {
            super::incoming::settle(s);
        }
        let Some(mut tx) = s.tx.lock() else {
            return Put::Failed(libc::EAGAIN);
        };
        if s.mode() != Mode::Careful {
            return Put::Again;
        }
        if s.peer_left.load(Acquire) && tx.engine.state() == SendState::Lane {
            outgoing::after_link(s, &mut tx);
        }
        let put = self.attempt_locked(s, &mut tx, cursor);
        let kick =
            tx.engine.state() == SendState::Tcp && tx.lane.is_some() && !tx.engine.lane_open();
        drop(tx);
        if kick {
            super::lanes::release_if_done(s);
        }
        put
    }

    fn attempt_locked(&mut self, s: &'static Stream, tx: &mut Tx, cursor: &mut Cursor) -> Put {
        if tx.engine.ended() {
            return Put::Ended;
        }
        loop {
            match tx.engine.state() {
                SendState::Lane => {
                    let n = into_lane(s, tx, cursor);
                    return match (n, tx.lane) {
                        (0, Some(lane)) if tx.engine.state() == SendState::Lane => {
                            s.view.full.fetch_add(1, AcqRel);
                            Put::Full(Some(lane))
                        }
                        (0, _) => continue,
                        (n, _) => Put::Bytes(n),
                    };
                }
                // The kernel's error, if it is not ours to report; then EPIPE.
                SendState::Dead if s.error_pending() => return Put::Ended,
                SendState::Dead => return Put::Kernel,
                SendState::TokenOut | SendState::Resuming | SendState::HopSent => {
                    if !outgoing::flush(s, tx) {
                        return Put::Full(None);
                    }
                }
                SendState::Tcp => {
                    if !tx.engine.control().is_empty() && !outgoing::flush(s, tx) {
                        return Put::Full(None);
                    }
                    if outgoing::may_hop(tx) {
                        let Some(first) = cursor.first() else {
                            return Put::Kernel;
                        };
                        outgoing::try_hop(s, tx, first);
                        if tx.engine.state() != SendState::Tcp {
                            continue;
                        }
                    }
                    return self.onto_tcp(s, tx, cursor);
                }
            }
        }
    }

    fn onto_tcp(&mut self, s: &Stream, tx: &mut Tx, cursor: &mut Cursor) -> Put {
        let Some(first) = cursor.first() else {
            return Put::Kernel;
        };
        let forbidden = tx.engine.forbidden_next();
        debug_assert!(forbidden.is_none_or(|b| self.done > 0 || b != first));
        let mut window = iov::EMPTY;
        let count = cursor.window(&mut window, usize::MAX);
        let message = sys::msg(window.as_mut_ptr(), count);
        match sys::sendmsg(
            s.fd(),
            &message,
            self.flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
        ) {
            Ok(n) => {
                tx.engine.wrote_tcp(n as u64);
                s.view
                    .tx_position
                    .store(tx.engine.position().get(), Relaxed);
                cursor.advance(n);
                Put::Bytes(n)
            }
            Err(Errno(libc::EAGAIN)) if forbidden.is_some() => {
                tx.engine.abandon_with(first);
                outgoing::refresh(s, tx);
                super::watch::update_with(s, true);
                cursor.advance(1);
                Put::Bytes(1)
            }
            Err(Errno(libc::EAGAIN)) => Put::Full(None),
            Err(Errno(libc::EINTR)) => Put::Again,
            Err(Errno(libc::EPIPE)) => Put::Ended,
            Err(Errno(e)) => {
                if self.done > 0 {
                    // The call returns what it has done; the next one tells (sk_stream_error leaves sk_err alone).
                    s.note_error(e);
                } else if e == libc::ECONNRESET {
                    s.error_told();
                }
                Put::Failed(e)
            }
        }
    }
}

/// Copies as much as there is room for, a piece at a time, so that the peer may read while we go on.
#[inline]
fn into_lane(s: &Stream, tx: &mut Tx, cursor: &mut Cursor) -> usize {
    let mut total = 0;
    while cursor.left() > 0 {
        let mut room = tx.engine.room();
        let want = (cursor.left() as u64).min(outgoing::chunk());
        if room < want {
            room = outgoing::room(s, tx);
        }
        let n = want.min(room) as usize;
        let Some(lane) = tx.lane else { break };
        if n == 0 {
            break;
        }
        let from = tx.engine.position().get();
        let mut at = from;
        cursor.each(n, |p, len| {
            // SAFETY: the program's buffer; the engine says that there is room.
            unsafe { lane.out.put(at, p, len) };
            at += len as u64;
        });
        tx.engine.accepted(n as u64);
        s.view.tx_position.store(at, Relaxed);
        lane.link.publish(&lane.out, at);
        total += n;
    }
    if total > 0
        && let Some(flow) = tx.flow
    {
        flow.message(total as u64);
    }
    total
}
