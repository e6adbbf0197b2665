//! Operations of many calls: all of something, until the buffers are full, until they are empty, warming up.
//!
//! Their answers hold only what does not depend on how the bytes were cut up on the way.

use super::bytes::{Hash, pattern};
use super::call::{Call, sys};
use super::{Args, Done, End, Reply, Slot, advance, tag, words};
use libc::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long an operation waits for what must come: less than the runner's patience.
const PATIENCE: Duration = Duration::from_secs(20);

fn send_piece(end: &End, slot: &Slot, length: usize, flags: c_int) -> Call {
    let piece = pattern(end.tag(), slot.sent.load(Ordering::Relaxed), length);
    let call = sys!(send(
        slot.fd,
        piece.as_ptr().cast::<c_void>(),
        length,
        flags | libc::MSG_NOSIGNAL
    ));
    advance(&slot.sent, call.length());
    call
}

/// `sendall S LENGTH [CHUNK] [FLAGS]`: goes on after short counts, as programs must.
fn send_all(end: &End, args: &Args) -> Result<Reply, String> {
    let slot = end.slot(args.get(0)?)?;
    let (length, chunk): (u64, usize) = (args.number(1)?, args.number_or(2, 65536)?);
    let flags = words::int(words::MSG, args.or(3, "-"))?;
    let mut done = 0;
    while done < length {
        let call = send_piece(end, &slot, chunk.min((length - done) as usize), flags);
        if call.failed() {
            return Ok(Reply::text(format!("= {done} then {}", call.error())));
        }
        done += call.result as u64;
    }
    Ok(Reply::text(format!("= {done}")))
}

/// `push S LENGTH`: blocking sends in large pieces that are expected to end early; answers why, not how far it got.
fn push(end: &End, args: &Args) -> Result<Reply, String> {
    let slot = end.slot(args.get(0)?)?;
    let length: usize = args.number(1)?;
    let mut done = 0;
    while done < length {
        let call = send_piece(end, &slot, (length - done).min(1 << 20), 0);
        if call.failed() {
            return Ok(Reply::text(format!("= {}", call.error())).with("pushed", done));
        }
        done += call.length();
    }
    Ok(Reply::text("= all").with("pushed", done))
}

/// `pushers S COUNT LENGTH`: COUNT threads send LENGTH bytes each at the same time. `pullers S COUNT`: COUNT threads
/// receive until the end. Both answer with the number of bytes and their sum, which do not depend on their order.
fn crowd(end: &End, operation: &str, args: &Args) -> Result<Reply, String> {
    let slot = end.slot(args.get(0)?)?;
    let count: u64 = args.number(1)?;
    let length: usize = args.number_or(2, 0)?;
    let (total, sum) = (AtomicU64::new(0), AtomicU64::new(0));
    let add = |bytes: &[u8]| {
        total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        sum.fetch_add(
            bytes.iter().map(|byte| u64::from(*byte)).sum(),
            Ordering::Relaxed,
        );
    };
    let push = |number: u64| {
        let bytes = pattern(end.tag() + number, 0, length);
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let size = rest.len().min(1000 + 7000 * number as usize);
            let call = sys!(send(
                slot.fd,
                rest.as_ptr().cast::<c_void>(),
                size,
                libc::MSG_NOSIGNAL
            ));
            if call.failed() {
                break;
            }
            add(&rest[..call.length()]);
            rest = &rest[call.length()..];
        }
    };
    let pull = || {
        let mut piece = vec![0u8; 5000];
        loop {
            let call = sys!(recv(
                slot.fd,
                piece.as_mut_ptr().cast::<c_void>(),
                piece.len(),
                0
            ));
            if call.result <= 0 {
                break;
            }
            add(&piece[..call.length()]);
        }
    };
    std::thread::scope(|scope| {
        for number in 0..count {
            let push = &push;
            let pull = &pull;
            scope.spawn(move || {
                if operation == "pushers" {
                    push(number)
                } else {
                    pull()
                }
            });
        }
    });
    Ok(Reply::text(format!(
        "= {} sum {}",
        total.load(Ordering::Relaxed),
        sum.load(Ordering::Relaxed)
    )))
}

