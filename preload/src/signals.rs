//! The program's signal handlers do not run while a thread is inside of our code.
//!
//! A handler may call send on the very stream that is being worked on, or leave by siglongjmp; neither must find a stream
//! half way between two states. So where the program installs a handler, ours is installed in its place, and runs the
//! program's: at once when the thread is outside; else it queues the signal again, blocked, and [`deliver`] unblocks it when
//! the thread leaves. The kernel keeps order, siginfo and masks. Nothing changes for signals without a handler, for
//! SIG_IGN, for those that report a fault of the code itself, and for what sigaction tells the program.
//!
//! It also knows what a blocked call cannot know otherwise: whether the handler that ended a sleep wants the call to be
//! restarted (signal(7)), as the kernel does without returning.

use core::sync::atomic::{
    AtomicI32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use libc::{SIG_DFL, SIG_ERR, SIG_IGN, c_int, c_void, sighandler_t, siginfo_t, ucontext_t};
use syscalls::{Sysno, syscall};

use crate::guard::{Thread, errno, set_errno, thread};

/// In [`Thread::ran`]: a handler with SA_RESTART.
pub const RESTARTS: u8 = 1;
/// In [`Thread::ran`]: a handler without.
pub const INTERRUPTS: u8 = 2;

/// The kernel's signals, 1 to 64.
const COUNT: usize = 64;
/// Reports of what the code itself just did; and abort's.
const FAULTS: [c_int; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];
/// The flags that differ between what the program asked for and what the kernel has.
const CHANGED: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;

/// The program's handler of a signal whose kernel handler is ours.
struct Handler {
    address: AtomicUsize,
    flags: AtomicI32,
}

static HANDLERS: [Handler; COUNT] = [const {
    Handler {
        address: AtomicUsize::new(SIG_DFL),
        flags: AtomicI32::new(0),
    }
}; COUNT];

/// The process that [`HANDLERS`] belongs to. A child of vfork shares the memory, but not its handlers.
static OWNER: AtomicI32 = AtomicI32::new(0);

hook_plain! {
    unsafe fn sigaction(
        number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int => my_sigaction {
        change(number, new, old)
    }
    unsafe fn signal(number: c_int, handler: sighandler_t) -> sighandler_t => my_signal {
        if !puts_off(number) {
            return plain::signal(number, handler);
        }
        simple(number, handler, libc::SA_RESTART, bit(number))
    }
    // What signal is for programs that ask for nothing but POSIX.
    unsafe fn __sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t => my___sysv_signal {
        if !puts_off(number) {
            return plain::__sysv_signal(number, handler);
        }
        simple(number, handler, libc::SA_RESETHAND | libc::SA_NODEFER, 0)
    }
}

alias! {
    unsafe fn __sigaction(
        number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int = my_sigaction;
    unsafe fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t = my_signal;
    unsafe fn ssignal(number: c_int, handler: sighandler_t) -> sighandler_t = my_signal;
    unsafe fn sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t = my___sysv_signal;
}

/// In the constructor and in a forked child.
pub fn own() {
    OWNER.store(process(), Relaxed);
}

/// The thread has left our code: the handlers that waited run now, in the system call.
#[cold]
#[inline(never)]
pub fn deliver(thread: &Thread) {
    let before = errno();
    loop {
        let waiting = thread.deferred.swap(0, Relaxed);
        if waiting == 0 {
            break;
        }
        set_blocked(libc::SIG_UNBLOCK, waiting);
    }
    set_errno(before);
}

/// sigaction, with ours in the place of the program's handler.
///
/// # Safety
/// As for sigaction(2).
unsafe fn change(number: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    if !puts_off(number) {
        // SAFETY: the caller's.
        return unsafe { plain::sigaction(number, new, old) };
    }
    let handler = &HANDLERS[number as usize - 1];
    let (address, flags) = (handler.address.load(Acquire), handler.flags.load(Relaxed));
    // SAFETY: null or the program's.
    let mut wanted = unsafe { new.as_ref() }.copied();
    if let Some(action) = &mut wanted
        && action.sa_sigaction != SIG_DFL
        && action.sa_sigaction != SIG_IGN
        && OWNER.load(Relaxed) == process()
    {
        handler.flags.store(action.sa_flags, Relaxed);
        handler.address.store(action.sa_sigaction, Release);
        action.sa_sigaction = in_place as *const () as usize;
        action.sa_flags = action.sa_flags & !libc::SA_RESETHAND | libc::SA_SIGINFO;
    }
    let new = wanted
        .as_ref()
        .map_or(core::ptr::null(), |action| action as *const _);
    // SAFETY: the caller's, and ours.
    let result = unsafe { plain::sigaction(number, new, old) };
    if result < 0 {
        handler.flags.store(flags, Relaxed);
        handler.address.store(address, Release);
        return result;
    }
    // SAFETY: null, or filled in.
    if let Some(old) = unsafe { old.as_mut() }
        && old.sa_sigaction == in_place as *const () as usize
    {
        old.sa_sigaction = address;
        old.sa_flags = old.sa_flags & !CHANGED | flags & CHANGED;
    }
    result
}

/// signal, as sigaction.
///
/// # Safety
/// As for signal(2).
unsafe fn simple(number: c_int, handler: sighandler_t, flags: c_int, mask: u64) -> sighandler_t {
    if handler == SIG_ERR {
        set_errno(libc::EINVAL);
        return SIG_ERR;
    }
    // SAFETY: all zero is an empty mask and no restorer.
    let mut new: libc::sigaction = unsafe { core::mem::zeroed() };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: the kernel's part of the mask is its first 64 bits.
    unsafe { (&raw mut new.sa_mask).cast::<u64>().write(mask) };
    let mut old = new;
    // SAFETY: both are ours.
    if unsafe { change(number, &new, &mut old) } < 0 {
        return SIG_ERR;
    }
    old.sa_sigaction
}

/// What the kernel calls instead of the program's handler.
unsafe extern "C-unwind" fn in_place(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let thread = thread();
    if thread.inside.load(Relaxed) && put_off(thread, number, info, context) {
        return;
    }
    let handler = &HANDLERS[number as usize - 1];
    let (address, flags) = (handler.address.load(Acquire), handler.flags.load(Relaxed));
    if flags & libc::SA_RESETHAND != 0 {
        // SAFETY: all zero is the default action. It cannot fail for a signal that has a handler.
        let _default =
            unsafe { plain::sigaction(number, &core::mem::zeroed(), core::ptr::null_mut()) };
    }
    // SAFETY: the program gave a handler of this type, or one of fewer arguments, which C's convention lets us call so. It
    // may leave by unwinding (pthread_exit) or by siglongjmp: nothing is held here.
    unsafe {
        let run = core::mem::transmute::<
            usize,
            unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void),
        >(address);
        run(number, info, context);
    }
    // Now, since calls in the handler clear it.
    let restarts = flags & libc::SA_RESTART != 0;
    thread
        .ran
        .fetch_or(if restarts { RESTARTS } else { INTERRUPTS }, Relaxed);
}

/// Queues the signal again for this thread, blocked also when this handler returns. False: the kernel has no room for it.
fn put_off(thread: &Thread, number: c_int, info: *mut siginfo_t, context: *mut c_void) -> bool {
    // First: with SA_NODEFER it would come at once.
    set_blocked(libc::SIG_BLOCK, bit(number));
    // SAFETY: the kernel's own siginfo.
    let queued = unsafe {
        syscall!(
            Sysno::rt_tgsigqueueinfo,
            process(),
            thread_id(),
            number,
            info
        )
    };
    if queued.is_err() {
        return false;
    }
    thread.deferred.fetch_or(bit(number), Relaxed);
    // SAFETY: the kernel's context of the interrupted code; it restores the first 64 bits of the mask.
    unsafe {
        let mask = (&raw mut (*context.cast::<ucontext_t>()).uc_sigmask).cast::<u64>();
        mask.write(mask.read() | bit(number));
    }
    true
}

/// Is this a signal that can wait?
fn puts_off(number: c_int) -> bool {
    (1..=COUNT as c_int).contains(&number) && !FAULTS.contains(&number)
}

fn bit(number: c_int) -> u64 {
    1 << (number - 1)
}

fn set_blocked(how: c_int, signals: u64) {
    // SAFETY: one word of mask, as its size says. It cannot fail.
    let _always_ok = unsafe {
        syscall!(
            Sysno::rt_sigprocmask,
            how,
            &raw const signals,
            0,
            size_of::<u64>()
        )
    };
}

fn process() -> c_int {
    // SAFETY: no arguments; it cannot fail.
    unsafe { syscall!(Sysno::getpid) }.unwrap_or_default() as c_int
}

fn thread_id() -> c_int {
    // SAFETY: as above.
    unsafe { syscall!(Sysno::gettid) }.unwrap_or_default() as c_int
}
