//! What calls on descriptors that are no sockets cost: under preload they are to cost what they cost without.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use super::measurement::{Figure, Measurement};

/// Calls that are timed together: a pipe takes this many bytes, and a process has this many descriptors.
const BATCH: usize = 256;
/// The size of a read and a write.
const SIZE: usize = 1;

/// How often.
#[derive(Args)]
pub struct Files {
    /// How many calls of each kind
    #[arg(long, default_value_t = 500_000)]
    count: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Files {
    /// Measures; each figure is the median over batches.
    pub fn run(&self) -> Result<Measurement> {
        let batches = self.count.div_ceil(BATCH as u64).max(1);
        let file = temporary().context("cannot make a temporary file")?;
        let (reader, writer) = io::pipe().context("cannot make a pipe")?;
        let (file, reader, writer) = (file.as_raw_fd(), reader.as_raw_fd(), writer.as_raw_fd());
        let mut times: [Vec<f64>; 6] = Default::default();
        for _ in 0..batches {
            rewind(file)?;
            times[0].push(batch(|| write(file))?);
            rewind(file)?;
            times[1].push(batch(|| read(file))?);
            times[2].push(closes(file)?);
            times[3].push(batch(|| write(writer))?);
            times[4].push(batch(|| read(reader))?);
            times[5].push(closes(reader)?);
        }
        let names = [
            ("file_write_ns", "FILE WRITE ns"),
            ("file_read_ns", "FILE READ ns"),
            ("file_close_ns", "FILE CLOSE ns"),
            ("pipe_write_ns", "PIPE WRITE ns"),
            ("pipe_read_ns", "PIPE READ ns"),
            ("pipe_close_ns", "PIPE CLOSE ns"),
        ];
        let figures = names
            .into_iter()
            .zip(&mut times)
            .map(|((key, heading), times)| Figure {
                key,
                value: median(times),
                heading,
            })
            .collect();
        Ok(Measurement {
            bench: "files",
            parameters: vec![("count", (batches * BATCH as u64).into())],
            figures,
            carried: None,
            failure: None,
        })
    }
}

/// A file that has no name and is gone when it is closed.
fn temporary() -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(std::env::temp_dir())
}

/// Nanoseconds for each call of a batch.
fn batch(call: impl Fn() -> isize) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..BATCH {
        if call() != SIZE as isize {
            return Err(io::Error::last_os_error()).context("a read or write failed");
        }
    }
    Ok(start.elapsed().as_nanos() as f64 / BATCH as f64)
}

/// Nanoseconds for closing each of a batch of duplicates.
fn closes(fd: RawFd) -> Result<f64> {
    let mut duplicates = [-1; BATCH];
    for duplicate in &mut duplicates {
        // SAFETY: makes a descriptor that is closed below.
        *duplicate = unsafe { libc::dup(fd) };
    }
    let start = Instant::now();
    let mut failed = false;
    for duplicate in duplicates {
        // SAFETY: a descriptor that was made above, or -1.
        failed |= unsafe { libc::close(duplicate) } != 0;
    }
    let time = start.elapsed().as_nanos() as f64 / BATCH as f64;
    match failed {
        true => Err(io::Error::last_os_error()).context("dup or close failed"),
        false => Ok(time),
    }
}

fn write(fd: RawFd) -> isize {
    let byte = [0u8; SIZE];
    // SAFETY: as many bytes as there are.
    unsafe { libc::write(fd, byte.as_ptr().cast(), SIZE) }
}

fn read(fd: RawFd) -> isize {
    let mut byte = [0u8; SIZE];
    // SAFETY: room for as many bytes as we ask for.
    unsafe { libc::read(fd, byte.as_mut_ptr().cast(), SIZE) }
}

fn rewind(fd: RawFd) -> Result<()> {
    // SAFETY: no memory is involved.
    match unsafe { libc::lseek(fd, 0, libc::SEEK_SET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("lseek failed"),
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
