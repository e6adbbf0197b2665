//! send, recv and kin on one message. (Several: `batch`. As files: `files`.)

use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use rsock_core::calls::{Receive, Transmit, tracked};

use crate::drive::{Sleep, drive};
use crate::guard::set_errno;
use crate::passing::{give, has_ancillary, take};

hook_cancel! {
    unsafe fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t [tracked(fd)] {
        receive(fd, &span(buffer, len), 1, flags, || real::recv(fd, buffer, len, flags))
    }
    unsafe fn recvfrom(
        fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t
    ) -> ssize_t [tracked(fd)] {
        received_from(from, from_len, receive(fd, &span(buffer, len), 1, flags, || {
            real::recvfrom(fd, buffer, len, flags, from, from_len)
        }))
    }
    unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t [
        tracked(fd) && !message.is_null() || has_ancillary(message)
    ] {
        receive_message(fd, message, flags)
    }
    unsafe fn __recv_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t [tracked(fd) && len <= room] {
        recv(fd, buffer, len, flags)
    }
    unsafe fn __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t
    ) -> ssize_t [tracked(fd) && len <= room] {
        recvfrom(fd, buffer, len, flags, from, from_len)
    }
    unsafe fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t [tracked(fd)] {
        transmit(fd, &span(buffer, len), 1, flags, || real::send(fd, buffer, len, flags))
    }
    // TCP reads the address on an unconnected socket only (MSG_FASTOPEN), which the kernel does.
    unsafe fn sendto(
        fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t
    ) -> ssize_t [tracked(fd)] {
        transmit(fd, &span(buffer, len), 1, flags, || real::sendto(fd, buffer, len, flags, to, to_len))
    }
    unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t [
        tracked(fd) && !message.is_null() || has_ancillary(message)
    ] {
        transmit_message(fd, message, flags)
    }
}

alias! {
    unsafe fn __send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t = send;
}

/// One buffer as an iovec. What is sent is never written to.
#[inline(always)]
pub fn span(buffer: *const c_void, len: size_t) -> iovec {
    iovec {
        iov_base: buffer.cast_mut(),
        iov_len: len,
    }
}

/// Receives on a tracked descriptor.
///
/// # Safety
/// `iov` holds `count` entries as for readv(2).
#[inline]
pub unsafe fn receive(
    fd: c_int,
    iov: *const iovec,
    count: usize,
    flags: c_int,
    real: impl FnMut() -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's, and it waits for us.
    unsafe {
        drive(
            fd,
            Sleep::Cancellable,
            || Receive::new(fd, iov, count, flags),
            real,
        )
    }
}

/// Sends on a tracked descriptor.
///
/// # Safety
/// As for [`receive`].
#[inline]
pub unsafe fn transmit(
    fd: c_int,
    iov: *const iovec,
    count: usize,
    flags: c_int,
    real: impl FnMut() -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's, and it waits for us.
    unsafe {
        drive(
            fd,
            Sleep::Cancellable,
            || Transmit::new(fd, iov, count, flags),
            real,
        )
    }
}

/// recvmsg, on a tracked descriptor or with room for descriptors.
///
/// # Safety
/// As for recvmsg(2); `message` is not null.
pub unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's, and it waits for us.
    unsafe {
        let kernel = || real::recvmsg(fd, message, flags);
        if tracked(fd) {
            drive(
                fd,
                Sleep::Cancellable,
                || Receive::message(fd, message, flags),
                kernel,
            )
        } else {
            take(message, kernel())
        }
    }
}

/// sendmsg, on a tracked descriptor or with descriptors in it.
///
/// # Safety
/// As for sendmsg(2); `message` is not null.
pub unsafe fn transmit_message(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's, and it waits for us.
    unsafe {
        let kernel = || real::sendmsg(fd, message, flags);
        if tracked(fd) {
            drive(
                fd,
                Sleep::Cancellable,
                || Transmit::message(fd, message, flags),
                kernel,
            )
        } else if give(message) {
            kernel()
        } else {
            -1
        }
    }
}

/// What recvfrom says about the sender on a TCP socket: nothing (net/socket.c, `__sys_recvfrom`: a length of zero).
///
/// # Safety
/// `from_len` as for recvfrom(2).
unsafe fn received_from(from: *mut sockaddr, from_len: *mut socklen_t, result: ssize_t) -> ssize_t {
    if result < 0 || from.is_null() {
        return result;
    }
    if from_len.is_null() {
        set_errno(libc::EFAULT);
        return -1;
    }
    // SAFETY: not null, so the program's length.
    unsafe { *from_len = 0 };
    result
}
