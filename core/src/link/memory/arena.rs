//! An arena of a memory link: a sealed memfd that holds the armed words of both sides and the rings of a few lanes.
//!
//! Address ranges are recycled but never returned, so that a thread that spins on a ring without a lock reads nonsense
//! at worst. Pages appear when touched.

use crate::link::ring::{CURSORS_SIZE, Cursors, Ring, RingReader, RingWriter};
use crate::sys::{self, Errno, lock::Lock};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Lanes in one arena; a link gets more arenas as it needs them.
pub const LANES: u32 = 16;

const HEAD: usize = 4096;

/// Which end of a link: the initiator writes the first direction of each lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// It connected.
    Initiator,
    /// It was connected to.
    Acceptor,
}

impl Side {
    fn index(self) -> usize {
        self as usize
    }

    /// The other end.
    pub fn other(self) -> Side {
        match self {
            Side::Initiator => Side::Acceptor,
            Side::Acceptor => Side::Initiator,
        }
    }
}

/// A mapped arena.
#[derive(Clone, Copy)]
pub struct Arena {
    base: *mut u8,
    ring: u64,
}

/// The bytes of an arena with rings of `ring` bytes.
pub fn size(ring: u64) -> u64 {
    (HEAD + LANES as usize * 2 * CURSORS_SIZE).next_multiple_of(4096) as u64
        + LANES as u64 * 2 * ring
}

const SEALS: usize = (libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL) as usize;

/// Bytes of the arenas that this process has mapped.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Whether another arena would stay within `RSOCK_MEMORY_LIMIT`.
fn within_limit(ring: u64) -> bool {
    MADE.load(Relaxed) + size(ring) <= crate::policy::MEMORY_LIMIT.get()
}

/// Makes a sealed memfd for an arena. ENOMEM beyond `RSOCK_MEMORY_LIMIT`.
pub fn create(ring: u64) -> sys::Result<i32> {
    if !within_limit(ring) {
        return Err(Errno(libc::ENOMEM));
    }
    let fd = sys::memfd(c"rsock-arena")?;
    let sealed =
        sys::ftruncate(fd, size(ring)).and_then(|()| sys::fcntl(fd, libc::F_ADD_SEALS, SEALS));
    match sealed {
        Ok(_) => Ok(fd),
        Err(e) => {
            sys::close(fd);
            Err(e)
        }
    }
}

/// Address ranges of former arenas, by size, to be mapped over. A handful of sizes at most exist in one process.
static RECYCLED: Lock<[(u64, usize, [usize; 64]); 4]> = Lock::new([(0, 0, [0; 64]); 4]);

impl Arena {
    /// Maps a memfd from a peer or of our own. A peer's must be sealed against shrinking and large enough (EPROTO). ENOMEM beyond
    /// `RSOCK_MEMORY_LIMIT`.
    pub fn map(fd: i32, ring: u64) -> sys::Result<Arena> {
        let seals = sys::fcntl(fd, libc::F_GET_SEALS, 0)?;
        if seals & libc::F_SEAL_SHRINK as usize == 0 || sys::file_size(fd)? < size(ring) {
            return Err(Errno(libc::EPROTO));
        }
        if !within_limit(ring) {
            return Err(Errno(libc::ENOMEM));
        }
        let len = size(ring) as usize;
        let recycled = RECYCLED.lock().and_then(|mut all| {
            all.iter_mut()
                .find(|(s, n, _)| *s == len as u64 && *n > 0)
                .map(|(_, n, at)| {
                    *n -= 1;
                    at[*n]
                })
        });
        let (at, fixed) = recycled.map_or((ptr::null_mut(), 0), |a| {
            (a as *mut libc::c_void, libc::MAP_FIXED)
        });
        // SAFETY: a new mapping, or one over an address range that a former arena left to us.
        let base = unsafe {
            sys::mmap(
                at,
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | fixed,
                fd,
            )?
        };
        MADE.fetch_add(len as u64, Relaxed);
        Ok(Arena {
            base: base.cast(),
            ring,
        })
    }

    /// Gives the memory back and keeps the addresses, readable as zeros, for the next arena.
    pub fn retire(self) {
        let len = size(self.ring) as usize;
        MADE.fetch_sub(len as u64, Relaxed);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the range is ours; readers that come late see zeros.
        if unsafe {
            sys::mmap(
                self.base.cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
            )
        }
        .is_err()
        {
            return;
        }
        if let Some(mut all) = RECYCLED.lock()
            && let Some((s, n, at)) = all
                .iter_mut()
                .find(|(s, n, _)| *s == len as u64 && *n < 64 || *s == 0)
        {
            *s = len as u64;
            at[*n] = self.base as usize;
            *n += 1;
        }
    }

    /// The word in which `side` says which of its bells are armed (used in a link's first arena only).
    pub fn armed(&self, side: Side) -> &'static AtomicU64 {
        // SAFETY: inside the head page, aligned to 128.
        unsafe { &*self.base.add(128 * (1 + side.index())).cast() }
    }

    /// The two directions of lane `slot` (below [`LANES`]) as `side` sees them.
    pub fn lane(&self, slot: u32, side: Side) -> (RingWriter, RingReader) {
        debug_assert!(slot < LANES);
        (
            RingWriter(self.ring(slot, side)),
            RingReader(self.ring(slot, side.other())),
        )
    }

    fn ring(&self, slot: u32, writer: Side) -> Ring {
        let n = slot as usize * 2 + writer.index();
        let rings = (HEAD + LANES as usize * 2 * CURSORS_SIZE).next_multiple_of(4096);
        // SAFETY: both lie inside the mapping (see `size`), which stays mapped for ever.
        unsafe {
            let cursors = self.base.add(HEAD + n * CURSORS_SIZE).cast::<Cursors>();
            Ring::new(
                cursors,
                self.base.add(rings + n * self.ring as usize),
                self.ring,
            )
        }
    }

    /// As a plain address, to be kept in an atomic.
    pub fn address(&self) -> *mut u8 {
        self.base
    }

    /// From [`Arena::address`].
    pub fn at(base: *mut u8, ring: u64) -> Option<Arena> {
        (!base.is_null()).then_some(Arena { base, ring })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_one_lane_and_addresses_are_recycled() {
        let ring = 4096;
        let fd = create(ring).expect("memfd");
        let a = Arena::map(fd, ring).expect("map");
        let b = Arena::map(fd, ring).expect("map again");
        let (w, _) = a.lane(3, Side::Initiator);
        let (_, r) = b.lane(3, Side::Acceptor);
        // SAFETY: five bytes fit into the ring and the array.
        unsafe {
            w.put(10, b"hello".as_ptr(), 5);
            let mut got = [0u8; 5];
            r.get(10, got.as_mut_ptr(), 5);
            assert_eq!(&got, b"hello");
        }
        let address = a.address();
        a.retire();
        let again = Arena::map(fd, ring).expect("map");
        assert_eq!(again.address(), address);
        sys::close(fd);
    }

    #[test]
    fn an_unsealed_or_short_memfd_is_refused() {
        let fd = sys::memfd(c"bad").expect("memfd");
        sys::ftruncate(fd, size(4096)).expect("size");
        assert!(Arena::map(fd, 4096).is_err());
        sys::close(fd);
        let short = create(4096).expect("memfd");
        assert!(Arena::map(short, 8192).is_err());
        sys::close(short);
    }
}
