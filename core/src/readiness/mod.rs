//! Readiness: epoll, poll and select on streams that have hopped, mixed freely with descriptors that are not ours.
//!
//! [`look`] says what a stream is ready for. [`registration`] and [`instance`] keep what the program registered in epoll
//! instances, [`epoll`] and [`poll`] are the waits, [`spin`] decides how long a waiter looks before it sleeps.

pub mod epoll;
pub mod instance;
pub mod look;
pub mod poll;
pub mod registration;
pub mod select;
pub mod spin;
