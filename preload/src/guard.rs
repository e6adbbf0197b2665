//! The only way into rsock's own code, and `errno`.
//!
//! [`ours`] runs code of rsock-core if the library is ready and this thread is not inside already (then the call comes
//! from our own code, or from a library that it uses, and belongs to the kernel). A panic ends there: the program goes on.
//! The program's signal handlers do not run inside either: [`crate::signals`] puts them off until we leave.
//!
//! Nothing that sleeps or that is a cancellation point of libc may run inside: with a cancellation pending the unwinding
//! would meet the `catch_unwind` here and end the process.

use core::panic::AssertUnwindSafe;
use core::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};
use libc::c_int;
use std::panic::catch_unwind;

use crate::signals;

/// Set at the end of the constructor; calls that come before are the kernel's.
static READY: AtomicBool = AtomicBool::new(false);

/// What a thread remembers; shared with its signal handlers only. Without destructor: it works in every allocator and in a
/// thread's last destructors.
#[repr(C)]
pub struct Thread {
    /// The signals whose handlers wait until the thread leaves [`ours`], one bit each; they are blocked.
    pub deferred: AtomicU64,
    /// The thread is inside of [`ours`].
    pub inside: AtomicBool,
    /// Which kinds of handlers have run since this was cleared ([`signals::RESTARTS`], [`signals::INTERRUPTS`]).
    pub ran: AtomicU8,
}

unsafe extern "C" {
    /// In thread.c.
    safe fn rsock_thread() -> *const Thread;
}

/// This thread's.
#[inline(always)]
pub fn thread() -> &'static Thread {
    // SAFETY: the thread's own, for as long as it runs this code; all fields are atomic.
    unsafe { &*rsock_thread() }
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
    READY.store(true, Release);
}

/// Runs our code, once at a time in a thread, and stops its panics. Leaves `errno` to `f`.
#[inline]
pub fn ours<R>(f: impl FnOnce() -> R) -> Result<R, Refused> {
    let thread = thread();
    if !READY.load(Acquire) || thread.inside.load(Relaxed) {
        return Err(Refused::Outside);
    }
    thread.inside.store(true, Relaxed);
    compiler_fence(SeqCst);
    let answer = catch_unwind(AssertUnwindSafe(f));
    compiler_fence(SeqCst);
    thread.inside.store(false, Relaxed);
    compiler_fence(SeqCst);
    if thread.deferred.load(Relaxed) != 0 {
        signals::deliver(thread);
    }
    answer.map_err(|_| Refused::Panicked)
}

/// [`ours`] for what only takes note of something: `errno` stays, and a panic is no reason to change the call's answer.
#[inline]
pub fn note(f: impl FnOnce()) {
    let before = errno();
    let _noted_or_not = ours(f);
    set_errno(before);
}

/// [`note`] in a forked child, also if a handler forked in the middle of our code (a crash reporter's may).
pub fn note_in_child(f: impl FnOnce()) {
    let thread = thread();
    let inside = thread.inside.swap(false, Relaxed);
    note(f);
    thread.inside.store(inside, Relaxed);
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
