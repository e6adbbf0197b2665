//! Policy: which connections may hop, and when; and the environment variables that say so. The one table of all
//! `RSOCK_*` variables is [`VARIABLES`].

use crate::log::{self, Level, warn};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering::*};

/// A setting that is a number: its variable, default, bounds, and what it means.
pub struct Number {
    /// The environment variable.
    pub variable: &'static str,
    /// What it is for, with its unit.
    pub meaning: &'static str,
    /// Used when the variable is not set.
    pub default: u64,
    /// The least it may be.
    pub min: u64,
    /// The most it may be.
    pub max: u64,
    power_of_two: bool,
    value: AtomicU64,
}

impl Number {
    const fn new(
        variable: &'static str,
        default: u64,
        min: u64,
        max: u64,
        meaning: &'static str,
    ) -> Self {
        Number {
            variable,
            meaning,
            default,
            min,
            max,
            power_of_two: false,
            value: AtomicU64::new(default),
        }
    }

    /// The setting's value.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.value.load(Relaxed)
    }

    fn set(&self, text: &[u8]) -> Result<(), &'static str> {
        let value = parse(text).ok_or("not a number")?;
        if value < self.min || value > self.max {
            return Err("out of bounds");
        }
        if self.power_of_two && !value.is_power_of_two() {
            return Err("not a power of two");
        }
        self.value.store(value, Relaxed);
        Ok(())
    }
}

/// A decimal number, optionally with K, M or G (powers of 1024) behind it.
fn parse(text: &[u8]) -> Option<u64> {
    let (digits, unit) = match text.split_last()? {
        (b'k' | b'K', rest) => (rest, 1 << 10),
        (b'm' | b'M', rest) => (rest, 1 << 20),
        (b'g' | b'G', rest) => (rest, 1 << 30),
        _ => (text, 1),
    };
    core::str::from_utf8(digits)
        .ok()?
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)
}

/// 0 switches rsock off in the process: every call goes straight to the kernel.
pub static ENABLE: Number = Number::new(
    "RSOCK_ENABLE",
    1,
    0,
    1,
    "1: on, 0: every stream stays on TCP",
);
/// Messages in either direction after which a stream asks for a lane.
pub static HOP_MESSAGES: Number = Number::new(
    "RSOCK_HOP_MESSAGES",
    16,
    0,
    1 << 40,
    "messages in either direction after which a stream asks for a lane",
);
/// Bytes in either direction after which a stream asks for a lane.
pub static HOP_BYTES: Number = Number::new(
    "RSOCK_HOP_BYTES",
    128 << 10,
    0,
    1 << 60,
    "bytes in either direction after which a stream asks for a lane",
);
/// Size of a ring.
pub static RING_SIZE: Number = Number {
    power_of_two: true,
    ..Number::new(
        "RSOCK_RING_SIZE",
        128 << 10,
        4096,
        64 << 20,
        "bytes of a ring, a power of two; a lane has two",
    )
};
/// Longest spin before a sleep.
pub static SPIN_US: Number = Number::new(
    "RSOCK_SPIN_US",
    50,
    0,
    10_000,
    "microseconds a waiting thread looks at its lanes before it sleeps, at most; 0: never spin",
);
/// How long a refusal is remembered.
pub static NEGATIVE_CACHE_MS: Number = Number::new(
    "RSOCK_NEGATIVE_CACHE_MS",
    10_000,
    0,
    86_400_000,
    "milliseconds for which \"no rsock there\" is remembered",
);
/// Cap on arenas.
pub static MEMORY_LIMIT: Number = Number::new(
    "RSOCK_MEMORY_LIMIT",
    1 << 30,
    0,
    1 << 50,
    "bytes of arenas that this process maps, at most; beyond that, streams stay on TCP",
);

