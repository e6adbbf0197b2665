//! Link messages in bytes.
//!
//! ```text
//! 0 magic 0xa7   1 version 1   2 type   3 length of the whole message   4..8 lane   8.. by type, little-endian
//! ```
//! A message is at most [`MAX_MESSAGE`] bytes and says its own length, so it fits a slot of fixed size as well as a packet;
//! bytes behind it are not looked at. Any input decodes to a message or to a [`DecodeError`], and each message has one encoding.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{
    Addresses, Hop, LaneId, MAX_MESSAGE, Message, NakReason, Position, Proof, RefuseReason, Token,
};

pub(super) const MAGIC: u8 = 0xa7;
pub(super) const VERSION: u8 = 1;
const HEADER: usize = 8;

/// Why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// Fewer bytes than the message needs.
    Truncated,
    /// Not one of ours at all.
    Magic(u8),
    /// Of another version of the protocol.
    Version(u8),
    /// A type that this version does not know.
    Type(u8),
    /// The length in the message is not what its type has.
    Length(u8),
    /// A ring size that is no power of two.
    Ring(u32),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DecodeError::Truncated => f.write_str("link message is cut short"),
            DecodeError::Magic(byte) => write!(f, "link message starts with {byte:#04x}"),
            DecodeError::Version(v) => write!(f, "link message of version {v}, we speak {VERSION}"),
            DecodeError::Type(kind) => write!(f, "link message of unknown type {kind}"),
            DecodeError::Length(n) => write!(f, "link message of impossible length {n}"),
            DecodeError::Ring(n) => write!(f, "link message with a ring of {n} bytes"),
        }
    }
}

impl core::error::Error for DecodeError {}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Message::Open { .. } => 1,
            Message::OpenAck { .. } => 2,
            Message::Refuse { .. } => 3,
            Message::Hop(_) => 4,
            Message::HopAck { .. } => 5,
            Message::HopNak { .. } => 6,
            Message::Published { .. } => 7,
            Message::Consumed { .. } => 8,
            Message::Fin { .. } => 9,
            Message::Close { .. } => 10,
        }
    }

    /// Writes the message to the front of `out` and returns its length.
    pub fn encode(&self, out: &mut [u8; MAX_MESSAGE]) -> usize {
        let mut w = Writer { out, len: 0 };
        w.put(&[MAGIC, VERSION, self.kind(), 0]);
        w.put(&self.lane().0.to_le_bytes());
        match self {
            Message::Open {
                ring,
                key,
                offset,
                token,
                nonce,
                addresses,
                proof,
                ..
            } => {
                w.ring(*ring, *key, *offset, token);
                w.put(nonce);
                w.address(addresses.local);
                w.address(addresses.peer);
                w.proof(proof);
            }
            Message::OpenAck {
                ring,
                key,
                offset,
                token,
                proof,
                ..
            } => {
                w.ring(*ring, *key, *offset, token);
                w.proof(proof);
            }
            Message::Refuse { reason, .. } => w.put(&[reason.code()]),
            Message::Hop(hop) => {
                w.put(&hop.seq.to_le_bytes());
                w.position(hop.at);
                w.put(&[hop.guard]);
            }
            Message::HopAck { seq, .. } => w.put(&seq.to_le_bytes()),
            Message::HopNak { seq, reason, .. } => {
                w.put(&seq.to_le_bytes());
                w.put(&[reason.code()]);
            }
            Message::Published { to, .. } | Message::Consumed { to, .. } => w.position(*to),
            Message::Fin { at, .. } => w.position(*at),
            Message::Close { .. } => {}
        }
        let len = w.len;
        out[3] = len as u8;
        len
    }

    /// Reads the message at the front of `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Message, DecodeError> {
        let mut r = Reader { rest: bytes };
        let [magic, version, kind, length] = r.array()?;
        if magic != MAGIC {
            return Err(DecodeError::Magic(magic));
        }
        if version != VERSION {
            return Err(DecodeError::Version(version));
        }
        let lane = LaneId(u32::from_le_bytes(r.array()?));
        let body = usize::from(length)
            .checked_sub(HEADER)
            .ok_or(DecodeError::Length(length))?;
        r.rest = r.rest.get(..body).ok_or(DecodeError::Truncated)?;
        let message = r.body(kind, lane).map_err(|error| match error {
            DecodeError::Truncated => DecodeError::Length(length),
            other => other,
        })?;
        if r.rest.is_empty() {
            Ok(message)
        } else {
            Err(DecodeError::Length(length))
        }
    }
}

