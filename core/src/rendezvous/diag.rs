//! Whose socket is at the other end of a connection on this host: asked from the kernel over NETLINK_SOCK_DIAG
//! (sock_diag(7)), which every user may do.

use crate::stream::Addresses;
use crate::sys;
use core::net::{IpAddr, SocketAddr};

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
/// Offsets in the answer: struct nlmsghdr, then struct inet_diag_msg (linux/inet_diag.h).
const HEADER: usize = 16;
const UID: usize = HEADER + 64;

/// The user id that owns the peer's socket of a connection, both of whose ends are on this host. None: the kernel does not know it.
pub fn peer_uid(ours: Addresses) -> Option<u32> {
    let request = request(ours.peer, ours.local)?;
    let fd = sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_SOCK_DIAG).ok()?;
    let mut answer = [0u8; 512];
    let n = sys::send(fd, &request, 0).and_then(|_| sys::recv(fd, &mut answer, 0));
    sys::close(fd);
    let answer = &answer[..n.ok()?];
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    Some(u32::from_ne_bytes(
        answer.get(UID..UID + 4)?.try_into().ok()?,
    ))
}

/// struct nlmsghdr + struct inet_diag_req_v2 for exactly one socket.
fn request(source: SocketAddr, destination: SocketAddr) -> Option<[u8; 72]> {
    let mut r = [0u8; 72];
    r[..4].copy_from_slice(&72u32.to_ne_bytes());
    r[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    r[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    r[17] = libc::IPPROTO_TCP as u8;
    r[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
    r[24..26].copy_from_slice(&source.port().to_be_bytes());
    r[26..28].copy_from_slice(&destination.port().to_be_bytes());
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            r[16] = libc::AF_INET as u8;
            r[28..32].copy_from_slice(&s.octets());
            r[44..48].copy_from_slice(&d.octets());
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            r[16] = libc::AF_INET6 as u8;
            r[28..44].copy_from_slice(&s.octets());
            r[44..60].copy_from_slice(&d.octets());
        }
        _ => return None,
    }
    // INET_DIAG_NOCOOKIE.
    r[64..72].fill(0xff);
    Some(r)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_kernel_says_whose_the_other_end_is() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let a = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (_b, _) = listener.accept().expect("accept");
        let names = Addresses::new(a.local_addr().expect("local"), a.peer_addr().expect("peer"));
        assert_eq!(peer_uid(names), Some(sys::geteuid()));
        let nobody = Addresses::new(
            a.local_addr().expect("local"),
            "127.0.0.1:1".parse().expect("address"),
        );
        assert_eq!(peer_uid(nobody), None);
    }
}
