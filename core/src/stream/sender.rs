//! One direction of a stream at the end that sends it.
//!
//! A program's bytes are *accepted* once the kernel took them or once they are in the ring, and from then on they arrive or the
//! peer gets an error. The driver asks [`Sender::state`] where the next byte goes:
//!
//! ```text
//! Tcp ──request_hop──▶ HopSent ──hop_acked──▶ TokenOut ──token in the kernel──▶ Lane ──resume──▶ Resuming ──drained──▶ Tcp
//!  ▲                      │ abandon_hop            └───────────resume──────────────────────────▶    │
//!  └──────────────────────┘                                                                      fin: owes_fin
//! ```
//! Nothing is accepted in `TokenOut` and `Resuming`: a SIGKILL there must not turn accepted bytes into a clean end.

use core::ops::Range;

use super::record::ControlOut;
use super::{Hop, LaneId, OpenError, Position, Token, Violation};

/// Where the program's next byte goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendState {
    /// To the kernel, once [`Sender::control`] is empty.
    Tcp,
    /// The peer was asked; wait a moment, then go on by answer or [`Sender::abandon_hop`].
    HopSent,
    /// Nowhere until the whole token is in the kernel.
    TokenOut,
    /// Into the ring, as far as there is [`Sender::room`].
    Lane,
    /// Nowhere until control bytes and the ring's rest are in the kernel.
    Resuming,
    /// Nowhere: the connection was reset.
    Dead,
}

/// The lane a direction has or had last.
#[derive(Clone, Copy, Debug)]
struct Lane {
    id: LaneId,
    /// The peer's, for this direction.
    token: Token,
    /// Bytes; a power of two.
    ring: u64,
    /// No CLOSE, LOST or RESUME so far.
    open: bool,
}

/// How far the program's end of the direction has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fin {
    No,
    /// Nothing more is accepted; the kernel's FIN is due once all is in the kernel.
    Wanted,
    Done,
}

/// One direction of a stream at its sender.
#[derive(Clone, Debug)]
pub struct Sender {
    state: SendState,
    /// Accepted from the program.
    pos: Position,
    /// Highest position the peer is known to have consumed on the lane; `consumed <= pos`, fixed while `Resuming`.
    consumed: Position,
    lane: Option<Lane>,
    /// Of the last HOP.
    seq: u32,
    /// Of the last HOP.
    guard: u8,
    /// A HOP was given up at `pos`, and the byte at `pos` is not in TCP yet: it must not be `guard`.
    hop_unsettled: bool,
    control: ControlOut,
    /// While `Resuming`: ring positions from here to `pos` are still owed to TCP.
    resent: Position,
    fin: Fin,
}

impl Sender {
    /// A direction on TCP of which `pos` bytes are accepted.
    pub fn new(pos: Position) -> Self {
        Sender {
            state: SendState::Tcp,
            pos,
            consumed: pos,
            lane: None,
            seq: 0,
            guard: 0,
            hop_unsettled: false,
            control: ControlOut::new(),
            resent: pos,
            fin: Fin::No,
        }
    }

    /// Where the program's next byte goes.
    pub fn state(&self) -> SendState {
        self.state
    }

    /// How many bytes were accepted from the program so far.
    pub fn position(&self) -> Position {
        self.pos
    }

    /// What the peer has consumed as far as is known. Without a lane, the last lane's figure.
    pub fn consumed(&self) -> Position {
        self.consumed
    }

    /// The lane opened last, if any.
    pub fn lane(&self) -> Option<LaneId> {
        self.lane.map(|lane| lane.id)
    }

    /// Is there a lane that neither end has given up?
    pub fn lane_open(&self) -> bool {
        self.lane.is_some_and(|lane| lane.open)
    }

    /// May the driver give program bytes to the kernel now? (`Tcp`, nothing owed before them, not ended.)
    pub fn may_write_tcp(&self) -> bool {
        self.state == SendState::Tcp && self.control.is_empty() && self.fin == Fin::No
    }

    /// The kernel took `n` program bytes.
    pub fn wrote_tcp(&mut self, n: u64) {
        debug_assert!(
            n == 0 || self.may_write_tcp(),
            "program bytes on TCP in {:?}",
            self.state
        );
        self.pos = self.pos + n;
        self.hop_unsettled &= n == 0;
    }

    /// Is the direction plain TCP with nothing owed, so that a (new) lane may be opened?
    pub fn on_tcp(&self) -> bool {
        self.state == SendState::Tcp
            && self.control.is_empty()
            && !self.hop_unsettled
            && self.fin != Fin::Wanted
    }

