//! One direction of a stream at the end that receives it.
//!
//! The program's next byte is at position `x`. Where it comes from, and how TCP may be read meanwhile:
//!
//! ```text
//! Raw ──hop: Ack──▶ HopSeen ──guard at n──▶ TokenIn ──whole token──▶ Lane ──RESUME──▶ Skip ──skipped, ring delivered──▶ Raw
//!  ▲                   │ another byte at n     │ wrong token
//!  └───────────────────┴───────────────────────┘ (the bytes are data: pushback)
//! ```
//! A driver delivers in this order: [`Receiver::pushback`], the lane ([`Receiver::lane_available`]), then TCP as
//! [`Receiver::tcp_read`] allows; then it asks [`Receiver::at_eof`] and [`Receiver::take_reset`].

use super::record::{ControlIn, LaneRecord, RESUME_LEN, TOKEN_LEN};
use super::{Hop, HopAnswer, LaneId, NakReason, Position, Token, Violation};

mod end;
mod strip;

pub use end::{EofOutcome, PeerFate};
pub use strip::Stripped;

use end::End;

/// What TCP carries for this direction at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecvState {
    /// The program's bytes.
    Raw,
    /// The program's bytes up to the hop's position; the byte there decides.
    HopSeen,
    /// The rest of a token.
    TokenIn,
    /// Records; the program's bytes are in the ring.
    Lane,
    /// Bytes that the lane had delivered already, then the program's bytes.
    Skip,
    /// Nothing more: a clean end, though bytes before it may be undelivered ([`Receiver::at_eof`]).
    Eof,
    /// Nothing more: a reset, though bytes before it may be undelivered ([`Receiver::take_reset`]).
    Dead,
}

/// How the driver may read the TCP socket now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpRead {
    /// At most `max` bytes for the program; report by [`Receiver::tcp_data`].
    Data {
        /// Bytes.
        max: u64,
    },
    /// At most `max` bytes into a buffer of the driver's; report by [`Receiver::tcp_control`].
    Control {
        /// Bytes; never more than 33.
        max: usize,
    },
    /// At most `max` bytes to be thrown away; report by [`Receiver::skipped`].
    Skip {
        /// Bytes.
        max: u64,
    },
    /// Not now: bytes that come before are still to be delivered, or nothing more will come.
    Nothing,
}

/// What control bytes turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlSeen {
    /// Part of a token or record, or a NOP: read on.
    More,
    /// The token is whole: the lane is the carrier.
    Hopped,
    /// The sender had given the hop up: the bytes are data, in [`Receiver::pushback`].
    Data,
    /// The bytes began like a token and are data, in [`Receiver::pushback`]: the link's peer is not the TCP peer. The lane is
    /// frozen; tell the peer by CLOSE and do not ask it again.
    WrongToken,
    /// The direction comes back to TCP; the lane is frozen, so the sender of this end has to resume too.
    Resumed,
}

/// The lane a direction has or had last.
#[derive(Clone, Copy, Debug)]
struct Lane {
    id: LaneId,
    /// The one we chose.
    token: Token,
    /// Neither CLOSE, LOST nor RESUME so far; once false, `received` stays as it is.
    open: bool,
}

/// One direction of a stream at its receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    state: RecvState,
    /// Delivered to the program.
    x: Position,
    lane: Option<Lane>,
    /// Sequence number of the last HOP that was looked at.
    seq: u32,
    /// The last HOP that was agreed to; means something in `HopSeen` and `TokenIn`.
    hop: (Position, u8),
    /// An agreement that has not been overtaken by the end of its lane.
    ack_stands: bool,
    /// What the lane holds complete; `x <= received` in `Lane`, `Skip`, and while a lane's rest is delivered after the end.
    received: Position,
    /// RESUME's `consumed`; means something in `Skip`.
    resumed_at: Position,
    /// Bytes of TCP still to be thrown away; 0 unless in `Skip`.
    skip: u64,
    /// RESUME's `position`: an end of TCP before it is no clean end.
    floor: Position,
    /// The sender announced that the direction ends here.
    fin: Option<Position>,
    end: End,
    control: ControlIn,
    pushback: [u8; RESUME_LEN],
    /// `pushback[start..end]` come next for the program.
    pushback_range: (usize, usize),
}

impl Receiver {
    /// A direction on TCP of which the program has got `x` bytes.
    pub fn new(x: Position) -> Self {
        Receiver {
            state: RecvState::Raw,
            x,
            lane: None,
            seq: 0,
            hop: (x, 0),
            ack_stands: false,
            received: x,
            resumed_at: x,
            skip: 0,
            floor: Position::ZERO,
            fin: None,
            end: End::None,
            control: ControlIn::new(),
            pushback: [0; RESUME_LEN],
            pushback_range: (0, 0),
        }
    }

