//! Runs the operations of rsock-core: asks for the next step inside of [`ours`], and does what it says outside, where
//! signals and `pthread_cancel` find the thread in a plain libc call with nothing of ours held.

use core::ptr::null;
use core::sync::atomic::Ordering::Relaxed;
use libc::{c_int, ssize_t, timespec};
use rsock_core::calls::{
    self, BeforeExec, Close, Next, Pin, Reason, Receive, SendFile, Splice, Transmit, Wait,
};
use syscalls::{Sysno, syscall};

use crate::guard::{Refused, Thread, errno, fail, ours, set_errno, thread};
use crate::readiness;
use crate::signals::{INTERRUPTS, RESTARTS};

/// An operation of rsock-core that may need several steps.
pub trait Operation {
    /// What the exported function returns.
    type Answer: Answer;
    /// What to do now.
    fn step(&mut self) -> Next<Self::Answer>;
    /// The sleep that `step` asked for is over; `errno` is ERESTART where the kernel would restart the call.
    fn woke(&mut self, result: c_int, errno: c_int);
}

macro_rules! operation {
    ($( $name:ty => $answer:ty; )*) => { $(
        impl Operation for $name {
            type Answer = $answer;
            fn step(&mut self) -> Next<$answer> {
                <$name>::step(self)
            }
            fn woke(&mut self, result: c_int, errno: c_int) {
                <$name>::woke(self, result, errno)
            }
        }
    )* };
}

operation! {
    Receive => ssize_t;
    Transmit => ssize_t;
    SendFile => ssize_t;
    Splice => ssize_t;
    Close => c_int;
    Pin => c_int;
    BeforeExec => c_int;
}

/// A return type of libc: -1 is failure.
pub trait Answer: Copy {
    /// -1.
    const FAILURE: Self;
    /// As a byte count.
    fn count(self) -> ssize_t;
}
impl Answer for ssize_t {
    const FAILURE: Self = -1;
    fn count(self) -> ssize_t {
        self
    }
}
impl Answer for c_int {
    const FAILURE: Self = -1;
    fn count(self) -> ssize_t {
        self as ssize_t
    }
}

/// How to sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sleep {
    /// The function is a cancellation point, so its sleep is one.
    Cancellable,
    /// The function is none: a cancellation stays pending.
    Through,
}

/// Runs the operation that `make` makes for `fd` to its end; `real` is the libc call with the program's own arguments.
/// `errno` is untouched unless the answer is failure.
///
/// # Safety
/// What the operation points to must be valid, and `real` be allowed, until this returns.
#[inline(never)]
pub unsafe fn drive<O: Operation>(
    fd: c_int,
    sleep: Sleep,
    make: impl FnOnce() -> O,
    mut real: impl FnMut() -> O::Answer,
) -> O::Answer {
    let before = errno();
    let thread = thread();
    thread.ran.store(0, Relaxed);
    let mut operation = None;
    let mut next = ours(|| operation.insert(make()).step());
    loop {
        match next {
            Ok(Next::Return(answer)) => {
                if answer.count() >= 0 {
                    set_errno(before);
                }
                return answer;
            }
            Ok(Next::Kernel) | Err(Refused::Outside) => {
                set_errno(before);
                return real();
            }
            Ok(Next::Counted(in_flight)) => {
                set_errno(before);
                let answer = real();
                let after = errno();
                let _counted_or_gone = ours(|| in_flight.finish(answer.count()));
                set_errno(after);
                return answer;
            }
            Ok(Next::Wait(mut wait)) => {
                let result = nap(thread, &mut wait, sleep);
                let after = errno();
                next = ours(|| match operation.as_mut() {
                    Some(operation) => {
                        operation.woke(result, after);
                        operation.step()
                    }
                    None => Next::Kernel,
                });
            }
            Err(Refused::Panicked) => {
                if ours(|| calls::after_panic(fd)) == Ok(true) {
                    set_errno(before);
                    return real();
                }
                set_errno(libc::ECONNRESET);
                return O::Answer::FAILURE;
            }
        }
    }
}

/// Sleeps as `wait` says; the result is `ppoll`'s, with `errno`: EINTR if a handler ran that ends the call, ERESTART if all
/// that ran let it go on (signal(7)). One that had to wait until we left our own code counts as one in the sleep.
fn nap(thread: &Thread, wait: &mut Wait, sleep: Sleep) -> c_int {
    if thread.ran.swap(0, Relaxed) & INTERRUPTS != 0 {
        return fail(libc::EINTR);
    }
    let result = ppoll(wait, sleep);
    if result < 0 && errno() == libc::EINTR && thread.ran.swap(0, Relaxed) == RESTARTS {
        set_errno(libc::ERESTART);
    }
    result
}

fn ppoll(wait: &mut Wait, sleep: Sleep) -> c_int {
    let timeout = wait
        .timeout
        .as_ref()
        .map_or(null(), |time| time as *const timespec);
    match sleep {
        // SAFETY: the array holds `count` descriptors, the time-out lives as long as `wait`.
        Sleep::Cancellable => unsafe {
            readiness::real::ppoll(wait.fds.as_mut_ptr(), wait.count, timeout, null())
        },
        // SAFETY: as above. The kernel writes the remaining time into `wait`, which nobody reads again.
        Sleep::Through => match unsafe {
            syscall!(
                Sysno::ppoll,
                wait.fds.as_mut_ptr(),
                wait.count,
                timeout,
                0,
                0
            )
        } {
            Ok(ready) => ready as c_int,
            Err(error) => fail(error.into_raw()),
        },
    }
}

/// Puts the stream of a tracked `fd` on TCP for good. False: it failed, `errno` says how.
pub fn pin(fd: c_int, reason: Reason) -> bool {
    // SAFETY: nothing is pointed to, and the "real call" does nothing.
    unsafe { drive(fd, Sleep::Through, || Pin::because(fd, reason), || 0) == 0 }
}
