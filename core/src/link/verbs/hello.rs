//! The private data of a connection set-up: who we are, how much we may be sent, and up to 48 bytes of the rendezvous's own.
//!
//! ```text
//! 0..4 magic "rsk1"   4 version   5 length of the body   6..8 granted credits, little-endian   8.. body
//! ```
//! On InfiniBand and RoCE a request has room for 56 bytes and arrives filled up with zeros, so the length is part of it. A peer
//! that speaks another version is refused before anything else is looked at.

/// Bytes in a request, the least that any transport carries.
const ROOM: usize = 56;
const HEADER: usize = 8;
/// Bytes for the rendezvous.
pub const MAX_BODY: usize = ROOM - HEADER;
const MAGIC: [u8; 4] = *b"rsk1";
const VERSION: u8 = 1;

/// What one side tells the other while they connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello<'a> {
    /// Ordinary messages that the peer may send at first.
    pub granted: u16,
    /// The rendezvous's own bytes: which connection is meant, or where to go instead.
    pub body: &'a [u8],
}

/// The peer is not rsock, or not of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stranger;

impl<'a> Hello<'a> {
    /// Its bytes. A longer body than [`MAX_BODY`] is cut off: callers check it.
    pub fn encode(&self) -> ([u8; ROOM], usize) {
        let body = &self.body[..self.body.len().min(MAX_BODY)];
        let mut bytes = [0; ROOM];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = body.len() as u8;
        bytes[6..8].copy_from_slice(&self.granted.to_le_bytes());
        bytes[HEADER..HEADER + body.len()].copy_from_slice(body);
        (bytes, HEADER + body.len())
    }

    /// Reads what the peer sent.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Stranger> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(Stranger)?;
        if header[..4] != MAGIC || header[4] != VERSION {
            return Err(Stranger);
        }
        let body = rest
            .get(..header[5] as usize)
            .filter(|body| body.len() <= MAX_BODY)
            .ok_or(Stranger)?;
        Ok(Hello {
            granted: u16::from_le_bytes([header[6], header[7]]),
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fits_and_comes_back_also_with_zeros_behind_it() {
        let hello = Hello {
            granted: 300,
            body: &[7; MAX_BODY],
        };
        let (bytes, length) = hello.encode();
        assert_eq!(length, 56);
        assert_eq!(Hello::decode(&bytes), Ok(hello));
        let short = Hello {
            granted: 1,
            body: b"x",
        };
        let (bytes, length) = short.encode();
        assert_eq!(length, 9);
        assert_eq!(Hello::decode(&bytes), Ok(short));
    }

    #[test]
    fn strangers_are_told_apart() {
        let (good, _) = Hello {
            granted: 1,
            body: b"ab",
        }
        .encode();
        assert_eq!(Hello::decode(&good[..9]), Err(Stranger), "cut off");
        for at in 0..6 {
            let mut bytes = good;
            bytes[at] ^= 0x80;
            assert_eq!(Hello::decode(&bytes), Err(Stranger), "byte {at}");
        }
        assert_eq!(Hello::decode(&[]), Err(Stranger));
    }
}