    /// What TCP carries at the moment.
    pub fn state(&self) -> RecvState {
        self.state
    }

    /// How many bytes the program got so far.
    pub fn position(&self) -> Position {
        self.x
    }

    /// The lane opened last, if any.
    pub fn lane(&self) -> Option<LaneId> {
        self.lane.map(|lane| lane.id)
    }

    /// Is there a lane that neither end has given up?
    pub fn lane_open(&self) -> bool {
        self.lane.is_some_and(|lane| lane.open)
    }

    /// Is the direction plain TCP again (or has it never left), with everything delivered that a lane or a hop held, so that a
    /// new lane may be opened?
    pub fn hopped_back(&self) -> bool {
        self.state == RecvState::Raw && self.x >= self.floor && self.pushback().is_empty()
    }

    /// May the ring's memory still be needed for delivery, by us or by the rest of a peer that dies now?
    pub fn needs_ring(&self) -> bool {
        match self.state {
            RecvState::HopSeen | RecvState::TokenIn | RecvState::Lane | RecvState::Skip => true,
            RecvState::Raw => self.x < self.floor,
            RecvState::Eof | RecvState::Dead => self.ring_undelivered(),
        }
    }

    /// A lane was agreed on, with `own_token` as the token we gave to the peer. False, and without effect, unless
    /// [`Receiver::hopped_back`].
    pub fn open_lane(&mut self, lane: LaneId, own_token: Token) -> bool {
        let may = self.hopped_back();
        if may {
            self.lane = Some(Lane {
                id: lane,
                token: own_token,
                open: true,
            });
            self.ack_stands = false;
        }
        may
    }

    /// The sender asks to hop. `readers_in_kernel`: a reader is inside the kernel from whose buffer a token could not be
    /// stripped by [`Receiver::strip`]. Before an `Ack` is passed on, the lane's consumed cursor has to be set to [`Hop::at`].
    pub fn hop(&mut self, hop: Hop, readers_in_kernel: bool) -> HopAnswer {
        self.answer_hop(hop, readers_in_kernel.then_some(NakReason::Readers))
    }

    /// The sender asks to hop and the driver knows why not ([`NakReason::Census`], [`NakReason::Pinned`]).
    pub fn refuse_hop(&mut self, hop: Hop, reason: NakReason) -> HopAnswer {
        self.answer_hop(hop, Some(reason))
    }

    fn answer_hop(&mut self, hop: Hop, refusal: Option<NakReason>) -> HopAnswer {
        let seq = hop.seq;
        let nak = |reason| HopAnswer::Nak { seq, reason };
        match self.lane {
            Some(lane) if lane.id == hop.lane && seq > self.seq => {
                if !lane.open {
                    return nak(NakReason::Closed);
                }
            }
            _ => return HopAnswer::Ignore,
        }
        // Whoever asks anew has given the last hop up, so the bytes from there are data.
        let older = match self.state {
            RecvState::HopSeen => Some(self.hop.0),
            RecvState::Raw if self.fin.is_none() => None,
            _ => return nak(NakReason::State),
        };
        self.seq = seq;
        if older.is_some() {
            self.drop_hop();
        }
        let read = self.x + self.pushback().len() as u64;
        if let Some(reason) = refusal {
            return nak(reason);
        }
        if hop.at < read || older.is_some_and(|older| hop.at < older) {
            return nak(NakReason::Overtaken);
        }
        self.state = RecvState::HopSeen;
        self.hop = (hop.at, hop.guard);
        self.received = hop.at;
        self.ack_stands = true;
        HopAnswer::Ack { seq }
    }

    /// May a queued HOP_ACK for `seq` still be passed on? Not once the lane is frozen or a newer HOP was looked at.
    pub fn ack_stands(&self, seq: u32) -> bool {
        self.ack_stands && self.seq == seq
    }

    /// There is no hop any more: what TCP carries is data, and what the lane said of its end is not about this connection.
    fn drop_hop(&mut self) {
        self.state = RecvState::Raw;
        self.ack_stands = false;
        self.fin = None;
    }

    /// How the driver may read the TCP socket now.
    pub fn tcp_read(&self) -> TcpRead {
        match self.state {
            RecvState::Raw if !self.pushback().is_empty() => TcpRead::Nothing,
            RecvState::Raw if self.fin.is_some_and(|fin| self.x >= fin) => {
                TcpRead::Skip { max: u64::MAX }
            }
            RecvState::Raw => TcpRead::Data { max: u64::MAX },
            RecvState::HopSeen => match self.hop.0 - self.x {
                _ if !self.pushback().is_empty() => TcpRead::Nothing,
                0 => TcpRead::Control { max: TOKEN_LEN },
                max => TcpRead::Data { max },
            },
            RecvState::TokenIn => TcpRead::Control {
                max: TOKEN_LEN - self.control.held().len(),
            },
            RecvState::Lane => TcpRead::Control {
                max: RESUME_LEN - self.control.held().len(),
            },
            RecvState::Skip if self.skip > 0 => TcpRead::Skip { max: self.skip },
            RecvState::Skip | RecvState::Eof | RecvState::Dead => TcpRead::Nothing,
        }
    }

