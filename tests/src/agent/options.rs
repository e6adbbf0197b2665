//! Socket options, fcntl and ioctl.

use super::call::sys;
use super::{Args, Done, End, Reply, words};
use libc::{c_int, c_void, socklen_t};
use std::mem::{size_of, zeroed};
use std::sync::Arc;

/// Level and name of an option.
fn option(text: &str) -> Result<(c_int, c_int), String> {
    let value = words::value(words::OPTION, text)?;
    Ok(((value >> 32) as c_int, value as c_int))
}

/// `setsockopt S NAME VALUE [LENGTH]`; SO_LINGER takes `ON,SECONDS`, the time-outs take milliseconds.
fn set(end: &End, args: &Args) -> Result<Reply, String> {
    let fd = end.fd(args.get(0)?)?;
    let (level, name) = option(args.get(1)?)?;
    let text = args.get(2)?;
    let bytes: Vec<u8> = match args.get(1)? {
        "SO_LINGER" => {
            let (on, seconds) = text.split_once(',').ok_or("SO_LINGER wants ON,SECONDS")?;
            let (on, seconds): (c_int, c_int) = (super::number(on)?, super::number(seconds)?);
            [on.to_ne_bytes(), seconds.to_ne_bytes()].concat()
        }
        "SO_RCVTIMEO" | "SO_SNDTIMEO" => {
            let milliseconds: i64 = args.number(2)?;
            [
                (milliseconds / 1000).to_ne_bytes(),
                ((milliseconds % 1000) * 1000).to_ne_bytes(),
            ]
            .concat()
        }
        _ => args.number::<c_int>(2)?.to_ne_bytes().to_vec(),
    };
    let length: socklen_t = args.number_or(3, bytes.len() as socklen_t)?;
    if length as usize > bytes.len() {
        return Err("LENGTH is longer than the value".to_owned());
    }
    Ok(sys!(setsockopt(
        fd,
        level,
        name,
        bytes.as_ptr().cast::<c_void>(),
        length
    ))
    .into())
}

/// `getsockopt S NAME [ROOM]`: all bytes that came back, as integers.
fn get(end: &End, args: &Args) -> Result<Reply, String> {
    let fd = end.fd(args.get(0)?)?;
    let (level, name) = option(args.get(1)?)?;
    let mut bytes = [0xeeu8; 64];
    let room: socklen_t = args.number_or(2, 4)?;
    let mut length = room;
    let call = sys!(getsockopt(
        fd,
        level,
        name,
        bytes.as_mut_ptr().cast::<c_void>(),
        &raw mut length
    ));
    if call.failed() {
        return Ok(call.into());
    }
    let shown: Vec<String> = bytes[..(length as usize).min(bytes.len())]
        .chunks(4)
        .map(|each| match each.try_into() {
            Ok(four) => i32::from_ne_bytes(four).to_string(),
            Err(_) => format!("{each:x?}"),
        })
        .collect();
    let shown = match (args.get(1)?, shown.as_slice()) {
        ("SO_ERROR", [error]) if length == 4 => words::name(words::ERRNO, super::number(error)?),
        _ => shown.join(","),
    };
    Ok(Reply::text(format!("{call} {shown} length {length}")))
}

/// `tcpinfo S [ROOM]`: the state and the length, which are all that does not depend on time.
fn tcp_info(end: &End, args: &Args) -> Result<Reply, String> {
    const STATES: [&str; 13] = [
        "none",
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RECV",
        "FIN_WAIT1",
        "FIN_WAIT2",
        "TIME_WAIT",
        "CLOSE",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "CLOSING",
        "NEW_SYN_RECV",
    ];
    let fd = end.fd(args.get(0)?)?;
    let mut bytes = [0u8; 512];
    let mut length: socklen_t = args.number_or(1, bytes.len() as socklen_t)?;
    let at = bytes.as_mut_ptr().cast::<c_void>();
    let call = sys!(getsockopt(
        fd,
        libc::IPPROTO_TCP,
        libc::TCP_INFO,
        at,
        &raw mut length
    ));
    if call.failed() {
        return Ok(call.into());
    }
    let state = STATES.get(usize::from(bytes[0])).unwrap_or(&"unknown");
    Ok(Reply::text(format!("{call} {state} length {length}")))
}

