//! Copies inside the kernel: sendfile and splice. The others never have a socket at an end that works.

use libc::{c_int, c_uint, iovec, loff_t, off_t, size_t, ssize_t};
use rsock_core::calls::{SendFile, Splice, tracked};

use crate::drive::{Sleep, drive};

hook_plain! {
    unsafe fn sendfile(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t => my_sendfile {
        if !tracked(out) {
            return plain::sendfile(out, input, offset, count);
        }
        drive(
            out,
            Sleep::Through,
            || SendFile::new(out, input, offset, count),
            || plain::sendfile(out, input, offset, count),
        )
    }
}

hook_cancel! {
    unsafe fn splice(
        input: c_int, off_in: *mut loff_t, out: c_int, off_out: *mut loff_t, len: size_t, flags: c_uint
    ) -> ssize_t [tracked(input) || tracked(out)] {
        let stream = if tracked(input) { input } else { out };
        drive(
            stream,
            Sleep::Cancellable,
            || Splice::new(input, off_in, out, off_out, len, flags),
            || real::splice(input, off_in, out, off_out, len, flags),
        )
    }
    unsafe fn tee(input: c_int, out: c_int, len: size_t, flags: c_uint) -> ssize_t {
        real::tee(input, out, len, flags)
    }
    unsafe fn vmsplice(fd: c_int, iov: *const iovec, count: size_t, flags: c_uint) -> ssize_t {
        real::vmsplice(fd, iov, count, flags)
    }
    unsafe fn copy_file_range(
        input: c_int, off_in: *mut loff_t, out: c_int, off_out: *mut loff_t, len: size_t, flags: c_uint
    ) -> ssize_t {
        real::copy_file_range(input, off_in, out, off_out, len, flags)
    }
}

alias! {
    unsafe fn sendfile64(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t = my_sendfile;
}
