//! What a stream is ready for, in the bits of epoll(7), which are those of poll(2).

use crate::process::events;
use crate::socket::receive::most;
use crate::socket::stream::{Mode, Stream, flag};
use crate::socket::{incoming, options};
use crate::stream::{RecvState, SendState};
use crate::sys;
use core::sync::atomic::Ordering::*;

/// Something can be received.
pub const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
/// Something can be sent.
pub const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
const ERR: u32 = libc::EPOLLERR as u32;
const PRI: u32 = libc::EPOLLPRI as u32;

/// Whether a stream's readiness is ours to say: it has left TCP in a direction.
#[inline]
pub fn ours(s: &Stream) -> bool {
    s.mode() == Mode::Careful
        && (s.view.rx.load(Acquire) | s.view.tx.load(Acquire)) & !flag::LOOK != 0
}

/// The bytes that may be sent make it worth to wake a writer: as much as a quarter of the ring.
#[inline]
fn writable(ring: u64, sent: u64, consumed: u64) -> bool {
    // A cursor below what the engine knows is an old one, above `sent` a lie: both are sorted out when sending.
    let used = sent.saturating_sub(consumed);
    ring.saturating_sub(used) >= ring / 4
}

/// What it is ready for of `wanted`, without a lock or a system call. None: ask [`slow`]. A direction that nobody asks about may be
/// anywhere: many streams send much one way and nothing the other.
#[inline]
pub fn fast(s: &Stream, wanted: u32) -> Option<u32> {
    let (rx, tx) = (s.view.rx.load(Acquire), s.view.tx.load(Acquire));
    let carries = |flags: u32, bits: u32| flags == flag::LANE || wanted & bits == 0 && flags == 0;
    if !carries(rx, IN | RDHUP | PRI) || !carries(tx, OUT) || rx | tx == 0 {
        return None;
    }
    // SAFETY: the word stays mapped, see `View`.
    if unsafe { left(s) } {
        return None;
    }
    let mut bits = 0;
    if rx == flag::LANE {
        // SAFETY: as above; the pointer is never null.
        let published = unsafe { (*s.view.published.load(Acquire)).load(Acquire) };
        let there = published.saturating_sub(s.view.rx_position.load(Relaxed));
        if there > 0 && there >= low_water(s) {
            bits |= IN;
        }
    }
    if tx == flag::LANE {
        // SAFETY: as above.
        let consumed = unsafe { (*s.view.consumed.load(Acquire)).load(Acquire) };
        let sent = s.view.tx_position.load(Relaxed);
        if writable(s.view.ring.load(Relaxed), sent, consumed) {
            bits |= OUT;
        }
    }
    Some(bits)
}

/// SO_RCVLOWAT, as far as a ring can hold it.
#[inline]
fn low_water(s: &Stream) -> u64 {
    let least = u64::from(s.low_water.load(Relaxed));
    // Both directions of a lane have rings of one size.
    if least > 1 {
        least.min(most(s.view.ring.load(Relaxed)))
    } else {
        least
    }
}

/// Whether the peer says that it went back to TCP.
#[inline]
unsafe fn left(s: &Stream) -> bool {
    // SAFETY: as for the cursors; a null pointer means that there is no lane.
    unsafe { s.view.left.load(Acquire).as_ref() }.is_some_and(|w| w.load(Acquire) != 0)
}

/// What it is ready for; looks at TCP too. Takes the stream's locks.
pub fn slow(s: &Stream) -> u32 {
    events::look(s);
    incoming::settle(s);
    let wanted = libc::POLLIN
        | libc::POLLOUT
        | libc::POLLRDHUP
        | libc::POLLPRI
        | libc::POLLRDNORM
        | libc::POLLWRNORM;
    let kernel = u32::from(sys::poll_now(s.fd(), wanted) as u16);
    if s.mode() != Mode::Careful {
        return kernel;
    }
    let mut bits = kernel & (HUP | ERR | PRI);
    let mut shut = false;
    if s.error_pending() {
        bits |= ERR;
    }
    if let Some(mut rx) = s.rx.lock() {
        if kernel & (HUP | ERR) != 0 && !rx.engine.finished() {
            // It broke since we looked.
            incoming::pump(s, &mut rx);
            bits |= if s.error_pending() { ERR } else { 0 };
        }
        let held = rx.engine.pushback().len() as u64 + incoming::available(s, &mut rx);
        let ended = rx.engine.at_eof() || rx.engine.reset_due() || rx.engine.reset_taken();
        let least = u64::from(s.low_water.load(Relaxed));
        if ended || rx.engine.is_shut() {
            bits |= IN;
        } else if least > 1 {
            let size = rx.lane.map_or(u64::MAX, |l| most(l.input.0.size()));
            let behind = options::in_tcp(s, &rx);
            // TCP's end is an end to waiting for more, once what it carries is the program's again.
            let back = matches!(rx.engine.state(), RecvState::Raw | RecvState::Skip);
            let last = back && kernel & RDHUP != 0 || rx.engine.finished() && held > 0;
            bits |= if last || held + behind >= least.min(size) {
                IN
            } else {
                0
            };
        } else if held > 0 {
            bits |= IN;
        } else if rx.engine.tcp_limit() > 0 {
            bits |= kernel & IN;
        }
        // TCP shows its end as soon as it is there, also with bytes before it unread; so do we once it is certain.
        if rx.engine.finished() || matches!(rx.engine.state(), RecvState::Raw | RecvState::Skip) {
            bits |= kernel & RDHUP;
        }
        if rx.engine.finished() && kernel & (HUP | ERR) == 0 && rx.engine.at_eof() {
            bits |= RDHUP;
        }
        if rx.engine.is_shut() {
            shut = true;
            bits |= RDHUP;
        }
    }
    if let Some(tx) = s.tx.lock() {
        // The kernel hears of shutdown(SHUT_RD) late.
        bits |= if shut && tx.engine.ended() { HUP } else { 0 };
        bits |= match tx.engine.state() {
            _ if tx.engine.ended() => OUT,
            SendState::Dead => OUT,
            SendState::Lane => {
                let consumed = tx.lane.map_or(0, |l| l.out.consumed());
                let ring = tx.lane.map_or(0, |l| l.out.0.size());
                if writable(ring, tx.engine.position().get(), consumed) {
                    OUT
                } else {
                    0
                }
            }
            SendState::Tcp if tx.engine.control().is_empty() => kernel & OUT,
            SendState::Tcp | SendState::HopSent | SendState::TokenOut | SendState::Resuming => 0,
        };
    }
    bits
}

/// What it is ready for, the cheap way if possible.
#[inline]
pub fn now(s: &Stream, wanted: u32) -> u32 {
    fast(s, wanted).unwrap_or_else(|| slow(s))
}
