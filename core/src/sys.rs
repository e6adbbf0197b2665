//! Raw system calls: they reach the kernel without passing our own exported symbols, touch no errno, allocate nothing and
//! are no cancellation points. Used for everything that rsock does for itself.

use core::mem::{MaybeUninit, size_of};
use core::ptr;
use libc::{
    c_int, c_void, epoll_event, iovec, msghdr, pollfd, sockaddr, sockaddr_storage, socklen_t,
    timespec,
};
use syscalls::{Errno as RawErrno, Sysno, syscall};

pub mod lock;

/// An error number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub c_int);

/// What a raw system call gives.
pub type Result<T> = core::result::Result<T, Errno>;

impl From<RawErrno> for Errno {
    fn from(e: RawErrno) -> Self {
        Errno(e.into_raw())
    }
}

/// Sets the calling thread's errno: only for a call that returns an error to the program.
pub fn set_errno(e: c_int) {
    // SAFETY: __errno_location is always valid for the calling thread.
    unsafe { *libc::__errno_location() = e }
}

macro_rules! call {
    ($($x:expr),+ $(,)?) => {
        // SAFETY: each wrapper below passes pointers that are valid for what the system call reads and writes.
        unsafe { syscall!($($x),+) }.map_err(Errno::from)
    };
}

/// recvmsg(2).
pub fn recvmsg(fd: c_int, msg: &mut msghdr, flags: c_int) -> Result<usize> {
    call!(Sysno::recvmsg, fd, ptr::from_mut(msg), flags)
}

/// sendmsg(2).
pub fn sendmsg(fd: c_int, msg: &msghdr, flags: c_int) -> Result<usize> {
    call!(Sysno::sendmsg, fd, ptr::from_ref(msg), flags)
}

/// recv(2) into a slice.
pub fn recv(fd: c_int, buf: &mut [u8], flags: c_int) -> Result<usize> {
    call!(
        Sysno::recvfrom,
        fd,
        buf.as_mut_ptr(),
        buf.len(),
        flags,
        0,
        0
    )
}

/// send(2) of a slice.
pub fn send(fd: c_int, buf: &[u8], flags: c_int) -> Result<usize> {
    call!(Sysno::sendto, fd, buf.as_ptr(), buf.len(), flags, 0, 0)
}

/// read(2).
pub fn read(fd: c_int, buf: &mut [u8]) -> Result<usize> {
    call!(Sysno::read, fd, buf.as_mut_ptr(), buf.len())
}

/// pread(2).
pub fn pread(fd: c_int, buf: &mut [u8], offset: i64) -> Result<usize> {
    call!(Sysno::pread64, fd, buf.as_mut_ptr(), buf.len(), offset)
}

/// write(2).
pub fn write(fd: c_int, buf: &[u8]) -> Result<usize> {
    call!(Sysno::write, fd, buf.as_ptr(), buf.len())
}

/// lseek(2).
pub fn lseek(fd: c_int, offset: i64, whence: c_int) -> Result<i64> {
    call!(Sysno::lseek, fd, offset, whence).map(|n| n as i64)
}

/// open(2), always with O_CLOEXEC.
pub fn open(path: &core::ffi::CStr, flags: c_int, mode: u32) -> Result<c_int> {
    call!(
        Sysno::openat,
        libc::AT_FDCWD,
        path.as_ptr(),
        flags | libc::O_CLOEXEC,
        mode
    )
    .map(|n| n as c_int)
}

/// close(2); what it returns does not matter for a descriptor of our own.
pub fn close(fd: c_int) {
    let _ = call!(Sysno::close, fd);
}

/// close_range(2).
pub fn close_range(first: u32, last: u32, flags: c_int) -> Result<()> {
    call!(Sysno::close_range, first, last, flags).map(drop)
}

/// shutdown(2).
pub fn shutdown(fd: c_int, how: c_int) -> Result<()> {
    call!(Sysno::shutdown, fd, how).map(drop)
}

