//! Descriptors that travel in messages (SCM_RIGHTS, unix(7)): the process that gets a stream knows nothing of its lane, so it
//! goes to TCP first; and a number that arrives means something new.

use core::mem::size_of;
use libc::{c_int, cmsghdr, msghdr, ssize_t};
use rsock_core::calls::{Reason, tracked};

use crate::drive::pin;
use crate::sockets::heal;

/// Does the message have ancillary data? (Few do.)
///
/// # Safety
/// Null, or as for sendmsg(2).
#[inline(always)]
pub unsafe fn has_ancillary(message: *const msghdr) -> bool {
    // SAFETY: the caller's.
    unsafe {
        !message.is_null() && !(*message).msg_control.is_null() && (*message).msg_controllen != 0
    }
}

/// Before a message is sent: the streams in it go to TCP. False: one did not, `errno` says why.
///
/// # Safety
/// As for sendmsg(2).
pub unsafe fn give(message: *const msghdr) -> bool {
    let mut on_tcp = true;
    // SAFETY: the caller's.
    unsafe {
        each(message, |fd| {
            on_tcp = on_tcp && (!tracked(fd) || pin(fd, Reason::PinnedPassed))
        })
    };
    on_tcp
}

/// After a message was received with this result.
///
/// # Safety
/// As for recvmsg(2).
pub unsafe fn take(message: *const msghdr, result: ssize_t) -> ssize_t {
    // SAFETY: the caller's; the kernel has filled the message in.
    if result >= 0 && unsafe { has_ancillary(message) } {
        // SAFETY: as above.
        unsafe { each(message, heal) };
    }
    result
}

/// Every descriptor in the message.
unsafe fn each(message: *const msghdr, mut see: impl FnMut(c_int)) {
    // SAFETY: the macros of cmsg(3) keep to the program's buffer. A header there may lie anywhere, so it is copied.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(message);
        while !at.is_null() {
            let header: cmsghdr = at.read_unaligned();
            if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
                let bytes = (header.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(at).cast::<c_int>();
                for i in 0..bytes / size_of::<c_int>() {
                    see(data.add(i).read_unaligned());
                }
            }
            at = libc::CMSG_NXTHDR(message, at);
        }
    }
}
