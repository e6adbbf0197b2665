//! Where in a direction's byte stream something is.

use core::ops::{Add, Sub};

/// The number of a byte of one direction, counted from byte 0 of the connection. A position is not a length: two positions
/// differ by a `u64`, and a `u64` added to a position is a position.
///
/// Arithmetic saturates instead of wrapping or panicking, because a peer chooses some of the operands; a connection would need
/// centuries to get there honestly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position(u64);

impl Position {
    /// Byte 0 of the connection.
    pub const ZERO: Position = Position(0);

    /// The position of byte number `byte`.
    pub const fn new(byte: u64) -> Self {
        Position(byte)
    }

    /// The byte number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Add<u64> for Position {
    type Output = Position;
    fn add(self, length: u64) -> Position {
        Position(self.0.saturating_add(length))
    }
}

impl Sub for Position {
    type Output = u64;
    /// Bytes from `earlier` up to `self`; 0 if `earlier` is not earlier.
    fn sub(self, earlier: Position) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_lengths_add_up() {
        let start = Position::new(40);
        assert_eq!((start + 2).get(), 42);
        assert_eq!((start + 2) - start, 2);
        assert!(start < start + 1);
    }

    #[test]
    fn no_operand_a_peer_could_choose_panics_or_wraps() {
        let last = Position::new(u64::MAX);
        assert_eq!(last + 1, last);
        assert_eq!(Position::ZERO - last, 0);
        assert_eq!(last - Position::ZERO, u64::MAX);
    }
}
