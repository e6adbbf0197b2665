//! The name of a lane on its link, and why there may be none.

use core::fmt;

/// Names a lane on the link that carries it; chosen by whoever sends OPEN and never used again on that link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LaneId(pub u32);

/// Why a lane cannot be opened for this direction now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// The direction is not plain TCP, or still owes it something.
    Busy,
    /// A ring has at least one byte, and a power of two of them.
    Ring(u64),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Busy => f.write_str("the direction is not back on TCP yet"),
            OpenError::Ring(bytes) => write!(f, "a ring of {bytes} bytes is no power of two"),
        }
    }
}

impl core::error::Error for OpenError {}
