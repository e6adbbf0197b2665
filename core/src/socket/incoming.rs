//! The receiving direction under its lock: reading what TCP carries for the engine, and telling everybody what changed.

use super::outgoing;
use super::stream::{Mode, NOTHING, Rx, Stream, flag};
use crate::log::{debug, warn};
use crate::stats::{Direction, Reason};
use crate::stream::Message;
use crate::stream::{ControlSeen, PeerFate, Receiver, RecvState, TcpRead};
use crate::sys::{self, Errno};
use core::sync::atomic::Ordering::*;

/// Reads control bytes and bytes to be skipped from TCP, as far as there are any. Call [`settle`] when the lock is free.
pub fn pump(s: &Stream, rx: &mut Rx) {
    s.view.rx.fetch_and(!flag::LOOK, AcqRel);
    loop {
        let fd = s.fd();
        let got = match rx.engine.tcp_read() {
            TcpRead::Control { max } => {
                let mut buf = [0u8; 64];
                let max = max.min(buf.len());
                let got = sys::recv(fd, &mut buf[..max], libc::MSG_DONTWAIT);
                if let Ok(n @ 1..) = got {
                    control(s, rx, &buf[..n]);
                }
                got
            }
            // TCP's copy of what the ring still holds stays in the kernel until the program has the ring's: who gives the ring up
            // (exec, urgent data) finds it there.
            TcpRead::Skip { .. } if rx.engine.lane_ready() > 0 => break,
            TcpRead::Skip { max } => {
                let max = max.min(1 << 30) as usize;
                // MSG_TRUNC makes TCP throw the bytes away (tcp(7)).
                let n = sys::discard(fd, max, libc::MSG_DONTWAIT | libc::MSG_TRUNC);
                n.inspect(|n| rx.engine.skipped(*n as u64))
            }
            TcpRead::Data { .. } | TcpRead::Nothing => break,
        };
        match got {
            Ok(0) => {
                ended(s, rx);
                break;
            }
            Ok(_) | Err(Errno(libc::EINTR)) => {}
            Err(Errno(libc::EAGAIN)) => break,
            Err(e) => {
                s.note_error(e.0);
                rx.engine.tcp_reset();
                s.view.tx.fetch_or(flag::LOOK, AcqRel);
                break;
            }
        }
    }
    if s.shut_receive.load(Acquire) && !rx.engine.awaits_control() {
        s.shut_receive.store(false, Release);
        // A socket that is gone needs no end.
        let _ = sys::shutdown(s.fd(), libc::SHUT_RD);
    }
    refresh(s, rx);
}

fn control(s: &Stream, rx: &mut Rx, bytes: &[u8]) {
    match rx.engine.tcp_control(bytes) {
        Ok(ControlSeen::More | ControlSeen::Data) => {}
        Ok(ControlSeen::Hopped) => debug!(
            "stream {}: receiving from the lane from byte {}",
            s.fd(),
            rx.engine.position().get()
        ),
        Ok(ControlSeen::WrongToken) => {
            warn!(
                "stream {}: the link's peer is not the TCP peer; staying on TCP",
                s.fd()
            );
            s.reason.store(Reason::Credentials as u8, Relaxed);
            close_lane(rx);
        }
        Ok(ControlSeen::Resumed) => {
            if s.reason.load(Relaxed) == Reason::NotAskedYet as u8 {
                s.reason.store(Reason::PeerReturned as u8, Relaxed);
            }
            debug!(
                "stream {}: the peer went back to TCP at byte {}",
                s.fd(),
                rx.engine.position().get()
            );
            s.view.tx.fetch_or(flag::LOOK, AcqRel);
        }
        Err(violation) => {
            warn!(
                "stream {}: protocol violation by the peer: {violation:?}",
                s.fd()
            );
            s.reason.store(Reason::Protocol as u8, Relaxed);
            close_lane(rx);
            outgoing::abort(s.fd());
            s.note_error(libc::ECONNRESET);
            s.view.tx.fetch_or(flag::LOOK, AcqRel);
        }
    }
}

/// recv failed with `e` where the engine expected data. True: the connection is no more, which the engine knows now and the
/// program will learn; false: this call failed, nothing else.
pub fn failed(s: &Stream, rx: &mut Rx, e: Errno) -> bool {
    let gone = e.0 != libc::EFAULT && e.0 != libc::ENOTCONN && outgoing::reset_by_peer(s.fd());
    if gone {
        s.note_error(e.0);
        rx.engine.tcp_reset();
        s.view.tx.fetch_or(flag::LOOK, AcqRel);
    }
    gone
}

fn close_lane(rx: &Rx) {
    if let Some(lane) = &rx.lane {
        lane.link.send(&Message::Close { lane: lane.id }, None);
    }
}

