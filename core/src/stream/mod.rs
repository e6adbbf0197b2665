//! The stream engine: what carries each direction of a connection at the moment, and how it moves without losing a byte.
//!
//! It is sans-IO: no descriptors, no clock, no threads, no allocation. A driver (the socket calls and the background thread)
//! tells it what happened and does what it answers; a simulator (`core/tests/sim`) drives two ends of it through random
//! faults. Each direction has a [`Sender`] at one end and a [`Receiver`] at the other, and one byte [`Position`] counted from
//! byte 0 of the connection, whatever the carriers did meanwhile.
//!
//! The way of a byte: `sender` says whether it goes to TCP or into the ring, `record` holds the few control bytes that
//! announce a change of carrier within TCP, `receiver` says how TCP may be read and how much of the ring is there, `message`
//! is what both ends tell each other over the link. Whatever a peer can write is checked, and answered by a [`Violation`].
//!
//! The rules are those of the hop protocol; the tests in `holes` are named after the ways in which a simpler one goes wrong.
//!
//! What a driver promises:
//! - a `recv` on the TCP socket and the report of its result are one step under the stream's receive lock, and so are a `send`
//!   and its report under the send lock;
//! - before it passes a HOP on, the published cursor that the receiver will look at says [`Hop::at`], and before it passes a
//!   HOP_ACK on, so does the consumed cursor that the sender will look at (without shared cursors, each end sets its own);
//! - after close() it goes on reading control until [`Receiver::awaits_control`] is false, and closes the socket only then;
//! - CLOSE, LOST or RESUME seen by one half closes the lane for both halves of that end: [`Receiver::freeze`] *and*
//!   [`Sender::resume`];
//! - a lane id is never used twice between two processes, and messages for another lane than the current one are dropped.
#![forbid(unsafe_code)]

#[cfg(test)]
mod holes;
mod hop;
mod lane;
mod message;
mod position;
mod receiver;
mod record;
mod sender;
mod token;
mod violation;

pub use hop::{Hop, HopAnswer, NakReason};
pub use lane::{LaneId, OpenError};
pub use message::{Addresses, DecodeError, MAX_MESSAGE, Message, Proof, RefuseReason};
pub use position::Position;
pub use receiver::{ControlSeen, EofOutcome, PeerFate, Receiver, RecvState, Stripped, TcpRead};
pub use record::{ControlOut, NOP_LEN, RESUME_LEN, TOKEN_LEN};
pub use sender::{SendState, Sender};
pub use token::Token;
pub use violation::Violation;
