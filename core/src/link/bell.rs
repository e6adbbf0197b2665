//! Doorbells of this process: up to 64 eventfds that peers may write to.
//!
//! Bell 0 is the background thread's. The others belong to an epoll instance for its life or to a thread for one sleep.
//! A peer gets a bell's descriptor when it is armed on its link for the first time. When all are in use the caller gets
//! none and the stream goes back to TCP: never a wait that nobody can end.

use crate::sys;
use core::cell::Cell;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering::*};

/// The number of a doorbell, 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bell(u8);

static USED: AtomicU64 = AtomicU64::new(1);
static FDS: [AtomicI32; 64] = [const { AtomicI32::new(-1) }; 64];

thread_local! {
    /// The bell with which this thread sleeps, plus one; 0: none.
    static ASLEEP_WITH: Cell<u8> = const { Cell::new(0) };
}

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

    /// A bell for this thread to sleep with. A sleep that a signal handler left by siglongjmp has never given its bell back:
    /// it is the one to take. (It may also be that of a sleep which the handler interrupted, and in which this one is: the
    /// other ends as soon as the handler returns, and finds the bell gone.)
    pub fn take_to_sleep(hint: Option<Bell>) -> Option<Bell> {
        if let Some(left) = ASLEEP_WITH.get().checked_sub(1) {
            return Some(Bell(left));
        }
        let bell = Bell::take(hint)?;
        ASLEEP_WITH.set(bell.0 + 1);
        Some(bell)
    }

    /// Whether this thread still has it, since [`Bell::take_to_sleep`].
    pub fn is_mine(self) -> bool {
        ASLEEP_WITH.get() == self.0 + 1
    }

    /// The sleep is over: empties it and gives it back.
    pub fn woken(self) {
        ASLEEP_WITH.set(0);
        self.drain();
        self.release();
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

/// One of our descriptors has another number.
pub fn moved(fd: i32, new: i32) {
    FDS.iter()
        .for_each(|slot| crate::process::renumber(slot, fd, new));
}

/// In a fork child every bell belongs to the parent: start anew, leaving its descriptors alone.
pub fn abandon() {
    USED.store(1, Release);
    ASLEEP_WITH.set(0);
    for fd in &FDS {
        let old = fd.swap(-1, AcqRel);
        if old >= 0 {
            crate::table::clear(old);
            sys::close(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_a_sleep_never_gave_back_is_the_threads_next() {
        let left = Bell::take_to_sleep(None).expect("a bell");
        let next = Bell::take_to_sleep(None).expect("a bell");
        assert_eq!(left, next);
        assert!(next.is_mine());
        next.woken();
        assert!(!left.is_mine());
    }
}
