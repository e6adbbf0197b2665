//! The door through which the exported functions of librsock.so come in.
//!
//! An exported function never sleeps and never calls libc inside our code: it asks an operation here what to do
//! ([`Next`], [`Ready`]), does that outside with no lock held (so that `pthread_cancel` and signals find it in a plain libc
//! call), and asks again.

use crate::policy;
use crate::process::{self, fork, thread};
use crate::readiness::{instance, registration};
use crate::socket::stream::{self, Mode, Stream, flag};
use crate::socket::{close, outgoing};
use crate::stats;
use crate::table::{self, Entry};
use core::sync::atomic::Ordering::*;
use libc::{c_int, epoll_event, nfds_t, pollfd, sockaddr, socklen_t, timespec};

pub use crate::readiness::epoll::EpollWait;
pub use crate::readiness::poll::Poll;
pub use crate::socket::close::{Close, at_exit, close_range, duplicated};
pub use crate::socket::inflight::InFlight;
pub use crate::socket::options::{
    after_ioctl, after_setfl, after_setsockopt, before_fcntl, before_getsockopt, before_ioctl,
    before_setsockopt, getsockopt, ioctl, shutdown,
};
pub use crate::socket::pin::{BeforeExec, Pin};
pub use crate::socket::receive::Receive;
pub use crate::socket::send::Transmit;
pub use crate::socket::sendfile::{SendFile, Splice};
pub use crate::stats::Reason;
pub use crate::table::tracked;

/// What an exported function does next.
pub enum Next<R> {
    /// Finished: return this; errno is set where the value says failure.
    Return(R),
    /// Call the kernel (the real libc function) with the program's own arguments and return its answer.
    Kernel,
    /// As `Kernel`, but the call is counted while it is in the kernel; hand its result to [`InFlight::finish`].
    Counted(InFlight),
    /// Sleep in the real `ppoll` with this, hand its result to the operation's `woke`, and ask again.
    Wait(Wait),
}

/// What to sleep on, outside of our code.
pub struct Wait {
    /// The descriptors for `ppoll`; the first `count` are in use.
    pub fds: [pollfd; 3],
    /// How many of `fds` are in use.
    pub count: nfds_t,
    /// Time-out, or for ever.
    pub timeout: Option<timespec>,
}

/// What the epoll, poll and select hooks do next.
pub enum Ready {
    /// Finished: return this; errno is set where the value says failure.
    Return(c_int),
    /// Nothing of ours is in the set: the real call with the program's own arguments, and return its answer.
    Kernel,
    /// The real call with this time-out (None: for ever), then `done` with its result.
    Sleep(Option<timespec>),
}

/// No tracked descriptor of the program's (internal ones aside) is above this: where select stops looking.
pub fn highest() -> c_int {
    table::highest()
}

/// Our code panicked in a call on `fd` (-1: on none). True: no byte of its stream was ever on a lane, so the kernel can do
/// that call; false: the stream is broken, and the call says ECONNRESET.
pub fn after_panic(fd: c_int) -> bool {
    let Some(s) = stream::of(fd) else { return true };
    if !s.hopped() {
        s.set_mode(Mode::Pinned);
        return true;
    }
    outgoing::abort(fd);
    false
}

fn enabled() -> bool {
    policy::ENABLE.get() != 0
}

/// A new socket: `socket(domain, kind, protocol)` returned `fd` >= 0.
pub fn made_socket(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    let tcp = matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == libc::SOCK_STREAM
        && matches!(protocol, 0 | libc::IPPROTO_TCP);
    if tcp && enabled() {
        Stream::begin(fd, Mode::Fresh, kind & libc::SOCK_NONBLOCK != 0);
    }
}

/// accept or accept4 on a tracked `listener` returned `fd` >= 0; `flags` are those of accept4.
pub fn accepted(
    _listener: c_int,
    fd: c_int,
    _peer: *const sockaddr,
    _len: socklen_t,
    flags: c_int,
) {
    if enabled() {
        Stream::begin(fd, Mode::Plain, flags & libc::SOCK_NONBLOCK != 0);
    }
}

/// connect(fd) returned `result` with `errno`; `address` is the program's.
pub fn connected(fd: c_int, address: *const sockaddr, len: socklen_t, result: c_int, errno: c_int) {
    let Some(s) = stream::of(fd) else { return };
    // SAFETY: the kernel has just accepted the address, whose family comes first.
    let family =
        (len >= 2 && !address.is_null()).then(|| i32::from(unsafe { (*address).sa_family }));
    match (family, s.mode()) {
        (Some(libc::AF_UNSPEC), Mode::Plain | Mode::Pinned) if result == 0 => {
            s.set_mode(Mode::Pinned)
        }
        (Some(libc::AF_INET | libc::AF_INET6), Mode::Fresh)
            if result == 0 || errno == libc::EINPROGRESS =>
        {
            s.connector.store(true, Relaxed);
            s.set_mode(Mode::Plain);
        }
        _ => {}
    }
}

