//! What the background thread watches on a stream's TCP socket: it is the stream's eye on the kernel while the program looks
//! at lanes only, and it writes what TCP is owed when the program does not call.

use super::stream::{Mode, Stream, flag};
use crate::process::background;
use core::sync::atomic::Ordering::*;

/// Bit of [`Stream::watched`]: the socket is in the background thread's epoll. None of epoll's own.
const REGISTERED: u32 = 1 << 27;

/// After a change of the receiving direction.
pub fn update(s: &Stream) {
    let owed = s.watched.load(Acquire) & libc::EPOLLOUT as u32 != 0;
    update_with(s, owed);
}

/// After a change of either direction; `owed`: something waits to be written to TCP.
pub fn update_with(s: &Stream, owed: bool) {
    let rx = s.view.rx.load(Acquire) & (flag::LANE | flag::BETWEEN) != 0;
    let tx = s.view.tx.load(Acquire) & (flag::LANE | flag::BETWEEN) != 0;
    let mut events = 0u32;
    if s.mode() == Mode::Careful {
        // Also where only what we send has left TCP: whoever waits for both directions does so at a bell of ours.
        if rx || tx {
            events |= (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;
        }
        if owed {
            events |= libc::EPOLLOUT as u32;
        }
        if events != 0 {
            events |= libc::EPOLLET as u32;
        }
    }
    let before = s.watched.load(Acquire);
    let wanted = if events == 0 { 0 } else { events | REGISTERED };
    if before == wanted {
        return;
    }
    let op = match (before & REGISTERED != 0, wanted != 0) {
        (false, true) => libc::EPOLL_CTL_ADD,
        (true, true) => libc::EPOLL_CTL_MOD,
        (_, false) => libc::EPOLL_CTL_DEL,
    };
    if background::watch(op, s.fd(), events, s.id()) || wanted == 0 {
        s.watched.store(wanted, Release);
    }
}

/// The stream is reached by another number from now on: the epoll entry goes with it.
pub fn moved(s: &Stream, from: i32, to: i32) {
    let before = s.watched.load(Acquire);
    if before & REGISTERED != 0 && background::watch(libc::EPOLL_CTL_DEL, from, 0, s.id()) {
        let again = background::watch(libc::EPOLL_CTL_ADD, to, before & !REGISTERED, s.id());
        s.watched.store(if again { before } else { 0 }, Release);
    }
}

/// The stream ends.
pub fn forget(s: &Stream) {
    if s.watched.swap(0, AcqRel) & REGISTERED != 0 {
        background::watch(libc::EPOLL_CTL_DEL, s.fd(), 0, s.id());
    }
}
