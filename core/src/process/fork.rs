//! fork: the child starts anew, with nothing of its parent's lanes but the knowledge that they exist.

use super::{background, family, thread};
use crate::link::bell;
use crate::link::memory::MemoryLink;
use crate::log::debug;
use crate::readiness;
use crate::socket::stream;
use crate::stats;
use crate::sys::lock::forget_thread_id;

/// pthread_atfork: before.
pub fn before() {
    family::before_fork();
}

/// pthread_atfork: in the child. Only flags and raw system calls: another thread of the parent may have held any lock.
pub fn in_child() {
    forget_thread_id();
    super::set_pid();
    thread::forget();
    stream::reset_locks();
    for s in stream::all() {
        s.reset_locks();
    }
    readiness::instance::in_child();
    background::abandon();
    MemoryLink::abandon_all();
    bell::abandon();
    stats::forked();
    family::after_fork_child();
    for s in stream::all() {
        s.forget_lane();
    }
    debug!("forked");
}
