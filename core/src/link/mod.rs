//! Links: what connects two processes, and the lanes on it.
//!
//! A [`Lane`] looks the same on every link: two byte rings addressed by stream position and four cursors. Who moves the
//! bytes and rings the doorbell is the business of the [`Link`] behind it: shared memory does both with plain stores,
//! a queue pair posts work requests. The stream engine never sees the difference.

pub mod bell;
pub mod doorbell;
pub mod memory;
pub mod ring;
pub mod verbs;

use crate::stream::Message;
use ring::{RingReader, RingWriter};

/// A link to another process, as the socket calls use it.
pub trait Link: Sync {
    /// The writer of a lane has put bytes into its ring up to position `to`: let the peer see them and wake it if it sleeps.
    fn publish(&self, out: &RingWriter, to: u64);
    /// The reader of a lane has consumed up to `to` (before: `from`): let the peer see it, wake it if it may wait for room.
    fn consume(&self, input: &RingReader, from: u64, to: u64);
    /// Sends a control message. False: the link cannot take it (it is then as good as lost for this message).
    fn send(&self, message: &Message, descriptor: Option<i32>) -> bool;
    /// Makes sure that the peer can ring `bell`, and arms it. The caller looks at its lanes once more before it sleeps.
    fn arm(&self, bell: bell::Bell) -> bool;
    /// The sleep is over.
    fn disarm(&self, bell: bell::Bell);
    /// The link is gone: streams resume on TCP.
    fn lost(&self) -> bool;
    /// Takes what has arrived (completions, control messages) without sleeping.
    fn poll(&self);
    /// The peer's process id, 0 if not on this host.
    fn peer_pid(&self) -> i32;
    /// Which link of this process it is, for tables.
    fn index(&self) -> usize;
}

/// A stream's place on a link.
#[derive(Clone, Copy)]
pub struct Lane {
    /// The link it is on.
    pub link: &'static dyn Link,
    /// Its number there.
    pub id: crate::stream::LaneId,
    /// Our sending direction.
    pub out: RingWriter,
    /// Our receiving direction.
    pub input: RingReader,
}
