//! Addresses that a process did not store: found through the socket's inode in /proc/PID/net/tcp and tcp6, so that no
//! short connection has to pay for two system calls that only `rsock status` wants.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use super::Stream;

/// Fills in what is missing; what cannot be found stays unknown.
pub fn look_up(directory: &Path, streams: &mut [Stream]) {
    if streams
        .iter()
        .all(|s| s.local.is_some() && s.peer.is_some())
    {
        return;
    }
    let mut table = HashMap::new();
    for name in ["net/tcp", "net/tcp6"] {
        if let Ok(text) = fs::read_to_string(directory.join(name)) {
            table.extend(text.lines().skip(1).filter_map(connection));
        }
    }
    for stream in streams {
        let link = directory.join("fd").join(stream.fd.to_string());
        let Some((local, peer)) = fs::read_link(link)
            .ok()
            .and_then(|target| inode(target.to_str()?))
            .and_then(|inode| table.get(&inode))
        else {
            continue;
        };
        stream.local.get_or_insert(*local);
        stream.peer.get_or_insert(*peer);
    }
}

/// Of a link `socket:[123]`.
fn inode(target: &str) -> Option<u64> {
    target
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// One line of proc_net_tcp(5): `sl local_address rem_address st …`, the inode is the tenth word.
fn connection(line: &str) -> Option<(u64, (SocketAddr, SocketAddr))> {
    let mut words = line.split_whitespace().skip(1);
    let local = address(words.next()?)?;
    let peer = address(words.next()?)?;
    let inode = words.nth(6)?.parse().ok()?;
    Some((inode, (local, peer)))
}

/// "0100007F:1F90": the address as 32-bit words of the machine's byte order, the port as a number.
fn address(word: &str) -> Option<SocketAddr> {
    let (ip, port) = word.split_once(':')?;
    let mut octets = Vec::with_capacity(16);
    for chunk in ip.as_bytes().chunks(8) {
        let chunk = std::str::from_utf8(chunk).ok()?;
        octets.extend(u32::from_str_radix(chunk, 16).ok()?.to_ne_bytes());
    }
    let ip = match octets.len() {
        4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?)),
        _ => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_net_tcp_gives_inode_and_addresses() {
        let line = "   0: 0100007F:1F90 0200007F:ABCD 01 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 20 4 30 10 -1";
        let expected = (
            "127.0.0.1:8080".parse().ok(),
            "127.0.0.2:43981".parse().ok(),
        );
        if cfg!(target_endian = "little") {
            let (inode, (local, peer)) = connection(line).expect("a line as the kernel writes it");
            assert_eq!(inode, 12345);
            assert_eq!((Some(local), Some(peer)), expected);
        }
        assert!(connection("  sl  local_address rem_address   st").is_none());
        assert_eq!(inode("socket:[77]"), Some(77));
        assert_eq!(inode("/dev/null"), None);
    }
}
