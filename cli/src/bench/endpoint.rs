//! One end of a connection that sends and receives whole messages, either blocking or through epoll.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::order::Mode;

/// A stream and the way to wait for it.
pub struct Endpoint {
    stream: TcpStream,
    /// The epoll instance that watches the stream, in [`Mode::Epoll`].
    epoll: Option<OwnedFd>,
}

impl Endpoint {
    /// Takes over the stream.
    pub fn new(stream: TcpStream, mode: Mode) -> io::Result<Endpoint> {
        stream.set_nodelay(true)?;
        let epoll = match mode {
            Mode::Blocking => None,
            Mode::Epoll => {
                stream.set_nonblocking(true)?;
                // SAFETY: makes a descriptor, which is ours from here on.
                let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
                if epoll < 0 {
                    return Err(io::Error::last_os_error());
                }
                // SAFETY: as above.
                Some(unsafe { OwnedFd::from_raw_fd(epoll) })
            }
        };
        let endpoint = Endpoint { stream, epoll };
        endpoint.interest(libc::EPOLL_CTL_ADD, libc::EPOLLIN)?;
        Ok(endpoint)
    }

    /// The stream itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends the message.
    pub fn send(&mut self, mut message: &[u8]) -> io::Result<()> {
        if self.epoll.is_none() {
            return self.stream.write_all(message);
        }
        while !message.is_empty() {
            match self.stream.write(message) {
                Ok(sent) => message = &message[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.interest(libc::EPOLL_CTL_MOD, libc::EPOLLOUT)?;
                    self.wait()?;
                    self.interest(libc::EPOLL_CTL_MOD, libc::EPOLLIN)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives a message that fills the buffer; `false` at the end of the stream.
    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            if self.epoll.is_some() {
                self.wait()?;
            }
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(received) => filled += received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Changes what the epoll instance waits for, if there is one.
    fn interest(&self, operation: libc::c_int, events: libc::c_int) -> io::Result<()> {
        let Some(epoll) = &self.epoll else {
            return Ok(());
        };
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: 0,
        };
        let (epoll, stream) = (epoll.as_raw_fd(), self.stream.as_raw_fd());
        // SAFETY: two descriptors of ours and an event that is only read.
        match unsafe { libc::epoll_ctl(epoll, operation, stream, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn wait(&self) -> io::Result<()> {
        let Some(epoll) = &self.epoll else {
            return Ok(());
        };
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 8];
        loop {
            // SAFETY: room for as many events as we say.
            let ready = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), 8, -1) };
            if ready > 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if ready < 0 && error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}
