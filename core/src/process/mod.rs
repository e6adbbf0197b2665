//! The process: its background thread, fork, exec and exit.

pub mod background;
pub mod events;
pub mod family;
pub mod fork;
pub mod thread;

use crate::link::{bell, memory};
use crate::socket::close;
use crate::{log, stats};
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

/// The program puts a descriptor of its own (dup2) where one of ours is: the number is the program's, ours becomes another one.
/// Not in a vfork child, whose descriptors are its own and whose tables are its parent's.
pub fn relocate(fd: i32) {
    if !is_this() {
        return;
    }
    let Ok(new) = crate::sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, fd as usize + 1) else {
        crate::log::warn!(
            "the program takes descriptor {fd}, which rsock used, and there is no other number"
        );
        crate::table::clear(fd);
        return;
    };
    let new = new as i32;
    crate::table::set_internal(new);
    bell::moved(fd, new);
    memory::moved(fd, new);
    family::moved(fd, new);
    background::moved(fd, new);
    close::moved(fd, new);
    stats::moved(fd, new);
    log::moved(fd, new);
    crate::table::clear(fd);
    crate::log::debug!("the program takes descriptor {fd}, ours is {new} now");
}

/// A number of ours that another one takes the place of, if it is `fd`.
pub fn renumber(slot: &AtomicI32, fd: i32, new: i32) {
    // Whoever changed it meanwhile does not mean this descriptor any more.
    let _ = slot.compare_exchange(fd, new, AcqRel, Relaxed);
}
