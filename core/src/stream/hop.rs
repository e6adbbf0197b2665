//! The question "may I leave TCP at this byte?" and its answers.

use super::{LaneId, Message, Position};

/// The sender asks to leave TCP for the lane at a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The lane that would carry the bytes from `at` on.
    pub lane: LaneId,
    /// Counts the questions of one direction for the life of the stream, so that a late answer is known as such.
    pub seq: u32,
    /// How many bytes TCP carries before the hop.
    pub at: Position,
    /// What TCP's byte at `at` is if the sender hopped, and is not if it gave up: always different from the first byte of the
    /// data that waits.
    pub guard: u8,
}

/// What the receiver of a direction says to a [`Hop`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the sender of the hop waits for the answer"]
pub enum HopAnswer {
    /// From now on the byte at the position decides. Pass it on unless the lane is frozen first
    /// ([`Receiver::ack_stands`](super::Receiver::ack_stands)).
    Ack {
        /// Of the question.
        seq: u32,
    },
    /// Stay on TCP.
    Nak {
        /// Of the question.
        seq: u32,
        /// Why.
        reason: NakReason,
    },
    /// A stale question (an old sequence number, another lane): say nothing.
    Ignore,
}

impl HopAnswer {
    /// The link message that carries this answer.
    pub fn message(self, lane: LaneId) -> Option<Message> {
        match self {
            HopAnswer::Ack { seq } => Some(Message::HopAck { lane, seq }),
            HopAnswer::Nak { seq, reason } => Some(Message::HopNak { lane, seq, reason }),
            HopAnswer::Ignore => None,
        }
    }
}

/// Why a receiver will not follow a hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NakReason {
    /// TCP bytes beyond the position have been read already: the sender gave this hop up.
    Overtaken,
    /// Readers are inside the kernel from whose buffers a token could not be stripped.
    Readers,
    /// The kernel's counters do not agree with ours: someone else uses the socket.
    Census,
    /// The stream has to stay on TCP for good.
    Pinned,
    /// The lane is being closed.
    Closed,
    /// A hop is not possible in the receiver's present state; an honest sender does not ask then.
    State,
    /// A code that this version does not know.
    Unknown(u8),
}

impl NakReason {
    /// The code in the message.
    pub fn code(self) -> u8 {
        match self {
            NakReason::Overtaken => 1,
            NakReason::Readers => 2,
            NakReason::Census => 3,
            NakReason::Pinned => 4,
            NakReason::Closed => 5,
            NakReason::State => 6,
            NakReason::Unknown(code) => code,
        }
    }

    /// The reason for a code; every code has one.
    pub fn from_code(code: u8) -> Self {
        match code {
            1 => NakReason::Overtaken,
            2 => NakReason::Readers,
            3 => NakReason::Census,
            4 => NakReason::Pinned,
            5 => NakReason::Closed,
            6 => NakReason::State,
            code => NakReason::Unknown(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_a_reason_and_back() {
        for code in 0..=u8::MAX {
            assert_eq!(NakReason::from_code(code).code(), code);
        }
    }
}
