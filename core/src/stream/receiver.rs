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

use super::record::{ControlIn, RESUME_LEN, TOKEN_LEN};
use super::{Hop, HopAnswer, LaneId, NakReason, Position, Token, Violation};

mod control;
mod end;
mod hopping;
mod ring;
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
    /// The program wants no more of it.
    shut: bool,
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
            shut: false,
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

    /// May the sender still put control bytes into TCP? While it may, the kernel socket must stay open and be read: bytes that
    /// arrive at a closed socket, or lie unread in one that is closed, make the kernel reset the connection, and what the
    /// program sent last is lost. After close(), freeze the lane and keep reading control until this is false.
    pub fn awaits_control(&self) -> bool {
        match self.state {
            RecvState::Raw => self.lane_open(),
            RecvState::HopSeen | RecvState::TokenIn | RecvState::Lane | RecvState::Skip => true,
            RecvState::Eof | RecvState::Dead => false,
        }
    }

    /// Whether whatever TCP carries from here on is the program's; then the position before which its end is no clean one.
    pub fn raw_with_floor(&self) -> Option<Position> {
        (self.state == RecvState::Raw && self.pushback().is_empty()).then_some(self.floor)
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

    /// How many of the bytes that TCP holds unread, from the first, the lane had brought before (`Skip`).
    pub fn to_skip(&self) -> u64 {
        self.skip
    }

    /// How many of the bytes that TCP holds unread at most are the program's; control bytes lie behind them.
    pub fn tcp_limit(&self) -> u64 {
        match self.state {
            RecvState::Raw if self.fin.is_some_and(|fin| self.x >= fin) => 0,
            RecvState::Raw => u64::MAX,
            RecvState::HopSeen => {
                (self.hop.0 - self.x).saturating_sub(self.pushback().len() as u64)
            }
            RecvState::Skip if self.skip == 0 => u64::MAX,
            RecvState::TokenIn
            | RecvState::Lane
            | RecvState::Skip
            | RecvState::Eof
            | RecvState::Dead => 0,
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
}

#[cfg(test)]
mod tests;
