//! Lanes of streams: opened when both ends agree, given up when the program, the peer or the link demands it, released when
//! neither direction needs them any more.

use super::stream::{Mode, Rx, Stream, StreamId, Tx};
use super::{census, incoming, outgoing};
use crate::link::memory::MemoryLink;
use crate::link::{Lane, Link, bell};
use crate::log::{debug, info};
use crate::process::{background, family};
use crate::stats::{self, Reason};
use crate::stream::{
    Addresses, LaneId, Message, Proof, Receiver, RefuseReason, SendState, Sender, Token,
};
use crate::sys::{self, lock::Guard};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::sync::atomic::Ordering::*;
use libc::sockaddr_storage;

/// Why a stream cannot have a lane now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotOpened {
    /// Calls are still in the kernel, or the last lane is not gone: ask again soon.
    NotYet,
    /// No lane or no memory left on the link.
    NoRoom,
    /// The stream stays on TCP.
    Never,
}

/// A socket address as Rust has it; None for other families.
pub fn address(raw: &sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(raw.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in.
            let a = unsafe { &*(&raw const *raw).cast::<libc::sockaddr_in>() };
            Some(SocketAddr::new(
                IpAddr::V4(Ipv4Addr::from(u32::from_be(a.sin_addr.s_addr))),
                u16::from_be(a.sin_port),
            ))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6.
            let a = unsafe { &*(&raw const *raw).cast::<libc::sockaddr_in6>() };
            Some(SocketAddr::new(
                IpAddr::V6(Ipv6Addr::from(a.sin6_addr.s6_addr)),
                u16::from_be(a.sin6_port),
            ))
        }
        _ => None,
    }
}

/// Both ends of a connected TCP socket.
pub fn addresses(fd: i32) -> Option<Addresses> {
    let local = address(&sys::getsockname(fd).ok()?.0)?;
    let peer = address(&sys::getpeername(fd).ok()?.0)?;
    Some(Addresses::new(local, peer))
}

fn token() -> Option<Token> {
    let mut bytes = [0u8; 16];
    sys::random(&mut bytes).ok()?;
    Some(Token::from_bytes(bytes))
}

type Both<'a> = (Guard<'a, Tx>, Guard<'a, Rx>);

/// Makes the stream careful and takes both directions, with engines that start at the kernel's count.
fn prepare(s: &Stream) -> Result<Both<'_>, NotOpened> {
    if !family::may_hop(s) {
        return Err(NotOpened::Never);
    }
    if !matches!(s.mode(), Mode::Plain | Mode::Careful) {
        return Err(NotOpened::Never);
    }
    let mut tx = s.tx.lock().ok_or(NotOpened::NotYet)?;
    let mut rx = s.rx.lock().ok_or(NotOpened::NotYet)?;
    // Under both locks, for `uncareful` goes the other way under them; and before the look at the calls in flight.
    s.change_mode(Mode::Plain, Mode::Careful);
    if s.mode() != Mode::Careful {
        return Err(NotOpened::Never);
    }
    super::options::careful(s);
    if s.receiving.load(SeqCst) != 0 || s.sending.load(SeqCst) != 0 {
        return Err(NotOpened::NotYet);
    }
    if tx.lane.is_some()
        || rx.lane.is_some()
        || !tx.engine.on_tcp()
        || !rx.engine.hopped_back()
        || tx.engine.ended()
    {
        return Err(NotOpened::NotYet);
    }
    let (sent, received) =
        census::take(s.fd(), s.connector.load(Relaxed)).ok_or(NotOpened::Never)?;
    tx.engine = Sender::new(sent);
    rx.engine = Receiver::new(received);
    tx.misses = 0;
    tx.hold = 0;
    Ok((tx, rx))
}

fn proof(tx: &Tx, rx: &Rx) -> Proof {
    // On a memory link the descriptor that is passed is the proof; the digest has nothing to add.
    Proof {
        sent: tx.engine.position(),
        received: rx.engine.position(),
        digest: [0; 16],
    }
}

fn give_lane(s: &Stream, rx: &mut Rx, lane: Lane, token: Token) -> bool {
    if !rx.engine.open_lane(lane.id, token) {
        return false;
    }
    rx.lane = Some(lane);
    s.view.show_lane(&lane);
    s.view.show_bells(s);
    s.with_record(|slot| rx.flow = stats::record(slot).map(|r| &r.rx));
    true
}

