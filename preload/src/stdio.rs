//! stdio on a stream: libc's own FILE functions reach the kernel without passing our symbols, so a stream that becomes a
//! FILE stays on TCP for good, and needs nothing more than that. So does one in the place of stdin, stdout or stderr, whose
//! FILEs are always there.

use libc::{FILE, c_char, c_int, c_void};
use rsock_core::calls::{Close, Reason, tracked};

use crate::drive::{Sleep, drive, pin};
use crate::guard::{errno, set_errno};

unsafe extern "C" {
    /// fileno(3): not a symbol of ours.
    safe fn fileno(file: *mut FILE) -> c_int;
}

hook_plain! {
    unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE => my_fdopen {
        if tracked(fd) && !pin(fd, Reason::PinnedStdio) {
            return core::ptr::null_mut();
        }
        plain::fdopen(fd, mode)
    }
    // dprintf's forms with a va_list, which both platforms pass as a pointer.
    unsafe fn vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int => my_vdprintf {
        if tracked(fd) && !pin(fd, Reason::PinnedStdio) {
            return -1;
        }
        plain::vdprintf(fd, format, args)
    }
    unsafe fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, args: *mut c_void) -> c_int => my___vdprintf_chk {
        if tracked(fd) && !pin(fd, Reason::PinnedStdio) {
            return -1;
        }
        plain::__vdprintf_chk(fd, flag, format, args)
    }
}

hook_cancel! {
    unsafe fn fclose(file: *mut FILE) -> c_int {
        let before = errno();
        let fd = fileno(file);
        set_errno(before); // EBADF for a FILE without descriptor
        if !tracked(fd) {
            return real::fclose(file);
        }
        drive(fd, Sleep::Cancellable, || Close::new(fd), || real::fclose(file))
    }
}

alias! {
    unsafe fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = my_fdopen;
    unsafe fn _IO_fclose(file: *mut FILE) -> c_int = fclose;
}

/// `fd` was made or copied to: if that is a place of stdio's, the stream stays on TCP.
pub fn keep_for_stdio(fd: c_int) {
    if (0..=libc::STDERR_FILENO).contains(&fd) && tracked(fd) {
        let before = errno();
        // A failure shows in the stream's next call.
        let _on_tcp = pin(fd, Reason::PinnedStdio);
        set_errno(before);
    }
}
