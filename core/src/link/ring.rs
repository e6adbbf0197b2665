//! The byte ring of one direction of a lane, addressed by stream position.
//!
//! The writer owns `published`, the reader owns `consumed`; each reads the other's word and never trusts it. A word that
//! the peer can write is checked by the stream engine before it becomes a length. Whoever wants to sleep puts its doorbell
//! into `reader_bells` or `writer_bells`, arms it on the link, and looks at the cursor once more; whoever moves a cursor
//! looks at the armed doorbells after it. One of the two always sees the other: `doorbell.rs`, which is model-checked.

use core::ptr::copy_nonoverlapping;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// The words of one direction, in memory that both ends see. All-zero is the right start.
#[repr(C, align(128))]
pub struct Cursors {
    /// The position up to which the writer has put bytes into the ring. Written by the writer.
    pub published: AtomicU64,
    /// Not 0: the writer has left the lane, look at TCP. Written by the writer.
    pub left: AtomicU32,
    pad0: [u8; 128 - 12],
    /// The position up to which the reader is done with the ring. Written by the reader.
    pub consumed: AtomicU64,
    pad1: [u8; 128 - 8],
    /// The reader's doorbells that wait for bytes, a bit each. Written by the reader.
    pub reader_bells: AtomicU64,
    /// The writer's doorbells that wait for room. Written by the writer.
    pub writer_bells: AtomicU64,
    pad2: [u8; 128 - 16],
}

impl Cursors {
    /// The start of a lane: nothing published, nothing consumed, nobody waits. For the end that grants it, before it does.
    pub fn reset(&self) {
        self.published.store(0, Relaxed);
        self.left.store(0, Relaxed);
        self.consumed.store(0, Relaxed);
        self.reader_bells.store(0, Relaxed);
        self.writer_bells.store(0, Release);
    }
}

/// The bytes of a [`Cursors`] in an arena.
pub const CURSORS_SIZE: usize = size_of::<Cursors>();

/// Where a ring is: its cursors and its bytes. The memory is never unmapped while the process lives (arenas recycle
/// their address ranges), so a stale copy may read nonsense but never faults.
#[derive(Clone, Copy)]
pub struct Ring {
    cursors: *const Cursors,
    data: *mut u8,
    size: u64,
}

// SAFETY: the pointers lead to shared memory that outlives every user; all words in it are atomics and the bytes are
// handed over by them.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of `size` bytes (a power of two) at `data`.
    ///
    /// # Safety
    /// Both pointers must stay mapped for the life of the process; `data` for `size` bytes.
    pub unsafe fn new(cursors: *const Cursors, data: *mut u8, size: u64) -> Self {
        debug_assert!(size.is_power_of_two());
        Ring {
            cursors,
            data,
            size,
        }
    }

    /// Its words.
    #[inline(always)]
    pub fn cursors(&self) -> &'static Cursors {
        // SAFETY: mapped for the life of the process, see `new`.
        unsafe { &*self.cursors }
    }

    /// Its size in bytes.
    #[inline(always)]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Copies into the ring at `position`, round its end if need be. No more than `size` bytes.
    #[inline]
    fn store(&self, position: u64, from: *const u8, len: usize) {
        let at = (position & (self.size - 1)) as usize;
        let first = len.min(self.size as usize - at);
        // SAFETY: at + first <= size, the rest starts at 0 and is shorter than the ring; the source is the caller's.
        unsafe {
            copy_nonoverlapping(from, self.data.add(at), first);
            if first < len {
                copy_nonoverlapping(from.add(first), self.data, len - first);
            }
        }
    }

    /// Copies out of the ring from `position`.
    #[inline]
    fn load(&self, position: u64, to: *mut u8, len: usize) {
        let at = (position & (self.size - 1)) as usize;
        let first = len.min(self.size as usize - at);
        // SAFETY: as in `store`; that the peer may overwrite the bytes meanwhile costs only their meaning.
        unsafe {
            copy_nonoverlapping(self.data.add(at), to, first);
            if first < len {
                copy_nonoverlapping(self.data, to.add(first), len - first);
            }
        }
    }
}

/// The sending end of a ring.
#[derive(Clone, Copy)]
pub struct RingWriter(pub Ring);

impl RingWriter {
    /// Puts bytes at `position`; they become visible by [`super::Link::publish`].
    ///
    /// # Safety
    /// `from` must be readable for `len` bytes and there must be room for them.
    #[inline]
    pub unsafe fn put(&self, position: u64, from: *const u8, len: usize) {
        self.0.store(position, from, len);
    }

    /// Reads back what was put at `position` and is not yet consumed (to send it again on TCP).
    pub fn read_back(&self, position: u64, to: &mut [u8]) {
        self.0.load(position, to.as_mut_ptr(), to.len());
    }

    /// The reader's cursor. Untrusted.
    #[inline(always)]
    pub fn consumed(&self) -> u64 {
        self.0.cursors().consumed.load(Acquire)
    }
}

/// The receiving end of a ring.
#[derive(Clone, Copy)]
pub struct RingReader(pub Ring);

impl RingReader {
    /// Takes bytes from `position`.
    ///
    /// # Safety
    /// `to` must be writable for `len` bytes, and the engine must have allowed that many.
    #[inline]
    pub unsafe fn get(&self, position: u64, to: *mut u8, len: usize) {
        self.0.load(position, to, len);
    }

    /// The writer's cursor. Untrusted.
    #[inline(always)]
    pub fn published(&self) -> u64 {
        self.0.cursors().published.load(Acquire)
    }

    /// The writer says that it went back to TCP. Untrusted: only a reason to look there.
    #[inline(always)]
    pub fn left(&self) -> bool {
        self.0.cursors().left.load(Acquire) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(size: usize) -> (Ring, Box<Cursors>, Vec<u8>) {
        // SAFETY: all-zero is a valid Cursors.
        let cursors: Box<Cursors> = Box::new(unsafe { core::mem::zeroed() });
        let mut data = vec![0u8; size];
        // SAFETY: the test keeps both alive.
        let ring = unsafe { Ring::new(&*cursors, data.as_mut_ptr(), size as u64) };
        (ring, cursors, data)
    }

    #[test]
    fn bytes_come_back_round_the_end() {
        let (r, _cursors, _data) = ring(64);
        let (w, rd) = (RingWriter(r), RingReader(r));
        let text: Vec<u8> = (0..50).collect();
        for position in [0u64, 40, 63, 64, 1 << 40] {
            // SAFETY: 50 bytes fit.
            unsafe { w.put(position, text.as_ptr(), text.len()) };
            let mut back = vec![0u8; 50];
            // SAFETY: room for 50.
            unsafe { rd.get(position, back.as_mut_ptr(), 50) };
            assert_eq!(back, text);
            let mut tail = [0u8; 10];
            w.read_back(position + 40, &mut tail);
            assert_eq!(tail, text[40..]);
        }
    }

    #[test]
    fn the_layout_of_the_shared_words_is_fixed() {
        assert_eq!(CURSORS_SIZE, 384);
        assert_eq!(core::mem::offset_of!(Cursors, consumed), 128);
        assert_eq!(core::mem::offset_of!(Cursors, reader_bells), 256);
    }
}
