//! What the two ends of a memory link say to each other over their Unix socket (SOCK_SEQPACKET): one packet, one message,
//! with descriptors beside it.

use crate::sys::{self, Errno};
use core::mem::size_of;
use libc::{c_int, c_void, iovec, msghdr};

/// The most descriptors in one packet.
pub const MAX_FDS: usize = 2;
/// The longest packet.
pub const MAX_PACKET: usize = 256;

/// Room for the control part of a packet, aligned as a cmsghdr wants.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends a packet. Never sleeps: EAGAIN when the peer does not read.
pub fn send(fd: c_int, packet: &[u8], fds: &[c_int]) -> sys::Result<()> {
    let mut iov = sys::iov(packet);
    let mut message = sys::msg(&mut iov, 1);
    let mut control = Control([0; 64]);
    if !fds.is_empty() {
        let bytes = size_of_val(fds) as u32;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: CMSG_* compute inside the 64 bytes: room for two descriptors (CMSG_SPACE(8) = 24).
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
            let c = libc::CMSG_FIRSTHDR(&message);
            (*c).cmsg_level = libc::SOL_SOCKET;
            (*c).cmsg_type = libc::SCM_RIGHTS;
            (*c).cmsg_len = libc::CMSG_LEN(bytes) as usize;
            core::ptr::copy_nonoverlapping(
                fds.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(c),
                bytes as usize,
            );
        }
    }
    sys::sendmsg(fd, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).map(drop)
}

/// A packet that came.
pub struct Packet {
    bytes: [u8; MAX_PACKET],
    len: usize,
    fds: [c_int; MAX_FDS],
}

impl Packet {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Takes a descriptor out; those not taken are closed with the packet.
    pub fn take_fd(&mut self, index: usize) -> Option<c_int> {
        let fd = core::mem::replace(self.fds.get_mut(index)?, -1);
        (fd >= 0).then_some(fd)
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        for fd in self.fds {
            if fd >= 0 {
                sys::close(fd);
            }
        }
    }
}

/// Receives a packet. EAGAIN when there is none; EPROTO for one that is cut off or carries what we did not ask for;
/// ENOTCONN at the end of the connection.
pub fn receive(fd: c_int) -> sys::Result<Packet> {
    let mut packet = Packet {
        bytes: [0; MAX_PACKET],
        len: 0,
        fds: [-1; MAX_FDS],
    };
    let mut iov = iovec {
        iov_base: packet.bytes.as_mut_ptr() as *mut c_void,
        iov_len: MAX_PACKET,
    };
    let mut message: msghdr = sys::msg(&mut iov, 1);
    let mut control = Control([0; 64]);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>();
    packet.len = sys::recvmsg(
        fd,
        &mut message,
        libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC,
    )?;
    let mut surplus = false;
    // SAFETY: the kernel filled the control part in; the CMSG_* macros walk inside it.
    unsafe {
        let mut c = libc::CMSG_FIRSTHDR(&message);
        let mut n = 0;
        while !c.is_null() {
            if (*c).cmsg_level == libc::SOL_SOCKET && (*c).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*c).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<c_int>();
                for i in 0..count {
                    let got = libc::CMSG_DATA(c).cast::<c_int>().add(i).read_unaligned();
                    if n < MAX_FDS {
                        packet.fds[n] = got;
                        n += 1;
                    } else {
                        sys::close(got);
                        surplus = true;
                    }
                }
            }
            c = libc::CMSG_NXTHDR(&message, c);
        }
    }
    if packet.len == 0 {
        return Err(Errno(libc::ENOTCONN));
    }
    if surplus || message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(Errno(libc::EPROTO));
    }
    Ok(packet)
}

/// The credentials of the process at the other end (as of its connect or listen): process id and user id.
pub fn peer(fd: c_int) -> sys::Result<(i32, u32)> {
    let none = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let (cred, _) = sys::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, none)?;
    Ok((cred.pid, cred.uid))
}

/// A name in the abstract Unix name space: `rsock-1/` and what follows (at most 80 bytes).
pub struct Name {
    address: libc::sockaddr_un,
    len: libc::socklen_t,
}

impl Name {
    /// The name `rsock-1/` + `rest`. A longer rest is cut off.
    pub fn new(rest: &[u8]) -> Name {
        // SAFETY: all-zero is a valid sockaddr_un.
        let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as u16;
        let mut n = 1;
        for byte in b"rsock-1/".iter().chain(rest.iter().take(80)) {
            address.sun_path[n] = *byte as libc::c_char;
            n += 1;
        }
        Name {
            address,
            len: (core::mem::offset_of!(libc::sockaddr_un, sun_path) + n) as libc::socklen_t,
        }
    }

    /// A socket that listens on the name; EADDRINUSE when another process has it.
    pub fn listen(&self) -> sys::Result<c_int> {
        let fd = sys::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK, 0)?;
        // SAFETY: a sockaddr_un with its length.
        let bound = unsafe { sys::bind(fd, (&raw const self.address).cast(), self.len) };
        match bound
            .and_then(|()| sys::listen(fd, 128))
            .and_then(|()| sys::move_high(fd))
        {
            Ok(high) => Ok(high),
            Err(e) => {
                sys::close(fd);
                Err(e)
            }
        }
    }

    /// A connection to whoever listens on the name; ECONNREFUSED when nobody does. Never sleeps.
    pub fn connect(&self) -> sys::Result<c_int> {
        let fd = sys::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK, 0)?;
        // SAFETY: a sockaddr_un with its length.
        match unsafe { sys::connect(fd, (&raw const self.address).cast(), self.len) } {
            Ok(()) => sys::move_high(fd),
            Err(e) => {
                sys::close(fd);
                Err(e)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_carry_bytes_and_descriptors() {
        let name = Name::new(format!("test/{}", std::process::id()).as_bytes());
        let listener = name.listen().expect("listen");
        assert_eq!(name.listen().map(drop), Err(Errno(libc::EADDRINUSE)));
        let a = name.connect().expect("connect");
        let b = sys::accept(listener).expect("accept");
        assert!(matches!(receive(b), Err(Errno(libc::EAGAIN))));
        let memfd = sys::memfd(c"x").expect("memfd");
        send(a, b"one", &[memfd]).expect("send");
        send(a, b"two", &[]).expect("send");
        let mut one = receive(b).expect("one");
        assert_eq!(one.bytes(), b"one");
        let got = one.take_fd(0).expect("descriptor");
        assert!(one.take_fd(0).is_none() && one.take_fd(1).is_none() && one.take_fd(9).is_none());
        assert_eq!(receive(b).expect("two").bytes(), b"two");
        assert_eq!(peer(b).expect("credentials").0, sys::getpid());
        for fd in [a, memfd, got] {
            sys::close(fd);
        }
        assert!(matches!(receive(b), Err(Errno(libc::ENOTCONN))));
        sys::close(b);
        sys::close(listener);
        assert_eq!(name.connect().map(drop), Err(Errno(libc::ECONNREFUSED)));
    }

    #[test]
    fn more_descriptors_than_allowed_are_closed_and_refused() {
        let name = Name::new(format!("test2/{}", std::process::id()).as_bytes());
        let listener = name.listen().expect("listen");
        let a = name.connect().expect("connect");
        let b = sys::accept(listener).expect("accept");
        send(a, b"x", &[a, b, listener]).expect("send");
        assert!(matches!(receive(b), Err(Errno(libc::EPROTO))));
        for fd in [a, b, listener] {
            sys::close(fd);
        }
    }
}
