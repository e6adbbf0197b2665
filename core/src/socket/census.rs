//! The census: how many bytes a connection has carried so far, from the kernel's own counters. It counts what went by raw
//! system calls, stdio or other processes too, so a lane may be opened on a socket whose past nobody watched.

use crate::stream::Position;
use crate::sys;

const TCP_ESTABLISHED: u8 = 1;
/// Offsets in struct tcp_info (linux/tcp.h), fixed by the kernel's ABI.
const BYTES_ACKED: usize = 120;
const BYTES_RECEIVED: usize = 128;
const TRIES: usize = 50;

fn info(fd: i32) -> Option<(u8, u64, u64)> {
    let (info, len) = sys::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, [0u8; 192]).ok()?;
    if len < BYTES_RECEIVED + 8 {
        return None;
    }
    let word = |at: usize| {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(&info[at..at + 8]);
        u64::from_ne_bytes(bytes)
    };
    Some((info[0], word(BYTES_ACKED), word(BYTES_RECEIVED)))
}

/// What the program has sent and received so far. The caller sees to it that nobody sends or receives meanwhile. None: the
/// connection is not established (any more), or the kernel does not say.
pub fn take(fd: i32, connector: bool) -> Option<(Position, Position)> {
    for _ in 0..TRIES {
        let queued = sys::ioctl_int(fd, libc::TIOCOUTQ).ok()?;
        let unread = sys::ioctl_int(fd, libc::FIONREAD).ok()?;
        let (state, acked, received) = info(fd)?;
        if state != TCP_ESTABLISHED {
            return None;
        }
        // Only a picture in which nothing moved is one.
        let same = sys::ioctl_int(fd, libc::TIOCOUTQ) == Ok(queued)
            && sys::ioctl_int(fd, libc::FIONREAD) == Ok(unread);
        if same && info(fd) == Some((state, acked, received)) {
            // The active opener's SYN counts as an acknowledged byte.
            let sent = acked
                .checked_sub(u64::from(connector))?
                .checked_add(queued as u64)?;
            return Some((
                Position::new(sent),
                Position::new(received.checked_sub(unread as u64)?),
            ));
        }
    }
    None
}

/// Whether the kernel has sent and queued exactly `position` bytes. The caller holds the send lock.
pub fn sent_agrees(fd: i32, connector: bool, position: Position) -> bool {
    (0..TRIES).any(|_| {
        let queued = sys::ioctl_int(fd, libc::TIOCOUTQ);
        let (Ok(queued), Some((_, acked, _))) = (queued, info(fd)) else {
            return false;
        };
        acked
            .checked_sub(u64::from(connector))
            .and_then(|a| a.checked_add(queued as u64))
            == Some(position.get())
    })
}

/// Whether the kernel has given out exactly `position` bytes. The caller holds the receive lock.
pub fn received_agrees(fd: i32, position: Position) -> bool {
    (0..TRIES).any(|_| {
        let unread = sys::ioctl_int(fd, libc::FIONREAD);
        let (Ok(unread), Some((_, _, received))) = (unread, info(fd)) else {
            return false;
        };
        received.checked_sub(unread as u64) == Some(position.get())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn the_kernel_knows_how_much_went_either_way() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut a = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (mut b, _) = listener.accept().expect("accept");
        a.write_all(&[1; 1000]).expect("write");
        b.read_exact(&mut [0; 400]).expect("read");
        b.write_all(&[2; 77]).expect("write");
        let both = (take(a.as_raw_fd(), true), take(b.as_raw_fd(), false));
        assert_eq!(both.0, Some((Position::new(1000), Position::ZERO)));
        assert_eq!(both.1, Some((Position::new(77), Position::new(400))));
        drop(b);
        assert_eq!(take(listener.as_raw_fd(), false), None);
    }
}
