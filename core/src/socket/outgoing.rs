//! The sending direction under its lock: control bytes and resends to TCP, the hop, the way back.

use super::stream::{Mode, NOTHING, Stream, Tx, flag};
use crate::link::{Link, bell, memory};
use crate::log::debug;
use crate::policy;
use crate::process::background;
use crate::stats::{Direction, Reason};
use crate::stream::Message;
use crate::stream::{NakReason, Position, SendState, Sender};
use crate::sys::{self, Errno};
use core::sync::atomic::Ordering::*;

/// Longest wait for HOP_ACK inside a send, in nanoseconds (H36). On a busy host the peer's background thread needs a while to get
/// a core; misses become rarer with each one, so that a stream loses a few milliseconds in its life at worst.
const HOP_WAIT_NS: u64 = 1_000_000;
/// How long of that the waiting thread stays runnable, then it naps.
const HOP_YIELD_NS: u64 = 150_000;
const HOP_NAP_NS: u64 = 50_000;
/// Misses after which a stream stops trying on this lane.
const MAX_MISSES: u32 = 8;
/// A hop is not tried while more than this is queued in the kernel: abandoning it needs room (H37).
const QUEUED_LIMIT: i32 = 64 << 10;

/// Writes what TCP is owed: control bytes, then the ring's rest, then FIN. True when nothing is owed any more.
pub fn flush(s: &Stream, tx: &mut Tx) -> bool {
    if tx.engine.control().is_empty()
        && tx.engine.state() != SendState::Resuming
        && !tx.engine.owes_fin()
    {
        return true;
    }
    let fd = s.fd();
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let mut pushed = false;
    let done = loop {
        let control = tx.engine.control();
        let sent = if !control.is_empty() {
            pushed = true;
            sys::send(fd, control, flags).inspect(|n| tx.engine.control_written(*n))
        } else {
            let range = tx.engine.resend();
            if range.is_empty() {
                break true;
            }
            let Some(lane) = &tx.lane else { break true };
            let mut buf = [0u8; 8192];
            let n = (range.end - range.start).min(buf.len() as u64) as usize;
            lane.out.read_back(range.start, &mut buf[..n]);
            sys::send(fd, &buf[..n], flags).inspect(|n| tx.engine.resent(*n as u64))
        };
        match sent {
            Ok(_) | Err(Errno(libc::EINTR)) => {}
            Err(Errno(libc::EAGAIN)) => break false,
            Err(e) => {
                if e.0 != libc::EPIPE {
                    s.note_error(e.0);
                }
                tx.engine.reset();
                break true;
            }
        }
    };
    if pushed && !s.nodelay.load(Relaxed) {
        // Neither Nagle nor TCP_CORK may hold a control record: setting TCP_NODELAY flushes, also under CORK (tcp(7)).
        let push = |on: i32| sys::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, on);
        if push(1).is_ok() {
            let _ = push(0);
        }
    }
    if tx.engine.owes_fin() {
        // A socket that is gone already has no FIN to send.
        let _ = sys::shutdown(fd, libc::SHUT_WR);
        tx.engine.fin_done();
    }
    refresh(s, tx);
    super::watch::update_with(s, !done);
    done
}

/// Makes the kernel's send buffer large enough for what is left in the ring; its bookkeeping takes about as much again. Only for
/// a socket that the program has closed, whose SO_SNDBUF nobody asks for any more.
pub fn widen(s: &Stream, tx: &Tx) -> bool {
    let range = tx.engine.resend();
    let left = (range.end - range.start).min(1 << 28) as i32;
    sys::setsockopt(
        s.fd(),
        libc::SOL_SOCKET,
        libc::SO_SNDBUF,
        left.saturating_mul(2).max(64 << 10),
    )
    .is_ok()
}

/// Goes back to TCP with this direction (H38: also when the other one did), and starts writing what is owed.
pub fn resume(s: &Stream, tx: &mut Tx, fin: bool) {
    if let Some(lane) = tx.lane
        && tx.engine.state() == SendState::Lane
        && let consumed = lane.out.consumed()
        && consumed > tx.engine.consumed().get()
    {
        // The last word of the peer, read once; nonsense does not count.
        let _ = tx.engine.consumed_to(Position::new(consumed));
    }
    let had_lane = tx.engine.lane_open();
    if had_lane {
        debug!(
            "stream {}: sending on TCP again from byte {}",
            s.fd(),
            tx.engine.consumed().get()
        );
    }
    tx.engine.resume(fin);
    flush(s, tx);
    refresh(s, tx);
    if let Some(lane) = tx.lane
        && had_lane
    {
        // The receiver need not wait for its background thread to see TCP.
        lane.out.0.cursors().left.store(1, Release);
        lane.link
            .publish(&lane.out, lane.out.0.cursors().published.load(Relaxed));
        lane.link.send(&Message::Close { lane: lane.id }, None);
    }
}

