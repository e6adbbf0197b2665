//! What the two ends of a link tell each other about its lanes; `codec` is how that looks in bytes.

use core::net::SocketAddr;

use super::{Hop, LaneId, NakReason, Position, Token};

mod codec;

pub use codec::DecodeError;

/// The longest message in bytes.
pub const MAX_MESSAGE: usize = 128;

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
}

#[cfg(test)]
mod tests;
