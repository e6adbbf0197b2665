//! Time-outs in the forms that the calls take.

use libc::{c_int, c_long, time_t, timespec, timeval};
use syscalls::{Sysno, syscall};

const NANOS: c_long = 1_000_000_000;

/// What the kernel accepts as a time-out (`timespec64_valid`).
pub fn valid(time: &timespec) -> bool {
    time.tv_sec >= 0 && (0..NANOS).contains(&time.tv_nsec)
}

/// No time at all.
pub fn is_zero(time: &timespec) -> bool {
    time.tv_sec == 0 && time.tv_nsec == 0
}

/// poll's and epoll_wait's milliseconds; negative is for ever.
pub fn from_millis(millis: c_int) -> Option<timespec> {
    (millis >= 0).then(|| timespec {
        tv_sec: time_t::from(millis / 1000),
        tv_nsec: c_long::from(millis % 1000) * 1_000_000,
    })
}

/// The same the other way, rounded up so that nobody wakes too early.
pub fn to_millis(time: Option<&timespec>) -> c_int {
    let Some(time) = time else { return -1 };
    let millis = time
        .tv_sec
        .saturating_mul(1000)
        .saturating_add((time.tv_nsec + 999_999) / 1_000_000);
    c_int::try_from(millis).unwrap_or(c_int::MAX)
}

/// select's; None where the kernel refuses it. Microseconds may exceed a second.
pub fn from_timeval(time: &timeval) -> Option<timespec> {
    if time.tv_sec < 0 || time.tv_usec < 0 {
        return None;
    }
    Some(timespec {
        tv_sec: time.tv_sec.saturating_add(time.tv_usec / 1_000_000),
        tv_nsec: (time.tv_usec % 1_000_000) * 1000,
    })
}

/// The point in time (CLOCK_MONOTONIC) that lies `distance` away.
pub fn after(distance: &timespec) -> timespec {
    let now = now();
    let nanos = now.tv_nsec + distance.tv_nsec;
    timespec {
        tv_sec: now
            .tv_sec
            .saturating_add(distance.tv_sec)
            .saturating_add(nanos / NANOS),
        tv_nsec: nanos % NANOS,
    }
}

/// How far `end` lies ahead; zero if it is past.
pub fn until(end: &timespec) -> timespec {
    let now = now();
    let (mut sec, mut nanos) = (end.tv_sec - now.tv_sec, end.tv_nsec - now.tv_nsec);
    if nanos < 0 {
        (sec, nanos) = (sec - 1, nanos + NANOS);
    }
    if sec < 0 {
        (sec, nanos) = (0, 0);
    }
    timespec {
        tv_sec: sec,
        tv_nsec: nanos,
    }
}

fn now() -> timespec {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is ours. This clock cannot fail.
    let _always_ok =
        unsafe { syscall!(Sysno::clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    time
}
