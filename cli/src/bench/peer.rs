//! The other side of a benchmark: a server process of our own on this host, or one that somebody started elsewhere.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::order::Order;
use super::{cpu, server};

/// A server to connect to; one of our own ends with this value.
pub struct Peer {
    address: String,
    child: Option<Child>,
}

impl Peer {
    /// The server at `host`, or a new process if there is none. With `pin` this thread and that process get a processor
    /// each.
    pub fn new(host: Option<&str>, pin: bool) -> Result<Peer> {
        if let Some(host) = host {
            if pin {
                cpu::pin(cpu::two()?.0)?;
            }
            return Ok(Peer {
                address: with_port(host),
                child: None,
            });
        }
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["bench", "server", "--listen", "127.0.0.1:0"])
            .arg("--until-stdin-ends")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if pin {
            let (ours, theirs) = cpu::two()?;
            cpu::pin(ours)?;
            command.args(["--cpu", &theirs.to_string()]);
        }
        let mut child = command.spawn().context("cannot start the server process")?;
        let mut address = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut address)?;
        }
        if address.is_empty() {
            bail!("the server process ended at once ({})", child.wait()?);
        }
        Ok(Peer {
            address: address.trim_end().to_owned(),
            child: Some(child),
        })
    }

    /// Connects and tells the server what to do.
    pub fn connect(&self, order: Order) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)
            .with_context(|| format!("cannot connect to {}", self.address))?;
        order.send(&mut stream)?;
        Ok(stream)
    }

    /// Ends a server of our own and waits for it.
    pub fn end(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            drop(child.stdin.take());
            let status = child.wait()?;
            if !status.success() {
                bail!("the server process failed ({status})");
            }
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Only where the benchmark failed before it ended the server itself: that error is the one to tell.
        let _ = self.end();
    }
}

/// Adds the port of `rsock bench server` if there is none.
fn with_port(host: &str) -> String {
    let port = server::PORT;
    let bare_ipv6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    match host.rsplit_once(':') {
        _ if bare_ipv6 => format!("[{host}]:{port}"),
        Some((_, digits)) if digits.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn a_host_without_a_port_gets_ours() {
        for (host, expected) in [
            ("a.example", "a.example:7470"),
            ("a.example:80", "a.example:80"),
            ("10.0.0.1", "10.0.0.1:7470"),
            ("fe80::1", "[fe80::1]:7470"),
            ("[fe80::1]", "[fe80::1]:7470"),
            ("[fe80::1]:80", "[fe80::1]:80"),
        ] {
            assert_eq!(with_port(host), expected);
        }
    }
}