/// Asks the peer at the other end of `link` for a lane. The answer comes to [`granted`] or [`refused`].
pub fn open(s: &Stream, link: &'static MemoryLink) -> Result<(), NotOpened> {
    let (tx, mut rx) = prepare(s)?;
    let id = link.new_lane(s.id().get()).ok_or(NotOpened::NoRoom)?;
    let lane = link.lane(id).ok_or(NotOpened::NoRoom)?;
    // The cursors are the acceptor's to reset: until it has agreed, a former lane in this place may still be in use there.
    let made = (|| {
        let (own, nonce) = (token()?, token()?);
        let names = addresses(s.fd())?;
        if !give_lane(s, &mut rx, lane, own) {
            return None;
        }
        let open = Message::Open {
            lane: id,
            ring: lane.input.0.size() as u32,
            key: 0,
            offset: 0,
            token: own,
            nonce: *nonce.as_bytes(),
            addresses: names,
            proof: proof(&tx, &rx),
        };
        link.send(&open, Some(s.fd())).then_some(())
    })();
    if made.is_none() {
        rx.lane = None;
        s.view.hide_lane();
        rx.engine.freeze();
        link.free_lane(id);
        return Err(NotOpened::NotYet);
    }
    Ok(())
}

/// OPEN came with the peer's descriptor: grant or refuse. The caller closes the descriptor.
pub fn asked(link: &'static MemoryLink, message: &Message, descriptor: i32) {
    let Message::Open {
        lane: id,
        ring,
        token: peers,
        addresses: theirs,
        ..
    } = *message
    else {
        return;
    };
    let refuse = |reason| {
        link.send(&Message::Refuse { lane: id, reason }, None);
    };
    // Possession of the connection's other end is the proof (H14): the descriptor must mirror a connection of ours.
    let Some(names) = addresses(descriptor).filter(|a| *a == theirs) else {
        return refuse(RefuseReason::Proof);
    };
    let Some(s) = find(names.mirrored()) else {
        return refuse(RefuseReason::NotYet);
    };
    let Some(lane) = link.lane(id).filter(|l| l.out.0.size() == u64::from(ring)) else {
        return refuse(RefuseReason::NoMemory);
    };
    let granted = prepare(s).and_then(|(mut tx, mut rx)| {
        if !link.claim_lane(id, s.id().get()) {
            return Err(NotOpened::NotYet);
        }
        lane.out.0.cursors().reset();
        lane.input.0.cursors().reset();
        let own = token().ok_or(NotOpened::NoRoom);
        let opened = own.and_then(|own| {
            if tx.engine.open_lane(id, peers, lane.out.0.size()).is_err()
                || !give_lane(s, &mut rx, lane, own)
            {
                return Err(NotOpened::NotYet);
            }
            tx.lane = Some(lane);
            s.with_record(|slot| tx.flow = stats::record(slot).map(|r| &r.tx));
            let proof = proof(&tx, &rx);
            link.send(
                &Message::OpenAck {
                    lane: id,
                    ring,
                    key: 0,
                    offset: 0,
                    token: own,
                    proof,
                },
                None,
            );
            Ok(())
        });
        if opened.is_err() {
            (tx.lane, rx.lane) = (None, None);
            s.view.hide_lane();
            link.free_lane(id);
        }
        opened
    });
    match granted {
        Ok(()) => debug!(
            "stream {}: lane {} granted to process {}",
            s.fd(),
            id.0,
            link.peer_pid()
        ),
        Err(NotOpened::NotYet) => refuse(RefuseReason::NotYet),
        Err(NotOpened::NoRoom) => refuse(RefuseReason::NoMemory),
        Err(NotOpened::Never) => refuse(RefuseReason::Pinned),
    }
}

fn ports(names: &Addresses) -> u32 {
    u32::from(names.local.port()) << 16 | u32::from(names.peer.port())
}

/// Our stream with these addresses, if we have it.
pub fn find(names: Addresses) -> Option<&'static Stream> {
    let wanted = ports(&names);
    super::stream::all().find(|s| {
        if !matches!(s.mode(), Mode::Plain | Mode::Careful) || s.connector.load(Relaxed) {
            return false;
        }
        let known = s.ports.load(Relaxed);
        if known != 0 && known != wanted {
            return false;
        }
        let own = addresses(s.fd());
        if let Some(own) = &own {
            s.ports.store(ports(own), Relaxed);
        }
        own == Some(names)
    })
}

/// OPEN_ACK: the sending direction gets its lane.
pub fn granted(s: &Stream, link: &'static MemoryLink, message: &Message) {
    let Message::OpenAck {
        lane: id,
        ring,
        token,
        ..
    } = *message
    else {
        return;
    };
    let Some(mut tx) = s.tx.lock() else { return };
    let Some(lane) = link.lane(id).filter(|l| l.out.0.size() == u64::from(ring)) else {
        return;
    };
    if tx.engine.open_lane(id, token, lane.out.0.size()).is_ok() {
        tx.lane = Some(lane);
        // The acceptor has just reset the cursors.
        s.view.show_bells(s);
        s.with_record(|slot| tx.flow = stats::record(slot).map(|r| &r.tx));
        info!(
            "stream {}: lane {} to process {}",
            s.fd(),
            id.0,
            link.peer_pid()
        );
    }
}

