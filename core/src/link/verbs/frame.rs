//! What a SEND between two queue pairs looks like: eight bytes in front of what the link's own messages need.
//!
//! ```text
//! 0 kind   1 zero   2..4 returned credits   4..8 number (for Notify)   8.. the message (for Message), little-endian
//! ```

/// Bytes in front of a message.
pub const HEADER: usize = 8;

/// What a SEND is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// The connector's first, which opens the link: only now may the acceptor send (iWARP demands it, so we do it everywhere).
    Hello,
    /// Only returns credits, and needs none.
    Credits,
    /// What a write with immediate data would have said, where there is none.
    Notify(u32),
    /// A message of the link.
    Message(&'a [u8]),
    /// Asks for a [`Frame::Pong`].
    Ping,
    /// The answer to a [`Frame::Ping`].
    Pong,
}

/// The peer sent something that is no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl<'a> Frame<'a> {
    /// Writes it with `credits` into `to`, which has room for the header and the message; how many bytes.
    pub fn encode(&self, credits: u16, to: &mut [u8]) -> usize {
        let (kind, number, message): (u8, u32, &[u8]) = match *self {
            Frame::Hello => (1, 0, &[]),
            Frame::Credits => (2, 0, &[]),
            Frame::Notify(number) => (3, number, &[]),
            Frame::Message(message) => (4, 0, message),
            Frame::Ping => (5, 0, &[]),
            Frame::Pong => (6, 0, &[]),
        };
        to[0] = kind;
        to[1] = 0;
        to[2..4].copy_from_slice(&credits.to_le_bytes());
        to[4..8].copy_from_slice(&number.to_le_bytes());
        to[HEADER..HEADER + message.len()].copy_from_slice(message);
        HEADER + message.len()
    }

    /// Reads a frame and its credits.
    pub fn decode(bytes: &'a [u8]) -> Result<(Frame<'a>, u16), Malformed> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(Malformed)?;
        let credits = u16::from_le_bytes([header[2], header[3]]);
        let number = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let frame = match (header[0], header[1], number, rest.is_empty()) {
            (1, 0, 0, true) => Frame::Hello,
            (2, 0, 0, true) => Frame::Credits,
            (3, 0, number, true) => Frame::Notify(number),
            (4, 0, 0, _) => Frame::Message(rest),
            (5, 0, 0, true) => Frame::Ping,
            (6, 0, 0, true) => Frame::Pong,
            _ => return Err(Malformed),
        };
        Ok((frame, credits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_comes_back_as_it_was() {
        for frame in [
            Frame::Hello,
            Frame::Credits,
            Frame::Notify(0xdead_beef),
            Frame::Message(b"abc"),
            Frame::Message(b""),
            Frame::Ping,
            Frame::Pong,
        ] {
            let mut bytes = [0xff; 16];
            let length = frame.encode(513, &mut bytes);
            assert_eq!(Frame::decode(&bytes[..length]), Ok((frame, 513)));
        }
    }

    #[test]
    fn anything_else_is_malformed() {
        for bytes in [
            &[][..],
            &[1; 7],
            &[0; 8],
            &[7, 0, 0, 0, 0, 0, 0, 0],
            &[1, 1, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0, 9],
            &[2, 0, 0, 0, 1, 0, 0, 0],
        ] {
            assert_eq!(Frame::decode(bytes), Err(Malformed), "{bytes:?}");
        }
    }
}