/// fcntl(2) with an integer argument.
pub fn fcntl(fd: c_int, command: c_int, arg: usize) -> Result<usize> {
    call!(Sysno::fcntl, fd, command, arg)
}

/// Moves a descriptor of ours out of the program's way: as high as the limit allows, close-on-exec. The old number is
/// closed in any case.
pub fn move_high(fd: c_int) -> Result<c_int> {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    let top = match call!(
        Sysno::prlimit64,
        0,
        libc::RLIMIT_NOFILE,
        0,
        limit.as_mut_ptr()
    ) {
        // SAFETY: prlimit64 filled it in.
        Ok(_) => unsafe { limit.assume_init() }.rlim_cur.min(1 << 20) as usize,
        Err(_) => 1024,
    };
    // Above the program's low numbers, but not so high that the kernel's table, which fork copies, gets large.
    let from = (top / 2).min(4096);
    let high =
        fcntl(fd, libc::F_DUPFD_CLOEXEC, from).or_else(|_| fcntl(fd, libc::F_DUPFD_CLOEXEC, 64));
    close(fd);
    high.map(|n| n as c_int)
}

/// ioctl(2) that writes one int.
pub fn ioctl_int(fd: c_int, request: u64) -> Result<c_int> {
    let mut value: c_int = 0;
    call!(Sysno::ioctl, fd, request, ptr::from_mut(&mut value))?;
    Ok(value)
}

/// getsockopt(2) of a plain value; the number of bytes the kernel filled in comes with it.
pub fn getsockopt<T: Copy>(
    fd: c_int,
    level: c_int,
    name: c_int,
    mut value: T,
) -> Result<(T, usize)> {
    let mut len = size_of::<T>() as socklen_t;
    call!(
        Sysno::getsockopt,
        fd,
        level,
        name,
        ptr::from_mut(&mut value),
        ptr::from_mut(&mut len)
    )?;
    Ok((value, len as usize))
}

/// setsockopt(2) of a plain value.
pub fn setsockopt<T: Copy>(fd: c_int, level: c_int, name: c_int, value: T) -> Result<()> {
    call!(
        Sysno::setsockopt,
        fd,
        level,
        name,
        ptr::from_ref(&value),
        size_of::<T>()
    )
    .map(drop)
}

fn name_call(nr: Sysno, fd: c_int) -> Result<(sockaddr_storage, socklen_t)> {
    // SAFETY: all-zero is a valid sockaddr_storage.
    let mut address: sockaddr_storage = unsafe { core::mem::zeroed() };
    let mut len = size_of::<sockaddr_storage>() as socklen_t;
    call!(nr, fd, ptr::from_mut(&mut address), ptr::from_mut(&mut len))?;
    Ok((address, len))
}

/// getsockname(2).
pub fn getsockname(fd: c_int) -> Result<(sockaddr_storage, socklen_t)> {
    name_call(Sysno::getsockname, fd)
}

/// getpeername(2).
pub fn getpeername(fd: c_int) -> Result<(sockaddr_storage, socklen_t)> {
    name_call(Sysno::getpeername, fd)
}

