//! The records that announce, within the TCP stream, where a direction leaves TCP and where it comes back.
//!
//! ```text
//! TOKEN   guard, token[16]                            17 bytes, at the position of the hop
//! RESUME  'R', token[16], consumed u64, position u64  33 bytes, the first and only way back
//! NOP     'N'                                          1 byte, keeps address translators awake below a busy lane
//! ```
//! Numbers are little-endian. Behind a TOKEN only RESUME and NOP are legal; behind a RESUME the stream is raw again, from its
//! `consumed` on.

use core::fmt;

use super::{Position, Token, Violation};

/// Bytes of a TOKEN record.
pub const TOKEN_LEN: usize = 17;
/// Bytes of a RESUME record.
pub const RESUME_LEN: usize = 33;
/// Bytes of a NOP record.
pub const NOP_LEN: usize = 1;

const RESUME: u8 = b'R';
const NOP: u8 = b'N';

/// Control bytes on their way into TCP. At most a TOKEN and a RESUME (or a NOP and a RESUME) wait together, so it never fills.
#[derive(Clone)]
pub struct ControlOut {
    bytes: [u8; 96],
    /// `start <= end <= bytes.len()`; the bytes between them are owed. Both are 0 when nothing is.
    start: usize,
    end: usize,
}

impl ControlOut {
    /// Nothing owed.
    pub const fn new() -> Self {
        ControlOut {
            bytes: [0; 96],
            start: 0,
            end: 0,
        }
    }

    /// The bytes owed, in order.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Is nothing owed?
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first `n` owed bytes are in the kernel.
    pub fn advance(&mut self, n: usize) {
        debug_assert!(
            n <= self.end - self.start,
            "more control written than was owed"
        );
        self.start = self.end.min(self.start.saturating_add(n));
        if self.is_empty() {
            self.clear();
        }
    }

    /// Nothing is owed any more.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    pub(super) fn push_token(&mut self, guard: u8, token: &Token) {
        self.push(&[guard]);
        self.push(token.as_bytes());
    }

    pub(super) fn push_resume(&mut self, token: &Token, consumed: Position, position: Position) {
        self.push(&[RESUME]);
        self.push(token.as_bytes());
        self.push(&consumed.get().to_le_bytes());
        self.push(&position.get().to_le_bytes());
    }

    pub(super) fn push_nop(&mut self) {
        self.push(&[NOP]);
    }

    /// A data byte that has to come first on TCP.
    pub(super) fn push_data(&mut self, byte: u8) {
        self.push(&[byte]);
    }

    fn push(&mut self, record: &[u8]) {
        self.bytes[self.end..self.end + record.len()].copy_from_slice(record);
        self.end += record.len();
    }
}

impl Default for ControlOut {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ControlOut {
    /// Says how much there is; what there is holds a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControlOut({} bytes)", self.as_slice().len())
    }
}

/// A record that is legal below a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LaneRecord {
    Nop,
    Resume {
        token: Token,
        consumed: Position,
        position: Position,
    },
}

/// Collects a record from TCP reads of any size.
#[derive(Clone)]
pub(super) struct ControlIn {
    bytes: [u8; RESUME_LEN],
    /// `bytes[..len]` were read and belong to an unfinished record.
    len: usize,
}

impl fmt::Debug for ControlIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControlIn({} bytes)", self.len)
    }
}

impl ControlIn {
    pub(super) const fn new() -> Self {
        ControlIn {
            bytes: [0; RESUME_LEN],
            len: 0,
        }
    }

