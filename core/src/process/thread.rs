//! The background thread as a thread: started when the first stream asks for a lane, all signals blocked, ended on demand.
//!
//! It must not keep a process alive whose main thread left by `pthread_exit` (then it looks now and then whether it is the
//! last), nor be in the way of calls that only single-threaded processes may make (unshare(2)).

use super::background;
use crate::log::warn;
use crate::sys::{self, lock::Lock};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use libc::{c_int, c_void, pthread_t};

unsafe extern "C" {
    /// pthread_setcancelstate(3), which the libc crate lacks.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const STOPPED: u32 = 0;
const RUNNING: u32 = 1;
const FAILED: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(STOPPED);
static HANDLE: Lock<pthread_t> = Lock::new(0);
static STOP: AtomicBool = AtomicBool::new(false);
static MAIN_LEFT: AtomicBool = AtomicBool::new(false);

/// Starts the thread if it does not run. False: it cannot be had.
pub fn ensure() -> bool {
    match STATE.load(Acquire) {
        RUNNING => return true,
        FAILED => return false,
        _ => {}
    }
    let Some(mut handle) = HANDLE.lock() else {
        return false;
    };
    if STATE.load(Acquire) == RUNNING {
        return true;
    }
    if !background::prepare() {
        STATE.store(FAILED, Release);
        return false;
    }
    STOP.store(false, Release);
    // SAFETY: plain pthread calls on values that live here; the thread inherits a mask that blocks every signal.
    let made = unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut old: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut old);
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, 512 << 10);
        let made = libc::pthread_create(&mut *handle, &attributes, main, ptr::null_mut());
        libc::pthread_attr_destroy(&mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, ptr::null_mut());
        made
    };
    if made != 0 {
        warn!("no background thread (error {made}): streams stay on TCP");
        STATE.store(FAILED, Release);
        return false;
    }
    STATE.store(RUNNING, Release);
    true
}

extern "C" fn main(_: *mut c_void) -> *mut c_void {
    // SAFETY: a C string; the name shows in ps and gdb. The thread cannot be cancelled: nobody knows its id.
    unsafe {
        libc::pthread_setname_np(libc::pthread_self(), c"rsock".as_ptr());
    }
    background::run();
    ptr::null_mut()
}

/// Whether the thread is to end; asked by it after each wake-up.
pub fn stopping() -> bool {
    STOP.load(Acquire) || MAIN_LEFT.load(Acquire) && alone()
}

/// How long it may sleep at most: for ever, unless it must look whether it is the last thread.
pub fn longest_sleep_ns() -> Option<u64> {
    MAIN_LEFT.load(Acquire).then_some(50_000_000)
}

/// Whether all other threads are gone, the initial one being a zombie.
fn alone() -> bool {
    let mut buf = [0u8; 2048];
    let Ok(fd) = sys::open(c"/proc/self/stat", libc::O_RDONLY, 0) else {
        return false;
    };
    let n = sys::read(fd, &mut buf).unwrap_or(0);
    sys::close(fd);
    // proc(5): the 20th field is num_threads; the second one may hold blanks but ends with the last bracket.
    let text = &buf[..n];
    let Some(end) = text.iter().rposition(|b| *b == b')') else {
        return false;
    };
    let field = text[end + 1..]
        .split(|b| *b == b' ')
        .filter(|f| !f.is_empty())
        .nth(17);
    let count = field
        .and_then(|f| core::str::from_utf8(f).ok())
        .and_then(|f| f.parse::<u32>().ok());
    count.is_some_and(|n| n <= 2)
}

/// Ends the thread and waits for it; it starts again when it is needed.
pub fn stop() {
    let Some(handle) = HANDLE.lock() else { return };
    if STATE.load(Acquire) != RUNNING {
        return;
    }
    STOP.store(true, Release);
    background::kick();
    const DISABLE: c_int = 1; // PTHREAD_CANCEL_DISABLE
    // pthread_join is a cancellation point, and no unwinding may begin in our code.
    let mut before = 0;
    // SAFETY: the thread was made joinable and is joined once; the caller's cancellation state is put back.
    unsafe {
        pthread_setcancelstate(DISABLE, &mut before);
        libc::pthread_join(*handle, ptr::null_mut());
        pthread_setcancelstate(before, ptr::null_mut());
    }
    STATE.store(STOPPED, Release);
}

/// The initial thread leaves by pthread_exit: the process ends with its last other thread.
pub fn main_leaves() {
    MAIN_LEFT.store(true, Release);
    background::kick();
}

/// In a fork child there is no background thread.
pub fn forget() {
    HANDLE.reset();
    STATE.store(STOPPED, Release);
    STOP.store(false, Release);
    MAIN_LEFT.store(false, Release);
}
