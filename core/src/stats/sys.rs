//! The raw system calls of the writer. They pass none of our exported symbols, touch no errno and allocate nothing.

use std::ffi::CStr;

use libc::c_int;
use syscalls::{Errno, Sysno, syscall};

/// Highest descriptor number that we move a descriptor of ours to. The kernel's descriptor table grows to the highest
/// number in use and fork copies it, so "as high as the limit allows" could cost megabytes where the limit is a million.
const HIGH: u64 = 16_384;

/// An anonymous file of this size that can never change its size again, mapped by nobody. `EFBIG` where RLIMIT_FSIZE
/// forbids the size: asking the kernel would kill the program with SIGXFSZ.
pub fn sealed_memfd(name: &CStr, size: usize) -> Result<c_int, Errno> {
    if soft_limit(libc::RLIMIT_FSIZE)? < size as u64 {
        return Err(Errno::EFBIG);
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a C string; memfd_create touches nothing else of ours.
    let fd = unsafe { syscall!(Sysno::memfd_create, name.as_ptr(), flags) }? as c_int;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: both calls work on the descriptor that we just made.
    let done = unsafe {
        syscall!(Sysno::ftruncate, fd, size)
            .and_then(|_| syscall!(Sysno::fcntl, fd, libc::F_ADD_SEALS, seals))
    };
    match done {
        Ok(_) => Ok(fd),
        Err(errno) => {
            close(fd);
            Err(errno)
        }
    }
}

/// Moves a descriptor of ours to a high number, CLOEXEC, out of the way of programs that count on low ones. Where there is
/// no room it stays where it is.
pub fn move_high(fd: c_int) -> c_int {
    let limit = soft_limit(libc::RLIMIT_NOFILE).map_or(1024, |limit| limit.min(HIGH));
    for below in [64, 512] {
        let start = limit.saturating_sub(below) as c_int;
        // SAFETY: duplicates a descriptor of ours to a free number.
        if let Ok(high) = unsafe { syscall!(Sysno::fcntl, fd, libc::F_DUPFD_CLOEXEC, start) } {
            close(fd);
            return high as c_int;
        }
    }
    fd
}

/// Closes a descriptor of ours.
pub fn close(fd: c_int) {
    // SAFETY: a descriptor of ours that nobody uses any more. Linux frees the number whatever close answers.
    let _ = unsafe { syscall!(Sysno::close, fd) };
}

/// Maps `fd` shared, or private zeroed memory if there is none, for reading and writing; over `fixed` if that is not null.
/// Untouched pages are not accounted for.
///
/// # Safety
/// What lies at `fixed` is replaced: it must be a mapping of ours of at least `size` bytes whose contents nobody needs.
pub unsafe fn map(fixed: *mut u8, size: usize, fd: Option<c_int>) -> Result<*mut u8, Errno> {
    let mut flags = libc::MAP_NORESERVE;
    flags |= if fd.is_some() {
        libc::MAP_SHARED
    } else {
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS
    };
    if !fixed.is_null() {
        flags |= libc::MAP_FIXED;
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: without MAP_FIXED the kernel chooses a free range; with it the caller vouches for the range.
    let address = unsafe {
        syscall!(
            Sysno::mmap,
            fixed,
            size,
            protection,
            flags,
            fd.unwrap_or(-1),
            0
        )
    }?;
    Ok(address as *mut u8)
}

/// This process, as it knows itself.
pub fn pid() -> i32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { syscall!(Sysno::getpid) }.map_or(0, |pid| pid as i32)
}

/// Lets another thread run.
pub fn yield_now() {
    // SAFETY: takes no arguments and cannot fail.
    let _ = unsafe { syscall!(Sysno::sched_yield) };
}

/// CLOCK_REALTIME in nanoseconds, through the vDSO.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec. Not an exported symbol of ours, and it cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn soft_limit(resource: libc::__rlimit_resource_t) -> Result<u64, Errno> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads this process's own limit into a structure of the kernel's layout (rlimit is rlimit64 on 64-bit Linux).
    unsafe { syscall!(Sysno::prlimit64, 0, resource, 0, &raw mut limit) }?;
    Ok(limit.rlim_cur)
}
