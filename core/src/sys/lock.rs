//! The one lock of rsock: four bytes, no allocation, owner known.
//!
//! It is held for short stretches of our own code, never across a sleep. A signal handler that interrupts its holder and
//! calls a socket function on the same stream would wait for itself: [`Lock::lock`] says so instead. A holder that left by
//! `longjmp` from a signal handler is found the same way, and the next call of that thread may take the lock over.

use super::{futex_wait, futex_wake, gettid};
use core::cell::{Cell, UnsafeCell};
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering::*};

thread_local! { static TID: Cell<u32> = const { Cell::new(0) } }

const WAITERS: u32 = 1 << 31;

/// This thread's id, from the kernel once.
pub fn thread_id() -> u32 {
    TID.with(|t| match t.get() {
        0 => {
            let id = gettid() as u32;
            t.set(id);
            id
        }
        id => id,
    })
}

/// In a fork child the thread id is another one.
pub fn forget_thread_id() {
    TID.with(|t| t.set(0));
}

/// A value behind a futex lock. The word is 0, or the owner's thread id, with a flag when somebody sleeps.
pub struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: access to the value goes through the lock word.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The lock, held.
pub struct Guard<'a, T>(&'a Lock<T>);

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Lock {
            word: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock; None when this very thread holds it already (a signal handler interrupted us).
    #[inline]
    pub fn lock(&self) -> Option<Guard<'_, T>> {
        let me = thread_id();
        if self.word.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
            return Some(Guard(self));
        }
        self.lock_slow(me)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.word
            .compare_exchange(0, thread_id(), Acquire, Relaxed)
            .is_ok()
            .then_some(Guard(self))
    }

    /// In a fork child: the holder is gone, the value may be used by nobody but the caller.
    pub fn reset(&self) {
        self.word.store(0, Release);
    }

    #[cold]
    fn lock_slow(&self, me: u32) -> Option<Guard<'_, T>> {
        for _ in 0..100 {
            let word = self.word.load(Relaxed);
            if word & !WAITERS == me {
                return None;
            }
            if word == 0 && self.word.compare_exchange(0, me, Acquire, Relaxed).is_ok() {
                return Some(Guard(self));
            }
            core::hint::spin_loop();
        }
        loop {
            let word = self.word.load(Relaxed);
            if word == 0 {
                // Others may still sleep: keep the flag, a needless wake is harmless.
                if self
                    .word
                    .compare_exchange(0, me | WAITERS, Acquire, Relaxed)
                    .is_ok()
                {
                    return Some(Guard(self));
                }
                continue;
            }
            if word & WAITERS == 0
                && self
                    .word
                    .compare_exchange(word, word | WAITERS, Relaxed, Relaxed)
                    .is_err()
            {
                continue;
            }
            futex_wait(&self.word, word | WAITERS, None);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the lock is held.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.0.word.swap(0, Release) & WAITERS != 0 {
            futex_wake(&self.0.word, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_and_wakes() {
        let lock = Lock::new(0u64);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..50_000 {
                        *lock.lock().expect("not held by this thread") += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock().expect("free"), 200_000);
    }

    #[test]
    fn tells_a_thread_that_it_holds_the_lock_itself() {
        let lock = Lock::new(());
        let held = lock.lock();
        assert!(held.is_some());
        assert!(lock.lock().is_none());
        drop(held);
        assert!(lock.lock().is_some());
    }
}
