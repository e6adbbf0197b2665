//! Type-stable slabs: objects that are made once, reused, and never unmapped, so that a stale index or reference leads to a
//! wrong object at worst, never to a fault.

use crate::sys::{self, lock::Lock};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

/// A slab of at most `N` objects in memory that is reserved when the first one is taken.
pub struct Slab<T: 'static, const N: usize> {
    base: AtomicPtr<T>,
    made: AtomicU32,
    free: Lock<Free>,
}

struct Free {
    first: u32,
    /// Index + 1 of the next free object, by index; lives behind the objects.
    next: *mut u32,
}

// SAFETY: `next` is only used under the lock.
unsafe impl Send for Free {}
// SAFETY: objects are shared by reference; T says whether it can be.
unsafe impl<T: Sync, const N: usize> Sync for Slab<T, N> {}

impl<T: Sync, const N: usize> Default for Slab<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Sync, const N: usize> Slab<T, N> {
    /// An empty slab.
    pub const fn new() -> Self {
        Slab {
            base: AtomicPtr::new(core::ptr::null_mut()),
            made: AtomicU32::new(0),
            free: Lock::new(Free {
                first: 0,
                next: core::ptr::null_mut(),
            }),
        }
    }

    /// Takes an object: a used one as it was left, or a new one from `make`. None when all are in use or there is no memory.
    pub fn take(&'static self, make: impl FnOnce(u32) -> T) -> Option<&'static T> {
        let mut free = self.free.lock()?;
        if self.base.load(Relaxed).is_null() {
            let memory = sys::reserve(N * size_of::<T>() + N * 4 + 4096).ok()?;
            // SAFETY: the reservation has room for the objects and then, aligned, for the list.
            free.next = unsafe {
                memory
                    .byte_add((N * size_of::<T>()).next_multiple_of(64))
                    .cast()
            };
            self.base.store(memory.cast(), Release);
        }
        let base = self.base.load(Relaxed);
        if free.first != 0 {
            let index = free.first - 1;
            // SAFETY: index < N; the object was made before it was freed.
            unsafe {
                free.first = *free.next.add(index as usize);
                return Some(&*base.add(index as usize));
            }
        }
        let index = self.made.load(Relaxed);
        if index as usize >= N {
            return None;
        }
        // SAFETY: inside the reservation, not yet seen by anybody.
        let object = unsafe {
            let at = base.add(index as usize);
            at.write(make(index));
            &*at
        };
        self.made.store(index + 1, Release);
        Some(object)
    }

    /// Gives an object back; its contents stay.
    pub fn give(&self, index: u32) {
        let Some(mut free) = self.free.lock() else {
            return;
        };
        // SAFETY: only indices of made objects come here.
        unsafe { *free.next.add(index as usize) = free.first };
        free.first = index + 1;
    }

    /// The object with that index, in use or not; None if it was never made.
    #[inline(always)]
    pub fn get(&'static self, index: u32) -> Option<&'static T> {
        if index >= self.made.load(Acquire) {
            return None;
        }
        // SAFETY: made, and never unmapped.
        Some(unsafe { &*self.base.load(Relaxed).add(index as usize) })
    }

    /// All objects ever made.
    pub fn iter(&'static self) -> impl Iterator<Item = &'static T> {
        (0..self.made.load(Acquire)).filter_map(move |i| self.get(i))
    }

    /// In a fork child: a vanished thread may have held the list.
    pub fn reset_lock(&self) {
        self.free.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU64;

    #[test]
    fn objects_are_reused_and_bounded() {
        static SLAB: Slab<AtomicU64, 3> = Slab::new();
        let taken: Vec<_> = (0..3)
            .filter_map(|n| SLAB.take(|i| AtomicU64::new(u64::from(i) * 10 + n)))
            .collect();
        assert_eq!(
            taken.iter().map(|a| a.load(Relaxed)).collect::<Vec<_>>(),
            [0, 11, 22]
        );
        assert!(SLAB.take(|_| AtomicU64::new(9)).is_none());
        SLAB.give(1);
        let again = SLAB.take(|_| AtomicU64::new(9)).expect("the freed one");
        assert_eq!(again.load(Relaxed), 11);
        assert!(SLAB.get(2).is_some() && SLAB.get(3).is_none());
    }
}
