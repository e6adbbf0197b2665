//! fork: the child starts anew, with nothing of its parent's lanes but the knowledge that they exist.

use super::{background, family, thread};
use crate::link::bell::{self, Bell};
use crate::link::memory::MemoryLink;
use crate::log::debug;
use crate::readiness;
use crate::socket::stream;
use crate::sys;
use crate::sys::lock::forget_thread_id;
use crate::{stats, table};

/// pthread_atfork: before.
pub fn before() {
    family::before_fork();
}

/// pthread_atfork: in the child. Only flags and raw system calls: another thread of the parent may have held any lock.
pub fn in_child() {
    forget_thread_id();
    super::set_pid();
    thread::forget();
    // The parent's background thread stays reachable, by a number that is not in the way.
    let parent = Bell::BACKGROUND.existing_fd().and_then(|fd| {
        sys::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3)
            .and_then(|n| sys::move_high(n as i32))
            .ok()
    });
    stream::reset_locks();
    for s in stream::all() {
        s.reset_locks();
    }
    readiness::instance::in_child();
    background::abandon();
    MemoryLink::abandon_all();
    bell::abandon();
    stats::forked();
    if let Some(fd) = parent {
        table::set_internal(fd);
    }
    family::after_fork_child(parent.unwrap_or(-1));
    debug!("forked");
}
