//! Many connections in one operation: a client that dials again and again, and the server for it.

use super::call::{Call, sys};
use super::open::address;
use super::{Args, Done, End, Reply, bytes, number};
use libc::{c_int, pollfd, sockaddr_storage, socklen_t};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// All of `bytes`, through short counts.
fn put(fd: c_int, bytes: &[u8]) -> Result<(), String> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let call = sys!(send(
            fd,
            rest.as_ptr().cast(),
            rest.len(),
            libc::MSG_NOSIGNAL
        ));
        if call.failed() {
            return Err(format!("send {call}"));
        }
        rest = &rest[call.length()..];
    }
    Ok(())
}

/// Receives until `room` is full or the stream ends.
fn take(fd: c_int, room: &mut [u8]) -> Result<usize, String> {
    let mut done = 0;
    while done < room.len() {
        let rest = &mut room[done..];
        let call = sys!(recv(fd, rest.as_mut_ptr().cast(), rest.len(), 0));
        if call.failed() {
            return Err(format!("recv {call}"));
        }
        if call.result == 0 {
            break;
        }
        done += call.length();
    }
    Ok(done)
}

/// How a client connects.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Blocking,
    /// Without waiting, then poll for POLLOUT, then SO_ERROR.
    Polling,
}

fn connected(to: &(sockaddr_storage, socklen_t), manner: Manner) -> Result<c_int, String> {
    let flags = if manner == Manner::Polling {
        libc::SOCK_NONBLOCK
    } else {
        0
    };
    let made = sys!(socket(
        c_int::from(to.0.ss_family),
        libc::SOCK_STREAM | flags,
        0
    ));
    if made.failed() {
        return Err(format!("socket {made}"));
    }
    let fd = made.result as c_int;
    let begun = sys!(connect(fd, (&raw const to.0).cast(), to.1));
    if manner == Manner::Blocking {
        return if begun.failed() {
            Err(format!("connect {begun}"))
        } else {
            Ok(fd)
        };
    }
    if begun.errno != libc::EINPROGRESS {
        return Err(format!("connect without waiting {begun}"));
    }
    let mut set = pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    let polled = sys!(poll(&raw mut set, 1, 20000));
    if polled.result != 1 || set.revents != libc::POLLOUT {
        return Err(format!("poll {polled} with {:#x}", set.revents));
    }
    let (mut error, mut length): (c_int, socklen_t) = (-1, 4);
    let asked: Call = sys!(getsockopt(
        fd,
        libc::SOL_SOCKET,
        libc::SO_ERROR,
        (&raw mut error).cast(),
        &raw mut length
    ));
    if asked.failed() || error != 0 {
        return Err(format!("SO_ERROR {asked} {error}"));
    }
    sys!(fcntl(fd, libc::F_SETFL, 0));
    Ok(fd)
}

/// One conversation: `messages` times LENGTH bytes there and back, then the end.
fn conversation(fd: c_int, length: usize, messages: usize) -> Result<(), String> {
    let mut echo = vec![0; length];
    for number in 0..messages {
        let message = bytes::pattern(1, (number * length) as u64, length);
        put(fd, &message)?;
        let got = take(fd, &mut echo)?;
        if got != length || echo != message {
            return Err(format!(
                "message {number} came back wrong ({got} of {length} bytes)"
            ));
        }
    }
    let closed = sys!(shutdown(fd, libc::SHUT_WR));
    if closed.failed() {
        return Err(format!("shutdown {closed}"));
    }
    match take(fd, &mut [0])? {
        0 => Ok(()),
        _ => Err("bytes after the end".to_owned()),
    }
}

/// Answers with what it receives until the end.
fn echo(fd: c_int) -> Result<(), String> {
    let mut piece = [0u8; 8192];
    loop {
        let call = sys!(recv(fd, piece.as_mut_ptr().cast(), piece.len(), 0));
        match call.result {
            0 => return Ok(()),
            length if length > 0 => put(fd, &piece[..length as usize])?,
            _ => return Err(format!("recv {call}")),
        }
    }
}

/// `dial ADDRESS COUNT blocking|polling LENGTH MESSAGES`: one connection after the other.
fn dial(args: &Args) -> Result<Reply, String> {
    let to = address(args.get(0)?)?;
    let count: usize = args.number(1)?;
    let manner = if args.get(2)? == "polling" {
        Manner::Polling
    } else {
        Manner::Blocking
    };
    let (length, messages) = (args.number(3)?, args.number_or(4, 1)?);
    for each in 0..count {
        let outcome = connected(&to, manner).and_then(|fd| {
            let outcome = conversation(fd, length, messages);
            sys!(close(fd));
            outcome
        });
        if let Err(problem) = outcome {
            return Ok(Reply::text(format!("= connection {each}: {problem}")));
        }
    }
    Ok(Reply::text(format!("= {count} good")))
}

/// `serve L COUNT`: accepts and echoes one connection after the other.
fn serve(end: &End, args: &Args) -> Result<Reply, String> {
    let listener = end.fd(args.get(0)?)?;
    let count: usize = args.number(1)?;
    for each in 0..count {
        let made = sys!(accept(listener, std::ptr::null_mut(), std::ptr::null_mut()));
        if made.failed() {
            return Ok(Reply::text(format!("= accept {each}: {made}")));
        }
        let fd = made.result as c_int;
        let outcome = echo(fd);
        sys!(close(fd));
        if let Err(problem) = outcome {
            return Ok(Reply::text(format!("= connection {each}: {problem}")));
        }
    }
    Ok(Reply::text(format!("= {count} good")))
}

