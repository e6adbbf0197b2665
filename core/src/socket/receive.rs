//! recv, recvfrom, recvmsg, read, readv on a stream.
//!
//! The way of a received byte: the exported symbol (preload/) → [`Receive::step`] → the lane's ring, or the kernel's recv
//! with MSG_DONTWAIT limited to what the engine allows. Nothing here sleeps; see [`super::wait`].

use super::iov::{self, Cursor};
use super::stream::{self, Mode, Rx, Stream, flag};
use super::wait::{For, Sleep};
use super::{inflight::InFlight, incoming};
use crate::calls::Next;
use crate::link::Lane;
use crate::readiness::spin;
use crate::stream::{RecvState, TcpRead};
use crate::sys::{self, Errno, set_errno};
use core::sync::atomic::Ordering::*;
use libc::{c_int, iovec, msghdr, ssize_t};

/// A receive in progress.
pub struct Receive {
    fd: c_int,
    flags: c_int,
    cursor: Option<Cursor>,
    message: *mut msghdr,
    done: usize,
    sleep: Option<Sleep>,
    pin: Option<super::pin::Pin>,
}

enum Got {
    /// That many bytes more.
    Bytes(usize),
    /// The end of the direction.
    End,
    /// The call fails with this.
    Failed(c_int),
    /// Nothing now; where the next byte will come from.
    Nothing(From),
    /// Look again.
    Again,
}

#[derive(Clone, Copy)]
enum From {
    Tcp,
    Lane(Lane),
}

impl Receive {
    /// `iov` must stay valid while the operation lives.
    pub fn new(fd: c_int, iov: *const iovec, count: usize, flags: c_int) -> Self {
        // SAFETY: the exported function's caller vouches for its buffers as long as the call lasts.
        let cursor = unsafe { Cursor::new(iov, count) };
        Receive { fd, flags, cursor: Some(cursor), message: core::ptr::null_mut(), done: 0, sleep: None, pin: None }
    }

    /// For recvmsg: also fills in the output fields of `msg` when it returns.
    pub fn message(fd: c_int, msg: *mut msghdr, flags: c_int) -> Self {
        // SAFETY: the program's msghdr, as long as the call lasts.
        let cursor = unsafe { iov::of_message(msg) };
        Receive { fd, flags, cursor, message: msg, done: 0, sleep: None, pin: None }
    }

