//! Making, naming and closing descriptors.

use super::call::{Call, sys};
use super::{Args, Done, End, Reply, lock, words};
use libc::{c_int, sockaddr_storage, socklen_t};
use std::mem::{size_of, zeroed};
use std::net::SocketAddr;
use std::sync::Arc;

/// The lowest free descriptor, as the program sees it.
fn lowest() -> c_int {
    (0..)
        .find(|fd| sys!(fcntl(*fd, libc::F_GETFD)).failed())
        .unwrap_or(-1)
}

/// A call that makes a descriptor: keeps it under `name` and says whether the number is the lowest free one.
pub fn made(end: &End, name: &str, call: impl FnOnce() -> Call) -> Reply {
    let expected = lowest();
    let call = call();
    if call.failed() {
        return call.into();
    }
    let fd = call.result as c_int;
    end.keep(name, fd);
    let shown = if fd == expected {
        "fd".to_owned()
    } else {
        format!("fd {fd}, not {expected}")
    };
    Reply::text(call.shown_as(&shown))
}

/// An address as the kernel wants it.
pub fn address(text: &str) -> Result<(sockaddr_storage, socklen_t), String> {
    // SAFETY: all zeroes is a valid sockaddr_storage (AF_UNSPEC).
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    if text == "unspec" {
        return Ok((storage, size_of::<libc::sockaddr>() as socklen_t));
    }
    let at = (&raw mut storage).cast::<u8>();
    match text
        .parse::<SocketAddr>()
        .map_err(|problem| format!("{text}: {problem}"))?
    {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is large and aligned enough for every socket address.
            unsafe { at.cast::<libc::sockaddr_in>().write(raw) };
            Ok((storage, size_of::<libc::sockaddr_in>() as socklen_t))
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { at.cast::<libc::sockaddr_in6>().write(raw) };
            Ok((storage, size_of::<libc::sockaddr_in6>() as socklen_t))
        }
    }
}

/// An address for the transcript; ports stand in `<>`, the runner gives them names.
fn shown(storage: &sockaddr_storage, length: socklen_t) -> String {
    let at = (&raw const *storage).cast::<u8>();
    let text = match c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says so, and the storage is large enough.
            let raw = unsafe { at.cast::<libc::sockaddr_in>().read() };
            let ip = std::net::Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            format!("{ip}:<{}>", u16::from_be(raw.sin_port))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw = unsafe { at.cast::<libc::sockaddr_in6>().read() };
            let ip = std::net::Ipv6Addr::from(raw.sin6_addr.s6_addr);
            format!("[{ip}]:<{}>", u16::from_be(raw.sin6_port))
        }
        family => format!("family {family}"),
    };
    format!("{text} length {length}")
}

/// getsockname, getpeername or accept, with `room` bytes for the address.
fn asked(
    room: socklen_t,
    call: impl FnOnce(*mut libc::sockaddr, *mut socklen_t) -> Call,
) -> (Call, String) {
    // SAFETY: all zeroes is a valid sockaddr_storage.
    let mut storage: sockaddr_storage = unsafe { zeroed() };
    let mut length = room;
    let call = call((&raw mut storage).cast(), &raw mut length);
    let text = if call.failed() {
        String::new()
    } else {
        format!(" {}", shown(&storage, length))
    };
    (call, text)
}

/// The port in an address for the transcript.
fn port(text: &str) -> &str {
    text.split(['<', '>']).nth(1).unwrap_or("0")
}

fn socket(end: &End, args: &Args) -> Result<Reply, String> {
    let family = match args.or(1, "inet") {
        "inet" => libc::AF_INET,
        "inet6" => libc::AF_INET6,
        other => return Err(format!("unknown family {other}")),
    };
    let flags = words::int(words::SOCK, args.or(2, "-"))?;
    Ok(made(end, args.get(0)?, || {
        sys!(socket(family, libc::SOCK_STREAM | flags, 0))
    }))
}

fn accept(end: &End, args: &Args) -> Result<Reply, String> {
    let listener = end.fd(args.get(0)?)?;
    let room = size_of::<sockaddr_storage>() as socklen_t;
    let mut peer = String::new();
    let call = match args.or(2, "plain") {
        "plain" => {
            let (call, text) = asked(room, |at, length| sys!(accept(listener, at, length)));
            peer = text;
            call
        }
        "null" => sys!(accept(listener, std::ptr::null_mut(), std::ptr::null_mut())),
        flags => {
            let flags = words::int(words::SOCK, flags)?;
            let (call, text) = asked(room, |at, length| {
                sys!(accept4(listener, at, length, flags))
            });
            peer = text;
            call
        }
    };
    if !call.failed() {
        end.keep(args.get(1)?, call.result as c_int);
    }
    Ok(Reply::text(call.shown_as("fd") + &peer))
}

