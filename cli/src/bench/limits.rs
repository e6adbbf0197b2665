//! What the machine allows, without any sockets: the measure for everything else.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::Args;

use super::cpu;
use super::measurement::{Figure, Measurement};

/// Round trips that are timed together: reading the clock would cost as much as one of them.
const BATCH: u64 = 1000;
/// Copied within the caches.
const SMALL: usize = 64 << 10;
/// Copied through memory.
const LARGE: usize = 64 << 20;

/// For how long.
#[derive(Args)]
pub struct Limits {
    /// How many cache-line round trips
    #[arg(long, default_value_t = 1_000_000)]
    count: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A word that shares its cache line, and the one that is fetched along with it, with nothing.
#[repr(align(128))]
struct Line(AtomicU64);

impl Limits {
    /// Measures.
    pub fn run(&self) -> Result<Measurement> {
        let batches = self.count.div_ceil(BATCH).max(1);
        Ok(Measurement {
            bench: "limits",
            parameters: vec![("count", (batches * BATCH).into())],
            figures: vec![
                Figure {
                    key: "cache_line_round_trip_us",
                    value: round_trip(batches)?,
                    heading: "CACHE LINE ROUND TRIP µs",
                },
                Figure {
                    key: "memcpy_64k_gigabytes_per_second",
                    value: copy(SMALL),
                    heading: "MEMCPY 64 KiB GB/s",
                },
                Figure {
                    key: "memcpy_64m_gigabytes_per_second",
                    value: copy(LARGE),
                    heading: "MEMCPY 64 MiB GB/s",
                },
            ],
            carried: None,
            failure: None,
        })
    }
}

/// The median, in microseconds: two pinned threads count one word up in turn.
fn round_trip(batches: u64) -> Result<f64> {
    let (here, there) = cpu::two()?;
    let line = Line(AtomicU64::new(0));
    let rounds = batches * BATCH;
    // The first thread makes odd numbers, the second even ones; either gives up if the other could not start.
    let run = |cpu: usize, first: u64| -> Result<Vec<Duration>> {
        let pinned = cpu::pin(cpu);
        if pinned.is_err() {
            line.0.store(u64::MAX, Ordering::Release);
        }
        pinned?;
        let mut times = Vec::new();
        let mut start = Instant::now();
        for round in 0..rounds {
            let expected = 2 * round + first;
            loop {
                match line.0.load(Ordering::Acquire) {
                    u64::MAX => return Ok(Vec::new()),
                    value if value == expected => break,
                    _ => {}
                }
            }
            line.0.store(expected + 1, Ordering::Release);
            if (round + 1) % BATCH == 0 {
                let now = Instant::now();
                times.push(now - start);
                start = now;
            }
        }
        Ok(times)
    };
    let mut times = thread::scope(|scope| {
        let other = scope.spawn(|| run(there, 1));
        let times = scope.spawn(|| run(here, 0)).join();
        let other = other.join();
        other.map_err(|_| anyhow!("a thread panicked"))??;
        times.map_err(|_| anyhow!("a thread panicked"))?
    })?;
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(median.as_secs_f64() * 1e6 / BATCH as f64)
}

/// Gigabytes per second, the best of some runs of 0.1 s.
fn copy(size: usize) -> f64 {
    let from = vec![1u8; size];
    let mut to = vec![0u8; size];
    let mut best = 0.0f64;
    for _ in 0..5 {
        let start = Instant::now();
        let mut copied = 0;
        while start.elapsed() < Duration::from_millis(100) {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
            copied += size;
        }
        best = best.max(copied as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    best
}