    /// `n` bytes were read from TCP and given to the program.
    pub fn tcp_data(&mut self, n: u64) {
        let max = match self.tcp_read() {
            TcpRead::Data { max } => max,
            _ => 0,
        };
        debug_assert!(n <= max, "{n} bytes of data from TCP in {:?}", self.state);
        self.x = self.x + n.min(max);
    }

    /// Bytes were read from TCP as [`TcpRead::Control`] allowed.
    ///
    /// An error is the peer's fault and ends the stream: what the lane holds is still delivered, then comes ECONNRESET. The
    /// driver closes the lane and resets the connection.
    pub fn tcp_control(&mut self, bytes: &[u8]) -> Result<ControlSeen, Violation> {
        let mut rest = bytes;
        let mut last = ControlSeen::More;
        while !rest.is_empty() {
            if !matches!(self.tcp_read(), TcpRead::Control { .. }) {
                self.tcp_reset();
                return Err(Violation::Overread);
            }
            let (used, seen) = self.feed(rest)?;
            rest = &rest[used..];
            if seen != ControlSeen::More {
                last = seen;
            }
            if matches!(seen, ControlSeen::Data | ControlSeen::WrongToken) {
                return self.push_back(rest).map(|()| seen);
            }
        }
        Ok(last)
    }

    /// Takes bytes up to the next change: how many, and what they were. Where they turn out to be data, those held back so far
    /// are in `pushback` and those given now were not taken.
    fn feed(&mut self, bytes: &[u8]) -> Result<(usize, ControlSeen), Violation> {
        if self.state == RecvState::Lane {
            return self.feed_lane(bytes);
        }
        let (_, guard) = self.hop;
        let Some(lane) = self.lane else {
            return Err(Violation::Overread);
        };
        let (taken, differs) = self.control.take_token(bytes, guard, &lane.token);
        if differs {
            // `taken` bytes of this read are in `control` as well; hand only the earlier ones back here.
            let earlier = self.control.held().len() - taken;
            let begun = earlier + taken > 0;
            self.pushback[..earlier].copy_from_slice(&self.control.held()[..earlier]);
            self.pushback_range = (0, earlier);
            self.control.clear();
            self.drop_hop();
            if !begun {
                return Ok((0, ControlSeen::Data));
            }
            self.freeze();
            return Ok((0, ControlSeen::WrongToken));
        }
        self.state = RecvState::TokenIn;
        if self.control.held().len() < TOKEN_LEN {
            return Ok((taken, ControlSeen::More));
        }
        self.control.clear();
        self.received = self.x;
        self.state = RecvState::Lane;
        Ok((taken, ControlSeen::Hopped))
    }

    fn feed_lane(&mut self, bytes: &[u8]) -> Result<(usize, ControlSeen), Violation> {
        let step = self
            .control
            .take_record(bytes)
            .and_then(|(taken, record)| match record {
                None | Some(LaneRecord::Nop) => Ok((taken, ControlSeen::More)),
                Some(LaneRecord::Resume {
                    token,
                    consumed,
                    position,
                }) => {
                    self.resumed(token, consumed, position)?;
                    Ok((taken, ControlSeen::Resumed))
                }
            });
        if step.is_err() {
            self.freeze();
            self.tcp_reset();
        }
        step
    }

    fn resumed(
        &mut self,
        token: Token,
        consumed: Position,
        position: Position,
    ) -> Result<(), Violation> {
        if self.lane.is_none_or(|lane| lane.token != token) {
            return Err(Violation::ResumeToken);
        }
        let received = self.received;
        let fits = consumed <= received && received <= position;
        if !fits || self.fin.is_some_and(|fin| fin != position) {
            return Err(Violation::ResumePositions {
                consumed,
                received,
                position,
            });
        }
        self.freeze();
        self.resumed_at = consumed;
        self.skip = received - consumed;
        self.floor = position;
        self.state = RecvState::Skip;
        self.leave_skip();
        Ok(())
    }

    fn leave_skip(&mut self) {
        if self.state == RecvState::Skip && self.skip == 0 && self.x >= self.received {
            self.state = RecvState::Raw;
        }
    }