/// socket(2), always close-on-exec.
pub fn socket(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int> {
    call!(Sysno::socket, domain, kind | libc::SOCK_CLOEXEC, protocol).map(|n| n as c_int)
}

/// bind(2).
///
/// # Safety
/// `address` must point to `len` readable bytes.
pub unsafe fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> Result<()> {
    call!(Sysno::bind, fd, address, len).map(drop)
}

/// connect(2).
///
/// # Safety
/// `address` must point to `len` readable bytes.
pub unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> Result<()> {
    call!(Sysno::connect, fd, address, len).map(drop)
}

/// listen(2).
pub fn listen(fd: c_int, backlog: c_int) -> Result<()> {
    call!(Sysno::listen, fd, backlog).map(drop)
}

/// accept4(2) without the address; non-blocking and close-on-exec.
pub fn accept(fd: c_int) -> Result<c_int> {
    call!(
        Sysno::accept4,
        fd,
        0,
        0,
        libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC
    )
    .map(|n| n as c_int)
}

/// ppoll(2) without a signal mask; no time-out means for ever.
pub fn poll(fds: &mut [pollfd], timeout: Option<timespec>) -> Result<usize> {
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    call!(Sysno::ppoll, fds.as_mut_ptr(), fds.len(), timeout, 0, 0)
}

/// The events of `fd` right now, of those asked for.
pub fn poll_now(fd: c_int, events: i16) -> i16 {
    let mut one = [pollfd {
        fd,
        events,
        revents: 0,
    }];
    match poll(
        &mut one,
        Some(timespec {
            tv_sec: 0,
            tv_nsec: 0,
        }),
    ) {
        Ok(_) => one[0].revents,
        Err(_) => 0,
    }
}

/// epoll_create1(EPOLL_CLOEXEC).
pub fn epoll_create() -> Result<c_int> {
    call!(Sysno::epoll_create1, libc::EPOLL_CLOEXEC).map(|n| n as c_int)
}

/// epoll_ctl(2).
pub fn epoll_ctl(epfd: c_int, op: c_int, fd: c_int, events: u32, data: u64) -> Result<()> {
    let mut event = epoll_event { events, u64: data };
    call!(Sysno::epoll_ctl, epfd, op, fd, ptr::from_mut(&mut event)).map(drop)
}

/// epoll_pwait(2) without a signal mask; `timeout` in milliseconds, -1 for ever.
///
/// # Safety
/// `events` must have room for `max` entries.
pub unsafe fn epoll_wait(
    epfd: c_int,
    events: *mut epoll_event,
    max: c_int,
    timeout: c_int,
) -> Result<usize> {
    call!(Sysno::epoll_pwait, epfd, events, max, timeout, 0, 8)
}

/// eventfd2(2): a non-blocking, close-on-exec doorbell, out of the program's way.
pub fn eventfd() -> Result<c_int> {
    let fd = call!(Sysno::eventfd2, 0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)?;
    move_high(fd as c_int)
}

/// Whether it is an anonymous inode (eventfd and kin), which has no file type: not a file, pipe, socket or device.
pub fn anonymous(fd: c_int) -> bool {
    let mut status = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: all-zero is a valid stat, and the kernel fills it in.
    call!(Sysno::fstat, fd, status.as_mut_ptr())
        .is_ok_and(|_| unsafe { status.assume_init() }.st_mode & libc::S_IFMT == 0)
}

/// memfd_create(2), sealable.
pub fn memfd(name: &core::ffi::CStr) -> Result<c_int> {
    call!(
        Sysno::memfd_create,
        name.as_ptr(),
        libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING
    )
    .map(|n| n as c_int)
}

/// ftruncate(2).
pub fn ftruncate(fd: c_int, len: u64) -> Result<()> {
    call!(Sysno::ftruncate, fd, len).map(drop)
}

/// The size of a file in bytes.
pub fn file_size(fd: c_int) -> Result<u64> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    call!(Sysno::fstat, fd, stat.as_mut_ptr())?;
    // SAFETY: fstat filled it in.
    Ok(unsafe { stat.assume_init() }.st_size as u64)
}

/// mmap(2).
///
/// # Safety
/// With MAP_FIXED the range must be ours.
pub unsafe fn mmap(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
) -> Result<*mut c_void> {
    call!(Sysno::mmap, at, len, protection, flags, fd, 0).map(|p| p as *mut c_void)
}

/// Private zeroed memory, only reserved until it is touched.
pub fn reserve(len: usize) -> Result<*mut c_void> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping wherever the kernel likes.
    unsafe {
        mmap(
            ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
        )
    }
}

