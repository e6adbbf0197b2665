//! Doorbells of this process: up to 64 eventfds that peers may write to.
//!
//! Bell 0 is the background thread's. The others belong to an epoll instance for its life or to a thread for one sleep.
//! A peer gets a bell's descriptor when it is armed on its link for the first time. When all are in use the caller gets
//! none and the stream goes back to TCP: never a wait that nobody can end.

use crate::sys;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};

/// The number of a doorbell, 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bell(u8);

static USED: AtomicU64 = AtomicU64::new(1);
static FDS: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

impl Bell {
    /// The background thread's.
    pub const BACKGROUND: Bell = Bell(0);

    /// A bell for a sleeper, if possible the one it had before.
    pub fn take(hint: Option<Bell>) -> Option<Bell> {
        if let Some(b) = hint
            && USED.fetch_or(b.bit(), AcqRel) & b.bit() == 0
        {
            return b.ready();
        }
        loop {
            let used = USED.load(Relaxed);
            let free = (!used).trailing_zeros();
            if free == 64 {
                return None;
            }
            let b = Bell(free as u8);
            if USED.fetch_or(b.bit(), AcqRel) & b.bit() == 0 {
                return b.ready();
            }
        }
    }

    /// A bell by its number in a message.
    pub fn from_index(index: u8) -> Option<Bell> {
        (index < 64).then_some(Bell(index))
    }

    /// Its number.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Its bit in a set of bells.
    pub fn bit(self) -> u64 {
        1 << self.0
    }

    /// Gives it back.
    pub fn release(self) {
        USED.fetch_and(!self.bit(), AcqRel);
    }

    /// Its eventfd (made when first needed), or None where the kernel gives us none.
    pub fn fd(self) -> Option<i32> {
        let slot = &FDS[self.index()];
        match slot.load(Acquire) {
            -1 => {
                let fd = sys::eventfd().ok()?;
                match slot.compare_exchange(-1, fd, AcqRel, Acquire) {
                    Ok(_) => {
                        crate::table::set_internal(fd);
                        Some(fd)
                    }
                    Err(other) => {
                        sys::close(fd);
                        Some(other)
                    }
                }
            }
            fd => Some(fd),
        }
    }

    /// Its eventfd, if it has been made.
    pub fn existing_fd(self) -> Option<i32> {
        Some(FDS[self.index()].load(Acquire)).filter(|fd| *fd >= 0)
    }

    fn ready(self) -> Option<Bell> {
        if self.fd().is_none() {
            self.release();
            return None;
        }
        Some(self)
    }

    /// Rings it from inside this process.
    pub fn ring(self) {
        let fd = FDS[self.index()].load(Acquire);
        if fd >= 0 {
            ring_fd(fd);
        }
    }

    /// Empties it after a sleep.
    pub fn drain(self) {
        let fd = FDS[self.index()].load(Acquire);
        if fd >= 0 {
            // EAGAIN when nobody rang: the sleep ended for another reason.
            let _ = sys::read(fd, &mut [0; 8]);
        }
    }
}

/// Rings every bell of a set of this process.
pub fn ring_all(mut set: u64) {
    while set != 0 {
        Bell(set.trailing_zeros() as u8).ring();
        set &= set - 1;
    }
}

/// Rings a peer's or our own eventfd. A full counter (EAGAIN) rings as well.
pub fn ring_fd(fd: i32) {
    let _ = sys::write(fd, &1u64.to_ne_bytes());
}

/// In a fork child every bell belongs to the parent: start anew, leaving its descriptors alone.
pub fn abandon() {
    USED.store(1, Release);
    for fd in &FDS {
        let old = fd.swap(-1, AcqRel);
        if old >= 0 {
            crate::table::clear(old);
            sys::close(old);
        }
    }
}
