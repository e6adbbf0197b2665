//! rsock: run, watch and measure programs over rsock.

mod bench;
mod run;
mod sigpipe;
mod status;
mod table;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs, watches and measures programs over rsock.
#[derive(Parser)]
#[command(name = "rsock", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a program with rsock under its TCP connections
    Run(run::Arguments),
    /// Shows the processes with rsock on this host, their streams, and what carries them
    Status(status::Arguments),
    /// Measures: plain socket programs, over TCP as they are, over rsock under `rsock run`
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    sigpipe::inherit();
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Status(arguments) => status::status(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
    }
}
