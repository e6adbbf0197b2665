//! The usual sizes as one table, on one host or between two.

use anyhow::Result;
use clap::Args;

use super::Common;
use super::connect::Connect;
use super::latency::Pingpong;
use super::measurement::Measurement;
use super::order::Mode;
use super::peer::Peer;
use super::throughput::Throughput;

/// On this host.
#[derive(Args)]
pub struct All {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Run client and server on a processor each
    #[arg(long)]
    pin: bool,
    /// Fail if the streams did not go over lanes
    #[arg(long)]
    expect_lane: bool,
    /// A tenth of the time
    #[arg(long)]
    quick: bool,
}

/// Against another host.
#[derive(Args)]
pub struct Client {
    /// Where `rsock bench server` runs
    #[arg(value_name = "HOST[:PORT]")]
    server: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Fail if the streams did not go over lanes
    #[arg(long)]
    expect_lane: bool,
    /// A tenth of the time
    #[arg(long)]
    quick: bool,
}

impl All {
    /// Measures.
    pub fn run(&self) -> Result<Vec<Measurement>> {
        let mut peer = Peer::new(None, self.pin)?;
        let measurements = table(&peer, self.expect_lane, self.quick)?;
        peer.end()?;
        Ok(measurements)
    }
}

impl Client {
    /// Measures.
    pub fn run(&self) -> Result<Vec<Measurement>> {
        let peer = Peer::new(Some(&self.server), false)?;
        table(&peer, self.expect_lane, self.quick)
    }
}

fn table(peer: &Peer, expect_lane: bool, quick: bool) -> Result<Vec<Measurement>> {
    let common = Common {
        json: false,
        host: None,
        pin: false,
        expect_lane,
    };
    let part: u32 = if quick { 10 } else { 1 };
    let seconds = 3.0 / f64::from(part);
    let mut measurements = Vec::new();
    for mode in [Mode::Blocking, Mode::Epoll] {
        for (size, count) in [(64, 50_000), (1024, 50_000), (65_536, 10_000)] {
            let bench = Pingpong {
                size,
                mode,
                count: count / u64::from(part),
                common: common.clone(),
            };
            measurements.push(bench.against(peer)?);
        }
    }
    for streams in [1, 4] {
        let bench = Throughput {
            size: 65_536,
            streams,
            seconds,
            bytes: None,
            common: common.clone(),
        };
        measurements.push(bench.against(peer)?);
    }
    let bench = Connect {
        size: 64,
        threads: 1,
        seconds,
        json: false,
        host: None,
        pin: false,
    };
    measurements.push(bench.against(peer)?);
    Ok(measurements)
}