/// All settings that are numbers.
pub static VARIABLES: [&Number; 7] = [
    &ENABLE,
    &HOP_MESSAGES,
    &HOP_BYTES,
    &RING_SIZE,
    &SPIN_US,
    &NEGATIVE_CACHE_MS,
    &MEMORY_LIMIT,
];

/// The variables that are not numbers: what they mean is said in the second part.
pub const OTHER_VARIABLES: [(&str, &str); 5] = [
    ("RSOCK_LOG", "off, error, warn, info, debug or trace"),
    (
        "RSOCK_LOG_FILE",
        "file to which the log is appended; without it, stderr",
    ),
    ("RSOCK_LIBRARY", "where rsock run finds librsock.so"),
    ("RSOCK_TEST_LIBRARY", "where the tests find librsock.so"),
    (
        "RSOCK_TEST_NO_LANE_CHECK",
        "lets tests pass that did not reach a lane",
    ),
];

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Reads the environment. Called once, from the library's constructor, before other threads exist.
pub fn start() {
    let mut level = None;
    let mut file = None;
    each_variable(|name, value| match name {
        b"RSOCK_LOG" => level = Some(value),
        b"RSOCK_LOG_FILE" => file = Some(value),
        _ => {}
    });
    if let Some(text) = level {
        log::set_level(Level::parse(text.to_bytes()).unwrap_or(Level::Warn));
    }
    if let Some(path) = file
        && let Err(e) = log::set_file(path)
    {
        warn!(
            "RSOCK_LOG_FILE={}: cannot open it (error {}), logging to stderr",
            Text(path),
            e.0
        );
    }
    if let Some(text) = level
        && Level::parse(text.to_bytes()).is_none()
    {
        warn!(
            "RSOCK_LOG={}: not a level ({}); using warn",
            Text(text),
            OTHER_VARIABLES[0].1
        );
    }
    each_variable(|name, value| {
        let known = VARIABLES.iter().find(|n| n.variable.as_bytes() == name);
        match known {
            Some(number) => {
                if let Err(why) = number.set(value.to_bytes()) {
                    warn!(
                        "{}={}: {why}; using {} ({})",
                        number.variable,
                        Text(value),
                        number.default,
                        number.meaning
                    );
                }
            }
            None if OTHER_VARIABLES
                .iter()
                .any(|(other, _)| other.as_bytes() == name) => {}
            None => warn!(
                "{}: no such variable, ignored",
                core::str::from_utf8(name).unwrap_or("RSOCK_?")
            ),
        }
    });
}

/// A C string for a log line.
struct Text<'a>(&'a CStr);
impl core::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0.to_str().unwrap_or("?"))
    }
}

/// Calls with the name and value of every variable whose name starts with `RSOCK_`.
fn each_variable(mut f: impl FnMut(&'static [u8], &'static CStr)) {
    // SAFETY: the environment is a null-terminated array of C strings, and nobody changes it while constructors run.
    unsafe {
        let mut at = environ;
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at);
            at = at.add(1);
            let bytes = entry.to_bytes();
            if !bytes.starts_with(b"RSOCK_") {
                continue;
            }
            if let Some(equals) = bytes.iter().position(|b| *b == b'=') {
                f(
                    &bytes[..equals],
                    CStr::from_ptr(entry.as_ptr().add(equals + 1)),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units_and_bounds() {
        assert_eq!(parse(b"128K"), Some(131_072));
        assert_eq!(parse(b"7"), Some(7));
        assert_eq!(parse(b"99999999999G"), None);
        assert_eq!(parse(b"-1"), None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"K"), None);
        let n = Number {
            power_of_two: true,
            ..Number::new("X", 8, 4, 64, "test")
        };
        assert_eq!(n.set(b"12"), Err("not a power of two"));
        assert_eq!(n.set(b"128"), Err("out of bounds"));
        assert_eq!(n.set(b"x"), Err("not a number"));
        assert_eq!(n.get(), 8);
        assert_eq!(n.set(b"16"), Ok(()));
        assert_eq!(n.get(), 16);
    }
}
