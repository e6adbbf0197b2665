//! recvmmsg and sendmmsg on a tracked descriptor: message by message, since a stream may change its carrier in between.
//! What the call as a whole does is net/socket.c's (`do_recvmmsg`, `__sys_sendmmsg`).

use libc::{c_int, c_uint, iovec, mmsghdr, msghdr, timespec};
use rsock_core::calls::tracked;

use crate::data::{receive_message, transmit_message};
use crate::guard::{errno, fail, set_errno};
use crate::passing::{give, has_ancillary, take};
use crate::time;

hook_cancel! {
    unsafe fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec
    ) -> c_int [tracked(fd) && !messages.is_null() || any_ancillary(messages, count)] {
        if tracked(fd) {
            return receive_messages(fd, messages, count, flags, timeout);
        }
        let result = real::recvmmsg(fd, messages, count, flags, timeout);
        for at in 0..result.max(0) as usize {
            take(&(*messages.add(at)).msg_hdr, 0);
        }
        result
    }
    unsafe fn sendmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int
    ) -> c_int [tracked(fd) && !messages.is_null() || any_ancillary(messages, count)] {
        if tracked(fd) {
            return transmit_messages(fd, messages, count, flags);
        }
        for at in 0..count as usize {
            if !give(&(*messages.add(at)).msg_hdr) {
                return -1;
            }
        }
        real::sendmmsg(fd, messages, count, flags)
    }
}

/// Has one of the messages ancillary data?
///
/// # Safety
/// As for sendmmsg(2).
unsafe fn any_ancillary(messages: *const mmsghdr, count: c_uint) -> bool {
    // SAFETY: the caller's.
    !messages.is_null()
        && (0..count as usize).any(|at| unsafe { has_ancillary(&(*messages.add(at)).msg_hdr) })
}

/// The time-out is looked at after each message only, and written back; an error after the first message is not reported.
unsafe fn receive_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: null, or the program's time-out.
    let end = match unsafe { timeout.as_ref() } {
        None => None,
        Some(limit) if !time::valid(limit) => return fail(libc::EINVAL),
        Some(limit) => Some(time::after(limit)),
    };
    let mut flags_now = flags & !libc::MSG_WAITFORONE;
    let before = errno();
    let mut done = 0;
    while done < count {
        // SAFETY: the program gave `count` messages.
        let message = unsafe { &mut *messages.add(done as usize) };
        // SAFETY: one of the program's.
        let result = unsafe { receive_message(fd, &mut message.msg_hdr, flags_now) };
        if result < 0 {
            break;
        }
        message.msg_len = result as c_uint;
        done += 1;
        if flags & libc::MSG_WAITFORONE != 0 {
            flags_now |= libc::MSG_DONTWAIT;
        }
        if let Some(end) = &end {
            let left = time::until(end);
            // SAFETY: there is an end, so the pointer is not null.
            unsafe { *timeout = left };
            if time::is_zero(&left) {
                break;
            }
        }
        if message.msg_hdr.msg_flags & libc::MSG_OOB != 0 {
            break;
        }
    }
    if done == 0 && count > 0 {
        return -1;
    }
    // What ended the call behind the first message is not told.
    set_errno(before);
    done as c_int
}

/// Stops after a message that did not go out whole.
unsafe fn transmit_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    const UIO_MAXIOV: c_uint = 1024;
    let count = count.min(UIO_MAXIOV);
    let before = errno();
    let mut done = 0;
    while done < count {
        // SAFETY: the program gave `count` messages.
        let message = unsafe { &mut *messages.add(done as usize) };
        // SAFETY: one of the program's.
        let result = unsafe { transmit_message(fd, &message.msg_hdr, flags) };
        if result < 0 {
            break;
        }
        message.msg_len = result as c_uint;
        done += 1;
        // SAFETY: the program's message was just sent from.
        if (result as usize) < unsafe { length(&message.msg_hdr) } {
            break;
        }
    }
    if done == 0 && count > 0 {
        return -1;
    }
    // What ended the call behind the first message is not told.
    set_errno(before);
    done as c_int
}

/// How many bytes a message asks to send.
unsafe fn length(message: &msghdr) -> usize {
    if message.msg_iov.is_null() {
        return 0;
    }
    // SAFETY: the program's message says so.
    let spans: &[iovec] =
        unsafe { core::slice::from_raw_parts(message.msg_iov, message.msg_iovlen as _) };
    spans.iter().map(|span| span.iov_len).sum()
}
