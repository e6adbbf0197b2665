//! Short connections: connect, exchange one message, close.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use hdrhistogram::Histogram;

use super::latency::size;
use super::measurement::{Figure, Measurement, histogram, percentiles};
use super::order::{Order, Task};
use super::peer::Peer;
use super::throughput::seconds;

/// How many, how large.
#[derive(Args)]
pub struct Connect {
    /// Bytes of the answer
    #[arg(long, default_value_t = 64, value_parser = size)]
    pub size: usize,
    /// How many connections at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,
    /// For how long
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Use `rsock bench server` there, instead of a process of our own
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub host: Option<String>,
    /// Run client and server on a processor each
    #[arg(long)]
    pub pin: bool,
}

impl Connect {
    /// Measures.
    pub fn run(&self) -> Result<Measurement> {
        let mut peer = Peer::new(self.host.as_deref(), self.pin)?;
        let measurement = self.against(&peer)?;
        peer.end()?;
        Ok(measurement)
    }

    /// Measures against this server.
    pub fn against(&self, peer: &Peer) -> Result<Measurement> {
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(self.seconds);
        let histogram = thread::scope(|scope| {
            let clients: Vec<_> = (0..self.threads)
                .map(|_| scope.spawn(|| self.connections(peer, end)))
                .collect();
            let mut sum = histogram()?;
            for client in clients {
                sum += client.join().map_err(|_| anyhow!("a client panicked"))??;
            }
            Ok::<Histogram<u64>, anyhow::Error>(sum)
        })?;
        let seconds = start.elapsed().as_secs_f64();
        let mut figures = vec![Figure {
            key: "connections_per_second",
            value: histogram.len() as f64 / seconds,
            heading: "CONN/s",
        }];
        figures.extend(percentiles(&histogram));
        Ok(Measurement {
            bench: "connect",
            parameters: vec![
                ("size", self.size.into()),
                ("threads", self.threads.into()),
                ("count", histogram.len().into()),
            ],
            figures,
            carried: None,
            failure: None,
        })
    }

    /// The server closes first, so that the states TIME_WAIT are on its side and the client's ports can be used again.
    fn connections(&self, peer: &Peer, end: Instant) -> Result<Histogram<u64>> {
        let order = Order {
            task: Task::Once,
            size: self.size,
        };
        let mut histogram = histogram()?;
        let mut answer = vec![0u8; self.size];
        let mut start = Instant::now();
        while start < end {
            let mut stream = peer.connect(order)?;
            stream.read_exact(&mut answer)?;
            if stream.read(&mut [0u8; 1])? != 0 {
                bail!("the server sent more than it was asked for");
            }
            drop(stream);
            let now = Instant::now();
            histogram.saturating_record((now - start).as_nanos() as u64);
            start = now;
        }
        Ok(histogram)
    }
}