/// TCP has ended (recv returned 0) where the engine expected data.
pub fn tcp_ended(s: &Stream, rx: &mut Rx) {
    ended(s, rx);
    refresh(s, rx);
}

/// How long an end of TCP without a RESUME is held back until the link or the process at its other end is gone too (H18).
const FATE_NS: u64 = 1_000_000_000;

/// Was it a clean end?
fn ended(s: &Stream, rx: &mut Rx) {
    if s.broken() {
        // Somebody has heard of the reset already, so the kernel says no more of it.
        rx.engine.tcp_reset();
        s.view.tx.fetch_or(flag::LOOK, AcqRel);
        return;
    }
    let mut fate = PeerFate::Alive;
    let mut unread = false;
    if let Some(lane) = &rx.lane
        && rx.engine.needs_ring()
    {
        let pid = lane.link.peer_pid();
        if lane.link.lost() || pid > 0 && sys::gone(pid) {
            // A memory link's ring outlives its writer.
            fate = PeerFate::Dead {
                published: Some(lane.input.published()),
            };
            unread = lane.out.consumed() < s.view.tx_position.load(Relaxed)
                && s.view.tx.load(Relaxed) & flag::LANE != 0;
        } else {
            let now = sys::now();
            let since = s.ended_at.load(Relaxed);
            if since == 0 {
                s.ended_at.store(now, Relaxed);
            }
            if since == 0 || now - since < FATE_NS {
                crate::process::background::look_later(s);
                return;
            }
        }
    }
    let outcome = rx.engine.tcp_eof(fate, unread);
    if unread {
        // A dead peer's kernel would have reset the connection for what its program had not read: so do we.
        outgoing::abort(s.fd());
        // The kernel keeps an error too (tcp_disconnect): it is told once, by us.
        let _ = sys::getsockopt(s.fd(), libc::SOL_SOCKET, libc::SO_ERROR, 0i32);
        s.note_error(libc::ECONNRESET);
        s.view.tx.fetch_or(flag::LOOK, AcqRel);
    }
    if rx.engine.state() == RecvState::Dead {
        s.note_error(libc::ECONNRESET);
    }
    debug!(
        "stream {}: TCP ended at byte {}: {outcome:?}",
        s.fd(),
        rx.engine.position().get()
    );
}

/// What may be taken from the lane at the moment; a peer that lies loses the lane.
#[inline]
pub fn available(s: &Stream, rx: &mut Rx) -> u64 {
    let Some(lane) = &rx.lane else { return 0 };
    match rx
        .engine
        .lane_available(lane.input.published(), lane.input.0.size())
    {
        Ok(n) => n,
        Err(violation) => {
            warn!(
                "stream {}: the peer published nonsense ({violation:?}); going back to TCP",
                s.fd()
            );
            s.reason.store(Reason::Protocol as u8, Relaxed);
            close_lane(rx);
            s.view.tx.fetch_or(flag::LOOK, AcqRel);
            0
        }
    }
}

fn flags_of(engine: &Receiver) -> u32 {
    let end = if engine.is_shut() || engine.at_eof() || engine.reset_due() || engine.reset_taken() {
        flag::END
    } else {
        0
    };
    end | match engine.state() {
        RecvState::Raw if engine.pushback().is_empty() => 0,
        RecvState::Lane => flag::LANE,
        RecvState::Dead => flag::RESET | flag::BETWEEN,
        RecvState::Raw
        | RecvState::HopSeen
        | RecvState::TokenIn
        | RecvState::Skip
        | RecvState::Eof => flag::BETWEEN,
    }
}

/// Mirrors the engine's state for readers without the lock, and tells the epoll instances and the statistics of a change.
pub fn refresh(s: &Stream, rx: &Rx) {
    let new = flags_of(&rx.engine);
    s.view
        .rx_position
        .store(rx.engine.position().get(), Relaxed);
    let published = match &rx.lane {
        Some(lane) if new & flag::LANE != 0 => &raw const lane.input.0.cursors().published,
        _ => &raw const NOTHING,
    };
    s.view.published.store(published.cast_mut(), Release);
    super::carrier::mirror(s, &s.view.rx, new, Direction::Receive, rx.lane.as_ref());
}

/// What has to follow a [`pump`] once its lock is free: the sending direction goes back too, lanes nobody needs are released.
pub fn settle(s: &Stream) {
    if s.view.tx.load(Acquire) & flag::LOOK != 0 {
        outgoing::look(s);
    }
    if s.mode() == Mode::Careful {
        super::lanes::release_if_done(s);
    }
}

/// Lets a link loss or CLOSE take effect on the receiving direction.
pub fn freeze(s: &Stream, rx: &mut Rx) {
    if rx.lane.is_some() {
        // What a memory link's peer has published so far stays readable: take its last word before the lane is frozen.
        available(s, rx);
        rx.engine.freeze();
        refresh(s, rx);
    }
}
