//! `rsock status`: every process with rsock on this host and its streams.

mod json;
mod text;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use rsock_core::stats::read::{self, Host};

/// What to show, and how.
#[derive(Args)]
pub struct Arguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Only these processes
    #[arg(value_name = "PID")]
    pids: Vec<u32>,
}

/// Prints the status. Fails if a process that was named is not there, cannot be examined, or has no rsock in it.
pub fn status(arguments: &Arguments) -> ExitCode {
    let (host, complete) = match collect(&arguments.pids) {
        Ok(collected) => collected,
        Err(error) => {
            eprintln!("rsock status: cannot list the processes in /proc: {error}");
            return ExitCode::FAILURE;
        }
    };
    let text = if arguments.json {
        format!("{:#}\n", json::host(&host))
    } else {
        text::host(&host, now())
    };
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) if complete => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rsock status: cannot write the output: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The processes asked for, and whether all of them could be shown.
fn collect(pids: &[u32]) -> io::Result<(Host, bool)> {
    if pids.is_empty() {
        return Ok((read::host()?, true));
    }
    let mut host = Host::default();
    let mut complete = true;
    for pid in pids {
        match read::process(*pid) {
            Ok(Some(process)) => host.processes.push(process),
            Ok(None) => {
                eprintln!("rsock status: process {pid} runs without rsock");
                complete = false;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                eprintln!("rsock status: there is no process {pid}");
                complete = false;
            }
            Err(error) => {
                eprintln!("rsock status: cannot examine process {pid}: {error}");
                host.unreadable += usize::from(error.kind() == io::ErrorKind::PermissionDenied);
                complete = false;
            }
        }
    }
    Ok((host, complete))
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}