    /// A lane was agreed on: `token` is what the peer wants to read in TCP when this direction hops, `ring` the bytes of its
    /// ring. Replaces an earlier lane, open or not.
    pub fn open_lane(&mut self, lane: LaneId, token: Token, ring: u64) -> Result<(), OpenError> {
        if !ring.is_power_of_two() {
            return Err(OpenError::Ring(ring));
        }
        if !self.on_tcp() {
            return Err(OpenError::Busy);
        }
        self.lane = Some(Lane {
            id: lane,
            token,
            ring,
            open: true,
        });
        Ok(())
    }

    /// The program wants to send data that begins with `first`: the question to pass on, or `None` if it has to go to TCP.
    /// The lane's published cursor has to be set to [`Hop::at`] before.
    pub fn request_hop(&mut self, first: u8) -> Option<Hop> {
        let lane = self.lane.filter(|lane| lane.open)?;
        if !self.may_write_tcp() || self.hop_unsettled {
            return None;
        }
        self.seq = self.seq.checked_add(1)?;
        self.guard = !first;
        self.state = SendState::HopSent;
        Some(Hop {
            lane: lane.id,
            seq: self.seq,
            at: self.pos,
            guard: self.guard,
        })
    }

    /// The peer agreed to hop `seq` of the current lane. True: [`Sender::control`] now holds the token. False: the answer came
    /// too late or the lane is gone, and changed nothing.
    pub fn hop_acked(&mut self, seq: u32) -> bool {
        let Some(lane) = self.lane.filter(|lane| lane.open) else {
            return false;
        };
        if self.state != SendState::HopSent || seq != self.seq {
            return false;
        }
        self.control.push_token(self.guard, &lane.token);
        self.consumed = self.pos;
        self.state = SendState::TokenOut;
        true
    }

    /// Is `seq` the question that waits for an answer? (A HOP_NAK for it means [`Sender::abandon_hop`].)
    pub fn hop_pending(&self, seq: u32) -> bool {
        self.state == SendState::HopSent && seq == self.seq
    }

    /// No answer, or no: back to TCP. The data the hop was for has to be written raw next; if the kernel takes nothing of it,
    /// [`Sender::abandon_with`] follows.
    pub fn abandon_hop(&mut self) {
        if self.state == SendState::HopSent {
            self.state = SendState::Tcp;
            self.hop_unsettled = true;
        }
    }

    /// Gives a hop up when the kernel takes none of its data: `first`, the data's first byte, becomes control and counts as
    /// accepted, because TCP's next byte must not be the guard whatever the program sends later.
    pub fn abandon_with(&mut self, first: u8) {
        self.abandon_hop();
        debug_assert!(
            self.hop_unsettled && first != self.guard && self.may_write_tcp(),
            "no hop to abandon, or not the byte it was asked for"
        );
        self.control.push_data(first);
        self.pos = self.pos + 1;
        self.hop_unsettled = false;
    }

    /// A hop was given up and TCP's next byte is still to come: it must not be this.
    pub fn forbidden_next(&self) -> Option<u8> {
        self.hop_unsettled.then_some(self.guard)
    }

    /// Bytes owed to TCP before anything else, in whatever state.
    pub fn control(&self) -> &[u8] {
        self.control.as_slice()
    }

    /// The kernel took the first `n` bytes of [`Sender::control`].
    pub fn control_written(&mut self, n: usize) {
        self.control.advance(n);
        if self.state == SendState::TokenOut && self.control.is_empty() {
            self.state = SendState::Lane;
        }
        self.settle();
    }

    /// Bytes that may be accepted into the ring now.
    pub fn room(&self) -> u64 {
        match self.lane {
            Some(lane) if self.state == SendState::Lane && self.fin == Fin::No => {
                lane.ring - (self.pos - self.consumed)
            }
            _ => 0,
        }
    }

    /// `n` bytes are in the ring and published.
    pub fn accepted(&mut self, n: u64) {
        debug_assert!(
            n <= self.room(),
            "{n} bytes accepted with room for {}",
            self.room()
        );
        self.pos = self.pos + n.min(self.room());
    }

    /// The peer's cursor says that it consumed everything below `x`: how many bytes became free. Ignored unless the lane is the
    /// carrier, above all once a RESUME fixed what comes again.
    pub fn consumed_to(&mut self, x: Position) -> Result<u64, Violation> {
        if self.state != SendState::Lane {
            return Ok(0);
        }
        if x < self.consumed || x > self.pos {
            return Err(Violation::Consumed {
                claimed: x,
                before: self.consumed,
                sent: self.pos,
            });
        }
        let freed = x - self.consumed;
        self.consumed = x;
        Ok(freed)
    }

