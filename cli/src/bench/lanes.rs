//! What carried the streams of a benchmark: looked up in this process's own counters, as anybody else would.

use std::fmt::Write;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use rsock_core::stats::read::{self, Activity, Stream};

/// How long a benchmark that expects lanes warms up until it has them.
const PATIENCE: Duration = Duration::from_secs(5);

/// What carried the streams between two looks.
pub struct Carried {
    /// How many streams the benchmark had.
    pub streams: usize,
    /// How many of them are on a lane in both directions.
    pub on_lane: usize,
    /// How many bytes went over lanes meanwhile, in both directions.
    pub lane_bytes: u64,
    /// How many bytes the benchmark moved meanwhile, in both directions.
    pub moved: u64,
    /// Why streams are on TCP, for people.
    pub because: String,
}

impl Carried {
    /// "tcp", "lane", or "mixed" for a measurement that is neither.
    pub fn name(&self) -> &'static str {
        if self.lane_bytes == 0 && self.on_lane == 0 {
            "tcp"
        } else if self.on_lane == self.streams && self.share() > 0.99 {
            "lane"
        } else {
            "mixed"
        }
    }

    /// The part of the bytes that went over lanes.
    pub fn share(&self) -> f64 {
        match self.moved {
            0 => 0.0,
            moved => self.lane_bytes as f64 / moved as f64,
        }
    }

    /// The complaint of a benchmark that expected lanes.
    pub fn failure(&self, expected: bool) -> Option<String> {
        (expected && self.name() != "lane").then(|| {
            format!(
                "lanes were expected, but {} of {} streams are on one, and {:.1} % of the bytes went over it{}",
                self.on_lane,
                self.streams,
                self.share() * 100.0,
                self.because
            )
        })
    }
}

/// Watches some streams of this process.
pub struct Watch {
    fds: Vec<RawFd>,
    /// Lane bytes at the beginning.
    before: u64,
}

impl Watch {
    /// Begins to watch these streams.
    pub fn begin(fds: Vec<RawFd>) -> Result<Watch> {
        let before = lane_bytes(&streams(&fds)?);
        Ok(Watch { fds, before })
    }

    /// Ends it: the benchmark moved this many bytes meanwhile.
    pub fn end(&self, moved: u64) -> Result<Carried> {
        let streams = streams(&self.fds)?;
        let mut because = String::new();
        if streams.is_empty() {
            because.push_str(": this process has no rsock, or rsock has seen no stream");
        }
        for stream in streams.iter().filter(|stream| !stream.on_lane()) {
            let words = match stream.reason {
                Ok(reason) => format!("{}, {}", reason.name(), reason.explanation()),
                Err(code) => format!("reason {code} of a newer version"),
            };
            // Writing to a String cannot fail.
            let _ = write!(because, "; descriptor {}: {words}", stream.fd);
        }
        Ok(Carried {
            streams: self.fds.len(),
            on_lane: streams.iter().filter(|stream| stream.on_lane()).count(),
            lane_bytes: lane_bytes(&streams).saturating_sub(self.before),
            moved,
            because,
        })
    }
}

/// Decides how long to warm up: for so many messages, and where lanes are expected until they are there, within reason.
pub struct WarmUp {
    fd: RawFd,
    left: u32,
    expected: bool,
    deadline: Instant,
}

impl WarmUp {
    /// For the stream with this descriptor.
    pub fn new(fd: RawFd, messages: u32, expected: bool) -> WarmUp {
        WarmUp {
            fd,
            left: messages,
            expected,
            deadline: Instant::now() + PATIENCE,
        }
    }

    /// Send one more message?
    pub fn go_on(&mut self) -> Result<bool> {
        if self.left > 0 {
            self.left -= 1;
            return Ok(true);
        }
        if !self.expected || Instant::now() > self.deadline {
            return Ok(false);
        }
        let ready = streams(&[self.fd])?.iter().any(Stream::on_lane);
        // Looking costs more than a message: look again only after some more.
        self.left = 100;
        Ok(!ready)
    }
}

fn streams(fds: &[RawFd]) -> Result<Vec<Stream>> {
    Ok(match read::own()?.map(|process| process.activity) {
        Some(Activity::Active(snapshot)) => snapshot
            .streams
            .into_iter()
            .filter(|stream| fds.contains(&stream.fd))
            .collect(),
        _ => Vec::new(),
    })
}

fn lane_bytes(streams: &[Stream]) -> u64 {
    streams.iter().map(|s| s.tx.bytes + s.rx.bytes).sum()
}
