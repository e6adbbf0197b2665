//! `rsock bench`: micro-benchmarks that are plain socket programs. Nothing in them knows of rsock, except that they read its
//! counters to tell what carried the streams; so the same binary measures TCP when run as it is, and rsock under
//! `rsock run`. Client and server are two processes.

mod all;
mod connect;
mod cpu;
mod endpoint;
mod files;
mod lanes;
mod latency;
mod limits;
mod measurement;
mod order;
mod peer;
mod server;
mod throughput;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};

use measurement::Measurement;

/// Which benchmark.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Round trips of one message at a time: latency
    Pingpong(latency::Pingpong),
    /// Round trips with a pause before each, so that both sides sleep: latency and CPU time
    Sleepers(latency::Sleepers),
    /// Bytes per second, one way
    Throughput(throughput::Throughput),
    /// Connect, exchange one message, close: connections per second
    Connect(connect::Connect),
    /// What the machine allows: a cache-line round trip between two cores, and memcpy
    Limits(limits::Limits),
    /// What reads, writes and closes of files and pipes cost
    Files(files::Files),
    /// Ping-pong, throughput and connect in the usual sizes, as one table, on this host
    All(all::All),
    /// The same table, against `rsock bench server` on another host
    Client(all::Client),
    /// Serves the benchmarks of other hosts until it is killed
    Server(server::Server),
}

/// What all benchmarks with streams have in common.
#[derive(Args, Clone)]
struct Common {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Use `rsock bench server` there, instead of a process of our own
    #[arg(long, value_name = "ADDRESS:PORT")]
    host: Option<String>,
    /// Run client and server on a processor each
    #[arg(long)]
    pin: bool,
    /// Fail if the streams did not go over lanes
    #[arg(long)]
    expect_lane: bool,
}

/// Runs the benchmark and prints what it found.
pub fn bench(arguments: &Arguments) -> ExitCode {
    let (json, result) = match &arguments.bench {
        Bench::Pingpong(bench) => (bench.common.json, bench.run().map(one)),
        Bench::Sleepers(bench) => (bench.common.json, bench.run().map(one)),
        Bench::Throughput(bench) => (bench.common.json, bench.run().map(one)),
        Bench::Connect(bench) => (bench.json, bench.run().map(one)),
        Bench::Limits(bench) => (bench.json, bench.run().map(one)),
        Bench::Files(bench) => (bench.json, bench.run().map(one)),
        Bench::All(bench) => (bench.json, bench.run()),
        Bench::Client(bench) => (bench.json, bench.run()),
        Bench::Server(bench) => (false, bench.run().map(|()| Vec::new())),
    };
    match result.and_then(|measurements| report(&measurements, json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rsock bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn one(measurement: Measurement) -> Vec<Measurement> {
    vec![measurement]
}

/// Prints the measurements; an error if one of them expected lanes and had none.
fn report(measurements: &[Measurement], json: bool) -> Result<()> {
    let text = if json {
        measurement::json(measurements)
    } else {
        measurement::text(measurements)
    };
    io::stdout().write_all(text.as_bytes())?;
    let failed = measurements.iter().find_map(|m| m.failure.as_deref());
    failed.map_or(Ok(()), |failure| Err(anyhow!("{failure}")))
}
