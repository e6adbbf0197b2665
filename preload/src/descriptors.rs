//! The end and the copies of a descriptor: close, dup and kin, close_range.

use libc::{c_int, c_uint};
use rsock_core::calls::{self, Close, tracked};

use crate::drive::{Sleep, drive};
use crate::guard::{fail, note, ours};
use crate::options::{is_open, settled};
use crate::sockets::heal;
use crate::stdio::keep_for_stdio;

hook_cancel! {
    unsafe fn close(fd: c_int) -> c_int [tracked(fd)] {
        if ours(|| calls::internal(fd)) == Ok(true) {
            return fail(libc::EBADF);
        }
        drive(fd, Sleep::Cancellable, || Close::new(fd), || real::close(fd))
    }
    unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        match ours(|| calls::close_range(first, last, flags)) {
            Ok(Some(result)) => result,
            _ => real::close_range(first, last, flags),
        }
    }
    unsafe fn closefrom(first: c_int) -> () {
        match ours(|| calls::close_range(first.max(0) as c_uint, c_uint::MAX, 0)) {
            Ok(Some(_)) => (),
            _ => real::closefrom(first),
        }
    }
}

hook_plain! {
    unsafe fn dup(old: c_int) -> c_int => my_dup {
        if ready_to_copy(old) { copied(old, plain::dup(old)) } else { -1 }
    }
    unsafe fn dup2(old: c_int, new: c_int) -> c_int => my_dup2 {
        if old == new || !tracked(old) && !tracked(new) {
            return plain::dup2(old, new);
        }
        replace(old, new, || plain::dup2(old, new))
    }
    unsafe fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int => my_dup3 {
        if old == new || !tracked(old) && !tracked(new) {
            return plain::dup3(old, new, flags);
        }
        replace(old, new, || plain::dup3(old, new, flags))
    }
}

alias! {
    unsafe fn __close(fd: c_int) -> c_int = close;
    unsafe fn __dup2(old: c_int, new: c_int) -> c_int = my_dup2;
}

/// Before a copy of `old`. False: what had to be done first failed, `errno` says how.
pub fn ready_to_copy(old: c_int) -> bool {
    !tracked(old) || settled(old, || calls::before_copy(old))
}

/// The kernel made `new` (if that is not a failure) a copy of `old`.
pub fn copied(old: c_int, new: c_int) -> c_int {
    if new >= 0 {
        heal(new);
        if tracked(old) {
            note(|| calls::duplicated(old, new));
            keep_for_stdio(new);
        }
    }
    new
}

/// dup2 and dup3, where either descriptor is tracked: `new` is closed by the call if it succeeds.
fn replace(old: c_int, new: c_int, mut real: impl FnMut() -> c_int) -> c_int {
    if !ready_to_copy(old) {
        return -1;
    }
    // A call that will fail must not close anything.
    let result = if tracked(new) && is_open(old) {
        // SAFETY: no pointers are involved.
        unsafe { drive(new, Sleep::Through, || calls::about_to_replace(new), real) }
    } else {
        real()
    };
    copied(old, result)
}
