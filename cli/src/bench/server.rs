//! The server of the benchmarks: does on each connection what its [`Order`] says.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result};
use clap::Args;

use super::cpu;
use super::endpoint::Endpoint;
use super::order::{GO, Order, Task};

/// The port where servers of other hosts are expected.
pub const PORT: u16 = 7470;
/// Threads that accept and serve short connections. More than one, so that a client that says nothing keeps nobody up.
const ACCEPTORS: usize = 4;

/// Where to serve.
#[derive(Args)]
pub struct Server {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = format!("0.0.0.0:{PORT}"))]
    listen: String,
    /// The processor to run on
    #[arg(long, hide = true)]
    cpu: Option<usize>,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

impl Server {
    /// Serves for ever, or until standard input ends. Its only output is the address.
    pub fn run(&self) -> Result<()> {
        self.cpu.map_or(Ok(()), cpu::pin)?;
        let listener = TcpListener::bind(&self.listen)
            .with_context(|| format!("cannot listen on {}", self.listen))?;
        let mut output = io::stdout();
        writeln!(output, "{}", listener.local_addr()?)?;
        output.flush()?;
        thread::scope(|scope| {
            for _ in 0..ACCEPTORS {
                scope.spawn(|| accept(&listener));
            }
            if self.until_stdin_ends {
                // An error ends it, too.
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                std::process::exit(0);
            }
        });
        Ok(())
    }
}

fn accept(listener: &TcpListener) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => serve(stream),
            Err(error) => {
                eprintln!("rsock bench server: accept: {error}");
                thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }
}

/// Short connections are served at once, the others by a thread of their own.
fn serve(mut stream: TcpStream) {
    match Order::receive(&mut stream) {
        Ok(order) if order.task == Task::Once => {
            complain(stream.write_all(&vec![0u8; order.size]));
        }
        Ok(order) => {
            thread::spawn(move || complain(work(stream, order)));
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        error => complain(error.map(|_| ())),
    }
}

/// A client that goes away in the middle is no reason to end.
fn complain(result: io::Result<()>) {
    if let Err(error) = result {
        eprintln!("rsock bench server: {error}");
    }
}

fn work(mut stream: TcpStream, order: Order) -> io::Result<()> {
    let mut buffer = vec![0u8; order.size];
    match order.task {
        Task::Once => stream.write_all(&buffer),
        Task::Echo(mode) => {
            let mut endpoint = Endpoint::new(stream, mode)?;
            while endpoint.receive(&mut buffer)? {
                endpoint.send(&buffer)?;
            }
            Ok(())
        }
        Task::Sink => {
            stream.set_nodelay(true)?;
            loop {
                stream.read_exact(&mut buffer)?;
                stream.write_all(&buffer)?;
                if buffer[0] == GO {
                    break;
                }
            }
            // As much as a lane's ring holds, so that the size of the sender's messages is not ours.
            buffer.resize(buffer.len().max(128 * 1024), 0);
            let mut total = 0u64;
            loop {
                match stream.read(&mut buffer)? {
                    0 => break,
                    received => total += received as u64,
                }
            }
            stream.write_all(&total.to_be_bytes())
        }
    }
}
