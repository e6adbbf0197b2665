//! recv, recvfrom, recvmsg, read, readv on a stream.
//!
//! The way of a received byte: the exported symbol (preload/) → [`Receive::step`] → the lane's ring, or the kernel's recv
//! with MSG_DONTWAIT limited to what the engine allows. Nothing here sleeps; see [`super::wait`].

use super::iov::{self, Cursor};
use super::stream::{self, Mode, Rx, Stream, flag};
use super::wait::{For, Sleep};
use super::{incoming, inflight::InFlight};
use crate::calls::Next;
use crate::link::Lane;
use crate::readiness::spin;
use crate::stream::{RecvState, TcpRead};
use crate::sys::{self, Errno, set_errno};
use core::sync::atomic::Ordering::*;
use libc::{c_int, iovec, msghdr, ssize_t};

const SIOCATMARK: u64 = 0x8905;

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
    /// That many bytes more; true: those behind them come from another carrier, which may have them already.
    Bytes(usize, bool),
    /// The end of the direction.
    End,
    /// The call fails with this.
    Failed(c_int),
    /// Nothing now; where the next byte will come from.
    Nothing(From),
    /// Look again.
    Again,
    /// Only the kernel can do it: a look at bytes of several carriers.
    Pin,
}

#[derive(Clone, Copy)]
enum From {
    Tcp,
    /// From there on, not before the lane has more than up to this position.
    Lane(Lane, u64),
}

/// What a wait for several bytes can wait for in a ring of `size` bytes: a peer that polls for room stops when less than a
/// quarter is free.
pub fn most(size: u64) -> u64 {
    size - size / 4
}

impl Receive {
    /// `iov` must stay valid while the operation lives.
    pub fn new(fd: c_int, iov: *const iovec, count: usize, flags: c_int) -> Self {
        // SAFETY: the exported function's caller vouches for its buffers as long as the call lasts.
        let cursor = unsafe { Cursor::new(iov, count) };
        Receive {
            fd,
            flags,
            cursor: Some(cursor),
            message: core::ptr::null_mut(),
            done: 0,
            sleep: None,
            pin: None,
        }
    }

    /// For recvmsg: also fills in the output fields of `msg` when it returns.
    pub fn message(fd: c_int, msg: *mut msghdr, flags: c_int) -> Self {
        // SAFETY: the program's msghdr, as long as the call lasts.
        let cursor = unsafe { iov::of_message(msg) };
        Receive {
            fd,
            flags,
            cursor,
            message: msg,
            done: 0,
            sleep: None,
            pin: None,
        }
    }