    /// Bytes read as control that turned out to be the program's: they come next.
    pub fn pushback(&self) -> &[u8] {
        let (start, end) = self.pushback_range;
        &self.pushback[start..end]
    }

    /// The program got the first `n` bytes of [`Receiver::pushback`].
    pub fn take_pushback(&mut self, n: usize) {
        debug_assert!(
            n <= self.pushback().len(),
            "more pushback taken than there is"
        );
        let n = n.min(self.pushback().len());
        self.pushback_range.0 += n;
        self.x = self.x + n as u64;
    }

    fn push_back(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let (_, end) = self.pushback_range;
        if bytes.len() > RESUME_LEN - end {
            self.tcp_reset();
            return Err(Violation::Overread);
        }
        self.pushback[end..end + bytes.len()].copy_from_slice(bytes);
        self.pushback_range.1 += bytes.len();
        Ok(())
    }

    /// `n` bytes were thrown away as [`TcpRead::Skip`] allowed.
    pub fn skipped(&mut self, n: u64) {
        if self.state == RecvState::Skip {
            debug_assert!(n <= self.skip, "{n} bytes skipped of {}", self.skip);
            self.skip -= n.min(self.skip);
            self.leave_skip();
        }
    }

    /// The lane's cursor says that the peer published everything below `published` in a ring of `ring` bytes: how many bytes
    /// the program may get from the lane now, from [`Receiver::position`] on. On a frozen lane the cursor is not looked at.
    ///
    /// An error freezes the lane: tell the peer by CLOSE, and let this end's sender resume.
    pub fn lane_available(&mut self, published: u64, ring: u64) -> Result<u64, Violation> {
        if let End::Draining { .. } = self.end {
            return self.drain(ring);
        }
        match self.state {
            RecvState::Lane if self.lane_open() => {
                let claimed = Position::new(published);
                let beyond = self.fin.is_some_and(|fin| claimed > fin);
                if claimed < self.received || claimed - self.x > ring || beyond {
                    self.freeze();
                    let (before, delivered) = (self.received, self.x);
                    return Err(Violation::Published {
                        claimed,
                        before,
                        delivered,
                    });
                }
                self.received = claimed;
                Ok(claimed - self.x)
            }
            RecvState::Raw | RecvState::HopSeen | RecvState::TokenIn => Ok(0),
            _ => Ok(self.received - self.x),
        }
    }

    /// The program got `n` bytes from the lane. The new [`Receiver::position`] is what the consumed cursor may say.
    pub fn delivered(&mut self, n: u64) {
        let there = match self.state {
            RecvState::Raw | RecvState::HopSeen | RecvState::TokenIn => 0,
            _ => self.received - self.x,
        };
        debug_assert!(n <= there, "{n} bytes delivered of {there}");
        self.x = self.x + n.min(there);
        self.leave_skip();
    }

    fn ring_undelivered(&self) -> bool {
        match self.state {
            RecvState::Raw | RecvState::HopSeen | RecvState::TokenIn => false,
            _ => self.received > self.x || matches!(self.end, End::Draining { .. }),
        }
    }

    /// FIN{m}: the direction ends at `m`. A hint that lets the program see the end at lane speed. An error freezes the lane.
    pub fn lane_fin(&mut self, m: Position) -> Result<(), Violation> {
        let live = matches!(
            self.state,
            RecvState::HopSeen | RecvState::TokenIn | RecvState::Lane
        );
        if !live || !self.lane_open() {
            return Ok(());
        }
        let known = self.fin.unwrap_or(self.received);
        if m < self.received || self.fin.is_some_and(|fin| fin != m) {
            self.freeze();
            return Err(Violation::Fin { claimed: m, known });
        }
        self.fin = Some(m);
        Ok(())
    }

    /// The lane is given up (LOST, CLOSE seen or sent): its cursors are not looked at any more, and an agreement that has not
    /// been passed on yet must not be. What is known to be there is still delivered; the rest comes on TCP.
    pub fn freeze(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.open = false;
        }
        self.ack_stands = false;
    }

    /// As [`Receiver::freeze`], and gives up what the program has not got from the ring: it comes again on TCP (fork, exec).
    /// False if some of it cannot come again, because TCP's copy was thrown away already or its sender is gone: that has to be
    /// delivered from the ring.
    pub fn freeze_at_delivered(&mut self) -> bool {
        self.freeze();
        match self.state {
            RecvState::Lane => self.received = self.x,
            RecvState::Skip => {
                let skipped = (self.received - self.resumed_at) - self.skip;
                let keep = self.x.max(self.resumed_at + skipped);
                self.skip -= self.received - keep;
                self.received = keep;
                self.leave_skip();
            }
            _ => {}
        }
        !self.ring_undelivered()
    }
}

#[cfg(test)]
mod tests;