/// `fill S [CHUNK]`: sends without waiting until the kernel takes no more. How much that is, is nobody's promise.
fn fill(end: &End, args: &Args) -> Result<Reply, String> {
    let slot = end.slot(args.get(0)?)?;
    let chunk = args.number_or(1, 4096)?;
    let mut quiet = 0;
    let mut done = 0;
    // Full means: nothing was taken for a while, for what is on its way to the receiver makes room.
    while quiet < 20 {
        let call = send_piece(end, &slot, chunk, libc::MSG_DONTWAIT);
        if call.failed() && call.errno != libc::EAGAIN {
            return Ok(Reply::text(format!("= {}", call.error())));
        }
        done += call.length();
        quiet = if call.failed() { quiet + 1 } else { 0 };
        if call.failed() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(Reply::text("= full").with("filled", done))
}

/// What a reader of a whole stream saw.
struct Reader {
    total: u64,
    hash: Hash,
    wrong: Option<u64>,
}

impl Reader {
    /// One recv; bytes are compared with what the end `from` sends, if given.
    fn piece(&mut self, slot: &Slot, room: usize, flags: c_int, from: Option<u64>) -> Call {
        let mut piece = vec![0u8; room];
        let call = sys!(recv(
            slot.fd,
            piece.as_mut_ptr().cast::<c_void>(),
            room,
            flags
        ));
        let got = &piece[..call.length()];
        let at = advance(&slot.received, got.len());
        self.total += got.len() as u64;
        match from {
            Some(tag) if self.wrong.is_none() && got != pattern(tag, at, got.len()) => {
                self.wrong = Some(at)
            }
            Some(_) => {}
            None => self.hash.add(got),
        }
        call
    }

    fn verdict(&self, from: Option<u64>) -> String {
        match (from, self.wrong) {
            (None, _) => self.hash.text(),
            (Some(_), None) => "all right".to_owned(),
            (Some(_), Some(at)) => format!("WRONG from byte {at} of the stream on"),
        }
    }
}

/// `recvall S LENGTH|end [FROM] [CHUNK] [FLAGS]`: until so many bytes, or the end of the stream, or an error.
fn receive_all(end: &End, args: &Args) -> Result<Reply, String> {
    let slot = end.slot(args.get(0)?)?;
    let limit: u64 = if args.get(1)? == "end" {
        u64::MAX
    } else {
        args.number(1)?
    };
    let from = Some(args.or(2, "-")).filter(|name| *name != "-").map(tag);
    let chunk: usize = args.number_or(3, 65536)?;
    let flags = words::int(words::MSG, args.or(4, "-"))?;
    let mut reader = Reader {
        total: 0,
        hash: Hash::default(),
        wrong: None,
    };
    let mut ended = "";
    let mut error = String::new();
    while reader.total < limit {
        let room = chunk.min(usize::try_from(limit - reader.total).unwrap_or(usize::MAX));
        let call = reader.piece(&slot, room, flags, from);
        if call.failed() {
            ended = " then ";
            error = call.error();
            break;
        }
        if call.result == 0 {
            ended = " then end";
            break;
        }
    }
    Ok(Reply::text(format!(
        "= {} {}{ended}{error}",
        reader.total,
        reader.verdict(from)
    )))
}

/// `drain S FROM LENGTH`: takes what is there without waiting in recv until LENGTH bytes came, compares them, and answers
/// whether they all did.
fn drain(end: &End, args: &Args) -> Result<Reply, String> {
    let slot = end.slot(args.get(0)?)?;
    let from = Some(tag(args.get(1)?));
    let expected: u64 = args.number(2)?;
    let mut reader = Reader {
        total: 0,
        hash: Hash::default(),
        wrong: None,
    };
    let start = Instant::now();
    while reader.total < expected {
        let room = (expected - reader.total).min(65536) as usize;
        let call = reader.piece(&slot, room, libc::MSG_DONTWAIT, from);
        if call.result == 0 || (call.failed() && call.errno != libc::EAGAIN) {
            return Ok(Reply::text(format!(
                "= {} after {} of {expected}",
                call.error(),
                reader.total
            )));
        }
        if call.failed() {
            if start.elapsed() > PATIENCE {
                return Ok(Reply::text(format!(
                    "= only {} of {expected} came",
                    reader.total
                )));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(Reply::text(format!(
        "= everything, {}",
        reader.verdict(from)
    )))
}

/// `await S BYTES [EVENTS]`: until FIONREAD says BYTES and poll shows EVENTS; answers what it says then. What is on its
/// way arrives before the next call, so that the transcript does not depend on time.
fn wait_for(end: &End, args: &Args) -> Result<Reply, String> {
    let fd = end.fd(args.get(0)?)?;
    let bytes = args.get(1)?;
    let events = words::int(words::POLL, args.or(2, "-"))? as i16;
    let start = Instant::now();
    loop {
        let mut queued: c_int = -1;
        let asked = sys!(ioctl(fd, libc::FIONREAD, &raw mut queued));
        let mut set = libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let polled = sys!(poll(&raw mut set, 1, 0));
        let there = bytes == "-" || queued.to_string() == bytes;
        let late = start.elapsed() > PATIENCE / 8;
        if asked.failed() || polled.failed() || late || (there && set.revents & events == events) {
            let queued = if bytes == "-" {
                String::new()
            } else {
                format!(" {queued} bytes")
            };
            let late = if late { " (gave up waiting)" } else { "" };
            let shown = words::bits(words::POLL, i64::from(set.revents));
            return Ok(Reply::text(format!("{asked}{queued} {shown}{late}")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// `warm S`: one message each way, outside of the counted bytes. `warm S send`, `warm S recv`.
fn warm(end: &End, args: &Args) -> Result<Reply, String> {
    let fd = end.fd(args.get(0)?)?;
    let mut message = [0x77u8; 64];
    let mut done = 0;
    while done < message.len() {
        let rest = &mut message[done..];
        let call = match args.get(1)? {
            "send" => sys!(send(
                fd,
                rest.as_ptr().cast(),
                rest.len(),
                libc::MSG_NOSIGNAL
            )),
            _ => sys!(recv(fd, rest.as_mut_ptr().cast(), rest.len(), 0)),
        };
        if call.result <= 0 {
            return Err(format!("warming up: {call}"));
        }
        done += call.length();
    }
    Ok(Reply::text(if message == [0x77; 64] {
        ""
    } else {
        "WRONG BYTES"
    }))
}

/// What carries the stream, from the library if it is loaded: -2 without it, -1 unknown, bit 0 sending, bit 1 receiving.
fn carrier(fd: c_int) -> c_int {
    // SAFETY: a look-up of a symbol by a constant name.
    let symbol = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rsock_stream_carrier".as_ptr()) };
    if symbol.is_null() {
        return -2;
    }
    // SAFETY: librsock.so exports it with this signature.
    let function =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(symbol) };
    function(fd)
}

/// The operations of this module.
pub fn perform(end: &Arc<End>, operation: &str, args: &Args) -> Done {
    Ok(Some(match operation {
        "sendall" => send_all(end, args)?,
        "push" => push(end, args)?,
        "pushers" | "pullers" => crowd(end, operation, args)?,
        "fill" => fill(end, args)?,
        "recvall" => receive_all(end, args)?,
        "drain" => drain(end, args)?,
        "await" => wait_for(end, args)?,
        "warm" => warm(end, args)?,
        "carrier" => Reply::text("").with("carrier", carrier(end.fd(args.get(0)?)?)),
        _ => return Ok(None),
    }))
}
