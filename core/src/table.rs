//! The descriptor table: what rsock knows about a descriptor number. One load tells a call that is none of our business.
//!
//! An entry is a kind and the index of its object. Objects live in type-stable slabs that are never unmapped, so a stale
//! entry leads to a wrong object at worst, which its user notices under the object's lock.

use core::sync::atomic::{AtomicU32, Ordering::*};

/// Numbers above are never tracked (and so are plain kernel descriptors).
pub const LIMIT: usize = 1 << 20;

static TABLE: [AtomicU32; LIMIT] = [const { AtomicU32::new(0) }; LIMIT];

/// One past the highest number that ever had an entry, for scans.
static TOP: AtomicU32 = AtomicU32::new(0);

/// The same without our own descriptors.
static PROGRAM_TOP: AtomicU32 = AtomicU32::new(0);

const KIND: u32 = 28;
const INDEX: u32 = (1 << KIND) - 1;

/// What a number is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing of ours.
    None,
    /// A TCP socket: a stream, or what may become one.
    Stream(u32),
    /// An epoll instance.
    Epoll(u32),
    /// A descriptor of rsock itself.
    Internal,
}

/// Whether rsock knows anything about `fd`.
#[inline(always)]
pub fn tracked(fd: i32) -> bool {
    TABLE
        .get(fd as u32 as usize)
        .is_some_and(|e| e.load(Acquire) != 0)
}

/// What rsock knows about `fd`.
#[inline(always)]
pub fn get(fd: i32) -> Entry {
    let word = TABLE.get(fd as u32 as usize).map_or(0, |e| e.load(Acquire));
    match word >> KIND {
        1 => Entry::Stream(word & INDEX),
        2 => Entry::Epoll(word & INDEX),
        3 => Entry::Internal,
        _ => Entry::None,
    }
}

/// Puts an entry; a number beyond the table is simply not tracked (false).
pub fn set(fd: i32, entry: Entry) -> bool {
    let word = match entry {
        Entry::None => 0,
        Entry::Stream(i) => 1 << KIND | i,
        Entry::Epoll(i) => 2 << KIND | i,
        Entry::Internal => 3 << KIND,
    };
    let Some(slot) = TABLE.get(fd as u32 as usize) else {
        return false;
    };
    slot.store(word, Release);
    TOP.fetch_max(fd as u32 + 1, Relaxed);
    if entry != Entry::Internal {
        PROGRAM_TOP.fetch_max(fd as u32 + 1, Relaxed);
    }
    true
}

/// Removes an entry and says what it was.
pub fn clear(fd: i32) -> Entry {
    let old = get(fd);
    if let Some(slot) = TABLE.get(fd as u32 as usize) {
        slot.store(0, Release);
    }
    old
}

/// Marks a descriptor of our own, which the program may not close.
pub fn set_internal(fd: i32) {
    set(fd, Entry::Internal);
}

/// No number above has ever had an entry that was not internal.
pub fn highest() -> i32 {
    PROGRAM_TOP.load(Relaxed) as i32 - 1
}

/// All numbers from `first` to `last` that have an entry, in order.
pub fn entries(first: u32, last: u32) -> impl Iterator<Item = (i32, Entry)> {
    let top = TOP.load(Relaxed).min(last.saturating_add(1));
    (first..top).filter_map(|n| match get(n as i32) {
        Entry::None => None,
        e => Some((n as i32, e)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_go() {
        assert!(!tracked(900_001));
        assert!(set(900_001, Entry::Stream(77)));
        assert_eq!(get(900_001), Entry::Stream(77));
        assert_eq!(
            entries(900_000, 900_010).collect::<Vec<_>>(),
            [(900_001, Entry::Stream(77))]
        );
        assert_eq!(clear(900_001), Entry::Stream(77));
        assert!(!tracked(900_001) && !tracked(-1) && !tracked(i32::MAX));
        assert!(!set(i32::MAX, Entry::Internal));
    }
}