    /// What was read of an unfinished record.
    pub(super) fn held(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Takes token bytes as long as they are what the token has there: how many were taken, and whether the next one differs.
    pub(super) fn take_token(&mut self, bytes: &[u8], guard: u8, token: &Token) -> (usize, bool) {
        let mut taken = 0;
        for &byte in bytes {
            if self.len == TOKEN_LEN {
                break;
            }
            let expected = if self.len == 0 {
                guard
            } else {
                token.as_bytes()[self.len - 1]
            };
            if byte != expected {
                return (taken, true);
            }
            self.bytes[self.len] = byte;
            self.len += 1;
            taken += 1;
        }
        (taken, false)
    }

    /// Takes bytes up to the end of the next record: how many, and the record if it is whole.
    pub(super) fn take_record(
        &mut self,
        bytes: &[u8],
    ) -> Result<(usize, Option<LaneRecord>), Violation> {
        let Some(&first) = self.held().first().or(bytes.first()) else {
            return Ok((0, None));
        };
        match first {
            NOP => return Ok((NOP_LEN, Some(LaneRecord::Nop))),
            RESUME => {}
            other => return Err(Violation::ControlByte(other)),
        }
        let taken = bytes.len().min(RESUME_LEN - self.len);
        self.bytes[self.len..self.len + taken].copy_from_slice(&bytes[..taken]);
        self.len += taken;
        if self.len < RESUME_LEN {
            return Ok((taken, None));
        }
        self.len = 0;
        let [
            _,
            token @ ..,
            c0,
            c1,
            c2,
            c3,
            c4,
            c5,
            c6,
            c7,
            p0,
            p1,
            p2,
            p3,
            p4,
            p5,
            p6,
            p7,
        ] = self.bytes;
        let record = LaneRecord::Resume {
            token: Token::from_bytes(token),
            consumed: Position::new(u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7])),
            position: Position::new(u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7])),
        };
        Ok((taken, Some(record)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token::from_bytes(*b"0123456789abcdef");

    #[test]
    fn records_have_the_documented_bytes() {
        let mut out = ControlOut::new();
        out.push_token(0x7f, &TOKEN);
        assert_eq!(out.as_slice(), b"\x7f0123456789abcdef");
        out.advance(5);
        out.push_resume(&TOKEN, Position::new(0x0102), Position::new(0x0304));
        assert_eq!(
            out.as_slice(),
            b"456789abcdefR0123456789abcdef\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0"
        );
        out.advance(12 + RESUME_LEN);
        assert!(out.is_empty());
        out.push_nop();
        assert_eq!(out.as_slice(), b"N");
    }

    #[test]
    fn a_resume_is_found_whatever_the_reads_were() {
        let mut out = ControlOut::new();
        out.push_nop();
        out.push_resume(&TOKEN, Position::new(7), Position::new(u64::MAX));
        let wire = out.as_slice().to_vec();
        for step in 1..=wire.len() {
            let mut control = ControlIn::new();
            let mut seen = Vec::new();
            for chunk in wire.chunks(step) {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let (taken, record) = control.take_record(rest).expect("legal bytes");
                    assert!(taken > 0);
                    rest = &rest[taken..];
                    seen.extend(record);
                }
            }
            let resume = LaneRecord::Resume {
                token: TOKEN,
                consumed: Position::new(7),
                position: Position::new(u64::MAX),
            };
            assert_eq!(seen, [LaneRecord::Nop, resume], "in steps of {step}");
        }
    }

    #[test]
    fn any_other_first_byte_is_a_violation() {
        for byte in (0..=u8::MAX).filter(|b| !b"RN".contains(b)) {
            let answer = ControlIn::new().take_record(&[byte]);
            assert_eq!(answer, Err(Violation::ControlByte(byte)));
        }
    }

    #[test]
    fn the_first_differing_token_byte_is_noticed_at_once() {
        let mut wire = vec![9];
        wire.extend(TOKEN.as_bytes());
        for wrong in 0..TOKEN_LEN {
            let mut bytes = wire.clone();
            bytes[wrong] ^= 1;
            let mut control = ControlIn::new();
            assert_eq!(control.take_token(&bytes, 9, &TOKEN), (wrong, true));
            assert_eq!(control.held(), &wire[..wrong]);
        }
    }
}
