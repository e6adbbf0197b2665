//! What the two ends of a link tell each other about its lanes, and how that looks in bytes.
//!
//! ```text
//! 0 magic 0xa7   1 version 1   2 type   3 length of the whole message   4..8 lane   8.. by type, little-endian
//! ```
//! A message is at most [`MAX_MESSAGE`] bytes and says its own length, so it fits a slot of fixed size as well as a packet;
//! bytes behind it are not looked at. Any input decodes to a message or to a [`DecodeError`], and each message has one encoding.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::{Hop, LaneId, NakReason, Position, Token};

/// The longest message in bytes.
pub const MAX_MESSAGE: usize = 128;
const MAGIC: u8 = 0xa7;
const VERSION: u8 = 1;
const HEADER: usize = 8;

/// Both ends of a TCP connection as one of them sees it. IPv4 and IPv4-mapped IPv6 addresses are the same; scopes and flow
/// labels have no meaning for the other end and are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// `getsockname` of whoever sends the message.
    pub local: SocketAddr,
    /// `getpeername` of whoever sends the message.
    pub peer: SocketAddr,
}

impl Addresses {
    /// The pair in the form in which two ends may compare it.
    pub fn new(local: SocketAddr, peer: SocketAddr) -> Self {
        let plain = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        Addresses {
            local: plain(local),
            peer: plain(peer),
        }
    }

    /// The same connection seen from its other end.
    pub fn mirrored(self) -> Self {
        Addresses {
            local: self.peer,
            peer: self.local,
        }
    }
}

/// What both ends say about a connection so that each can tell that the other holds the other end of the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proof {
    /// Bytes the program behind the message's sender has sent so far.
    pub sent: Position,
    /// Bytes it has received so far.
    pub received: Position,
    /// Digest of the nonce and the first bytes of both directions.
    pub digest: [u8; 16],
}

/// A control message of a link. `ring` is in bytes and a power of two; `offset` and `key` say where the ring lies in the memory
/// that the message's sender lends its peer (the key is the remote key of a verbs link, 0 elsewhere).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// Asks for a lane.
    Open {
        /// Chosen by the message's sender.
        lane: LaneId,
        /// Size of the ring it receives in.
        ring: u32,
        /// Key of that ring.
        key: u32,
        /// Where that ring lies.
        offset: u64,
        /// To be written into TCP by the peer when it hops.
        token: Token,
        /// Fresh random bytes, part of both digests.
        nonce: [u8; 16],
        /// Which connection is meant.
        addresses: Addresses,
        /// That it holds this connection.
        proof: Proof,
    },
    /// Grants a lane.
    OpenAck {
        /// Of the OPEN.
        lane: LaneId,
        /// Size of the ring the message's sender receives in.
        ring: u32,
        /// Key of that ring.
        key: u32,
        /// Where that ring lies.
        offset: u64,
        /// To be written into TCP by the peer when it hops.
        token: Token,
        /// That it holds this connection.
        proof: Proof,
    },
    /// Grants no lane.
    Refuse {
        /// Of the OPEN.
        lane: LaneId,
        /// Why, and so whether to ask again.
        reason: RefuseReason,
    },
    /// Asks to leave TCP.
    Hop(Hop),
    /// From now on the byte at the hop's position decides.
    HopAck {
        /// Of the HOP.
        lane: LaneId,
        /// Of the HOP.
        seq: u32,
    },
    /// Stay on TCP.
    HopNak {
        /// Of the HOP.
        lane: LaneId,
        /// Of the HOP.
        seq: u32,
        /// Why.
        reason: NakReason,
    },
    /// The ring is filled up to here; for links whose peer cannot see a cursor.
    Published {
        /// Whose ring.
        lane: LaneId,
        /// First position not in the ring yet.
        to: Position,
    },
    /// The ring is free up to here; for links whose peer cannot see a cursor.
    Consumed {
        /// Whose ring.
        lane: LaneId,
        /// First position not consumed yet.
        to: Position,
    },
    /// The direction ends here: a hint, the end itself comes on TCP.
    Fin {
        /// Whose direction.
        lane: LaneId,
        /// First position that will never be.
        at: Position,
    },
    /// Treat this lane as lost; both directions come back to TCP.
    Close {
        /// Which.
        lane: LaneId,
    },
}

/// Why an OPEN was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefuseReason {
    /// The program has not accepted the connection yet: ask again, do not remember.
    NotYet,
    /// Another process holds the connection: ask there.
    Redirect,
    /// This stream has to stay on TCP for good.
    Pinned,
    /// This address never will: remember.
    Never,
    /// The last lane of the stream is not gone at both ends yet: ask again.
    Busy,
    /// No memory for a ring: ask again much later.
    NoMemory,
    /// The proof does not fit: the link's peer does not hold the connection's other end.
    Proof,
    /// A code that this version does not know; treated as `Never`.
    Unknown(u8),
}

impl RefuseReason {
    /// The code in the message.
    pub fn code(self) -> u8 {
        match self {
            RefuseReason::NotYet => 1,
            RefuseReason::Redirect => 2,
            RefuseReason::Pinned => 3,
            RefuseReason::Never => 4,
            RefuseReason::Busy => 5,
            RefuseReason::NoMemory => 6,
            RefuseReason::Proof => 7,
            RefuseReason::Unknown(code) => code,
        }
    }

    /// The reason for a code; every code has one.
    pub fn from_code(code: u8) -> Self {
        match code {
            1 => RefuseReason::NotYet,
            2 => RefuseReason::Redirect,
            3 => RefuseReason::Pinned,
            4 => RefuseReason::Never,
            5 => RefuseReason::Busy,
            6 => RefuseReason::NoMemory,
            7 => RefuseReason::Proof,
            code => RefuseReason::Unknown(code),
        }
    }
}

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
    /// The lane that is meant.
    pub fn lane(&self) -> LaneId {
        match *self {
            Message::Open { lane, .. }
            | Message::OpenAck { lane, .. }
            | Message::Refuse { lane, .. }
            | Message::Hop(Hop { lane, .. })
            | Message::HopAck { lane, .. }
            | Message::HopNak { lane, .. }
            | Message::Published { lane, .. }
            | Message::Consumed { lane, .. }
            | Message::Fin { lane, .. }
            | Message::Close { lane } => lane,
        }
    }

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

#[cfg(test)]
mod tests;
