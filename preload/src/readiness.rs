//! poll and select. A set without a tracked descriptor is the kernel's alone; else rsock looks at its lanes, and the thread
//! sleeps in the real ppoll on the array that rsock gives.

use core::sync::atomic::Ordering::Relaxed;
use libc::{c_int, c_ulong, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use rsock_core::calls::{self, Poll, Ready, tracked};

use crate::guard::{errno, fail, ours, set_errno, thread};
use crate::time;

hook_cancel! {
    unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int [any_tracked(fds, count)] {
        wait(
            || Poll::new(fds, count, time::from_millis(timeout)),
            core::ptr::null(),
            |_| (),
            || real::poll(fds, count, timeout),
        )
    }
    unsafe fn ppoll(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int [any_tracked(fds, count) && acceptable(timeout)] {
        wait(
            || Poll::new(fds, count, timeout.as_ref().copied()),
            mask,
            |_| (),
            || real::ppoll(fds, count, timeout, mask),
        )
    }
    unsafe fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int [fits(count, room)] {
        poll(fds, count, timeout)
    }
    unsafe fn __ppoll_chk(
        fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t
    ) -> c_int [fits(count, room)] {
        ppoll(fds, count, timeout, mask)
    }
    unsafe fn select(
        nfds: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval
    ) -> c_int [any_selected(nfds, [read, write, except])] {
        let kernel = || real::select(nfds, read, write, except, timeout);
        let limit = match timeout.as_ref() {
            None => None,
            Some(given) => match time::from_timeval(given) {
                Some(limit) => Some(limit),
                None => return kernel(), // EINVAL
            },
        };
        // Linux writes back what is left, unless there was nothing (fs/select.c, `poll_select_finish`).
        let write_back = |op: &Poll| if limit.is_some_and(|limit| !time::is_zero(&limit)) {
            let left = op.left();
            *timeout = timeval { tv_sec: left.tv_sec, tv_usec: left.tv_nsec / 1000 };
        };
        wait(|| Poll::select(nfds, read, write, except, limit), core::ptr::null(), write_back, kernel)
    }
    unsafe fn pselect(
        nfds: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t
    ) -> c_int [any_selected(nfds, [read, write, except]) && acceptable(timeout)] {
        wait(
            || Poll::select(nfds, read, write, except, timeout.as_ref().copied()),
            mask,
            |_| (),
            || real::pselect(nfds, read, write, except, timeout, mask),
        )
    }
}

alias! {
    unsafe fn __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int = poll;
    unsafe fn __select(
        nfds: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval
    ) -> c_int = select;
}

/// Runs a [`Poll`]; `finished` sees it when it has answered.
///
/// # Safety
/// The sets and arrays of the operation are valid until this returns.
#[inline(never)]
unsafe fn wait(
    make: impl FnOnce() -> Poll,
    mask: *const sigset_t,
    finished: impl FnOnce(&Poll),
    real: impl FnOnce() -> c_int,
) -> c_int {
    let before = errno();
    let thread = thread();
    thread.ran.store(0, Relaxed);
    let mut operation = None;
    let mut next = ours(|| operation.insert(make()).step());
    while let (Ok(Ready::Sleep(timeout)), Some(poll)) = (&next, operation.as_mut()) {
        let timeout = timeout
            .as_ref()
            .map_or(core::ptr::null(), |t| t as *const timespec);
        let (fds, count) = poll.array();
        // These calls are never restarted, whatever the handler (signal(7)).
        let result = if thread.ran.load(Relaxed) != 0 {
            fail(libc::EINTR)
        } else {
            // SAFETY: the operation's own array; `mask` is the program's.
            unsafe { real::ppoll(fds, count, timeout, mask) }
        };
        next = ours(|| poll.done(result));
    }
    if let (Ok(Ready::Return(result)), Some(poll)) = (&next, &operation) {
        finished(poll);
        if *result >= 0 {
            set_errno(before);
        }
        return *result;
    }
    set_errno(before);
    real()
}

/// Is one of them tracked?
///
/// # Safety
/// As for poll(2).
#[inline]
unsafe fn any_tracked(fds: *const pollfd, count: nfds_t) -> bool {
    if fds.is_null() {
        return false;
    }
    // SAFETY: the program gave `count` entries.
    (0..count as usize).any(|at| tracked(unsafe { (*fds.add(at)).fd }))
}

/// Is one of the descriptors in these sets tracked? Never looks further than the highest tracked one: programs pass a
/// larger `nfds` than their sets hold (getdtablesize()), and the kernel too stops at its highest.
///
/// # Safety
/// As for select(2).
unsafe fn any_selected(nfds: c_int, sets: [*mut fd_set; 3]) -> bool {
    const BITS: c_int = c_ulong::BITS as c_int;
    let nfds = nfds.min(calls::highest().saturating_add(1));
    let mut base = 0;
    while base < nfds {
        let mut word: c_ulong = 0;
        for set in sets {
            if !set.is_null() {
                // SAFETY: the program's sets hold the words up to `nfds`.
                word |= unsafe { *set.cast::<c_ulong>().add((base / BITS) as usize) };
            }
        }
        while word != 0 {
            let fd = base + word.trailing_zeros() as c_int;
            if fd < nfds && tracked(fd) {
                return true;
            }
            word &= word - 1;
        }
        base += BITS;
    }
    false
}

/// Does the kernel accept this time-out? (Else it says EINVAL.)
///
/// # Safety
/// Null, or a time-out.
#[inline]
pub unsafe fn acceptable(timeout: *const timespec) -> bool {
    // SAFETY: the caller's.
    unsafe { timeout.as_ref() }.is_none_or(time::valid)
}

/// Does the array fit where the compiler says that it is? (Else the real function ends the program.)
#[inline]
fn fits(count: nfds_t, room: size_t) -> bool {
    count <= (room / size_of::<pollfd>()) as nfds_t
}
