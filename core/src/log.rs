//! The log: off unless asked for by `RSOCK_LOG`, to a file or to stderr, safe in every context (a buffer on the stack and
//! one raw write), at most 200 lines a second.

use crate::sys;
use core::fmt::{Arguments, Write};
use core::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::*};

/// How important a line is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    /// Nothing is logged.
    Off,
    /// rsock itself is wrong.
    Error,
    /// Something the person should mend.
    Warn,
    /// What streams do: hops, hops back.
    Info,
    /// Every decision.
    Debug,
    /// Every control message.
    Trace,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Off as u8);
static FD: AtomicI32 = AtomicI32::new(2);
static SECOND: AtomicU64 = AtomicU64::new(0);
static LINES: AtomicU32 = AtomicU32::new(0);
const LINES_A_SECOND: u32 = 200;

impl Level {
    /// By its name, as in `RSOCK_LOG`.
    pub fn parse(name: &[u8]) -> Option<Level> {
        Some(match name {
            b"off" | b"0" => Level::Off,
            b"error" => Level::Error,
            b"warn" => Level::Warn,
            b"info" => Level::Info,
            b"debug" => Level::Debug,
            b"trace" => Level::Trace,
            _ => return None,
        })
    }
}

/// Sets the level.
pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Relaxed);
}

/// Sends the log to a file, appended to. What went wrong, otherwise.
pub fn set_file(path: &core::ffi::CStr) -> sys::Result<()> {
    let fd = sys::open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND, 0o644)?;
    let fd = sys::move_high(fd)?;
    crate::table::set_internal(fd);
    FD.store(fd, Relaxed);
    Ok(())
}

/// One of our descriptors has another number.
pub fn moved(fd: i32, new: i32) {
    crate::process::renumber(&FD, fd, new);
}

/// Whether a line of this level would be written.
#[inline(always)]
pub fn enabled(level: Level) -> bool {
    LEVEL.load(Relaxed) >= level as u8
}

struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> core::fmt::Result {
        let n = s.len().min(self.bytes.len() - 1 - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Writes a line. Use the macros.
#[cold]
pub fn write(level: Level, args: Arguments<'_>) {
    let now = sys::wall_clock();
    let second = now / 1_000_000_000;
    if SECOND.swap(second, Relaxed) != second {
        LINES.store(0, Relaxed);
    }
    let count = LINES.fetch_add(1, Relaxed);
    if count > LINES_A_SECOND {
        return;
    }
    let mut line = Line {
        bytes: [0; 512],
        len: 0,
    };
    let name = match level {
        Level::Off | Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    let _ = write!(
        line,
        "rsock {}.{:06} [{}] {name}: ",
        second,
        now / 1000 % 1_000_000,
        sys::getpid()
    );
    let _ = match count {
        LINES_A_SECOND => line.write_str("more lines this second are left out"),
        _ => line.write_fmt(args),
    };
    line.bytes[line.len] = b'\n';
    // A log that cannot be written has nobody to be told.
    let _ = sys::write(FD.load(Relaxed), &line.bytes[..=line.len]);
}

/// Logs at a level, if it is enabled.
macro_rules! at {
    ($level:ident, $($arg:tt)*) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write($crate::log::Level::$level, format_args!($($arg)*));
        }
    };
}
macro_rules! error { ($($arg:tt)*) => { $crate::log::at!(Error, $($arg)*) }; }
macro_rules! warn_ { ($($arg:tt)*) => { $crate::log::at!(Warn, $($arg)*) }; }
macro_rules! info { ($($arg:tt)*) => { $crate::log::at!(Info, $($arg)*) }; }
macro_rules! debug { ($($arg:tt)*) => { $crate::log::at!(Debug, $($arg)*) }; }
macro_rules! trace { ($($arg:tt)*) => { $crate::log::at!(Trace, $($arg)*) }; }
pub(crate) use {at, debug, error, info, trace, warn_ as warn};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_names() {
        assert_eq!(Level::parse(b"debug"), Some(Level::Debug));
        assert_eq!(Level::parse(b"loud"), None);
        assert!(!enabled(Level::Error));
    }

    #[test]
    fn a_long_line_is_cut_not_lost() {
        let mut line = Line {
            bytes: [0; 512],
            len: 0,
        };
        assert!(write!(line, "{}", "x".repeat(2000)).is_ok());
        assert_eq!(line.len, 511);
    }
}
