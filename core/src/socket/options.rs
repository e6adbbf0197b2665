//! Socket options, ioctl and fcntl on a stream: what differs from the kernel's own answer while a lane carries it.

use super::incoming;
use super::pin::Pin;
use super::stream::{self, Mode, Rx, Stream, flag};
use crate::calls::Next;
use crate::stats::Reason;
use crate::stream::{RecvState, SendState, TOKEN_LEN};
use crate::sys;
use core::sync::atomic::Ordering::*;
use libc::{c_int, c_void, socklen_t};

/// The stream becomes careful: what the engine has to know of its options.
pub fn careful(s: &Stream) {
    let fd = s.fd();
    if let Ok((on, _)) = sys::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 0i32) {
        s.nodelay.store(on != 0, Relaxed);
    }
    if let Ok(flags) = sys::fcntl(fd, libc::F_GETFL, 0) {
        s.nonblocking
            .store(flags & libc::O_NONBLOCK as usize != 0, Relaxed);
    }
    if let Ok((least, _)) = sys::getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1i32)
        && least > 1
    {
        s.low_water.store(least as u32, Relaxed);
    }
}

/// Control bytes may come: SO_RCVLOWAT, which would keep a waiter from seeing them, is ours alone from now on.
pub fn relax(s: &Stream) {
    if s.low_water.load(Relaxed) > 1 {
        // A socket that is gone has nothing to be seen.
        let _ = sys::setsockopt(s.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1i32);
    }
}

/// The kernel serves the stream again: its options are what the program set.
pub fn pinned(s: &Stream) {
    let least = s.low_water.swap(1, Relaxed);
    if least > 1 {
        // A socket that is gone needs no option.
        let _ = sys::setsockopt(s.fd(), libc::SOL_SOCKET, libc::SO_RCVLOWAT, least as i32);
    }
}

/// Before getsockopt on a tracked descriptor; Some(pin) as for setsockopt: TCP_ZEROCOPY_RECEIVE maps the kernel's own pages.
pub fn before_getsockopt(fd: c_int, level: c_int, name: c_int) -> Option<Pin> {
    const TCP_ZEROCOPY_RECEIVE: c_int = 35;
    stream::of(fd)?;
    (level == libc::IPPROTO_TCP && name == TCP_ZEROCOPY_RECEIVE)
        .then(|| Pin::because(fd, Reason::PinnedOption))
}

/// getsockopt on a tracked descriptor.
pub fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Next<c_int> {
    let Some(s) = stream::of(fd).filter(|s| s.mode() == Mode::Careful) else {
        return Next::Kernel;
    };
    if level != libc::SOL_SOCKET || value.is_null() || len.is_null() {
        return Next::Kernel;
    }
    let number = match name {
        libc::SO_RCVLOWAT => s.low_water.load(Relaxed) as c_int,
        libc::SO_ERROR => match error(s) {
            Some(errno) => errno,
            None => return Next::Kernel,
        },
        _ => return Next::Kernel,
    };
    let bytes = number.to_ne_bytes();
    // SAFETY: the program's buffer and its length, neither of them null.
    unsafe {
        let n = (*len as usize).min(bytes.len());
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), n);
        *len = n as socklen_t;
    }
    Next::Return(0)
}

/// SO_ERROR, once; None: no error that is ours to tell.
fn error(s: &Stream) -> Option<c_int> {
    if !s.error_pending() {
        // What the kernel has is told by recv in its turn: let us be the ones who hear it.
        if let Some(mut rx) = s.rx.lock() {
            incoming::pump(s, &mut rx);
        }
        incoming::settle(s);
    }
    let error = s.take_error();
    if error.is_some() {
        return error;
    }
    // On TCP proper (no pump there) the kernel tells it, and the engine must not do so again.
    let errno =
        sys::getsockopt(s.fd(), libc::SOL_SOCKET, libc::SO_ERROR, 0i32).map_or(0, |(e, _)| e);
    if errno > 0 {
        s.error_told();
    }
    Some(errno)
}

