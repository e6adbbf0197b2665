//! The program's buffers: a cursor over its iovecs.

use libc::{iovec, msghdr};

/// The most iovecs handed to the kernel at once.
pub const BATCH: usize = 64;

/// Where in a list of iovecs the next byte goes, or comes from.
#[derive(Clone, Copy)]
pub struct Cursor {
    iov: *const iovec,
    count: usize,
    offset: usize,
    left: usize,
    nowhere: bool,
}

impl Cursor {
    /// At the start of `count` iovecs.
    ///
    /// # Safety
    /// The iovecs and what they point to stay valid as long as the cursor is used.
    pub unsafe fn new(iov: *const iovec, count: usize) -> Cursor {
        let mut left = 0usize;
        let mut nowhere = false;
        for i in 0..count {
            // SAFETY: the caller vouches for `count` iovecs.
            let one = unsafe { *iov.add(i) };
            left = left.saturating_add(one.iov_len);
            nowhere |= one.iov_len > 0 && (one.iov_base as usize) < 4096;
        }
        Cursor {
            iov,
            count,
            offset: 0,
            left,
            nowhere,
        }
    }

    /// Whether a buffer lies where no program has memory: a null pointer, or one with an offset added.
    pub fn nowhere(&self) -> bool {
        self.nowhere
    }

    /// Bytes from here to the end.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The next contiguous piece, not longer than `max`. Its length is 0 at the end only.
    pub fn piece(&mut self, max: usize) -> (*mut u8, usize) {
        while self.count > 0 {
            // SAFETY: count > 0.
            let first = unsafe { *self.iov };
            if self.offset < first.iov_len {
                // SAFETY: inside the buffer.
                let at = unsafe { first.iov_base.cast::<u8>().add(self.offset) };
                return (at, (first.iov_len - self.offset).min(max));
            }
            // SAFETY: count > 0, so there is a next or an end.
            self.iov = unsafe { self.iov.add(1) };
            self.count -= 1;
            self.offset = 0;
        }
        (core::ptr::null_mut(), 0)
    }

    /// Goes `n` bytes on; no more than [`Cursor::left`].
    pub fn advance(&mut self, mut n: usize) {
        self.left -= n;
        while n > 0 {
            let (_, len) = self.piece(n);
            if len == 0 {
                return;
            }
            self.offset += len;
            n -= len;
        }
    }

    /// Calls `f` for each contiguous piece of the next `n` bytes and goes over them.
    pub fn each(&mut self, mut n: usize, mut f: impl FnMut(*mut u8, usize)) {
        while n > 0 {
            let (at, len) = self.piece(n);
            if len == 0 {
                return;
            }
            f(at, len);
            self.offset += len;
            self.left -= len;
            n -= len;
        }
    }

    /// Copies a slice to the buffers and goes over them; as much as fits.
    pub fn fill(&mut self, from: &[u8]) -> usize {
        let n = from.len().min(self.left);
        let mut done = 0;
        self.each(n, |to, len| {
            // SAFETY: `to` is the program's buffer, valid for len bytes; done + len <= n.
            unsafe { core::ptr::copy_nonoverlapping(from.as_ptr().add(done), to, len) };
            done += len;
        });
        done
    }

    /// The first byte, if there is one.
    pub fn first(&self) -> Option<u8> {
        let mut at = *self;
        let (p, len) = at.piece(1);
        // SAFETY: a piece of one byte of the program's buffer.
        (len > 0).then(|| unsafe { *p })
    }

    /// At most [`BATCH`] iovecs of at most `max` bytes from here, for the kernel: how many were filled in.
    pub fn window(&self, out: &mut [iovec; BATCH], max: usize) -> usize {
        let mut at = *self;
        let mut left = max.min(self.left);
        let mut n = 0;
        while left > 0 && n < BATCH {
            let (base, len) = at.piece(left);
            if len == 0 {
                break;
            }
            out[n] = iovec {
                iov_base: base.cast(),
                iov_len: len,
            };
            n += 1;
            left -= len;
            at.offset += len;
        }
        n
    }
}

/// An iovec list with nothing in it.
pub const EMPTY: [iovec; BATCH] = [iovec {
    iov_base: core::ptr::null_mut(),
    iov_len: 0,
}; BATCH];

/// The buffers of a msghdr; None where it is null or names more iovecs than the kernel takes (EMSGSIZE there).
///
/// # Safety
/// `msg`, if not null, is a msghdr of the program.
pub unsafe fn of_message(msg: *const msghdr) -> Option<Cursor> {
    if msg.is_null() {
        return None;
    }
    // SAFETY: not null, and the program's.
    unsafe {
        let m = &*msg;
        if m.msg_iovlen > 1024 || (m.msg_iov.is_null() && m.msg_iovlen > 0) {
            return None;
        }
        Some(Cursor::new(m.msg_iov, m.msg_iovlen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_walks_over_empty_and_full_buffers() {
        let mut a = [0u8; 3];
        let mut b = [0u8; 0];
        let mut c = [0u8; 4];
        let iov = [&mut a[..], &mut b[..], &mut c[..]].map(|s| iovec {
            iov_base: s.as_mut_ptr().cast(),
            iov_len: s.len(),
        });
        // SAFETY: the arrays outlive the cursor.
        let mut cursor = unsafe { Cursor::new(iov.as_ptr(), 3) };
        assert_eq!(cursor.left(), 7);
        assert_eq!(cursor.fill(b"ab"), 2);
        let mut window = EMPTY;
        assert_eq!(cursor.window(&mut window, 4), 2);
        assert_eq!((window[0].iov_len, window[1].iov_len), (1, 3));
        assert_eq!(cursor.fill(b"cdefXYZ"), 5);
        assert_eq!(cursor.left(), 0);
        assert_eq!(cursor.piece(9).1, 0);
        assert_eq!((&a, &c), (b"abc", b"defX"));
    }
}
