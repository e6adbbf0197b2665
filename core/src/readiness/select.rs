//! select and pselect as a poll: the program's descriptor sets, taken apart and put together again.

use libc::{c_int, fd_set, pollfd};

const BITS: usize = usize::BITS as usize;
/// What makes a descriptor readable, writable, exceptional (select(2), "Correspondence between select and poll").
const READ: i16 =
    libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR;
const WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR;
const EXCEPT: i16 = libc::POLLPRI;

/// The sets of one call.
pub struct Sets {
    nfds: usize,
    sets: [*mut usize; 3],
}

impl Sets {
    /// None for arguments that are the kernel's to refuse.
    ///
    /// # Safety
    /// Each set that is not null holds at least `nfds` bits, rounded up to whole words.
    pub unsafe fn new(
        nfds: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
    ) -> Option<Sets> {
        let nfds = usize::try_from(nfds).ok().filter(|n| *n <= 1 << 16)?;
        Some(Sets {
            nfds,
            sets: [read.cast(), write.cast(), except.cast()],
        })
    }

    fn bit(&self, set: usize, fd: usize) -> bool {
        let words = self.sets[set];
        // SAFETY: the set has nfds bits, see `new`.
        !words.is_null() && unsafe { *words.add(fd / BITS) } >> (fd % BITS) & 1 != 0
    }

    fn each(&self) -> impl Iterator<Item = usize> {
        (0..self.nfds).filter(|fd| (0..3).any(|set| self.bit(set, *fd)))
    }

    /// Whether it holds for any descriptor in the sets.
    pub fn any(&self, test: impl Fn(c_int) -> bool) -> bool {
        self.each().any(|fd| test(fd as c_int))
    }

    /// How many descriptors are in the sets.
    pub fn count(&self) -> usize {
        self.each().count()
    }

    /// The same as an array for poll.
    ///
    /// # Safety
    /// `to` has room for [`Sets::count`] entries.
    pub unsafe fn describe(&self, to: *mut pollfd) {
        for (i, fd) in self.each().enumerate() {
            let mut events = 0;
            for (set, bits) in [(0, READ), (1, WRITE), (2, EXCEPT)] {
                if self.bit(set, fd) {
                    // HUP and ERR come unasked.
                    events |= bits & !(libc::POLLHUP | libc::POLLERR);
                }
            }
            // SAFETY: the caller's room.
            unsafe {
                to.add(i).write(pollfd {
                    fd: fd as c_int,
                    events,
                    revents: 0,
                })
            };
        }
    }

    /// Puts poll's answer into the sets: how many bits are set, or -1 with EBADF.
    pub fn fill(&self, fds: &[pollfd]) -> c_int {
        if fds.iter().any(|p| p.revents & libc::POLLNVAL != 0) {
            crate::sys::set_errno(libc::EBADF);
            return -1;
        }
        let mut n = 0;
        for p in fds {
            let fd = p.fd as usize;
            for (set, bits) in [(0, READ), (1, WRITE), (2, EXCEPT)] {
                if self.bit(set, fd) {
                    if p.revents & bits != 0 {
                        n += 1;
                    } else {
                        // SAFETY: the set has nfds bits.
                        unsafe { *self.sets[set].add(fd / BITS) &= !(1 << (fd % BITS)) };
                    }
                }
            }
        }
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_become_an_array_and_back() {
        let mut read = [0usize; 16];
        let mut write = [0usize; 16];
        read[0] = 1 << 3 | 1 << 5;
        write[1] = 1 << 6;
        // SAFETY: 1024 bits each.
        let sets = unsafe {
            Sets::new(
                71,
                read.as_mut_ptr().cast(),
                write.as_mut_ptr().cast(),
                core::ptr::null_mut(),
            )
        };
        let sets = sets.expect("sets");
        assert_eq!(sets.count(), 3);
        let mut fds = [pollfd {
            fd: 0,
            events: 0,
            revents: 0,
        }; 3];
        // SAFETY: room for three.
        unsafe { sets.describe(fds.as_mut_ptr()) };
        assert_eq!(fds.map(|p| p.fd), [3, 5, 70]);
        fds[1].revents = libc::POLLIN;
        fds[2].revents = libc::POLLERR;
        assert_eq!(sets.fill(&fds), 2);
        assert_eq!((read[0], write[1]), (1 << 5, 1 << 6));
        let null = core::ptr::null_mut();
        // SAFETY: no set at all.
        let none = unsafe { Sets::new(-1, null, null, null) };
        assert!(none.is_none());
    }
}