/// REFUSE: the receiving direction's lane is void.
pub fn refused(s: &Stream, lane: LaneId) {
    if let Some(mut rx) = s.rx.lock()
        && rx.lane.is_some_and(|l| l.id == lane)
    {
        rx.engine.freeze();
        incoming::refresh(s, &rx);
    }
    release_if_done(s);
}

/// As [`give_up_unread`], for callers that cannot wait until each stream is back before the next one starts.
pub fn start_back(s: &Stream, reason: Reason) {
    if s.mode() == Mode::Careful {
        give_up_unread(s, reason);
    }
}

/// CLOSE came, or the link is lost: both directions of this end leave the lane.
pub fn closed(s: &Stream, reason: Reason) {
    s.reason.store(reason as u8, Relaxed);
    if let Some(mut rx) = s.rx.lock() {
        incoming::freeze(s, &mut rx);
    }
    if reason == Reason::LinkLost {
        // A process that ends closes its link before its TCP sockets. A RESUME to it would only make its kernel answer with a
        // reset where TCP ends cleanly: wait a moment, unless the program sends something.
        s.peer_left.store(true, Release);
        background::doubt(s);
    } else if let Some(mut tx) = s.tx.lock() {
        outgoing::resume(s, &mut tx, false);
    }
    incoming::settle(s);
    bell::ring_all(s.rx_bells.load(Acquire) | s.tx_bells.load(Acquire));
}

/// Some time after the link was lost: a peer that still holds the connection gets its RESUME.
pub fn resolve_doubt(s: &Stream) {
    const GONE: i16 = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;
    if s.peer_left.load(Acquire) && sys::poll_now(s.fd(), GONE) & GONE == 0 {
        if let Some(mut tx) = s.tx.lock() {
            outgoing::resume(s, &mut tx, false);
        }
        incoming::settle(s);
    }
}

/// This end wants the stream back on TCP.
pub fn give_up(s: &Stream, reason: Reason) {
    debug!("stream {}: giving its lane up ({})", s.fd(), reason.name());
    if let Some(rx) = s.rx.lock()
        && let Some(lane) = &rx.lane
    {
        lane.link.send(&Message::Close { lane: lane.id }, None);
    }
    closed(s, reason);
}

/// As [`give_up`], and what the program has not received from the ring yet comes again on TCP. For fork, exec and kin.
pub fn give_up_unread(s: &Stream, reason: Reason) {
    if let Some(mut rx) = s.rx.lock() {
        rx.engine.freeze_at_delivered();
        incoming::refresh(s, &rx);
    }
    give_up(s, reason);
}

/// No lane came of it: calls go straight to the kernel again.
pub fn uncareful(s: &Stream) {
    release_if_done(s);
    let (Some(tx), Some(rx)) = (s.tx.lock(), s.rx.lock()) else {
        return;
    };
    let plain = tx.lane.is_none()
        && rx.lane.is_none()
        && tx.engine.control().is_empty()
        && !tx.engine.ended();
    if plain && !s.error_pending() && rx.engine.hopped_back() && s.mode() == Mode::Careful {
        super::options::pinned(s);
        debug!("stream {}: calls go to the kernel again", s.fd());
        s.set_mode(Mode::Plain);
    }
}

/// Gives the lane back when neither direction needs it.
pub fn release_if_done(s: &Stream) {
    let Some(mut tx) = s.tx.lock() else { return };
    let Some(mut rx) = s.rx.lock() else { return };
    let Some(lane) = rx.lane.or(tx.lane) else {
        return;
    };
    let sender_done = tx.engine.state() == SendState::Dead
        || tx.engine.state() == SendState::Tcp && tx.engine.control().is_empty();
    if tx.engine.lane_open() || rx.engine.lane_open() || !sender_done || rx.engine.needs_ring() {
        return;
    }
    let was_granted = tx.lane.is_some();
    (tx.lane, rx.lane, tx.flow, rx.flow) = (None, None, None, None);
    s.view.hide_lane();
    if let Some(link) = crate::link::memory::get(lane.link.index()) {
        link.free_lane(lane.id);
    }
    debug!("stream {}: lane {} released", s.fd(), lane.id.0);
    if !was_granted {
        return;
    }
    // It may be worth a lane again, after as much as the first time.
    s.messages.store(0, Relaxed);
    s.bytes.store(0, Relaxed);
    s.refusals.store(0, Relaxed);
    s.asked.store(false, Release);
    drop((tx, rx));
    if s.kept.load(Acquire) < 0 {
        uncareful(s);
    }
}

/// A careful stream without a lane, and without a question about one: see [`uncareful`].
#[inline]
pub fn idle(s: &Stream) -> bool {
    s.view.link.load(Acquire) == 0 && !s.asked.load(Acquire)
}

/// The stream that a link's lane belongs to.
pub fn owner(link: &MemoryLink, lane: LaneId) -> Option<&'static Stream> {
    StreamId::from(link.owner(lane)?).stream()
}
