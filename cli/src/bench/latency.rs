//! Round trips of one message at a time.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use hdrhistogram::Histogram;

use super::endpoint::Endpoint;
use super::lanes::{Carried, WarmUp, Watch};
use super::measurement::{Figure, Measurement, histogram, percentiles};
use super::order::{Mode, Order, Task};
use super::peer::Peer;
use super::{Common, cpu};

/// Latency without pauses.
#[derive(Args)]
pub struct Pingpong {
    /// Bytes of a message
    #[arg(long, default_value_t = 64, value_parser = size)]
    pub size: usize,
    /// How both sides wait
    #[arg(long, value_enum, default_value_t = Mode::Blocking)]
    pub mode: Mode,
    /// How many round trips
    #[arg(long, default_value_t = 100_000)]
    pub count: u64,
    #[command(flatten)]
    pub(super) common: Common,
}

/// Latency with pauses.
#[derive(Args)]
pub struct Sleepers {
    /// Bytes of a message
    #[arg(long, default_value_t = 64, value_parser = size)]
    size: usize,
    /// How both sides wait
    #[arg(long, value_enum, default_value_t = Mode::Blocking)]
    mode: Mode,
    /// How many round trips
    #[arg(long, default_value_t = 2_000)]
    count: u64,
    /// The pause before each, in microseconds
    #[arg(long, default_value_t = 1_000)]
    gap_us: u64,
    #[command(flatten)]
    pub(super) common: Common,
}

/// A size of messages: not nothing, and not more than the server would allocate.
pub fn size(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(size) if (1..=1 << 30).contains(&size) => Ok(size),
        Ok(_) => Err("must be between 1 and 1073741824".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Pingpong {
    /// Measures.
    pub fn run(&self) -> Result<Measurement> {
        let mut peer = Peer::new(self.common.host.as_deref(), self.common.pin)?;
        let measurement = self.against(&peer)?;
        peer.end()?;
        Ok(measurement)
    }

    /// Measures against this server.
    pub fn against(&self, peer: &Peer) -> Result<Measurement> {
        let trips = trips(peer, self.size, self.mode, self.count, None, &self.common)?;
        Ok(Measurement {
            bench: "pingpong",
            parameters: vec![
                ("size", self.size.into()),
                ("mode", mode_name(self.mode).into()),
                ("count", self.count.into()),
            ],
            figures: percentiles(&trips.histogram),
            failure: trips.carried.failure(self.common.expect_lane),
            carried: Some(trips.carried),
        })
    }
}

impl Sleepers {
    /// Measures, CPU time included.
    pub fn run(&self) -> Result<Measurement> {
        let gap = Duration::from_micros(self.gap_us);
        let mut peer = Peer::new(self.common.host.as_deref(), self.common.pin)?;
        let trips = trips(
            &peer,
            self.size,
            self.mode,
            self.count,
            Some(gap),
            &self.common,
        )?;
        peer.end()?;
        let mut figures = percentiles(&trips.histogram);
        let per_message = |time: Duration| time.as_secs_f64() * 1e6 / self.count.max(1) as f64;
        figures.push(Figure {
            key: "client_cpu_us_per_message",
            value: per_message(trips.client_cpu),
            heading: "CLIENT CPU µs",
        });
        if self.common.host.is_none() {
            // Start and warm-up included, which is little beside some thousand messages.
            figures.push(Figure {
                key: "server_cpu_us_per_message",
                value: per_message(cpu::time(libc::RUSAGE_CHILDREN)?),
                heading: "SERVER CPU µs",
            });
        }
        Ok(Measurement {
            bench: "sleepers",
            parameters: vec![
                ("size", self.size.into()),
                ("mode", mode_name(self.mode).into()),
                ("count", self.count.into()),
                ("gap_us", self.gap_us.into()),
            ],
            figures,
            failure: trips.carried.failure(self.common.expect_lane),
            carried: Some(trips.carried),
        })
    }
}

/// As the option has it.
fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Blocking => "blocking",
        Mode::Epoll => "epoll",
    }
}

struct Trips {
    histogram: Histogram<u64>,
    carried: Carried,
    client_cpu: Duration,
}

/// Makes the round trips; each message is a little different, and what comes back is compared.
fn trips(
    peer: &Peer,
    size: usize,
    mode: Mode,
    count: u64,
    gap: Option<Duration>,
    common: &Common,
) -> Result<Trips> {
    let task = Task::Echo(mode);
    let mut endpoint = Endpoint::new(peer.connect(Order { task, size })?, mode)?;
    let fd = endpoint.stream().as_raw_fd();
    let mut message: Vec<u8> = (0..size).map(|index| index as u8).collect();
    let mut answer = vec![0u8; size];

    let mut warm_up = WarmUp::new(fd, warm_up_messages(size), common.expect_lane);
    while warm_up.go_on()? {
        exchange(&mut endpoint, &mut message, &mut answer)?;
    }
    let watch = Watch::begin(vec![fd])?;
    let mut histogram = histogram()?;
    let cpu = cpu::time(libc::RUSAGE_SELF)?;
    let mut start = Instant::now();
    for _ in 0..count {
        if let Some(gap) = gap {
            std::thread::sleep(gap);
            start = Instant::now();
        }
        exchange(&mut endpoint, &mut message, &mut answer)?;
        let end = Instant::now();
        histogram.saturating_record((end - start).as_nanos() as u64);
        start = end;
    }
    let client_cpu = cpu::time(libc::RUSAGE_SELF)?.saturating_sub(cpu);
    let moved = 2 * size as u64 * count;
    Ok(Trips {
        histogram,
        carried: watch.end(moved)?,
        client_cpu,
    })
}

/// Enough for caches and policies to settle, and not minutes of large messages.
pub fn warm_up_messages(size: usize) -> u32 {
    ((64 << 20) / size).clamp(20, 1000) as u32
}

fn exchange(endpoint: &mut Endpoint, message: &mut [u8], answer: &mut [u8]) -> Result<()> {
    message[0] = message[0].wrapping_add(1);
    endpoint.send(message)?;
    if !endpoint.receive(answer)? {
        bail!("the server closed the connection");
    }
    if message != answer {
        bail!("what came back is not what was sent");
    }
    Ok(())
}
