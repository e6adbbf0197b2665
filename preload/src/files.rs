//! read, write and kin.
//!
//! Those with an offset cannot be meant for a stream: the kernel answers ESPIPE. preadv2 and pwritev2 with offset -1 have
//! none and are readv and writev.

use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use rsock_core::calls::tracked;

use crate::data::{receive, span, transmit};

hook_cancel! {
    unsafe fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t [tracked(fd) && len != 0] {
        receive(fd, &span(buffer, len), 1, 0, || real::read(fd, buffer, len))
    }
    unsafe fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t [tracked(fd)] {
        transmit(fd, &span(buffer, len), 1, 0, || real::write(fd, buffer, len))
    }
    unsafe fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t [tracked(fd) && valid(iov, count) && wanted(iov, count)] {
        receive(fd, iov, count as usize, 0, || real::readv(fd, iov, count))
    }
    unsafe fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t [tracked(fd) && valid(iov, count)] {
        transmit(fd, iov, count as usize, 0, || real::writev(fd, iov, count))
    }
    unsafe fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t [tracked(fd) && valid(iov, count) && wanted(iov, count) && streams(offset, flags)] {
        receive(fd, iov, count as usize, as_message(flags), || real::preadv2(fd, iov, count, offset, flags))
    }
    unsafe fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t [tracked(fd) && valid(iov, count) && streams(offset, flags)] {
        transmit(fd, iov, count as usize, as_message(flags), || real::pwritev2(fd, iov, count, offset, flags))
    }
    unsafe fn __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t [tracked(fd) && len <= room] {
        read(fd, buffer, len)
    }
    unsafe fn pread(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
        real::pread(fd, buffer, len, offset)
    }
    unsafe fn pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
        real::pwrite(fd, buffer, len, offset)
    }
    unsafe fn preadv(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        real::preadv(fd, iov, count, offset)
    }
    unsafe fn pwritev(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        real::pwritev(fd, iov, count, offset)
    }
    unsafe fn __pread_chk(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t {
        real::__pread_chk(fd, buffer, len, offset, room)
    }
    unsafe fn __pread64_chk(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t, room: size_t) -> ssize_t {
        real::__pread64_chk(fd, buffer, len, offset, room)
    }
}

// off_t has 64 bits on every platform we build for.
alias! {
    unsafe fn __read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t = read;
    unsafe fn __write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t = write;
    unsafe fn preadv64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = preadv2;
    unsafe fn pwritev64v2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t = pwritev2;
    unsafe fn pread64(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t = pread;
    unsafe fn __pread64(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t = pread;
    unsafe fn pwrite64(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t = pwrite;
    unsafe fn __pwrite64(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t = pwrite;
    unsafe fn preadv64(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t = preadv;
    unsafe fn pwritev64(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t = pwritev;
}

/// Would the kernel look at these buffers at all? (Else it says EINVAL or EFAULT.)
#[inline]
fn valid(iov: *const iovec, count: c_int) -> bool {
    const UIO_MAXIOV: c_int = 1024;
    !iov.is_null() && (0..=UIO_MAXIOV).contains(&count)
}

/// Is there room for a byte? (Else these, unlike recv, return 0 without asking the socket: net/socket.c, sock_read_iter.)
///
/// # Safety
/// As for readv(2); [`valid`].
#[inline]
unsafe fn wanted(iov: *const iovec, count: c_int) -> bool {
    // SAFETY: the program gave `count` entries.
    (0..count as usize).any(|at| unsafe { (*iov.add(at)).iov_len } != 0)
}

/// Are these preadv2's arguments for a stream?
#[inline]
fn streams(offset: off_t, flags: c_int) -> bool {
    const KNOWN: c_int =
        libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_NOWAIT | libc::RWF_APPEND;
    offset == -1 && flags & !KNOWN == 0
}

/// preadv2's flags as recv's.
#[inline]
fn as_message(flags: c_int) -> c_int {
    if flags & libc::RWF_NOWAIT != 0 {
        libc::MSG_DONTWAIT
    } else {
        0
    }
}