    /// What to do now.
    pub fn step(&mut self) -> Next<ssize_t> {
        let Some(s) = stream::of(self.fd) else { return Next::Kernel };
        match s.mode() {
            Mode::Plain => {
                if let Some(counted) = InFlight::receive(s) {
                    return Next::Counted(counted);
                }
                self.step()
            }
            Mode::Careful => self.careful(s),
            Mode::Foreign => self.pinned(s),
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

    fn pinned(&mut self, s: &'static Stream) -> Next<ssize_t> {
        let pin = self.pin.get_or_insert_with(|| super::pin::Pin::stream(s, crate::stats::Reason::PinnedCall));
        match pin.step() {
            Next::Wait(w) => Next::Wait(w),
            _ => Next::Kernel,
        }
    }

    fn careful(&mut self, s: &'static Stream) -> Next<ssize_t> {
        if self.flags & (libc::MSG_OOB | libc::MSG_ERRQUEUE) != 0 {
            return self.pinned(s);
        }
        // A null iovec list or message: the kernel knows the right error.
        let Some(mut cursor) = self.cursor else { return Next::Kernel };
        let wanted = cursor.left();
        if wanted == 0 && self.done == 0 {
            return Next::Kernel;
        }
        let blocking = !s.nonblocking.load(Relaxed) && self.flags & libc::MSG_DONTWAIT == 0;
        let peek = self.flags & libc::MSG_PEEK != 0;
        let all = self.flags & libc::MSG_WAITALL != 0;
        // SO_RCVLOWAT as the program set it; recv waits for that much, unless it wants less (socket(7)).
        let least = if all { wanted } else { wanted.min(s.low_water.load(Relaxed) as usize) };
        loop {
            match self.attempt(s, &mut cursor, peek, least) {
                Got::Bytes(n) => {
                    self.done += n;
                    if !peek {
                        self.cursor = Some(cursor);
                    }
                    if cursor.left() == 0 || peek || !all && self.done >= least {
                        return self.finish(self.done as ssize_t);
                    }
                }
                Got::Again => {
                    if s.mode() != Mode::Careful {
                        return if self.done > 0 { self.finish(self.done as ssize_t) } else { self.step() };
                    }
                }
                Got::End => return self.finish(self.done as ssize_t),
                Got::Failed(_) if self.done > 0 => return self.finish(self.done as ssize_t),
                Got::Failed(errno) => return self.fail(errno),
                Got::Nothing(from) => {
                    if !blocking {
                        return if self.done > 0 { self.finish(self.done as ssize_t) } else { self.fail(libc::EAGAIN) };
                    }
                    match self.block(s, from) {
                        Some(next) => return next,
                        None => continue,
                    }
                }
            }
        }
    }

    /// Nothing is there and the call blocks: spin, then sleep. None: look again.
    fn block(&mut self, s: &'static Stream, from: From) -> Option<Next<ssize_t>> {
        let sleep = self.sleep.get_or_insert_with(|| Sleep::new(s, For::Receive));
        if sleep.interrupted() {
            return Some(if self.done > 0 { self.finish(self.done as ssize_t) } else { self.fail(libc::EINTR) });
        }
        if sleep.timed_out() {
            return Some(if self.done > 0 { self.finish(self.done as ssize_t) } else { self.fail(libc::EAGAIN) });
        }
        let lane = match from {
            From::Lane(lane) => Some(lane),
            From::Tcp => None,
        };
        if sleep.armed() {
            return Some(Next::Wait(sleep.wait(libc::POLLIN | libc::POLLRDHUP)));
        }
        if let Some(lane) = lane {
            let position = s.view.rx_position.load(Relaxed);
            let news = || {
                lane.input.published() > position
                    || lane.input.left()
                    || s.view.rx.load(Acquire) & (flag::LOOK | flag::LANE) != flag::LANE
            };
            if spin::spin(&s.rx_spin, news) {
                return None;
            }
        }
        if !sleep.arm(lane) {
            crate::log::warn!("stream {}: no doorbell left, going back to TCP", self.fd);
            super::lanes::give_up(s, crate::stats::Reason::NoMemory);
        }
        // With the bell armed, look at everything once more.
        None
    }

    /// One look at everything that may have the next byte.
    #[inline]
    fn attempt(&mut self, s: &'static Stream, cursor: &mut Cursor, peek: bool, least: usize) -> Got {
        let Some(mut rx) = s.rx.lock() else { return Got::Failed(libc::EAGAIN) };
        if s.mode() != Mode::Careful {
            return Got::Again;
        }
        let got = self.attempt_locked(s, &mut rx, cursor, peek, least);
        drop(rx);
        // Only a change of carriers leaves something to be done outside of the lock.
        if s.view.tx.load(Acquire) & flag::LOOK != 0 {
            incoming::settle(s);
        }
        got
    }

    fn attempt_locked(&mut self, s: &'static Stream, rx: &mut Rx, cursor: &mut Cursor, peek: bool, least: usize) -> Got {
        let discard = self.flags & libc::MSG_TRUNC != 0;
        let mut looked = false;
        loop {
            let available = incoming::available(s, rx);
            if available > 0 {
                let need = least.saturating_sub(self.done) as u64;
                if available < need && !rx.engine.finished() && !looked && self.flags & libc::MSG_WAITALL == 0 {
                    return self.nothing(rx);
                }
                return Got::Bytes(take_from_lane(s, rx, cursor, available, peek, discard));
            }
            let back = rx.engine.pushback();
            if !back.is_empty() {
                let n = if discard { back.len().min(cursor.left()) } else { cursor.fill(back) };
                if !peek {
                    rx.engine.take_pushback(n);
                }
                incoming::refresh(s, rx);
                return Got::Bytes(n);
            }
            if rx.engine.at_eof() {
                incoming::refresh(s, rx);
                return Got::End;
            }
            if rx.engine.take_reset() {
                incoming::refresh(s, rx);
                return Got::Failed(libc::ECONNRESET);
            }
            if rx.engine.reset_taken() {
                return Got::End;
            }
            match rx.engine.tcp_read() {
                TcpRead::Data { max } => return self.from_tcp(s, rx, cursor, max),
                TcpRead::Control { .. } | TcpRead::Skip { .. } => {
                    let lane = s.view.rx.load(Acquire) & (flag::LANE | flag::LOOK) == flag::LANE;
                    let left = rx.lane.as_ref().is_some_and(|l| l.input.left());
                    if looked || lane && !left {
                        return self.nothing(rx);
                    }
                    looked = true;
                    let before = rx.engine.state();
                    incoming::pump(s, rx);
                    if rx.engine.state() != before {
                        looked = false;
                    }
                }
                TcpRead::Nothing => return self.nothing(rx),
            }
        }
    }

    fn nothing(&self, rx: &Rx) -> Got {
        match (rx.engine.tcp_read(), rx.lane) {
            (TcpRead::Control { .. }, Some(lane)) if rx.engine.state() == RecvState::Lane => Got::Nothing(From::Lane(lane)),
            _ => Got::Nothing(From::Tcp),
        }
    }

    fn from_tcp(&mut self, s: &Stream, rx: &mut Rx, cursor: &mut Cursor, max: u64) -> Got {
        let mut window = iov::EMPTY;
        let count = cursor.window(&mut window, usize::try_from(max).unwrap_or(usize::MAX));
        let mut message = sys::msg(window.as_mut_ptr(), count);
        let flags = (self.flags & !libc::MSG_WAITALL) | libc::MSG_DONTWAIT;
        match sys::recvmsg(s.fd(), &mut message, flags) {
            Ok(0) => {
                incoming::tcp_ended(s, rx);
                Got::Again
            }
            Ok(n) => {
                if self.flags & libc::MSG_PEEK == 0 {
                    rx.engine.tcp_data(n as u64);
                    s.view.rx_position.store(rx.engine.position().get(), Relaxed);
                }
                cursor.advance(n);
                Got::Bytes(n)
            }
            Err(Errno(libc::EAGAIN)) => Got::Nothing(From::Tcp),
            Err(Errno(libc::EINTR)) => Got::Again,
            Err(Errno(libc::ECONNRESET)) => {
                rx.engine.tcp_reset();
                Got::Again
            }
            Err(Errno(e)) => Got::Failed(e),
        }
    }

    fn finish(&mut self, n: ssize_t) -> Next<ssize_t> {
        if !self.message.is_null() {
            // SAFETY: the program's msghdr; TCP gives no name and no control data (tcp_recvmsg).
            unsafe {
                (*self.message).msg_namelen = 0;
                (*self.message).msg_controllen = 0;
                (*self.message).msg_flags = 0;
            }
        }
        Next::Return(n)
    }

    fn fail(&self, errno: c_int) -> Next<ssize_t> {
        set_errno(errno);
        Next::Return(-1)
    }
}

#[inline]
fn take_from_lane(s: &Stream, rx: &mut Rx, cursor: &mut Cursor, available: u64, peek: bool, discard: bool) -> usize {
    let Some(lane) = rx.lane else { return 0 };
    let from = rx.engine.position().get();
    let n = available.min(cursor.left() as u64) as usize;
    if discard {
        cursor.advance(n);
    } else {
        let mut at = from;
        cursor.each(n, |to, len| {
            // SAFETY: the program's buffer; the engine allowed these bytes.
            unsafe { lane.input.get(at, to, len) };
            at += len as u64;
        });
    }
    if !peek {
        let frozen = !rx.engine.lane_open();
        rx.engine.delivered(n as u64);
        let to = from + n as u64;
        s.view.rx_position.store(to, Relaxed);
        lane.link.consume(&lane.input, from, to);
        if let Some(flow) = rx.flow {
            flow.message(n as u64);
        }
        if frozen || rx.engine.at_eof() {
            incoming::refresh(s, rx);
        }
    }
    n
}
