//! A socket's life: made, bound, listening, connected, shut down. (Its end: `descriptors`.)
//!
//! The kernel does all of it on a real TCP socket; rsock only learns of it.

use core::mem::{MaybeUninit, size_of};
use libc::{c_int, sockaddr, sockaddr_storage, socklen_t};
use rsock_core::calls::{self, tracked};

use crate::guard::{errno, note};
use crate::options::answered;
use crate::stdio::keep_for_stdio;

hook_plain! {
    unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int => my_socket {
        let fd = plain::socket(domain, kind, protocol);
        if fd >= 0 {
            note(|| calls::made_socket(fd, domain, kind, protocol));
            keep_for_stdio(fd);
        }
        fd
    }
    unsafe fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int => my_socketpair {
        let result = plain::socketpair(domain, kind, protocol, pair);
        if result == 0 {
            heal(*pair);
            heal(*pair.add(1));
        }
        result
    }
    unsafe fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int => my_bind {
        plain::bind(fd, address, len)
    }
    unsafe fn listen(fd: c_int, backlog: c_int) -> c_int => my_listen {
        let result = plain::listen(fd, backlog);
        if result == 0 && tracked(fd) {
            note(|| calls::listening(fd));
        }
        result
    }
    unsafe fn shutdown(fd: c_int, how: c_int) -> c_int => my_shutdown {
        if !tracked(fd) {
            return plain::shutdown(fd, how);
        }
        answered(|| calls::shutdown(fd, how), || plain::shutdown(fd, how))
    }
}

hook_cancel! {
    unsafe fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        if !tracked(fd) {
            return made(real::accept(fd, address, len));
        }
        accepted(fd, address, len, 0, |a, l| real::accept(fd, a, l))
    }
    unsafe fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        if !tracked(fd) {
            return made(real::accept4(fd, address, len, flags));
        }
        accepted(fd, address, len, flags, |a, l| real::accept4(fd, a, l, flags))
    }
    unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int [tracked(fd)] {
        let result = real::connect(fd, address, len);
        let after = errno();
        note(|| calls::connected(fd, address, len, result, after));
        result
    }
}

alias! {
    unsafe fn __connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int = connect;
}

/// A call of ours that makes descriptors returned `fd`: what we thought of that number is stale.
#[inline]
pub fn heal(fd: c_int) {
    if tracked(fd) {
        note(|| calls::forget(fd));
    }
}

/// [`heal`], for a result.
#[inline]
pub fn made(fd: c_int) -> c_int {
    heal(fd);
    fd
}

/// accept on a tracked listener. The peer's address is wanted in full: where the program gave no room for it, it goes to
/// a buffer of ours and from there, cut as the kernel would, to the program.
///
/// # Safety
/// `address` and `len` as for accept(2).
unsafe fn accepted(
    listener: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
    mut real: impl FnMut(*mut sockaddr, *mut socklen_t) -> c_int,
) -> c_int {
    const ROOM: socklen_t = size_of::<sockaddr_storage>() as socklen_t;
    if !address.is_null() && len.is_null() {
        return real(address, len); // EFAULT
    }
    let mut wanted = 0;
    if !address.is_null() {
        // SAFETY: where there is an address, accept(2) reads the length.
        wanted = unsafe { *len };
    }
    if wanted > i32::MAX as socklen_t {
        return real(address, len); // EINVAL: the kernel's length is signed
    }
    let mut buffer = MaybeUninit::<sockaddr_storage>::zeroed();
    let mut full = ROOM;
    let fd = real(buffer.as_mut_ptr().cast(), &mut full);
    if fd >= 0 {
        if !address.is_null() {
            let copied = wanted.min(full).min(ROOM);
            // SAFETY: the program gave `wanted` bytes at `address`, the buffer holds ROOM.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    buffer.as_ptr().cast::<u8>(),
                    address.cast::<u8>(),
                    copied as usize,
                );
                *len = full;
            }
        }
        note(|| calls::accepted(listener, fd, buffer.as_ptr().cast(), full, flags));
        keep_for_stdio(fd);
    }
    fd
}
