//! Socket addresses as the library wants and gives them.

use core::mem::zeroed;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use libc::{sockaddr, sockaddr_in, sockaddr_in6};

/// A socket address in C's form.
pub(super) enum Raw {
    V4(sockaddr_in),
    V6(sockaddr_in6),
}

impl Raw {
    pub(super) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(a) => {
                // SAFETY: plain numbers; zero is valid for all of them.
                let mut raw: sockaddr_in = unsafe { zeroed() };
                raw.sin_family = libc::AF_INET as u16;
                raw.sin_port = a.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
                Raw::V4(raw)
            }
            SocketAddr::V6(a) => {
                // SAFETY: plain numbers; zero is valid for all of them.
                let mut raw: sockaddr_in6 = unsafe { zeroed() };
                raw.sin6_family = libc::AF_INET6 as u16;
                raw.sin6_port = a.port().to_be();
                raw.sin6_addr.s6_addr = a.ip().octets();
                raw.sin6_scope_id = a.scope_id();
                Raw::V6(raw)
            }
        }
    }

    pub(super) fn is_v6(&self) -> bool {
        matches!(self, Raw::V6(_))
    }

    pub(super) fn as_ptr(&mut self) -> *mut sockaddr {
        match self {
            Raw::V4(raw) => (&raw mut *raw).cast(),
            Raw::V6(raw) => (&raw mut *raw).cast(),
        }
    }
}

/// Reads an address of any family; None if it is neither IPv4 nor IPv6.
///
/// # Safety
/// The pointer leads to as many bytes as the family that is written there needs.
pub(super) unsafe fn read(raw: *const sockaddr) -> Option<SocketAddr> {
    // SAFETY: the caller says so.
    unsafe {
        match i32::from((*raw).sa_family) {
            libc::AF_INET => {
                let raw = raw.cast::<sockaddr_in>().read_unaligned();
                Some(
                    SocketAddrV4::new(
                        Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes()),
                        u16::from_be(raw.sin_port),
                    )
                    .into(),
                )
            }
            libc::AF_INET6 => {
                let raw = raw.cast::<sockaddr_in6>().read_unaligned();
                Some(
                    SocketAddrV6::new(
                        Ipv6Addr::from(raw.sin6_addr.s6_addr),
                        u16::from_be(raw.sin6_port),
                        0,
                        raw.sin6_scope_id,
                    )
                    .into(),
                )
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            // SAFETY: a complete address.
            assert_eq!(unsafe { read(Raw::new(address).as_ptr()) }, Some(address));
        }
        // SAFETY: all zero is AF_UNSPEC.
        assert_eq!(unsafe { read(&zeroed::<sockaddr>()) }, None);
    }
}
