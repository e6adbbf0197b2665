//! Names, options and control: getsockopt, fcntl, ioctl and kin.
//!
//! The descriptor is a real kernel socket, so the kernel answers most of it; rsock is asked where the answer depends on
//! the stream, and told where the program changes what the stream depends on.

use libc::{c_int, c_ulong, c_void, sockaddr, socklen_t};
use rsock_core::calls::{self, Next, tracked};
use syscalls::{Sysno, syscall};

use crate::descriptors::{copied, ready_to_copy};
use crate::drive::{Operation, Sleep, drive};
use crate::guard::{errno, note, ours, set_errno};

hook_plain! {
    unsafe fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int => my_getsockname {
        plain::getsockname(fd, address, len)
    }
    unsafe fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int => my_getpeername {
        plain::getpeername(fd, address, len)
    }
    unsafe fn sockatmark(fd: c_int) -> c_int => my_sockatmark {
        plain::sockatmark(fd)
    }
    unsafe fn isfdtype(fd: c_int, kind: c_int) -> c_int => my_isfdtype {
        plain::isfdtype(fd, kind)
    }
    unsafe fn getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t
    ) -> c_int => my_getsockopt {
        if !tracked(fd) {
            return plain::getsockopt(fd, level, name, value, len);
        }
        if !settled(fd, || calls::before_getsockopt(fd, level, name)) {
            return -1;
        }
        answered(
            || calls::getsockopt(fd, level, name, value, len),
            || plain::getsockopt(fd, level, name, value, len),
        )
    }
    unsafe fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t
    ) -> c_int => my_setsockopt {
        if !tracked(fd) {
            return plain::setsockopt(fd, level, name, value, len);
        }
        if !settled(fd, || calls::before_setsockopt(fd, level, name)) {
            return -1;
        }
        let result = plain::setsockopt(fd, level, name, value, len);
        if result == 0 {
            note(|| calls::after_setsockopt(fd, level, name, value, len));
        }
        result
    }
    // ioctl is variadic with one argument at most; the platforms we build for pass it like a fixed one.
    unsafe fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int => my_ioctl {
        if !tracked(fd) {
            return plain::ioctl(fd, request, arg);
        }
        if !settled(fd, || calls::before_ioctl(fd, request, arg)) {
            return -1;
        }
        let kernel = || {
            let result = plain::ioctl(fd, request, arg);
            if result >= 0 {
                note(|| calls::after_ioctl(fd, request, arg));
            }
            result
        };
        answered(|| calls::ioctl(fd, request, arg), kernel)
    }
}

hook_cancel! {
    // As ioctl. A program that passes an int leaves the upper half undefined.
    unsafe fn fcntl(fd: c_int, command: c_int, arg: c_ulong) -> c_int [tracked(fd) || makes_copy(command)] {
        controlled(fd, command, arg, || real::fcntl(fd, command, arg))
    }
    unsafe fn fcntl64(fd: c_int, command: c_int, arg: c_ulong) -> c_int [tracked(fd) || makes_copy(command)] {
        controlled(fd, command, arg, || real::fcntl64(fd, command, arg))
    }
}

alias! {
    unsafe fn __fcntl(fd: c_int, command: c_int, arg: c_ulong) -> c_int = fcntl;
}

/// Is `fd` open?
pub fn is_open(fd: c_int) -> bool {
    // SAFETY: F_GETFD has no effect.
    unsafe { syscall!(Sysno::fcntl, fd, libc::F_GETFD) }.is_ok()
}

#[inline(always)]
fn makes_copy(command: c_int) -> bool {
    command == libc::F_DUPFD || command == libc::F_DUPFD_CLOEXEC
}

/// fcntl, where rsock has to know.
fn controlled(fd: c_int, command: c_int, arg: c_ulong, mut real: impl FnMut() -> c_int) -> c_int {
    if makes_copy(command) {
        return if ready_to_copy(fd) {
            copied(fd, real())
        } else {
            -1
        };
    }
    if !settled(fd, || calls::before_fcntl(fd, command, arg)) {
        return -1;
    }
    let result = real();
    if result >= 0 && command == libc::F_SETFL {
        note(|| calls::after_setfl(fd, arg as c_int));
    }
    result
}

/// Asks rsock, else the kernel.
pub fn answered(ask: impl FnOnce() -> Next<c_int>, mut kernel: impl FnMut() -> c_int) -> c_int {
    let before = errno();
    match ours(ask) {
        Ok(Next::Return(result)) => {
            if result >= 0 {
                set_errno(before);
            }
            result
        }
        _ => {
            set_errno(before);
            kernel()
        }
    }
}

/// Runs what rsock has to do before the kernel's call. False: it failed, `errno` says how.
pub fn settled<O: Operation<Answer = c_int>>(fd: c_int, ask: impl FnOnce() -> Option<O>) -> bool {
    let before = errno();
    let asked = ours(ask);
    set_errno(before);
    match asked {
        // SAFETY: nothing is pointed to, and the "real call" does nothing.
        Ok(Some(operation)) => unsafe { drive(fd, Sleep::Through, || operation, || 0) == 0 },
        _ => true,
    }
}