    /// Has the peer consumed everything that was accepted onto the lane?
    pub fn drained(&self) -> bool {
        self.state == SendState::Lane && self.consumed == self.pos
    }

    /// The program ends the direction (`shutdown(SHUT_WR)`): nothing more is accepted, whatever carries it.
    ///
    /// `Some`: it ends there on the lane, for a FIN message; [`Sender::resume`] with `fin` has to follow, when
    /// [`Sender::drained`], after a moment, or at once. `None`: [`Sender::owes_fin`] tells when the kernel's FIN is due. Only a
    /// token on its way makes this give the lane up, so [`Sender::lane_open`] may be false afterwards.
    pub fn shutdown(&mut self) -> Option<Position> {
        if self.fin != Fin::No {
            return None;
        }
        self.fin = Fin::Wanted;
        match self.state {
            SendState::Lane => return Some(self.pos),
            SendState::HopSent => self.abandon_hop(),
            SendState::TokenOut => self.resume(true),
            SendState::Tcp | SendState::Resuming | SendState::Dead => {}
        }
        None
    }

    /// Gives the lane up and goes back to TCP, for whatever reason: LOST, CLOSE, the peer's RESUME, a planned return, the
    /// program's end of the direction (`fin`). Freezes what comes again. May be called at any time and again.
    pub fn resume(&mut self, fin: bool) {
        if fin && self.fin == Fin::No {
            self.fin = Fin::Wanted;
        }
        self.abandon_hop();
        let Some(lane) = &mut self.lane else {
            return;
        };
        lane.open = false;
        if matches!(self.state, SendState::TokenOut | SendState::Lane) {
            self.control
                .push_resume(&lane.token, self.consumed, self.pos);
            self.resent = self.consumed;
            self.state = SendState::Resuming;
        }
    }

    /// The peer has closed the connection and its link is gone: there is nobody to announce a return to, and nobody who could
    /// still consume the ring's rest. What is sent from now on goes to TCP, whose kernel knows the answer.
    pub fn peer_is_gone(&mut self) {
        if self.state != SendState::Lane {
            return;
        }
        if let Some(lane) = &mut self.lane {
            lane.open = false;
        }
        self.consumed = self.pos;
        self.state = SendState::Tcp;
    }

    /// Positions in the ring that TCP is still owed, to be written once [`Sender::control`] is empty.
    pub fn resend(&self) -> Range<u64> {
        match self.state {
            SendState::Resuming => self.resent.get()..self.pos.get(),
            _ => self.pos.get()..self.pos.get(),
        }
    }

    /// The kernel took the first `n` bytes of [`Sender::resend`].
    pub fn resent(&mut self, n: u64) {
        let owed = self.resend();
        let owed = owed.end - owed.start;
        debug_assert!(
            n <= owed && (n == 0 || self.control.is_empty()),
            "resent out of turn"
        );
        self.resent = self.resent + n.min(owed);
        self.settle();
    }

    fn settle(&mut self) {
        if self.state == SendState::Resuming && self.control.is_empty() && self.resent == self.pos {
            self.state = SendState::Tcp;
        }
    }

    /// Everything is in the kernel and the program ended the direction: `shutdown(SHUT_WR)` is due.
    pub fn owes_fin(&self) -> bool {
        self.state == SendState::Tcp && self.control.is_empty() && self.fin == Fin::Wanted
    }

    /// The kernel was told.
    pub fn fin_done(&mut self) {
        debug_assert!(self.owes_fin(), "FIN out of turn");
        self.fin = Fin::Done;
    }

    /// Has the program ended this direction (done or not)?
    pub fn ended(&self) -> bool {
        self.fin != Fin::No
    }

    /// Queues a byte that keeps address translators awake while the lane is busy; false if there is no need or no place.
    pub fn nop(&mut self) -> bool {
        let wanted = self.state == SendState::Lane && self.control.is_empty();
        if wanted {
            self.control.push_nop();
        }
        wanted
    }

    /// The connection was reset: nothing is owed to anybody.
    pub fn reset(&mut self) {
        self.state = SendState::Dead;
        self.control.clear();
        self.hop_unsettled = false;
        if let Some(lane) = &mut self.lane {
            lane.open = false;
        }
    }
}

#[cfg(test)]
mod tests;
