//! What processes say to each other at a rendezvous (Unix SOCK_SEQPACKET): who holds the other end of this connection?
//!
//! | packet | from → to | meaning |
//! | --- | --- | --- |
//! | `J` name | member → owner | I serve connections of this port; my process is reached by that name |
//! | `W` id, addresses | connector → owner | who holds this connection's other end? |
//! | `Q` id, addresses | owner → member | do you? |
//! | `A` id, yes | member → owner | the answer |
//! | `T` id, name | owner → connector | that process; an empty name: nobody yet |

use crate::stream::Addresses;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The longest name of a process.
pub const MAX_NAME: usize = 48;

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// See the table.
    Join(Vec<u8>),
    /// See the table. The addresses are the connector's.
    Who(u32, Addresses),
    /// See the table. The addresses are the connector's.
    Query(u32, Addresses),
    /// See the table.
    Answer(u32, bool),
    /// See the table.
    There(u32, Vec<u8>),
}

fn put_address(out: &mut Vec<u8>, a: SocketAddr) {
    let ip = match a.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&a.port().to_be_bytes());
}

fn get_address(bytes: &[u8]) -> Option<SocketAddr> {
    let ip: [u8; 16] = bytes.get(..16)?.try_into().ok()?;
    let port: [u8; 2] = bytes.get(16..18)?.try_into().ok()?;
    Some(SocketAddr::new(
        IpAddr::V6(Ipv6Addr::from(ip)).to_canonical(),
        u16::from_be_bytes(port),
    ))
}

impl Packet {
    /// As bytes, at most 64.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        match self {
            Packet::Join(name) => {
                out.push(b'J');
                out.extend_from_slice(name);
            }
            Packet::Who(id, a) | Packet::Query(id, a) => {
                out.push(if matches!(self, Packet::Who(..)) {
                    b'W'
                } else {
                    b'Q'
                });
                out.extend_from_slice(&id.to_le_bytes());
                put_address(&mut out, a.local);
                put_address(&mut out, a.peer);
            }
            Packet::Answer(id, yes) => {
                out.push(b'A');
                out.extend_from_slice(&id.to_le_bytes());
                out.push(u8::from(*yes));
            }
            Packet::There(id, name) => {
                out.push(b'T');
                out.extend_from_slice(&id.to_le_bytes());
                out.extend_from_slice(name);
            }
        }
        out
    }

    /// From bytes of somebody else: anything that is not exactly a packet is None.
    pub fn decode(bytes: &[u8]) -> Option<Packet> {
        let (kind, rest) = bytes.split_first()?;
        if *kind == b'J' {
            return (!rest.is_empty() && rest.len() <= MAX_NAME)
                .then(|| Packet::Join(rest.to_vec()));
        }
        let id = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?);
        let rest = &rest[4..];
        match kind {
            b'W' | b'Q' if rest.len() == 36 => {
                let a = Addresses::new(get_address(&rest[..18])?, get_address(&rest[18..])?);
                Some(if *kind == b'W' {
                    Packet::Who(id, a)
                } else {
                    Packet::Query(id, a)
                })
            }
            b'A' if rest.len() == 1 && rest[0] <= 1 => Some(Packet::Answer(id, rest[0] == 1)),
            b'T' if rest.len() <= MAX_NAME => Some(Packet::There(id, rest.to_vec())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_back_and_nonsense_does_not() {
        let v4: SocketAddr = "127.0.0.1:6379".parse().expect("address");
        let v6: SocketAddr = "[fe80::1]:40000".parse().expect("address");
        let all = [
            Packet::Join(b"p/1".to_vec()),
            Packet::Who(7, Addresses::new(v4, v6)),
            Packet::Query(8, Addresses::new(v6, v4)),
            Packet::Answer(9, true),
            Packet::There(10, Vec::new()),
            Packet::There(11, b"p/2".to_vec()),
        ];
        for p in all {
            let bytes = p.encode();
            assert!(bytes.len() <= 64);
            assert_eq!(Packet::decode(&bytes), Some(p));
            for n in 0..bytes.len() {
                let cut = Packet::decode(&bytes[..n]);
                assert!(cut.is_none() || matches!(cut, Some(Packet::Join(_) | Packet::There(..))));
            }
        }
        assert_eq!(Packet::decode(b"A\0\0\0\0\x02"), None);
        assert_eq!(Packet::decode(&[b'J'; 200]), None);
    }
}