/// dup and its kin: the new descriptor shares the stream.
fn duplicate(
    end: &End,
    args: &Args,
    call: impl FnOnce(c_int) -> Result<Call, String>,
) -> Result<Reply, String> {
    let old = end.slot(args.get(0)?)?;
    let call = call(old.fd)?;
    if call.failed() {
        return Ok(call.into());
    }
    let fd = call.result as c_int;
    lock(&end.slots).insert(args.get(1)?.to_owned(), super::Slot { fd, ..old });
    Ok(Reply::text(call.shown_as("fd")))
}

/// Sweeps FIRST..=LAST with close(), as daemons do; answers how many were open.
fn sweep(first: c_int, last: c_int) -> Reply {
    let open = (first..=last)
        .filter(|fd| !sys!(close(*fd)).failed())
        .count();
    Reply::text(format!("closed {open}"))
}

/// The operations of this module.
pub fn perform(end: &Arc<End>, operation: &str, args: &Args) -> Done {
    let room = size_of::<sockaddr_storage>() as socklen_t;
    Ok(Some(match operation {
        "socket" => socket(end, args)?,
        "accept" => accept(end, args)?,
        "bind" => {
            let fd = end.fd(args.get(0)?)?;
            let (at, length) = address(args.get(1)?)?;
            let call = sys!(bind(fd, (&raw const at).cast(), length));
            let (_, bound) = asked(room, |at, length| sys!(getsockname(fd, at, length)));
            Reply::from(call).with("port", port(&bound))
        }
        "listen" => sys!(listen(end.fd(args.get(0)?)?, args.number_or(1, 16)?)).into(),
        "connect" => {
            let (at, length) = address(args.get(1)?)?;
            sys!(connect(
                end.fd(args.get(0)?)?,
                (&raw const at).cast(),
                length
            ))
            .into()
        }
        "getsockname" | "getpeername" => {
            let fd = end.fd(args.get(0)?)?;
            let (call, text) = asked(args.number_or(1, room)?, |at, length| match operation {
                "getsockname" => sys!(getsockname(fd, at, length)),
                _ => sys!(getpeername(fd, at, length)),
            });
            Reply::text(call.to_string() + &text)
        }
        "close" => sys!(close(end.fd(args.get(0)?)?)).into(),
        "shutdown" => {
            let how = match args.get(1)? {
                "RD" => libc::SHUT_RD,
                "WR" => libc::SHUT_WR,
                "RDWR" => libc::SHUT_RDWR,
                other => super::number(other)?,
            };
            sys!(shutdown(end.fd(args.get(0)?)?, how)).into()
        }
        "dup" => duplicate(end, args, |fd| Ok(sys!(dup(fd))))?,
        "dupfd" => duplicate(end, args, |fd| {
            let (least, command) = (args.number_or::<c_int>(2, 0)?, args.or(3, "-"));
            Ok(match command {
                "CLOEXEC" => sys!(fcntl(fd, libc::F_DUPFD_CLOEXEC, least)),
                _ => sys!(fcntl(fd, libc::F_DUPFD, least)),
            })
        })?,
        "dup2" => duplicate(end, args, |fd| Ok(sys!(dup2(fd, end.fd(args.get(2)?)?))))?,
        "dup3" => duplicate(end, args, |fd| {
            Ok(sys!(dup3(
                fd,
                end.fd(args.get(2)?)?,
                words::int(words::SOCK, args.or(3, "-"))?
            )))
        })?,
        "pipe" => {
            let mut fds = [0; 2];
            let call = sys!(pipe2(
                fds.as_mut_ptr(),
                words::int(words::SOCK, args.or(2, "-"))?
            ));
            end.keep(args.get(0)?, fds[0]);
            end.keep(args.get(1)?, fds[1]);
            call.into()
        }
        "unixpair" => {
            let mut fds = [0; 2];
            let call = sys!(socketpair(
                libc::AF_UNIX,
                libc::SOCK_STREAM,
                0,
                fds.as_mut_ptr()
            ));
            end.keep(args.get(0)?, fds[0]);
            end.keep(args.get(1)?, fds[1]);
            call.into()
        }
        "eventfd" => made(end, args.get(0)?, || {
            sys!(eventfd(
                args.number_or(1, 0).unwrap_or(0),
                libc::EFD_NONBLOCK
            ))
        }),
        "devnull" => made(end, args.get(0)?, || {
            sys!(open(c"/dev/null".as_ptr(), libc::O_RDWR))
        }),
        "file" => {
            let reply = made(end, args.get(0)?, || {
                sys!(memfd_create(c"file".as_ptr(), 0))
            });
            let bytes = super::bytes::pattern(u64::from(b'f'), 0, args.number(1)?);
            let fd = end.fd(args.get(0)?)?;
            let put = sys!(write(fd, bytes.as_ptr().cast(), bytes.len()));
            sys!(lseek(fd, 0, libc::SEEK_SET));
            if put.length() != bytes.len() {
                return Err("cannot fill the file".to_owned());
            }
            reply
        }
        "close_range" => sys!(close_range(
            args.number(0)?,
            args.number(1)?,
            args.number_or(2, 0)?
        ))
        .into(),
        "sweep" => sweep(args.number(0)?, args.number(1)?),
        _ => return Ok(None),
    }))
}
