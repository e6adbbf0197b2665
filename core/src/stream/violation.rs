//! What a peer did that the protocol does not allow.

use core::fmt;

use super::Position;

/// A value or a byte from the peer that no honest peer would send. It costs the peer its lane or its stream, never us a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Violation {
    /// The consumed cursor must lie between what it was and what was sent.
    Consumed {
        /// What the peer says it consumed.
        claimed: Position,
        /// What it said before.
        before: Position,
        /// What we accepted for it.
        sent: Position,
    },
    /// The published cursor must not go back, nor run more than a ring ahead of what was delivered.
    Published {
        /// What the peer says it published.
        claimed: Position,
        /// What it said before.
        before: Position,
        /// What the program got so far.
        delivered: Position,
    },
    /// The end of the lane's bytes lies before bytes that are there, or contradicts an end announced earlier.
    Fin {
        /// Where the peer says the direction ends.
        claimed: Position,
        /// What is there, or the end announced before.
        known: Position,
    },
    /// RESUME with another token than the lane's.
    ResumeToken,
    /// RESUME must have consumed <= received <= position, and its position must be the announced end, if there was one.
    ResumePositions {
        /// The peer's view of what we consumed.
        consumed: Position,
        /// What we hold complete.
        received: Position,
        /// The peer's position.
        position: Position,
    },
    /// A byte on TCP that starts no record while a lane carries the direction.
    ControlByte(u8),
    /// More bytes were reported than the engine had asked for: a fault of the driver, kept from doing harm.
    Overread,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Violation::Consumed {
                claimed,
                before,
                sent,
            } => write!(
                f,
                "peer claims to have consumed up to {}, outside {}..={}",
                claimed.get(),
                before.get(),
                sent.get()
            ),
            Violation::Published {
                claimed,
                before,
                delivered,
            } => write!(
                f,
                "peer claims to have published up to {}, before {} or more than a ring beyond {}",
                claimed.get(),
                before.get(),
                delivered.get()
            ),
            Violation::Fin { claimed, known } => write!(
                f,
                "peer ends its direction at {} where {} is known",
                claimed.get(),
                known.get()
            ),
            Violation::ResumeToken => f.write_str("RESUME with a wrong token"),
            Violation::ResumePositions {
                consumed,
                received,
                position,
            } => write!(
                f,
                "RESUME from {} to {} does not fit {} bytes received",
                consumed.get(),
                position.get(),
                received.get()
            ),
            Violation::ControlByte(byte) => {
                write!(f, "byte {byte:#04x} on TCP below a lane starts no record")
            }
            Violation::Overread => f.write_str("more TCP bytes read than may be control"),
        }
    }
}

impl core::error::Error for Violation {}
