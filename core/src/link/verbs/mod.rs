//! The verbs link's own layer: RC queue pairs over rdma_cm, on InfiniBand, RoCE and iWARP.
//!
//! From bottom to top: [`provider`] says what this layer needs of an RDMA stack, [`rdma_core`] is the real one (loaded at run
//! time); [`device`] is an opened device with its protection domain and doorbell, [`region`] registered memory, [`credits`]
//! the arithmetic that keeps a receive request posted for whatever the peer sends, [`frame`] what a small message looks like,
//! [`queue_pair`] the data path, [`hello`] the private data of a connection set-up, and [`manager`] the connecting and
//! accepting.
//!
//! Everything here runs libc calls inside librdmacm, libibverbs and their drivers (open, ioctl, poll, malloc,
//! pthread_mutex_lock): call it only from inside the firewall of the preload library, with thread cancellation disabled, and
//! not from a signal handler. Connecting and accepting belong on the background thread, since closing an identifier may wait
//! for the kernel. Posting and polling do not sleep on hardware drivers; on rdma_rxe and siw each is a system call.
//!
//! What was run: rdma_rxe (RoCE v2) and siw (iWARP). What follows from the specifications but was never run: InfiniBand link
//! layer, hardware.

pub mod credits;
pub mod device;
mod error;
#[cfg(test)]
mod fake;
pub mod frame;
pub mod hello;
mod identifier;
pub mod manager;
pub mod provider;
pub mod queue_pair;
pub mod rdma_core;
pub mod region;

pub use error::{Error, Result};