/// munmap(2) of what [`reserve`] gave.
pub fn unmap(at: *mut c_void, len: usize) {
    let _ = call!(Sysno::munmap, at, len);
}

/// sched_yield(2).
pub fn sched_yield() {
    let _ = call!(Sysno::sched_yield);
}

/// getpid(2), never cached: right in vfork children too.
pub fn getpid() -> c_int {
    call!(Sysno::getpid).map_or(0, |n| n as c_int)
}

/// gettid(2).
pub fn gettid() -> c_int {
    call!(Sysno::gettid).map_or(0, |n| n as c_int)
}

/// geteuid(2).
pub fn geteuid() -> u32 {
    call!(Sysno::geteuid).map_or(u32::MAX, |n| n as u32)
}

/// tgkill(2) to the calling thread: how SIGPIPE is raised.
pub fn raise(signal: c_int) {
    let _ = call!(Sysno::tgkill, getpid(), gettid(), signal);
}

/// getrandom(2).
pub fn random(buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match call!(
            Sysno::getrandom,
            buf[done..].as_mut_ptr(),
            buf.len() - done,
            0
        ) {
            Ok(n) => done += n,
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// futex(2) FUTEX_WAIT on a private word; returns on a wake, a signal, or when the word is not `expected`.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, timeout: Option<timespec>) {
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let _ = call!(
        Sysno::futex,
        ptr::from_ref(word),
        op,
        expected,
        timeout,
        0,
        0
    );
}

/// futex(2) FUTEX_WAKE.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32, count: u32) {
    let _ = call!(
        Sysno::futex,
        ptr::from_ref(word),
        libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
        count,
        0,
        0,
        0
    );
}

/// CLOCK_MONOTONIC in nanoseconds (through the vDSO: no system call, no hook).
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME in nanoseconds since the epoch.
pub fn wall_clock() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut t = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: t is valid; these clocks always exist.
    unsafe { libc::clock_gettime(which, &mut t) };
    nanoseconds(t)
}

/// A time span in nanoseconds, saturating.
pub fn nanoseconds(t: timespec) -> u64 {
    (t.tv_sec.max(0) as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(t.tv_nsec.max(0) as u64)
}

/// Nanoseconds as a timespec.
pub fn span(ns: u64) -> timespec {
    timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// An iovec over a slice, for reading from it.
pub fn iov(buf: &[u8]) -> iovec {
    iovec {
        iov_base: buf.as_ptr() as *mut c_void,
        iov_len: buf.len(),
    }
}

/// A msghdr over iovecs, everything else empty.
pub fn msg(iov: *mut iovec, count: usize) -> msghdr {
    // SAFETY: all-zero is a valid msghdr.
    let mut m: msghdr = unsafe { core::mem::zeroed() };
    m.msg_iov = iov;
    m.msg_iovlen = count;
    m
}

/// recv(2) that throws the bytes away (TCP with MSG_TRUNC, see tcp(7)).
pub fn discard(fd: c_int, len: usize, flags: c_int) -> Result<usize> {
    call!(Sysno::recvfrom, fd, 0, len, flags | libc::MSG_TRUNC, 0, 0)
}

/// Whether no process with that id lives on this host (a zombie does not live).
pub fn gone(pid: c_int) -> bool {
    let Ok(fd) = call!(Sysno::pidfd_open, pid, 0) else {
        return true;
    };
    let dead = poll_now(fd as c_int, libc::POLLIN) & libc::POLLIN != 0;
    close(fd as c_int);
    dead
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eventfd_is_anonymous_and_nothing_else_of_ours_is() {
        let event = eventfd().expect("eventfd");
        let file = memfd(c"x").expect("memfd");
        let unix = socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).expect("socket");
        assert!(anonymous(event));
        assert!(!anonymous(file) && !anonymous(unix) && !anonymous(-1));
        [event, file, unix].into_iter().for_each(close);
    }
}
