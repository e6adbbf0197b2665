//! The only way into rsock's own code, and `errno`.
//!
//! [`ours`] runs code of rsock-core if the library is ready and this thread is not inside already (then the call comes
//! from our own code, or from a library that it uses, and belongs to the kernel). A panic ends there: the program goes on.
//!
//! Nothing that sleeps or that is a cancellation point of libc may run inside: with a cancellation pending the unwinding
//! would meet the `catch_unwind` here and end the process.

use core::cell::Cell;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicBool, Ordering};
use libc::c_int;
use std::panic::catch_unwind;

/// Set at the end of the constructor; calls that come before are the kernel's.
static READY: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread is inside of [`ours`]. Constant and without destructor: it works in every allocator, in a thread's
    /// last destructors and in signal handlers.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Why [`ours`] gave no answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Not ready, or called from inside: the kernel's business.
    Outside,
    /// Our code panicked half way.
    Panicked,
}

/// Opens the gate: the constructor is done.
pub fn open() {
    READY.store(true, Ordering::Release);
}

/// Runs our code, once at a time in a thread, and stops its panics. Leaves `errno` to `f`.
#[inline]
pub fn ours<R>(f: impl FnOnce() -> R) -> Result<R, Refused> {
    if !READY.load(Ordering::Acquire) || INSIDE.replace(true) {
        return Err(Refused::Outside);
    }
    let answer = catch_unwind(AssertUnwindSafe(f));
    INSIDE.set(false);
    answer.map_err(|_| Refused::Panicked)
}

/// [`ours`] for what only takes note of something: `errno` stays, and a panic is no reason to change the call's answer.
#[inline]
pub fn note(f: impl FnOnce()) {
    let before = errno();
    let _noted_or_not = ours(f);
    set_errno(before);
}

/// In a forked child: whatever the parent's thread was doing, this is a new process.
pub fn reset_after_fork(f: impl FnOnce()) {
    let before = errno();
    INSIDE.set(false);
    let _noted_or_not = ours(f);
    set_errno(before);
}

/// This thread's `errno`.
#[inline(always)]
pub fn errno() -> c_int {
    // SAFETY: libc gives the address of this thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// Sets this thread's `errno`.
#[inline(always)]
pub fn set_errno(value: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = value }
}

/// Sets `errno` and answers -1, as a failing libc function does.
#[inline]
pub fn fail(value: c_int) -> c_int {
    set_errno(value);
    -1
}
