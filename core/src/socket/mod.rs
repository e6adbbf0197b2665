//! The socket calls on a stream.
//!
//! [`receive`] and [`send`] are the data path; [`incoming`] and [`outgoing`] keep the two directions under their locks;
//! [`lanes`] opens and gives up lanes as the link and the program demand.

pub mod carrier;
pub mod census;
pub mod close;
pub mod incoming;
pub mod inflight;
pub mod iov;
pub mod lanes;
pub mod options;
pub mod outgoing;
pub mod pin;
pub mod receive;
pub mod send;
pub mod sendfile;
pub mod stream;
pub mod wait;
pub mod watch;
