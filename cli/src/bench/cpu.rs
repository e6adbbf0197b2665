//! Processors: which we may use, running on one of them, and the time we spent on them.

use std::io;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The processors that this process may run on.
pub fn allowed() -> Result<Vec<usize>> {
    // SAFETY: an empty set is all zero, and the call fills in a set of the size we say.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Err(io::Error::last_os_error()).context("cannot ask for the processors");
        }
        set
    };
    Ok((0..libc::CPU_SETSIZE as usize)
        // SAFETY: within the set.
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
        .collect())
}

/// Two processors, for two sides that are to run side by side.
pub fn two() -> Result<(usize, usize)> {
    match allowed()?.as_slice() {
        [first, second, ..] => Ok((*first, *second)),
        _ => bail!("this needs two processors, and there is only one"),
    }
}

/// Keeps the calling thread, and those it makes later, on this processor.
pub fn pin(cpu: usize) -> Result<()> {
    // SAFETY: an empty set is all zero; CPU_SET panics for a number beyond it.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error())
            .with_context(|| format!("cannot run on processor {cpu}")),
    }
}

/// Processor time of this process so far, or of its children that ended.
pub fn time(who: libc::c_int) -> Result<Duration> {
    // SAFETY: all zero is valid, and the call fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(who, &mut usage) != 0 {
            return Err(io::Error::last_os_error()).context("cannot ask for the processor time");
        }
        usage
    };
    let part = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    Ok(part(usage.ru_utime) + part(usage.ru_stime))
}
