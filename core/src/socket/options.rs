//! Socket options, ioctl and fcntl on a stream: what differs from the kernel's own answer while a lane carries it.

use super::incoming;
use super::pin::Pin;
use super::stream::{self, Mode, Stream, flag};
use crate::calls::Next;
use crate::stats::Reason;
use crate::stream::RecvState;
use crate::sys::{self, set_errno};
use core::sync::atomic::Ordering::*;
use libc::{c_int, c_void, socklen_t};

/// The stream becomes careful: what the engine has to know of its options, and SO_RCVLOWAT, which would keep a waiter from
/// seeing control bytes, is ours from now on.
pub fn careful(s: &Stream) {
    let fd = s.fd();
    if let Ok((on, _)) = sys::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 0i32) {
        s.nodelay.store(on != 0, Relaxed);
    }
    if let Ok(flags) = sys::fcntl(fd, libc::F_GETFL, 0) {
        s.nonblocking.store(flags & libc::O_NONBLOCK as usize != 0, Relaxed);
    }
    if let Ok((least, _)) = sys::getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1i32)
        && least > 1
        && sys::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1i32).is_ok()
    {
        s.low_water.store(least as u32, Relaxed);
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

/// getsockopt on a tracked descriptor.
pub fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> Next<c_int> {
    let Some(s) = stream::of(fd).filter(|s| s.mode() == Mode::Careful) else { return Next::Kernel };
    if (level, name) != (libc::SOL_SOCKET, libc::SO_RCVLOWAT) || value.is_null() || len.is_null() {
        return Next::Kernel;
    }
    let bytes = s.low_water.load(Relaxed).to_ne_bytes();
    // SAFETY: the program's buffer and its length, neither of them null.
    unsafe {
        let n = (*len as usize).min(bytes.len());
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), n);
        *len = n as socklen_t;
    }
    Next::Return(0)
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
            SO_ZEROCOPY | libc::SO_TIMESTAMP | libc::SO_TIMESTAMPNS | libc::SO_TIMESTAMPING | libc::SO_OOBINLINE | libc::SO_PEEK_OFF
        ),
        _ => false,
    };
    only_tcp.then(|| Pin::because(fd, Reason::PinnedOption))
}

/// setsockopt on a tracked descriptor succeeded in the kernel.
pub fn after_setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) {
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
                let _ = sys::setsockopt(fd, level, name, 1i32);
            }
        }
        _ => {}
    }
}

/// ioctl on a tracked descriptor.
pub fn ioctl(fd: c_int, request: u64, arg: *mut c_void) -> Next<c_int> {
    const SIOCOUTQ: u64 = libc::TIOCOUTQ;
    const SIOCOUTQNSD: u64 = 0x894b;
    let Some(s) = stream::of(fd).filter(|s| s.mode() == Mode::Careful) else { return Next::Kernel };
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
    unsafe { arg.cast::<c_int>().write_unaligned(n.min(c_int::MAX as u64) as c_int) };
    Next::Return(0)
}

/// Bytes that can be received now; None while only the kernel knows.
fn unread(s: &Stream) -> Option<u64> {
    let mut rx = s.rx.lock()?;
    if s.view.rx.load(Acquire) & flag::BETWEEN != 0 || rx.lane.is_some_and(|l| l.input.left()) {
        incoming::pump(s, &mut rx);
    }
    let held = rx.engine.pushback().len() as u64 + incoming::available(s, &mut rx);
    match rx.engine.state() {
        RecvState::Raw | RecvState::HopSeen if held == 0 => None,
        _ => Some(held),
    }
}

/// Bytes that the peer has not taken yet; None while only the kernel knows.
fn unsent(s: &Stream) -> Option<u64> {
    if s.view.tx.load(Acquire) & flag::LANE == 0 {
        return None;
    }
    let mut tx = s.tx.lock()?;
    super::outgoing::room(s, &mut tx);
    Some(tx.engine.position() - tx.engine.consumed())
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
    let Some(s) = stream::of(fd).filter(|s| s.mode() == Mode::Careful) else { return Next::Kernel };
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
        // A lost FIN is found by the flush that follows, here or in the background.
        super::outgoing::resume(s, &mut tx, true);
        super::outgoing::flush(s, &mut tx);
    }
    if how != libc::SHUT_WR {
        let result = sys::shutdown(fd, libc::SHUT_RD);
        if let Err(e) = result {
            set_errno(e.0);
            return Next::Return(-1);
        }
        if let Some(mut rx) = s.rx.lock() {
            // Linux: what is there may still be read, then comes the end; what comes later is dropped when nobody reads it.
            rx.engine.shut();
            incoming::refresh(s, &rx);
        }
    }
    incoming::settle(s);
    crate::link::bell::ring_all(s.rx_bells.load(Acquire) | s.tx_bells.load(Acquire));
    Next::Return(0)
}