/// The link is lost and the program sends: a peer that has closed the connection needs no RESUME, which would only bring a reset
/// before the program's own bytes do.
pub fn after_link(s: &Stream, tx: &mut Tx) {
    const GONE: i16 = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    if sys::poll_now(s.fd(), GONE) & GONE == 0 {
        resume(s, tx, false);
        return;
    }
    tx.engine.peer_is_gone();
    refresh(s, tx);
}

/// Looks after the sending direction when the receiving one, the link or TCP gave a reason to.
pub fn look(s: &Stream) {
    if let Some(link) = (s.view.link.load(Acquire) as usize)
        .checked_sub(1)
        .and_then(memory::get)
    {
        // Is there still somebody to go back with? What the link has to say comes first, and before any lock.
        link.read();
        if link.lost() {
            s.view.tx.fetch_and(!flag::LOOK, AcqRel);
            s.peer_left.store(true, Release);
            background::doubt(s);
            bell::ring_all(s.tx_bells.load(Acquire));
            return;
        }
    }
    let Some(mut tx) = s.tx.lock() else { return };
    s.view.tx.fetch_and(!flag::LOOK, AcqRel);
    if s.mode() != Mode::Careful {
        return;
    }
    if sys::poll_now(s.fd(), 0) & (libc::POLLERR | libc::POLLHUP) != 0 && reset_by_peer(s.fd()) {
        tx.engine.reset();
        refresh(s, &tx);
    } else {
        resume(s, &mut tx, false);
    }
    drop(tx);
    bell::ring_all(s.tx_bells.load(Acquire));
}

/// Whether the kernel says that the connection is no more (TCP_CLOSE).
pub fn reset_by_peer(fd: i32) -> bool {
    const TCP_CLOSE: u8 = 7;
    // SAFETY: all-zero is a valid tcp_info.
    let none: libc::tcp_info = unsafe { core::mem::zeroed() };
    sys::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, none)
        .is_ok_and(|(info, _)| info.tcpi_state == TCP_CLOSE)
}

/// Resets the connection: what is unsent or unread is lost, and the peer learns it.
pub fn abort(fd: i32) {
    // SAFETY: all-zero is a valid sockaddr of family AF_UNSPEC, with which connect() dissolves the connection.
    let unspec: libc::sockaddr = unsafe { core::mem::zeroed() };
    // SAFETY: a sockaddr with its length.
    let _ = unsafe { sys::connect(fd, &unspec, size_of::<libc::sockaddr>() as u32) };
}

/// Whether a hop is due with this send.
#[inline]
pub fn may_hop(tx: &mut Tx) -> bool {
    if tx.engine.state() != SendState::Tcp || !tx.engine.lane_open() || tx.misses > MAX_MISSES {
        return false;
    }
    if tx.hold > 0 {
        tx.hold -= 1;
        return false;
    }
    true
}

/// What [`Stream::answer`] holds after a no: the sequence number as for a yes, and above it why.
pub fn no(seq: u32, why: NakReason) -> u64 {
    let reason = match why {
        NakReason::Census => Reason::OtherProcess,
        NakReason::Pinned => Reason::Refused,
        NakReason::Closed => Reason::Draining,
        NakReason::Overtaken | NakReason::Readers | NakReason::State | NakReason::Unknown(_) => {
            Reason::ReaderBusy
        }
    };
    (reason as u64) << ANSWER_BITS | u64::from(seq) << 2 | 2
}

/// Bits of an answer below the reason of a no.
const ANSWER_BITS: u32 = 34;

/// Why a hop was not made: the reason of a no, or that nobody answered.
fn why_not(answer: u64) -> Reason {
    if answer == 0 {
        return Reason::HopTimeout;
    }
    Reason::from_code((answer >> ANSWER_BITS) as u8)
        .filter(|r| *r != Reason::None)
        .unwrap_or(Reason::ReaderBusy)
}

