//! The process: its background thread, fork, exec and exit.

pub mod background;
pub mod events;
pub mod family;
pub mod fork;
pub mod thread;

use core::sync::atomic::{AtomicI32, Ordering::*};

static PID: AtomicI32 = AtomicI32::new(0);

/// Remembers which process this is.
pub fn set_pid() {
    PID.store(crate::sys::getpid(), Relaxed);
}

/// Whether the caller is the process that these tables belong to: not so in a vfork child, which runs in its parent's
/// memory (H26).
pub fn is_this() -> bool {
    crate::sys::getpid() == PID.load(Relaxed)
}

/// The program puts a descriptor of its own (dup2) where one of ours is. The number goes to the program, as it would without
/// us; what ours was for is given up: a bell or link without its descriptor ends as if the other side had closed it.
pub fn relocate(fd: i32) {
    crate::table::clear(fd);
    crate::log::warn!("the program takes descriptor {fd}, which rsock used");
}
