//! The door through which the exported functions of librsock.so come in.
//!
//! An exported function never sleeps and never calls libc inside our code: it asks an operation here what to do
//! [`Next`], does that outside with no lock held (so that `pthread_cancel` and signals find it in a plain libc call),
//! and asks again.

use libc::{
    c_int, c_void, epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, sigset_t, sockaddr,
    socklen_t, ssize_t, timespec,
};

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

/// A kernel call on a stream that has not hopped, counted so that nobody hops while its byte count is unknown.
/// Dropping it (a cancelled thread unwinds) ends the count without a result.
pub struct InFlight {
    _private: (),
}
impl InFlight {
    /// The real function returned `result` (errno untouched).
    pub fn finish(self, result: ssize_t) {
        let _ = result;
    }
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

/// Is this descriptor one that rsock knows something about? The only test on the path of all others: one load.
#[inline(always)]
pub fn tracked(fd: c_int) -> bool {
    let _ = fd;
    false
}

/// No tracked descriptor of the program's (internal ones aside) is above this: where select stops looking.
#[inline(always)]
pub fn highest() -> c_int {
    -1
}
/// Our code panicked in a call on `fd` (-1: on none). True: no byte of its stream was ever on a lane, so the kernel can do
/// that call; false: the stream is broken, and the call says ECONNRESET.
pub fn after_panic(fd: c_int) -> bool {
    let _ = fd;
    true
}

/// recv, recvfrom, recvmsg, read, readv and kin.
pub struct Receive {
    _private: (),
}
impl Receive {
    /// `iov` must stay valid while the operation lives.
    pub fn new(fd: c_int, iov: *const iovec, count: usize, flags: c_int) -> Self {
        let _ = (fd, iov, count, flags);
        Self { _private: () }
    }
    /// For recvmsg: also fills in the output fields of `msg` when it returns.
    pub fn message(fd: c_int, msg: *mut msghdr, flags: c_int) -> Self {
        let _ = (fd, msg, flags);
        Self { _private: () }
    }
    /// What to do now.
    pub fn step(&mut self) -> Next<ssize_t> {
        Next::Kernel
    }
    /// The result of the `ppoll` that `step` asked for (negative: `errno` is the failure).
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        let _ = (result, errno);
    }
}

/// send, sendto, sendmsg, write, writev and kin.
pub struct Transmit {
    _private: (),
}
impl Transmit {
    /// `iov` must stay valid while the operation lives.
    pub fn new(fd: c_int, iov: *const iovec, count: usize, flags: c_int) -> Self {
        let _ = (fd, iov, count, flags);
        Self { _private: () }
    }
    /// For sendmsg.
    pub fn message(fd: c_int, msg: *const msghdr, flags: c_int) -> Self {
        let _ = (fd, msg, flags);
        Self { _private: () }
    }
    /// What to do now.
    pub fn step(&mut self) -> Next<ssize_t> {
        Next::Kernel
    }
    /// As for [`Receive::woke`].
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        let _ = (result, errno);
    }
}

/// sendfile: `out` is a tracked descriptor.
pub struct SendFile {
    _private: (),
}
impl SendFile {
    /// `offset` may be null, as for sendfile(2).
    pub fn new(out: c_int, input: c_int, offset: *mut off_t, count: usize) -> Self {
        let _ = (out, input, offset, count);
        Self { _private: () }
    }
    /// What to do now.
    pub fn step(&mut self) -> Next<ssize_t> {
        Next::Kernel
    }
    /// As for [`Receive::woke`].
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        let _ = (result, errno);
    }
}

/// splice with a tracked descriptor at either end.
pub struct Splice {
    _private: (),
}
impl Splice {
    /// The arguments of splice(2).
    pub fn new(
        input: c_int,
        off_in: *mut i64,
        out: c_int,
        off_out: *mut i64,
        len: usize,
        flags: u32,
    ) -> Self {
        let _ = (input, off_in, out, off_out, len, flags);
        Self { _private: () }
    }
    /// What to do now.
    pub fn step(&mut self) -> Next<ssize_t> {
        Next::Kernel
    }
    /// As for [`Receive::woke`].
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        let _ = (result, errno);
    }
}

