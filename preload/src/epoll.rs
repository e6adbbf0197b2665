//! epoll: the program's own epoll instance does the sleeping.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::{c_int, epoll_event, sigset_t, timespec};
use rsock_core::calls::{self, EpollWait, Ready, tracked};

use crate::guard::{Refused, errno, fail, note, ours, set_errno, thread};
use crate::options::{answered, settled};
use crate::readiness::acceptable;
use crate::time;

hook_plain! {
    unsafe fn epoll_create(size: c_int) -> c_int => my_epoll_create {
        created(plain::epoll_create(size))
    }
    unsafe fn epoll_create1(flags: c_int) -> c_int => my_epoll_create1 {
        created(plain::epoll_create1(flags))
    }
    unsafe fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int => my_epoll_ctl {
        if !tracked(epfd) && !tracked(fd) {
            return plain::epoll_ctl(epfd, op, fd, event);
        }
        if !settled(fd, || calls::before_epoll_ctl(op, fd)) {
            return -1;
        }
        answered(|| calls::epoll_ctl(epfd, op, fd, event), || plain::epoll_ctl(epfd, op, fd, event))
    }
}

hook_cancel! {
    unsafe fn epoll_wait(epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int) -> c_int [tracked(epfd)] {
        wait(epfd, events, max, time::from_millis(timeout), core::ptr::null(), || {
            real::epoll_wait(epfd, events, max, timeout)
        })
    }
    unsafe fn epoll_pwait(
        epfd: c_int, events: *mut epoll_event, max: c_int, timeout: c_int, mask: *const sigset_t
    ) -> c_int [tracked(epfd)] {
        wait(epfd, events, max, time::from_millis(timeout), mask, || {
            real::epoll_pwait(epfd, events, max, timeout, mask)
        })
    }
    unsafe fn epoll_pwait2(
        epfd: c_int, events: *mut epoll_event, max: c_int, timeout: *const timespec, mask: *const sigset_t
    ) -> c_int [tracked(epfd) && acceptable(timeout)] {
        wait(epfd, events, max, timeout.as_ref().copied(), mask, || {
            real::epoll_pwait2(epfd, events, max, timeout, mask)
        })
    }
}

fn created(fd: c_int) -> c_int {
    if fd >= 0 {
        note(|| calls::made_epoll(fd));
    }
    fd
}

/// Runs an [`EpollWait`].
///
/// # Safety
/// `events` has room for `max`, as for epoll_wait(2).
#[inline(never)]
unsafe fn wait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: Option<timespec>,
    mask: *const sigset_t,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let before = errno();
    let thread = thread();
    thread.ran.store(0, Relaxed);
    let mut operation = None;
    let mut next = ours(|| {
        operation
            .insert(EpollWait::new(epfd, events, max, timeout))
            .step()
    });
    while let (Ok(Ready::Sleep(timeout)), Some(operation)) = (&next, operation.as_mut()) {
        // As in `readiness`.
        let result = if thread.ran.load(Relaxed) != 0 {
            fail(libc::EINTR)
        } else {
            // SAFETY: the caller's.
            unsafe { sleep(epfd, events, max, timeout.as_ref(), mask) }
        };
        let after = errno();
        next = ours(|| operation.done(result));
        if matches!(next, Err(Refused::Panicked)) {
            // The kernel's events are in the array; they are the program's.
            set_errno(after);
            return result;
        }
    }
    if let Ok(Ready::Return(result)) = next {
        if result >= 0 {
            set_errno(before);
        }
        return result;
    }
    set_errno(before);
    real()
}

/// epoll_pwait2, which kernels before 5.11 lack: there, epoll_pwait with whole milliseconds.
///
/// # Safety
/// As for epoll_pwait2(2).
unsafe fn sleep(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: Option<&timespec>,
    mask: *const sigset_t,
) -> c_int {
    static COARSE: AtomicBool = AtomicBool::new(false);
    // Whole milliseconds (and for ever) lose nothing in the older call.
    if !COARSE.load(Relaxed) && timeout.is_some_and(|time| time.tv_nsec % 1_000_000 != 0) {
        let exact = timeout.map_or(core::ptr::null(), |time| time as *const timespec);
        // SAFETY: the caller's.
        let result = unsafe { real::epoll_pwait2(epfd, events, max, exact, mask) };
        if result >= 0 || errno() != libc::ENOSYS {
            return result;
        }
        COARSE.store(true, Relaxed);
    }
    // SAFETY: the caller's.
    unsafe { real::epoll_pwait(epfd, events, max, time::to_millis(timeout), mask) }
}