/// Before setsockopt on a tracked descriptor; Some(pin) means: run it to its end, then the kernel call.
pub fn before_setsockopt(fd: c_int, level: c_int, name: c_int) -> Option<Pin> {
    const TCP_REPAIR: c_int = 19;
    const TCP_ULP: c_int = 31;
    const SO_ZEROCOPY: c_int = 60;
    stream::of(fd)?;
    let only_tcp = match level {
        libc::IPPROTO_TCP => matches!(name, TCP_REPAIR | TCP_ULP),
        libc::SOL_SOCKET => matches!(
            name,
            SO_ZEROCOPY
                | libc::SO_TIMESTAMP
                | libc::SO_TIMESTAMPNS
                | libc::SO_TIMESTAMPING
                | libc::SO_OOBINLINE
                | libc::SO_PEEK_OFF
        ),
        _ => false,
    };
    only_tcp.then(|| Pin::because(fd, Reason::PinnedOption))
}

/// setsockopt on a tracked descriptor succeeded in the kernel.
pub fn after_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) {
    let Some(s) = stream::of(fd) else { return };
    if value.is_null() || (len as usize) < size_of::<c_int>() {
        return;
    }
    // SAFETY: the kernel has just read at least an int from there.
    let number = unsafe { value.cast::<c_int>().read_unaligned() };
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => s.nodelay.store(number != 0, Relaxed),
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) if s.mode() == Mode::Careful => {
            // What the kernel made of it (0 means 1), then out of the way again.
            if let Ok((least, _)) = sys::getsockopt(fd, level, name, 1i32) {
                s.low_water.store(least.max(1) as u32, Relaxed);
                if s.view.rx.load(Acquire) != 0 {
                    relax(s);
                }
            }
        }
        _ => {}
    }
}

/// ioctl on a tracked descriptor.
pub fn ioctl(fd: c_int, request: u64, arg: *mut c_void) -> Next<c_int> {
    const SIOCOUTQ: u64 = libc::TIOCOUTQ;
    const SIOCOUTQNSD: u64 = 0x894b;
    let Some(s) = stream::of(fd).filter(|s| s.mode() == Mode::Careful) else {
        return Next::Kernel;
    };
    if arg.is_null() {
        return Next::Kernel;
    }
    let answer = match request {
        libc::FIONREAD => unread(s),
        SIOCOUTQ | SIOCOUTQNSD => unsent(s),
        _ => None,
    };
    let Some(n) = answer else { return Next::Kernel };
    // SAFETY: the program's int, not null.
    unsafe {
        arg.cast::<c_int>()
            .write_unaligned(n.min(c_int::MAX as u64) as c_int)
    };
    Next::Return(0)
}

/// Bytes that can be received now; None: ask the kernel.
pub fn unread(s: &Stream) -> Option<u64> {
    let mut rx = s.rx.lock()?;
    if s.view.rx.load(Acquire) & flag::BETWEEN != 0 || rx.lane.is_some_and(|l| l.input.left()) {
        incoming::pump(s, &mut rx);
    }
    let held = rx.engine.pushback().len() as u64 + incoming::available(s, &mut rx);
    Some(held + in_tcp(s, &rx))
}

/// Bytes of the program that TCP holds, and those on the lane behind a token that cannot be read before them.
pub fn in_tcp(s: &Stream, rx: &Rx) -> u64 {
    let limit = rx.engine.tcp_limit();
    let skip = rx.engine.to_skip();
    if limit == 0 && skip == 0 {
        return 0;
    }
    // No number, no bytes: the socket is gone.
    let queued = sys::ioctl_int(s.fd(), libc::FIONREAD).map_or(0, |n| n.max(0) as u64);
    if skip > 0 {
        // What the ring still holds comes first; TCP's copy of it does not count, what follows does.
        return queued.saturating_sub(skip);
    }
    let behind = match (&rx.lane, rx.engine.state()) {
        (Some(lane), RecvState::HopSeen) if queued >= limit.saturating_add(TOKEN_LEN as u64) => {
            let read = rx.engine.position() + rx.engine.pushback().len() as u64;
            lane.input
                .published()
                .saturating_sub(read.get() + limit)
                .min(lane.input.0.size())
        }
        _ => 0,
    };
    queued.min(limit) + behind
}

