//! Counters that other processes can read: what `rsock status` shows.
//!
//! A process in which rsock becomes active owns one *segment*: a memfd named `rsock-stats` that it maps shared. Nothing has
//! to be cleaned up, whatever way the process ends, and a reader finds the segment in `/proc/PID/fd`. Only the owner writes.
//!
//! The writer half ([`open_stream`], [`record`], [`counters`], [`forked`]) runs inside the programs: raw system calls only,
//! no allocation, no lock. The reader half ([`read`]) is for the command line and for tests, and may use std.
//!
//! Cost on the data path: one line of counters for each direction of a stream, in plain loads and stores ([`Count`]),
//! because the stream's own lock already admits one writer at a time.

mod layout;
pub mod read;
mod reason;
mod sys;
mod writer;

/// How many streams of a process can be listed at once; more work all the same, but are not shown.
pub const CAPACITY: usize = layout::STREAMS;

pub use layout::{
    Carrier, Count, Direction, Flow, LinkKind, ProcessCounters, Role, SharedCount, StreamRecord,
};
pub use reason::Reason;
pub use writer::{
    Slot, close_stream, counters, descriptor, forked, hopped, hopped_back, moved, note,
    open_stream, record, stays_on_tcp,
};
