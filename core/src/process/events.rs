//! What links and TCP sockets tell the background thread about streams. Runs on that thread only, with no lock held.

use super::background;
use crate::link::memory::{Event, MemoryLink};
use crate::link::{Link, bell};
use crate::log::{debug, trace};
use crate::socket::stream::{Mode, Stream, StreamId, flag};
use crate::socket::{census, incoming, lanes, options, outgoing};
use crate::stats::Reason;
use crate::stream::{Hop, Message, NakReason, RecvState, RefuseReason};
use crate::sys::{self, lock::Lock};
use core::sync::atomic::Ordering::*;

/// What the thread's own tables have to know of.
pub enum News {
    /// A link can open lanes now.
    Ready(usize),
    /// A link is gone.
    Lost(usize),
    /// A stream's peer gave its lane up.
    Closed(u64),
    /// A stream's OPEN was refused.
    Refused(u64, RefuseReason),
}

static NEWS: Lock<Vec<News>> = Lock::new(Vec::new());

/// Takes what has come since the last call.
pub fn news() -> Vec<News> {
    NEWS.lock()
        .map(|mut n| core::mem::take(&mut *n))
        .unwrap_or_default()
}

fn tell(news: News) {
    if let Some(mut all) = NEWS.lock() {
        all.push(news);
    }
}

/// A link's handler.
pub fn on_link(link: &'static MemoryLink, event: Event) {
    match event {
        Event::Ready => tell(News::Ready(link.index())),
        Event::Lost => {
            debug!("link to process {} is gone", link.peer_pid());
            for id in link.owners() {
                if let Some(s) = StreamId::from(id).stream() {
                    lanes::closed(s, Reason::LinkLost);
                }
            }
            tell(News::Lost(link.index()));
        }
        Event::Message(message, descriptor) => {
            trace!("from process {}: {message:?}", link.peer_pid());
            on_message(link, &message, descriptor);
            if let Some(fd) = descriptor {
                sys::close(fd);
            }
        }
    }
}

fn on_message(link: &'static MemoryLink, message: &Message, descriptor: Option<i32>) {
    if let Message::Open { .. } = message {
        if let Some(fd) = descriptor {
            lanes::asked(link, message, fd);
        }
        return;
    }
    // Messages about lanes that are gone are late, not wrong.
    let Some(s) = lanes::owner(link, message.lane()) else {
        return;
    };
    match *message {
        Message::OpenAck { .. } => lanes::granted(s, link, message),
        Message::Refuse { lane, reason } => {
            lanes::refused(s, lane);
            tell(News::Refused(s.id().get(), reason));
        }
        Message::Hop(hop) => on_hop(s, link, hop),
        Message::HopAck { seq, .. } => s.answer.store(u64::from(seq) << 2 | 1, Release),
        Message::HopNak { seq, reason, .. } => s.answer.store(outgoing::no(seq, reason), Release),
        Message::Fin { at, .. } => {
            if let Some(mut rx) = s.rx.lock() {
                // A wrong end freezes the lane; the truth comes on TCP.
                let _ = rx.engine.lane_fin(at);
                incoming::refresh(s, &rx);
            }
            bell::ring_all(s.rx_bells.load(Acquire));
        }
        Message::Close { .. } => {
            // What follows depends on whether the link ends too, which is seen when all it had to say is read.
            if let Some(mut rx) = s.rx.lock() {
                incoming::freeze(s, &mut rx);
            }
            s.view.tx.fetch_or(flag::LOOK, AcqRel);
            tell(News::Closed(s.id().get()));
            background::kick();
        }
        Message::Open { .. } | Message::Published { .. } | Message::Consumed { .. } => {}
    }
}

/// The peer asks to hop: its next byte is on the lane if TCP's byte at the position is the guard.
fn on_hop(s: &Stream, link: &MemoryLink, hop: Hop) {
    let Some(mut rx) = s.rx.lock() else { return };
    let Some(lane) = rx.lane.filter(|l| l.id == hop.lane) else {
        return;
    };
    // One sleeper in poll is woken by the token; of several only one would be.
    let readers = s.receiving.load(SeqCst) != 0 || s.polling.load(SeqCst) > 1;
    let read = rx.engine.position() + rx.engine.pushback().len() as u64;
    let answer = if s.mode() != Mode::Careful {
        rx.engine.refuse_hop(hop, NakReason::Pinned)
    } else if !census::received_agrees(s.fd(), read) {
        rx.engine.refuse_hop(hop, NakReason::Census)
    } else {
        rx.engine.hop(hop, readers)
    };
    if matches!(answer, crate::stream::HopAnswer::Ack { .. }) {
        lane.input.0.cursors().consumed.store(hop.at.get(), Release);
        options::relax(s);
        // From here on readiness comes from us: the token must not look like data to anybody.
        incoming::refresh(s, &rx);
    }
    if let Some(message) = answer.message(hop.lane) {
        link.send(&message, None);
    }
}

/// The TCP socket of a stream on a lane has something to say.
pub fn on_tcp(id: StreamId, events: u32) {
    let Some(s) = id.stream() else { return };
    trace!("stream {}: TCP events {events:#x}", s.fd());
    if events & libc::EPOLLOUT as u32 != 0
        && let Some(mut tx) = s.tx.lock()
    {
        outgoing::flush(s, &mut tx);
    }
    look_behind_the_program(s);
    if events & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0 && outgoing::reset_by_peer(s.fd()) {
        s.view.tx.fetch_or(flag::LOOK, AcqRel);
    }
    incoming::settle(s);
    bell::ring_all(s.rx_bells.load(Acquire) | s.tx_bells.load(Acquire));
}

/// Reads what TCP has for the engine.
pub fn look(s: &Stream) {
    if s.mode() == Mode::Careful
        && let Some(mut rx) = s.rx.lock()
    {
        incoming::pump(s, &mut rx);
    }
}

/// The same for the background thread, which leaves a token to the program's threads: one of them may sleep in the kernel on
/// the TCP socket since before the hop, and the token is what wakes it.
fn look_behind_the_program(s: &Stream) {
    if s.mode() == Mode::Careful
        && let Some(mut rx) = s.rx.lock()
        && !matches!(rx.engine.state(), RecvState::HopSeen | RecvState::TokenIn)
    {
        incoming::pump(s, &mut rx);
    }
}