/// Bytes that have not reached the peer's host yet; None while only the kernel knows. What is in a memory link's ring is
/// there: TCP too counts what is unacknowledged by the peer's kernel, not what its program has not read.
fn unsent(s: &Stream) -> Option<u64> {
    (s.view.tx.load(Acquire) & flag::LANE != 0).then_some(0)
}

/// ioctl on a tracked descriptor succeeded in the kernel.
pub fn after_ioctl(fd: c_int, request: u64, arg: *mut c_void) {
    if request == libc::FIONBIO
        && !arg.is_null()
        && let Some(s) = stream::of(fd)
    {
        // SAFETY: the kernel has just read an int from there.
        let on = unsafe { arg.cast::<c_int>().read_unaligned() } != 0;
        s.nonblocking.store(on, Relaxed);
    }
}

/// Before ioctl on a tracked descriptor; Some(pin) as for [`before_fcntl`], of which these are older forms.
pub fn before_ioctl(fd: c_int, request: u64, arg: *mut c_void) -> Option<Pin> {
    const FIOASYNC: u64 = 0x5452;
    const FIOSETOWN: u64 = 0x8901;
    const SIOCSPGRP: u64 = 0x8902;
    stream::of(fd)?;
    let signals = match request {
        // SAFETY: the program's int; null is left for the kernel to refuse.
        FIOASYNC => !arg.is_null() && unsafe { arg.cast::<c_int>().read_unaligned() } != 0,
        FIOSETOWN | SIOCSPGRP => true,
        _ => false,
    };
    signals.then(|| Pin::because(fd, Reason::PinnedOption))
}

/// Before fcntl on a tracked descriptor; Some(pin) as for setsockopt: signal-driven input is the kernel's alone.
pub fn before_fcntl(fd: c_int, command: c_int, arg: u64) -> Option<Pin> {
    const F_SETSIG: c_int = 10;
    const F_SETOWN_EX: c_int = 15;
    stream::of(fd)?;
    let signals = match command {
        libc::F_SETFL => arg as c_int & libc::O_ASYNC != 0,
        libc::F_SETOWN | F_SETSIG | F_SETOWN_EX => true,
        _ => false,
    };
    signals.then(|| Pin::because(fd, Reason::PinnedOption))
}

/// fcntl(F_SETFL) on a tracked descriptor succeeded in the kernel.
pub fn after_setfl(fd: c_int, flags: c_int) {
    if let Some(s) = stream::of(fd) {
        s.nonblocking.store(flags & libc::O_NONBLOCK != 0, Relaxed);
    }
}

/// shutdown on a tracked descriptor.
pub fn shutdown(fd: c_int, how: c_int) -> Next<c_int> {
    let Some(s) = stream::of(fd).filter(|s| s.mode() == Mode::Careful) else {
        return Next::Kernel;
    };
    if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
        return Next::Kernel;
    }
    // A connection that is gone has the kernel's answer (ENOTCONN).
    if sys::getpeername(fd).is_err() {
        return Next::Kernel;
    }
    if how != libc::SHUT_RD
        && let Some(mut tx) = s.tx.lock()
    {
        if tx.engine.state() == SendState::Lane {
            super::outgoing::resume(s, &mut tx, true);
        } else {
            // Nothing to come back from: the other direction may stay on its lane.
            tx.engine.shutdown();
        }
        super::outgoing::flush(s, &mut tx);
        super::outgoing::refresh(s, &tx);
    }
    if how != libc::SHUT_WR
        && let Some(mut rx) = s.rx.lock()
    {
        // Linux: what is there may still be read, then comes the end. The kernel is told when it has no control bytes for us
        // any more.
        rx.engine.shut();
        if rx.engine.state() == RecvState::Raw {
            // No hop will be agreed to any more, so the kernel may be told at once.
            rx.engine.freeze();
        }
        s.shut_receive.store(true, Release);
        incoming::pump(s, &mut rx);
    }
    incoming::settle(s);
    crate::link::bell::ring_all(s.rx_bells.load(Acquire) | s.tx_bells.load(Acquire));
    Next::Return(0)
}
