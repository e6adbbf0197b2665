//! The disposition of SIGPIPE, as we inherited it. Rust's runtime ignores the signal before main, which would make
//! `rsock status | head` panic, and would be passed on to every program started by `rsock run`.

use std::sync::atomic::{AtomicUsize, Ordering};

static INHERITED: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);

/// Runs before Rust's runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: an all-zero sigaction is valid, and sigaction only writes to it.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action only asks.
    if unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &mut action) } == 0 {
        INHERITED.store(action.sa_sigaction, Ordering::Relaxed);
    }
}

/// Gives SIGPIPE back the disposition that our parent gave it (default or ignored; handlers do not survive exec).
pub fn inherit() {
    // SAFETY: the value is SIG_DFL or SIG_IGN; both are always valid for SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, INHERITED.load(Ordering::Relaxed)) };
}