struct Writer<'a> {
    out: &'a mut [u8; MAX_MESSAGE],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn position(&mut self, position: Position) {
        self.put(&position.get().to_le_bytes());
    }

    fn ring(&mut self, ring: u32, key: u32, offset: u64, token: &Token) {
        self.put(&ring.to_le_bytes());
        self.put(&key.to_le_bytes());
        self.put(&offset.to_le_bytes());
        self.put(token.as_bytes());
    }

    fn address(&mut self, address: SocketAddr) {
        let v6 = match address.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.put(&v6.octets());
        self.put(&address.port().to_le_bytes());
    }

    fn proof(&mut self, proof: &Proof) {
        self.position(proof.sent);
        self.position(proof.received);
        self.put(&proof.digest);
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    fn position(&mut self) -> Result<Position, DecodeError> {
        Ok(Position::new(u64::from_le_bytes(self.array()?)))
    }

    fn number(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn code(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    fn ring(&mut self) -> Result<(u32, u32, u64, Token), DecodeError> {
        let ring = self.number()?;
        if !ring.is_power_of_two() {
            return Err(DecodeError::Ring(ring));
        }
        let key = self.number()?;
        let offset = u64::from_le_bytes(self.array()?);
        Ok((ring, key, offset, Token::from_bytes(self.array()?)))
    }

    fn address(&mut self) -> Result<SocketAddr, DecodeError> {
        let ip = Ipv6Addr::from(self.array::<16>()?).to_canonical();
        Ok(SocketAddr::new(ip, u16::from_le_bytes(self.array()?)))
    }

    fn proof(&mut self) -> Result<Proof, DecodeError> {
        Ok(Proof {
            sent: self.position()?,
            received: self.position()?,
            digest: self.array()?,
        })
    }

    fn body(&mut self, kind: u8, lane: LaneId) -> Result<Message, DecodeError> {
        Ok(match kind {
            1 => {
                let (ring, key, offset, token) = self.ring()?;
                let nonce = self.array()?;
                let addresses = Addresses {
                    local: self.address()?,
                    peer: self.address()?,
                };
                let proof = self.proof()?;
                Message::Open {
                    lane,
                    ring,
                    key,
                    offset,
                    token,
                    nonce,
                    addresses,
                    proof,
                }
            }
            2 => {
                let (ring, key, offset, token) = self.ring()?;
                let proof = self.proof()?;
                Message::OpenAck {
                    lane,
                    ring,
                    key,
                    offset,
                    token,
                    proof,
                }
            }
            3 => Message::Refuse {
                lane,
                reason: RefuseReason::from_code(self.code()?),
            },
            4 => {
                let (seq, at) = (self.number()?, self.position()?);
                Message::Hop(Hop {
                    lane,
                    seq,
                    at,
                    guard: self.code()?,
                })
            }
            5 => Message::HopAck {
                lane,
                seq: self.number()?,
            },
            6 => {
                let seq = self.number()?;
                Message::HopNak {
                    lane,
                    seq,
                    reason: NakReason::from_code(self.code()?),
                }
            }
            7 => Message::Published {
                lane,
                to: self.position()?,
            },
            8 => Message::Consumed {
                lane,
                to: self.position()?,
            },
            9 => Message::Fin {
                lane,
                at: self.position()?,
            },
            10 => Message::Close { lane },
            other => return Err(DecodeError::Type(other)),
        })
    }
}