/// close of a tracked descriptor: hop back what is unsent first. `Next::Kernel` means: close it now.
pub struct Close {
    _private: (),
}
impl Close {
    /// Before `close(fd)`.
    pub fn new(fd: c_int) -> Self {
        let _ = fd;
        Self { _private: () }
    }
    /// What to do now.
    pub fn step(&mut self) -> Next<c_int> {
        Next::Kernel
    }
    /// As for [`Receive::woke`].
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        let _ = (result, errno);
    }
}

/// Something after which a stream must be on TCP for good before the kernel call may run (fdopen, MSG_OOB, kTLS, aio …).
/// `Next::Kernel` means: it is.
pub struct Pin {
    _private: (),
}
impl Pin {
    /// Hop `fd` back, never hop it again.
    pub fn new(fd: c_int) -> Self {
        let _ = fd;
        Self { _private: () }
    }
    /// What to do now.
    pub fn step(&mut self) -> Next<c_int> {
        Next::Kernel
    }
    /// As for [`Receive::woke`].
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        let _ = (result, errno);
    }
}

/// Before any exec: every hopped stream that survives it (no CLOEXEC) is hopped back. `Next::Kernel` means: go on.
pub struct BeforeExec {
    _private: (),
}
impl Default for BeforeExec {
    fn default() -> Self {
        Self::new()
    }
}
impl BeforeExec {
    /// Before execve and kin, in the calling process.
    pub fn new() -> Self {
        Self { _private: () }
    }
    /// What to do now.
    pub fn step(&mut self) -> Next<c_int> {
        Next::Kernel
    }
    /// As for [`Receive::woke`].
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        let _ = (result, errno);
    }
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

/// epoll_wait, epoll_pwait, epoll_pwait2 (Sleep means the real epoll_pwait2 or epoll_pwait into the program's own array).
pub struct EpollWait {
    _private: (),
}
impl EpollWait {
    /// `timeout`: None for ever.
    pub fn new(
        epfd: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: Option<timespec>,
    ) -> Self {
        let _ = (epfd, events, max, timeout);
        Self { _private: () }
    }
    /// What to do now.
    pub fn step(&mut self) -> Ready {
        Ready::Kernel
    }
    /// The real call, asked for by `Sleep`, returned `result` (negative: errno is set). What to do now.
    pub fn done(&mut self, result: c_int) -> Ready {
        Ready::Return(result)
    }
}

/// poll, ppoll (Sleep means the real ppoll on [`Poll::array`]).
pub struct Poll {
    _private: (),
}
impl Poll {
    /// `timeout`: None for ever.
    pub fn new(fds: *mut pollfd, count: nfds_t, timeout: Option<timespec>) -> Self {
        let _ = (fds, count, timeout);
        Self { _private: () }
    }
    /// select, pselect: the same with descriptor sets; `Return` has filled them in.
    pub fn select(
        nfds: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: Option<timespec>,
    ) -> Self {
        let _ = (nfds, read, write, except, timeout);
        Self { _private: () }
    }
    /// What to do now.
    pub fn step(&mut self) -> Ready {
        Ready::Kernel
    }
    /// What `Sleep` sleeps on.
    pub fn array(&mut self) -> (*mut pollfd, nfds_t) {
        (core::ptr::null_mut(), 0)
    }
    /// As for [`EpollWait::done`].
    pub fn done(&mut self, result: c_int) -> Ready {
        Ready::Return(result)
    }
    /// How much of the time-out is left, for select(2), which says so.
    pub fn left(&self) -> timespec {
        timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }
    }
}

