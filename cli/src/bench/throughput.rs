//! Bytes per second, one way, over one or more streams.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use super::Common;
use super::lanes::{WarmUp, Watch};
use super::latency::{size, warm_up_messages};
use super::measurement::{Figure, Measurement};
use super::order::{GO, Order, Task};
use super::peer::Peer;

/// How much, in which pieces.
#[derive(Args)]
pub struct Throughput {
    /// Bytes of each write
    #[arg(long, default_value_t = 65_536, value_parser = size)]
    pub size: usize,
    /// How many streams, each with a thread of its own at both ends
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub streams: u32,
    /// For how long
    #[arg(long, default_value_t = 3.0, value_parser = seconds, conflicts_with = "bytes")]
    pub seconds: f64,
    /// How many bytes on each stream, instead of for how long
    #[arg(long)]
    pub bytes: Option<u64>,
    #[command(flatten)]
    pub(super) common: Common,
}

/// A time above zero.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds < 1e6 => Ok(seconds),
        Ok(_) => Err("must be above 0 and below 1000000".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Throughput {
    /// Measures.
    pub fn run(&self) -> Result<Measurement> {
        let mut peer = Peer::new(self.common.host.as_deref(), self.common.pin)?;
        let measurement = self.against(&peer)?;
        peer.end()?;
        Ok(measurement)
    }

    /// Measures against this server.
    pub fn against(&self, peer: &Peer) -> Result<Measurement> {
        let streams = (0..self.streams)
            .map(|_| self.warmed_up(peer))
            .collect::<Result<Vec<TcpStream>>>()?;
        let watch = Watch::begin(streams.iter().map(AsRawFd::as_raw_fd).collect())?;
        let start = Instant::now();
        let total = thread::scope(|scope| {
            let senders: Vec<_> = streams
                .iter()
                .map(|stream| scope.spawn(|| self.send(stream, start)))
                .collect();
            let mut total = 0;
            for sender in senders {
                total += sender.join().map_err(|_| anyhow!("a sender panicked"))??;
            }
            Ok::<u64, anyhow::Error>(total)
        })?;
        let seconds = start.elapsed().as_secs_f64();
        // The answers, 8 bytes each, are not counted as moved.
        let carried = watch.end(total)?;
        Ok(Measurement {
            bench: "throughput",
            parameters: vec![
                ("size", self.size.into()),
                ("streams", self.streams.into()),
                ("bytes", total.into()),
            ],
            figures: vec![
                Figure {
                    key: "gigabits_per_second",
                    value: total as f64 * 8.0 / seconds / 1e9,
                    heading: "Gb/s",
                },
                Figure {
                    key: "seconds",
                    value: seconds,
                    heading: "SECONDS",
                },
            ],
            failure: carried.failure(self.common.expect_lane),
            carried: Some(carried),
        })
    }

    /// A stream on which messages went both ways for a while, and whose server now only receives.
    fn warmed_up(&self, peer: &Peer) -> Result<TcpStream> {
        let task = Task::Sink;
        let size = self.size;
        let mut stream = peer.connect(Order { task, size })?;
        stream.set_nodelay(true)?;
        let mut message = vec![0u8; size];
        let expected = self.common.expect_lane;
        let mut warm_up = WarmUp::new(stream.as_raw_fd(), warm_up_messages(size), expected);
        while message[0] != GO {
            if !warm_up.go_on()? {
                message[0] = GO;
            }
            stream.write_all(&message)?;
            stream.read_exact(&mut message)?;
        }
        Ok(stream)
    }

    /// Sends for as long or as much as was asked, and has the server confirm it.
    fn send(&self, mut stream: &TcpStream, start: Instant) -> Result<u64> {
        let message: Vec<u8> = (0..self.size).map(|index| index as u8).collect();
        let limit = self.bytes.unwrap_or(u64::MAX);
        let duration = Duration::from_secs_f64(self.seconds);
        let mut sent = 0u64;
        while sent < limit && (self.bytes.is_some() || start.elapsed() < duration) {
            let left = usize::try_from(limit - sent).unwrap_or(usize::MAX);
            let part = &message[..self.size.min(left)];
            stream.write_all(part)?;
            sent += part.len() as u64;
        }
        stream.shutdown(Shutdown::Write)?;
        let mut answer = [0u8; 8];
        stream
            .read_exact(&mut answer)
            .context("the server did not confirm what it received")?;
        let received = u64::from_be_bytes(answer);
        if received != sent {
            bail!("{sent} bytes were sent, but {received} received");
        }
        Ok(sent)
    }
}