    /// What to do now.
    pub fn step(&mut self) -> Next<ssize_t> {
        let Some(s) = stream::of(self.fd) else {
            return if self.done > 0 {
                self.finish(self.done as ssize_t)
            } else {
                Next::Kernel
            };
        };
        match s.mode() {
            Mode::Careful => self.careful(s),
            // The program's call is half done: the kernel must not do it from the start.
            _ if self.done > 0 => self.rest(s),
            Mode::Plain => {
                if let Some(counted) = InFlight::receive(s) {
                    return Next::Counted(counted);
                }
                self.step()
            }
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
        let pin = self
            .pin
            .get_or_insert_with(|| super::pin::Pin::stream(s, crate::stats::Reason::PinnedCall));
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
        let Some(mut cursor) = self.cursor else {
            return Next::Kernel;
        };
        if cursor.nowhere() && self.flags & libc::MSG_TRUNC == 0 {
            // EFAULT, after what fits in front of it.
            return self.pinned(s);
        }
        let wanted = cursor.left();
        let blocking = !s.nonblocking.load(Relaxed) && self.flags & libc::MSG_DONTWAIT == 0;
        let peek = self.flags & libc::MSG_PEEK != 0;
        // Who does not wait takes what is there (tcp_recvmsg).
        let all = self.flags & libc::MSG_WAITALL != 0 && blocking;
        // SO_RCVLOWAT as the program set it; recv waits for that much, unless it wants less (socket(7)).
        let least = if !blocking {
            0
        } else if all {
            wanted
        } else {
            wanted.min(s.low_water.load(Relaxed) as usize)
        };
        loop {
            match self.attempt(s, &mut cursor, peek, least) {
                Got::Bytes(n, more) => {
                    self.done += n;
                    if !peek {
                        self.cursor = Some(cursor);
                    }
                    if cursor.left() == 0 || peek || !more && !all && self.done >= least {
                        return self.finish(self.done as ssize_t);
                    }
                }
                Got::Again => {
                    if s.mode() != Mode::Careful {
                        return self.step();
                    }
                }
                Got::Pin if self.done > 0 => return self.finish(self.done as ssize_t),
                Got::Pin => return self.pinned(s),
                Got::End => return self.finish(self.done as ssize_t),
                Got::Failed(_) if self.done > 0 => return self.finish(self.done as ssize_t),
                Got::Failed(errno) => return self.fail(errno),
                Got::Nothing(_) if self.done > 0 && !all && self.done >= least => {
                    return self.finish(self.done as ssize_t);
                }
                Got::Nothing(from) => {
                    if !blocking {
                        return if self.done > 0 {
                            self.finish(self.done as ssize_t)
                        } else {
                            self.fail(libc::EAGAIN)
                        };
                    }
                    match self.block(s, from, cursor.left()) {
                        Some(next) => return next,
                        None => continue,
                    }
                }
            }
        }
    }

    /// The stream went back to TCP in the middle of a call that waits for more: receives the rest there.
    fn rest(&mut self, s: &'static Stream) -> Next<ssize_t> {
        let Some(mut cursor) = self.cursor else {
            return self.finish(self.done as ssize_t);
        };
        let blocking = !s.nonblocking.load(Relaxed) && self.flags & libc::MSG_DONTWAIT == 0;
        let all = self.flags & libc::MSG_WAITALL != 0 && blocking;
        loop {
            // An error is the next call's to report, so the kernel must not tell us.
            let broken = sys::poll_now(s.fd(), 0) & libc::POLLERR != 0;
            if cursor.left() == 0 || !all || broken {
                return self.finish(self.done as ssize_t);
            }
            let counted = InFlight::receive(s);
            match s.mode() {
                Mode::Plain if counted.is_none() => continue,
                Mode::Plain | Mode::Pinned => {}
                _ => return self.finish(self.done as ssize_t),
            }
            let mut window = iov::EMPTY;
            let count = cursor.window(&mut window, usize::MAX);
            let mut message = sys::msg(window.as_mut_ptr(), count);
            match sys::recvmsg(
                s.fd(),
                &mut message,
                (self.flags & !libc::MSG_WAITALL) | libc::MSG_DONTWAIT,
            ) {
                Ok(0) => return self.finish(self.done as ssize_t),
                Ok(n) => {
                    if let Some(counted) = counted {
                        counted.finish(n as ssize_t);
                    }
                    self.done += n;
                    cursor.advance(n);
                    self.cursor = Some(cursor);
                }
                Err(Errno(libc::EINTR)) => {}
                Err(Errno(libc::EAGAIN)) => {
                    drop(counted);
                    if let Some(next) = self.block(s, From::Tcp, cursor.left()) {
                        return next;
                    }
                }
                Err(_) => return self.finish(self.done as ssize_t),
            }
        }
    }

    /// Nothing is there and the call blocks: spin, then sleep. None: look again.
    fn block(&mut self, s: &'static Stream, from: From, wanted: usize) -> Option<Next<ssize_t>> {
        let sleep = self
            .sleep
            .get_or_insert_with(|| Sleep::new(s, For::Receive));
        if sleep.interrupted() {
            return Some(if self.done > 0 {
                self.finish(self.done as ssize_t)
            } else {
                self.fail(libc::EINTR)
            });
        }
        if sleep.timed_out() {
            return Some(if self.done > 0 {
                self.finish(self.done as ssize_t)
            } else {
                self.fail(libc::EAGAIN)
            });
        }
        let lane = match from {
            From::Lane(lane, seen) => Some((lane, seen)),
            From::Tcp => None,
        };
        if sleep.armed() {
            return Some(Next::Wait(sleep.wait(libc::POLLIN | libc::POLLRDHUP)));
        }
        if lane.is_none() && wanted < s.low_water.load(Relaxed) as usize {
            // The kernel would wake us for more only.
            super::options::relax(s);
        }
        if let Some((lane, seen)) = lane {
            let news = || {
                lane.input.published() > seen
                    || lane.input.left()
                    || s.view.rx.load(Acquire) & (flag::LOOK | flag::LANE) != flag::LANE
            };
            if spin::spin(&s.rx_spin, news) {
                return None;
            }
        }
        if !sleep.arm(lane.map(|(lane, _)| lane)) {
            crate::log::warn!("stream {}: no doorbell left, going back to TCP", self.fd);
            super::lanes::give_up(s, crate::stats::Reason::NoMemory);
            // What the peer then does arrives on TCP.
            return Some(Next::Wait(sleep.wait(libc::POLLIN | libc::POLLRDHUP)));
        }
        // With the bell armed, look at everything once more.
        None
    }

    /// One look at everything that may have the next byte.
    #[inline]
    fn attempt(
        &mut self,
        s: &'static Stream,
        cursor: &mut Cursor,
        peek: bool,
        least: usize,
    ) -> Got {
        let Some(mut rx) = s.rx.lock() else {
            return Got::Failed(libc::EAGAIN);
        };
        if s.mode() != Mode::Careful {
            return Got::Again;
        }
        let got = self.attempt_locked(s, &mut rx, cursor, peek, least);
        drop(rx);
        // Only a change of carriers leaves something to be done outside of the lock.
        if s.view.tx.load(Acquire) & flag::LOOK != 0 {
            incoming::settle(s);
        }
        if super::lanes::idle(s) {
            super::lanes::uncareful(s);
        }
        got
    }

    fn attempt_locked(
        &mut self,
        s: &'static Stream,
        rx: &mut Rx,
        cursor: &mut Cursor,
        peek: bool,
        least: usize,
    ) -> Got {
        let discard = self.flags & libc::MSG_TRUNC != 0;
        let mut looked = false;
        loop {
            let available = incoming::available(s, rx);
            if available > 0 {
                let need = least.saturating_sub(self.done) as u64;
                let whole = peek || self.flags & libc::MSG_WAITALL == 0;
                if available < need && whole && !rx.engine.finished() && rx.engine.lane_open() {
                    if !looked {
                        looked = true;
                        incoming::pump(s, rx);
                        continue;
                    }
                    match rx.lane {
                        Some(lane) if available < most(lane.input.0.size()) => {
                            return Got::Nothing(From::Lane(
                                lane,
                                rx.engine.position().get() + available,
                            ));
                        }
                        _ if peek => return Got::Pin,
                        _ => {}
                    }
                }
                let n = take_from_lane(s, rx, cursor, available, peek, discard);
                return Got::Bytes(n, !rx.engine.lane_open());
            }
            let back = rx.engine.pushback();
            if !back.is_empty() {
                let mut n = if discard {
                    let n = back.len().min(cursor.left());
                    cursor.advance(n);
                    n
                } else {
                    cursor.fill(back)
                };
                if !peek {
                    rx.engine.take_pushback(n);
                } else {
                    if cursor.left() > 0 && rx.engine.state() == RecvState::Raw {
                        let mut window = iov::EMPTY;
                        let count = cursor.window(&mut window, usize::MAX);
                        let mut message = sys::msg(window.as_mut_ptr(), count);
                        // An error or end is told when it is the next thing to tell.
                        let more =
                            sys::recvmsg(s.fd(), &mut message, libc::MSG_PEEK | libc::MSG_DONTWAIT)
                                .unwrap_or(0);
                        cursor.advance(more);
                        n += more;
                    }
                    if n < least {
                        return Got::Pin;
                    }
                }
                incoming::refresh(s, rx);
                return Got::Bytes(n, true);
            }
            if rx.engine.at_eof() {
                incoming::refresh(s, rx);
                return Got::End;
            }
            if rx.engine.reset_due() || rx.engine.reset_taken() {
                if self.done > 0 {
                    return Got::End;
                }
                rx.engine.take_reset();
                let told = s.take_error();
                incoming::refresh(s, rx);
                return told.map_or(Got::End, Got::Failed);
            }
            match rx.engine.tcp_read() {
                TcpRead::Data { max } => return self.receive_from_tcp(s, rx, cursor, max, least),
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
            (TcpRead::Control { .. }, Some(lane)) if rx.engine.state() == RecvState::Lane => {
                Got::Nothing(From::Lane(lane, rx.engine.position().get()))
            }
            _ => Got::Nothing(From::Tcp),
        }
    }

    fn receive_from_tcp(
        &mut self,
        s: &Stream,
        rx: &mut Rx,
        cursor: &mut Cursor,
        max: u64,
        least: usize,
    ) -> Got {
        let mut window = iov::EMPTY;
        let count = cursor.window(&mut window, usize::try_from(max).unwrap_or(usize::MAX));
        let mut message = sys::msg(window.as_mut_ptr(), count);
        let flags = (self.flags & !libc::MSG_WAITALL) | libc::MSG_DONTWAIT;
        if count == 0 {
            return self.nothing_wanted(s, rx);
        }
        if self.done > 0 && sys::ioctl_int(s.fd(), SIOCATMARK).is_ok_and(|at| at == 1) {
            // Bytes in front of the urgent mark and behind it never come together (tcp(7)).
            return Got::End;
        }
        let peek = self.flags & libc::MSG_PEEK != 0;
        match sys::recvmsg(s.fd(), &mut message, flags) {
            Ok(0) => {
                incoming::tcp_ended(s, rx);
                Got::Again
            }
            Ok(n) if peek && n < least => Got::Pin,
            Ok(n) => {
                if !peek {
                    rx.engine.tcp_data(n as u64);
                    s.view
                        .rx_position
                        .store(rx.engine.position().get(), Relaxed);
                }
                cursor.advance(n);
                Got::Bytes(n, n as u64 == max)
            }
            // The kernel hears of shutdown(SHUT_RD) late.
            Err(Errno(libc::EAGAIN)) if rx.engine.is_shut() => Got::End,
            Err(Errno(libc::EAGAIN)) => Got::Nothing(From::Tcp),
            Err(e) => self.tcp_failed(s, rx, e),
        }
    }

    /// recv with a length of 0 waits as any other, then takes nothing (tcp_recvmsg). The kernel's own answer to one would not
    /// tell an end from data.
    fn nothing_wanted(&self, s: &Stream, rx: &mut Rx) -> Got {
        let mut byte = [0u8];
        match sys::recv(s.fd(), &mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok(0) => {
                incoming::tcp_ended(s, rx);
                Got::Again
            }
            Ok(_) => Got::Bytes(0, false),
            // The kernel hears of shutdown(SHUT_RD) late.
            Err(Errno(libc::EAGAIN)) if rx.engine.is_shut() => Got::End,
            Err(Errno(libc::EAGAIN)) => Got::Nothing(From::Tcp),
            Err(e) => self.tcp_failed(s, rx, e),
        }
    }

    fn tcp_failed(&self, s: &Stream, rx: &mut Rx, e: Errno) -> Got {
        match e {
            Errno(libc::EINTR) => Got::Again,
            e if incoming::failed(s, rx, e) => Got::Again,
            Errno(e) => Got::Failed(e),
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
fn take_from_lane(
    s: &Stream,
    rx: &mut Rx,
    cursor: &mut Cursor,
    available: u64,
    peek: bool,
    discard: bool,
) -> usize {
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