/// `ioctl S NAME [VALUE]`.
fn control(end: &End, args: &Args) -> Result<Reply, String> {
    let fd = end.fd(args.get(0)?)?;
    let mut value: c_int = args.number_or(2, -1)?;
    let request = match args.get(1)? {
        "FIONREAD" => libc::FIONREAD,
        "FIONBIO" => libc::FIONBIO,
        "FIOASYNC" => libc::FIOASYNC,
        "SIOCOUTQ" => libc::TIOCOUTQ,
        "SIOCATMARK" => 0x8905,
        "FIOCLEX" => return Ok(sys!(ioctl(fd, libc::FIOCLEX)).into()),
        "FIONCLEX" => return Ok(sys!(ioctl(fd, libc::FIONCLEX)).into()),
        "TCGETS" => {
            // SAFETY: all zeroes is a valid termios.
            let mut terminal: libc::termios = unsafe { zeroed() };
            return Ok(sys!(ioctl(fd, libc::TCGETS, &raw mut terminal)).into());
        }
        "UNKNOWN" => 0x89ff,
        other => return Err(format!("unknown request {other}")),
    };
    let call = sys!(ioctl(fd, request, &raw mut value));
    Ok(Reply::text(if call.failed() {
        call.to_string()
    } else {
        format!("{call} {value}")
    }))
}

/// `emptied S`: until SIOCOUTQ says that everything was acknowledged. Bounded.
fn emptied(end: &End, args: &Args) -> Result<Reply, String> {
    let fd = end.fd(args.get(0)?)?;
    let mut left: c_int = -1;
    for _ in 0..5000 {
        let call = sys!(ioctl(fd, libc::TIOCOUTQ, &raw mut left));
        if call.failed() || left == 0 {
            return Ok(Reply::text(format!("{call} {left}")));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(Reply::text("= never empty"))
}

/// `fcntl S COMMAND [VALUE]`.
fn file_control(end: &End, args: &Args) -> Result<Reply, String> {
    let fd = end.fd(args.get(0)?)?;
    let (command, value) = (args.get(1)?, args.or(2, "-"));
    Ok(match command {
        "GETFL" => {
            let call = sys!(fcntl(fd, libc::F_GETFL));
            Reply::text(if call.failed() {
                call.to_string()
            } else {
                call.shown_as(&words::bits(words::SOCK, call.result))
            })
        }
        "SETFL" => sys!(fcntl(fd, libc::F_SETFL, words::int(words::SOCK, value)?)).into(),
        "GETFD" => sys!(fcntl(fd, libc::F_GETFD)).into(),
        "SETFD" => sys!(fcntl(fd, libc::F_SETFD, super::number::<c_int>(value)?)).into(),
        "GETOWN" => sys!(fcntl(fd, libc::F_GETOWN)).into(),
        "UNKNOWN" => sys!(fcntl(fd, 9999)).into(),
        other => return Err(format!("unknown command {other}")),
    })
}

/// `fstat S`: the kind of file, which programs use to tell sockets from pipes.
fn status(end: &End, args: &Args) -> Result<Reply, String> {
    // SAFETY: all zeroes is a valid stat.
    let mut status: libc::stat = unsafe { zeroed() };
    let call = sys!(fstat(end.fd(args.get(0)?)?, &raw mut status));
    let kind = match status.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => "socket",
        libc::S_IFIFO => "pipe",
        _ => "other",
    };
    let link = std::fs::read_link(format!("/proc/self/fd/{}", end.fd(args.get(0)?)?));
    let link = link.map_or_else(
        |_| "none".to_owned(),
        |path| path.to_string_lossy()[..4].to_owned(),
    );
    Ok(Reply::text(format!(
        "{call} {kind} size {} link {link}",
        status.st_size
    )))
}

/// The operations of this module.
pub fn perform(end: &Arc<End>, operation: &str, args: &Args) -> Done {
    const _: () = assert!(size_of::<libc::timeval>() == 16 && size_of::<libc::linger>() == 8);
    Ok(Some(match operation {
        "setsockopt" => set(end, args)?,
        "getsockopt" => get(end, args)?,
        "tcpinfo" => tcp_info(end, args)?,
        "ioctl" => control(end, args)?,
        "emptied" => emptied(end, args)?,
        "fcntl" => file_control(end, args)?,
        "fstat" => status(end, args)?,
        _ => return Ok(None),
    }))
}