/// Tries to hop in front of data that begins with `first`: asks, waits a moment, and writes the token on a yes.
pub fn try_hop(s: &Stream, tx: &mut Tx, first: u8) {
    let fd = s.fd();
    let Some(lane) = tx.lane else { return };
    if !super::census::sent_agrees(fd, s.connector.load(Relaxed), tx.engine.position()) {
        // Somebody else writes to this socket: its bytes must not be overtaken.
        tx.misses = MAX_MISSES + 1;
        s.stays_on_tcp(Reason::OtherProcess);
        return;
    }
    let queued = sys::ioctl_int(fd, libc::TIOCOUTQ).unwrap_or(i32::MAX);
    if queued > QUEUED_LIMIT || sys::poll_now(fd, libc::POLLOUT) & libc::POLLOUT == 0 {
        return;
    }
    let Some(hop) = tx.engine.request_hop(first) else {
        return;
    };
    let cursors = lane.out.0.cursors();
    cursors.published.store(hop.at.get(), Release);
    s.answer.store(0, Release);
    let mut answer = 0;
    if lane.link.send(&Message::Hop(hop), None) {
        let start = sys::now();
        loop {
            // The answer comes through our background thread, which may want this core (H35: so may the peer's).
            if sys::now() - start < HOP_YIELD_NS {
                sys::sched_yield();
            } else {
                // A time-out is what is wanted.
                let _ = sys::poll(&mut [], Some(sys::span(HOP_NAP_NS)));
            }
            answer = s.answer.load(Acquire);
            if answer >> 2 & u64::from(u32::MAX) == u64::from(hop.seq)
                || sys::now() - start > HOP_WAIT_NS
                || lane.link.lost()
            {
                break;
            }
            for _ in 0..64 {
                core::hint::spin_loop();
            }
        }
    }
    let yes = answer == u64::from(hop.seq) << 2 | 1 && s.view.tx.load(Acquire) & flag::LOOK == 0;
    if yes && tx.engine.hop_acked(hop.seq) {
        debug!(
            "stream {fd}: sending on the lane from byte {}",
            hop.at.get()
        );
        // The peer set its cursor to the hop's position before it agreed; an older word there is not the peer's.
        cursors.left.store(0, Release);
        flush(s, tx);
    } else {
        tx.engine.abandon_hop();
        tx.misses += 1;
        tx.hold = 1 << tx.misses.min(10);
        if tx.misses > MAX_MISSES {
            s.stays_on_tcp(why_not(answer));
        }
    }
    refresh(s, tx);
}

/// Takes the peer's word for what it consumed; a peer that lies loses the lane. Returns the room in bytes.
#[inline]
pub fn room(s: &Stream, tx: &mut Tx) -> u64 {
    let Some(lane) = &tx.lane else { return 0 };
    let consumed = lane.out.consumed();
    if consumed > tx.engine.consumed().get()
        && let Err(violation) = tx.engine.consumed_to(Position::new(consumed))
    {
        crate::log::warn!(
            "stream {}: the peer consumed nonsense ({violation:?}); going back to TCP",
            s.fd()
        );
        s.reason.store(Reason::Protocol as u8, Relaxed);
        resume(s, tx, false);
        return 0;
    }
    tx.engine.room()
}

fn flags_of(engine: &Sender) -> u32 {
    let owed = !engine.control().is_empty();
    match engine.state() {
        SendState::Dead => flag::RESET | flag::END | flag::BETWEEN,
        _ if engine.ended() => flag::END | flag::BETWEEN,
        SendState::Lane if !owed => flag::LANE,
        SendState::Lane => flag::LANE,
        SendState::Tcp if !owed => 0,
        SendState::Tcp | SendState::HopSent | SendState::TokenOut | SendState::Resuming => {
            flag::BETWEEN
        }
    }
}

/// Mirrors the engine's state for readers without the lock, and tells the epoll instances and the statistics of a change.
pub fn refresh(s: &Stream, tx: &Tx) {
    let new = flags_of(&tx.engine);
    s.view
        .tx_position
        .store(tx.engine.position().get(), Relaxed);
    let consumed = match &tx.lane {
        Some(lane) if new & flag::LANE != 0 => {
            s.view.ring.store(lane.out.0.size(), Relaxed);
            &raw const lane.out.0.cursors().consumed
        }
        _ => &raw const NOTHING,
    };
    s.view.consumed.store(consumed.cast_mut(), Release);
    super::carrier::mirror(s, &s.view.tx, new, Direction::Transmit, tx.lane.as_ref());
}

/// The longest piece that is put into the ring before the peer is told: it may start to read while we copy on.
pub fn chunk() -> u64 {
    (policy::RING_SIZE.get() / 4).max(4096)
}