/// `crowd ADDRESS COUNT LENGTH MESSAGES`: COUNT connections open at once, each in conversation in turn, round by round.
fn crowd(args: &Args) -> Result<Reply, String> {
    let to = address(args.get(0)?)?;
    let (count, length, messages): (usize, usize, usize) =
        (args.number(1)?, args.number(2)?, args.number(3)?);
    let mut open = Vec::new();
    for each in 0..count {
        match connected(&to, Manner::Blocking) {
            Ok(fd) => open.push(fd),
            Err(problem) => return Ok(Reply::text(format!("= connection {each}: {problem}"))),
        }
    }
    let mut echo = vec![0; length];
    for round in 0..messages {
        // All send before any receives, so that all streams are busy at once.
        for (each, fd) in open.iter().enumerate() {
            let message = bytes::pattern(each as u64, (round * length) as u64, length);
            if let Err(problem) = put(*fd, &message) {
                return Ok(Reply::text(format!(
                    "= connection {each}, round {round}: {problem}"
                )));
            }
        }
        for (each, fd) in open.iter().enumerate() {
            let message = bytes::pattern(each as u64, (round * length) as u64, length);
            match take(*fd, &mut echo) {
                Ok(got) if got == length && echo == message => {}
                other => {
                    return Ok(Reply::text(format!(
                        "= connection {each}, round {round}: {other:?}"
                    )));
                }
            }
        }
    }
    for fd in open {
        sys!(close(fd));
    }
    Ok(Reply::text(format!("= {count} good")))
}

/// `multiplex L COUNT`: an epoll server that echoes on all connections at once until COUNT of them have ended.
fn multiplex(end: &End, args: &Args) -> Result<Reply, String> {
    let listener = end.fd(args.get(0)?)?;
    let count: usize = args.number(1)?;
    let epoll = sys!(epoll_create1(libc::EPOLL_CLOEXEC)).result as c_int;
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: listener as u64,
    };
    sys!(epoll_ctl(
        epoll,
        libc::EPOLL_CTL_ADD,
        listener,
        &raw mut event
    ));
    let mut ended = 0;
    let mut piece = [0u8; 8192];
    while ended < count {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let call = sys!(epoll_wait(epoll, events.as_mut_ptr(), 64, 25000));
        if call.result <= 0 {
            return Ok(Reply::text(format!(
                "= epoll_wait {call} after {ended} connections"
            )));
        }
        for event in &events[..call.length()] {
            let fd = event.u64 as c_int;
            if fd == listener {
                let made = sys!(accept(listener, std::ptr::null_mut(), std::ptr::null_mut()));
                let mut event = libc::epoll_event {
                    events: libc::EPOLLIN as u32,
                    u64: made.result as u64,
                };
                sys!(epoll_ctl(
                    epoll,
                    libc::EPOLL_CTL_ADD,
                    made.result as c_int,
                    &raw mut event
                ));
                continue;
            }
            let got = sys!(recv(
                fd,
                piece.as_mut_ptr().cast(),
                piece.len(),
                libc::MSG_DONTWAIT
            ));
            match got.result {
                0 => {
                    sys!(close(fd));
                    ended += 1;
                }
                length if length > 0 => {
                    if let Err(problem) = put(fd, &piece[..length as usize]) {
                        return Ok(Reply::text(format!("= {problem}")));
                    }
                }
                _ => return Ok(Reply::text(format!("= recv after an event {got}"))),
            }
        }
    }
    sys!(close(epoll));
    Ok(Reply::text(format!("= {count} good")))
}

/// Remembers `now` and answers whether it is more than `allowed` above what it was the last time.
fn grown(last: &AtomicU64, now: u64, allowed: u64) -> Reply {
    let before = last.swap(now, Ordering::Relaxed);
    let growth = now.saturating_sub(before);
    Reply::text(if growth > allowed {
        format!("= grown by {growth}")
    } else {
        "= flat".to_owned()
    })
    .with("now", now)
}

/// How many descriptors are open.
fn open_descriptors() -> Result<u64, String> {
    let entries = std::fs::read_dir("/proc/self/fd").map_err(|problem| problem.to_string())?;
    Ok(entries.count() as u64)
}

/// `grown PAGES DESCRIPTORS`: the resident set and the number of all descriptors, compared with the last time. Closed
/// streams that rsock still ends in the background get some seconds for it.
fn resources(args: &Args) -> Result<Reply, String> {
    static PAGES: AtomicU64 = AtomicU64::new(u64::MAX);
    static DESCRIPTORS: AtomicU64 = AtomicU64::new(u64::MAX);
    let (allowed_pages, allowed_descriptors) = (args.number(0)?, args.number(1)?);
    let wanted = DESCRIPTORS
        .load(Ordering::Relaxed)
        .saturating_add(allowed_descriptors);
    let began = Instant::now();
    let mut open = open_descriptors()?;
    while open > wanted && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(50));
        open = open_descriptors()?;
    }
    let status =
        std::fs::read_to_string("/proc/self/statm").map_err(|problem| problem.to_string())?;
    let pages = number(status.split_whitespace().nth(1).unwrap_or_default())?;
    let memory = grown(&PAGES, pages, allowed_pages);
    let descriptors = grown(&DESCRIPTORS, open, allowed_descriptors);
    let text = format!("memory {} descriptors {}", memory.text, descriptors.text);
    Ok(Reply::text(text).with("pages", pages).with("open", open))
}

/// The operations of this module.
pub fn perform(end: &Arc<End>, operation: &str, args: &Args) -> Done {
    Ok(Some(match operation {
        "dial" => dial(args)?,
        "serve" => serve(end, args)?,
        "crowd" => crowd(args)?,
        "multiplex" => multiplex(end, args)?,
        "grown" => resources(args)?,
        _ => return Ok(None),
    }))
}
