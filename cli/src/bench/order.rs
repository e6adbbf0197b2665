//! The first message on each connection: what the client wants the server to do.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use clap::ValueEnum;

const MAGIC: [u8; 8] = *b"rsockbn1";
/// Its length on the wire.
const LENGTH: usize = 24;
/// No server allocates more than this for a client.
const LARGEST: usize = 1 << 30;

/// How a process waits for its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// It sleeps in recv and send.
    Blocking,
    /// It sleeps in epoll_wait.
    Epoll,
}

/// What the server is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Send every message back, until end of stream.
    Echo(Mode),
    /// Send messages back up to one that begins with [`GO`]; then take everything up to the end of the stream and answer how
    /// much it was.
    Sink,
    /// Answer one message and close.
    Once,
}

/// First byte of the last message of the warm-up.
pub const GO: u8 = b'G';

/// What the client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What to do.
    pub task: Task,
    /// With messages of this many bytes.
    pub size: usize,
}

impl Order {
    /// Sends it.
    pub fn send(&self, stream: &mut TcpStream) -> io::Result<()> {
        let task: u64 = match self.task {
            Task::Echo(Mode::Blocking) => 0,
            Task::Echo(Mode::Epoll) => 1,
            Task::Sink => 2,
            Task::Once => 3,
        };
        let mut bytes = [0u8; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&task.to_be_bytes());
        bytes[16..].copy_from_slice(&(self.size as u64).to_be_bytes());
        stream.write_all(&bytes)
    }

    /// Receives one.
    pub fn receive(stream: &mut TcpStream) -> io::Result<Order> {
        let mut bytes = [0u8; LENGTH];
        stream.read_exact(&mut bytes)?;
        let number = |at: usize| {
            let mut word = [0u8; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let task = match number(8) {
            0 => Task::Echo(Mode::Blocking),
            1 => Task::Echo(Mode::Epoll),
            2 => Task::Sink,
            3 => Task::Once,
            _ => return Err(strange()),
        };
        let size = usize::try_from(number(16)).map_err(|_| strange())?;
        if bytes[..8] != MAGIC || size == 0 || size > LARGEST {
            return Err(strange());
        }
        Ok(Order { task, size })
    }
}

fn strange() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the other side is no rsock bench of this version",
    )
}