/// A new socket: `socket(domain, kind, protocol)` returned `fd` >= 0.
pub fn made_socket(fd: c_int, domain: c_int, kind: c_int, protocol: c_int) {
    let _ = (fd, domain, kind, protocol);
}
/// accept or accept4 on a tracked `listener` returned `fd` >= 0; `peer` is the peer's address as the kernel gave it;
/// `flags` those of accept4.
pub fn accepted(
    listener: c_int,
    fd: c_int,
    peer: *const sockaddr,
    peer_len: socklen_t,
    flags: c_int,
) {
    let _ = (listener, fd, peer, peer_len, flags);
}
/// connect(fd) returned `result` with `errno`; `address` is the program's.
pub fn connected(fd: c_int, address: *const sockaddr, len: socklen_t, result: c_int, errno: c_int) {
    let _ = (fd, address, len, result, errno);
}
/// listen(fd) succeeded.
pub fn listening(fd: c_int) {
    let _ = fd;
}
/// A descriptor number came from a call that makes one and that we see; whatever we thought of it is stale.
pub fn forget(fd: c_int) {
    let _ = fd;
}
/// `new` is a duplicate of `old` (dup, F_DUPFD, dup2, dup3 after the fact).
pub fn duplicated(old: c_int, new: c_int) {
    let _ = (old, new);
}
/// Before dup2/dup3 onto `new`: as for close. An internal descriptor in that place is moved away first.
pub fn about_to_replace(new: c_int) -> Close {
    Close::new(new)
}
/// close of one of our internal descriptors by the program (3..1023 sweeps): true means "pretend EBADF, do not close".
pub fn internal(fd: c_int) -> bool {
    let _ = fd;
    false
}
/// close_range(first, last, flags) with everything of ours spared; returns as close_range(2). None: nothing of ours is there.
pub fn close_range(first: u32, last: u32, flags: c_int) -> Option<c_int> {
    let _ = (first, last, flags);
    None
}
/// shutdown on a tracked descriptor.
pub fn shutdown(fd: c_int, how: c_int) -> Next<c_int> {
    let _ = (fd, how);
    Next::Kernel
}
/// getsockopt on a tracked descriptor.
pub fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Next<c_int> {
    let _ = (fd, level, name, value, len);
    Next::Kernel
}
/// Before setsockopt on a tracked descriptor; Some(pin) means: run it to its end, then the kernel call.
pub fn before_setsockopt(fd: c_int, level: c_int, name: c_int) -> Option<Pin> {
    let _ = (fd, level, name);
    None
}
/// setsockopt on a tracked descriptor succeeded in the kernel.
pub fn after_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) {
    let _ = (fd, level, name, value, len);
}
/// ioctl on a tracked descriptor (FIONREAD, SIOCOUTQ …).
pub fn ioctl(fd: c_int, request: u64, arg: *mut c_void) -> Next<c_int> {
    let _ = (fd, request, arg);
    Next::Kernel
}
/// ioctl on a tracked descriptor succeeded in the kernel (FIONBIO).
pub fn after_ioctl(fd: c_int, request: u64, arg: *mut c_void) {
    let _ = (fd, request, arg);
}
/// Before fcntl on a tracked descriptor; Some(pin) as for setsockopt (F_SETFL with O_ASYNC, F_SETOWN, F_SETSIG).
pub fn before_fcntl(fd: c_int, command: c_int, arg: u64) -> Option<Pin> {
    let _ = (fd, command, arg);
    None
}
/// fcntl(F_SETFL) on a tracked descriptor succeeded in the kernel.
pub fn after_setfl(fd: c_int, flags: c_int) {
    let _ = (fd, flags);
}
/// epoll_create or epoll_create1 returned `fd` >= 0.
pub fn made_epoll(fd: c_int) {
    let _ = fd;
}
/// epoll_ctl, where either descriptor is tracked.
pub fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> Next<c_int> {
    let _ = (epfd, op, fd, event);
    Next::Kernel
}
/// pthread_atfork handlers.
pub fn before_fork() {}
/// In the parent.
pub fn after_fork_parent() {}
/// In the child: only flags and raw system calls.
pub fn after_fork_child() {}
/// The process is about to end by exit() or return from main (atexit): nothing accepted may be lost.
pub fn at_exit() {}
/// Before unshare, setns (single-threaded callers only) and when main calls pthread_exit: end the background thread.
pub fn quiet() {}
/// The library constructor: read the environment, map the tables.
pub fn start() {}
/// The signal mask type, for the p-variants' signatures in the preload library.
pub type SignalMask = sigset_t;