/// listen(fd) succeeded.
pub fn listening(fd: c_int) {
    if let Some(s) = stream::of(fd) {
        s.change_mode(Mode::Fresh, Mode::Listener);
    }
}

/// A descriptor number came from a call that makes one and that we see; whatever we thought of it is stale.
pub fn forget(fd: c_int) {
    if !process::is_this() {
        return;
    }
    match table::get(fd) {
        Entry::Stream(_) => {
            if let Some(s) = stream::of(fd) {
                if s.refs.fetch_sub(1, AcqRel) > 1 {
                    table::clear(fd);
                } else {
                    close::forget(s, fd);
                }
            }
        }
        Entry::Epoll(_) => instance::closed(fd),
        Entry::Internal | Entry::None => {
            table::clear(fd);
        }
    }
}

/// Before dup2/dup3 onto `new`: as for close. An internal descriptor in that place is moved away first.
pub fn about_to_replace(new: c_int) -> Close {
    if table::get(new) == Entry::Internal {
        process::relocate(new);
    }
    Close::new(new)
}

/// close of one of our internal descriptors by the program (3..1023 sweeps): true means "pretend EBADF, do not close".
pub fn internal(fd: c_int) -> bool {
    table::get(fd) == Entry::Internal
}

/// epoll_create or epoll_create1 returned `fd` >= 0.
pub fn made_epoll(fd: c_int) {
    if enabled() {
        instance::made(fd);
    }
}

/// Before epoll_ctl, where either descriptor is tracked; Some(pin) means: run it to its end first. The kernel's instance cannot say
/// what another process's lane has.
pub fn before_epoll_ctl(op: c_int, fd: c_int) -> Option<Pin> {
    let s = stream::of(fd).filter(|s| s.mode() == Mode::Foreign && op != libc::EPOLL_CTL_DEL)?;
    process::is_this().then(|| Pin::stream(s, stats::Reason::PinnedFork))
}

/// Before dup and kin of a tracked `old`; Some(pin) means: run it to its end first. A child of vfork runs in its parent's memory, and
/// copies a stream only for the program that it will execute, whose the copy is without our knowing it.
pub fn before_copy(old: c_int) -> Option<Pin> {
    let s = stream::of(old)?;
    (!process::is_this()).then(|| Pin::stream(s, stats::Reason::PinnedExec))
}

/// epoll_ctl, where either descriptor is tracked.
pub fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> Next<c_int> {
    let instance = instance::of(epfd);
    let Some(s) = stream::of(fd) else {
        if let Some(i) = instance
            && !event.is_null()
            && op != libc::EPOLL_CTL_DEL
        {
            // SAFETY: the program's event.
            i.avoid(unsafe { event.read_unaligned() }.u64);
            if let Some(inner) = crate::readiness::instance::of(fd) {
                inner.inside.store(true, Release);
                i.outside.store(true, Release);
            }
        }
        return Next::Kernel;
    };
    match instance {
        Some(i) if process::is_this() => Next::Return(registration::control(i, s, op, fd, event)),
        _ => {
            // An instance that we do not know cannot be told about lanes.
            if s.change_mode(Mode::Plain, Mode::Pinned) || s.change_mode(Mode::Fresh, Mode::Pinned)
            {
                s.stays_on_tcp(stats::Reason::PinnedCall);
            }
            Next::Kernel
        }
    }
}

/// pthread_atfork handlers.
pub fn before_fork() {
    fork::before();
}

/// In the child: only flags and raw system calls.
pub fn after_fork_child() {
    fork::in_child();
}

/// Before unshare, setns: end the background thread, which is started again when it is needed.
pub fn quiet() {
    if process::is_this() {
        thread::stop();
    }
}

/// The initial thread leaves by pthread_exit: the background thread must not keep the process alive.
pub fn main_leaves() {
    thread::main_leaves();
}

/// The library constructor: read the environment.
pub fn start() {
    process::set_pid();
    policy::start();
}

/// What carries the stream behind `fd`: bit 0 the sending direction on a lane, bit 1 the receiving one; -1: not a stream.
/// For tests.
pub fn carrier(fd: c_int) -> c_int {
    match stream::of(fd) {
        None => -1,
        Some(s) => {
            let on = |flags: u32| c_int::from(flags & flag::LANE != 0);
            on(s.view.tx.load(Acquire)) | on(s.view.rx.load(Acquire)) << 1
        }
    }
}
