//! One call that sends or receives: every variant of it, with what it returned and what it left in the buffers.

use super::call::{Call, sys};
use super::open::address;
use super::{Args, Done, End, Reply, Slot, advance, bytes, number, words};
use libc::{c_int, c_void, iovec, mmsghdr, msghdr};
use std::mem::zeroed;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a buffer holds before a call; whatever lies behind the returned length must still be this.
const FRESH: u8 = 0xee;

/// Buffers for one message, with the vector that points at them.
struct Buffers {
    pieces: Vec<Vec<u8>>,
    vector: Vec<iovec>,
}

impl Buffers {
    fn new(mut pieces: Vec<Vec<u8>>) -> Self {
        let vector = pieces
            .iter_mut()
            .map(|piece| iovec {
                iov_base: piece.as_mut_ptr().cast::<c_void>(),
                iov_len: piece.len(),
            })
            .collect();
        Self { pieces, vector }
    }

    /// Empty ones of these lengths (`3,0,5`).
    fn fresh(lengths: &str) -> Result<Self, String> {
        Ok(Self::new(
            split(lengths)?
                .into_iter()
                .map(|length| vec![FRESH; length])
                .collect(),
        ))
    }

    /// Full of what comes next from this end.
    fn full(lengths: &str, tag: u64, mut from: u64) -> Result<Self, String> {
        let mut pieces = Vec::new();
        for length in split(lengths)? {
            pieces.push(bytes::pattern(tag, from, length));
            from += length as u64;
        }
        Ok(Self::new(pieces))
    }

    fn length(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    fn header(&mut self) -> msghdr {
        // SAFETY: all zeroes is an empty msghdr.
        let mut header: msghdr = unsafe { zeroed() };
        header.msg_iov = self.vector.as_mut_ptr();
        header.msg_iovlen = self.vector.len() as _;
        header
    }

    /// The hash of the first `length` bytes, and a complaint if anything behind them changed. A MSG_TRUNC on TCP
    /// throws bytes away: nothing at all may have changed then.
    fn received(&self, length: usize, thrown_away: bool) -> String {
        let all: Vec<u8> = self.pieces.concat();
        let (got, behind) = all.split_at(if thrown_away {
            0
        } else {
            length.min(all.len())
        });
        let touched = if behind.iter().all(|byte| *byte == FRESH) {
            ""
        } else {
            " TOUCHED BEHIND"
        };
        format!(" {}{touched}", bytes::hash(got))
    }
}

fn split(lengths: &str) -> Result<Vec<usize>, String> {
    lengths
        .split(',')
        .filter(|each| *each != "-")
        .map(number)
        .collect()
}

/// The answer to a call that sends: what was taken counts.
fn sent(slot: &Slot, call: Call) -> Reply {
    advance(&slot.sent, call.length());
    call.into()
}

/// The answer to a call that receives.
fn received(slot: &Slot, call: Call, buffers: &Buffers, flags: c_int) -> Reply {
    if call.failed() {
        return Reply::text(call.to_string() + &buffers.received(0, false));
    }
    if flags & libc::MSG_PEEK == 0 {
        advance(&slot.received, call.length());
    }
    Reply::text(call.to_string() + &buffers.received(call.length(), flags & libc::MSG_TRUNC != 0))
}

fn send(end: &End, operation: &str, args: &Args) -> Result<Reply, String> {
    let slot = end.slot(args.get(0)?)?;
    let mut buffers = Buffers::full(args.get(1)?, end.tag(), slot.sent.load(Ordering::Relaxed))?;
    let flags = words::int(words::MSG, args.or(2, "-"))?;
    let (at, length) = (
        buffers.pieces[0].as_ptr().cast::<c_void>(),
        buffers.length(),
    );
    let count = buffers.vector.len() as c_int;
    let call = match operation {
        "send" => sys!(send(slot.fd, at, length, flags)),
        "write" => sys!(write(slot.fd, at, length)),
        "writev" => sys!(writev(slot.fd, buffers.vector.as_ptr(), count)),
        "sendto" if args.or(3, "null") == "null" => {
            sys!(sendto(slot.fd, at, length, flags, ptr::null(), 0))
        }
        "sendto" => {
            let (to, to_length) = address(args.get(3)?)?;
            sys!(sendto(
                slot.fd,
                at,
                length,
                flags,
                (&raw const to).cast(),
                to_length
            ))
        }
        _ => {
            let header = buffers.header();
            sys!(sendmsg(slot.fd, &raw const header, flags))
        }
    };
    Ok(sent(&slot, call))
}

fn receive(end: &End, operation: &str, args: &Args) -> Result<Reply, String> {
    let slot = end.slot(args.get(0)?)?;
    let mut buffers = Buffers::fresh(args.get(1)?)?;
    let flags = words::int(words::MSG, args.or(2, "-"))?;
    let length = buffers.length();
    let at = buffers.pieces[0].as_mut_ptr().cast::<c_void>();
    let count = buffers.vector.len() as c_int;
    let mut more = String::new();
    let call = match operation {
        "recv" => sys!(recv(slot.fd, at, length, flags)),
        "read" => sys!(read(slot.fd, at, length)),
        "readv" => sys!(readv(slot.fd, buffers.vector.as_ptr(), count)),
        "recvfrom" => {
            // SAFETY: all zeroes is a valid sockaddr_storage.
            let mut from: libc::sockaddr_storage = unsafe { zeroed() };
            let mut room = size_of_val(&from) as libc::socklen_t;
            let call = sys!(recvfrom(
                slot.fd,
                at,
                length,
                flags,
                (&raw mut from).cast(),
                &raw mut room
            ));
            if !call.failed() {
                more = format!(" from {room}");
            }
            call
        }
        _ => {
            let mut header = buffers.header();
            // Whatever the program left in the output fields must be overwritten.
            let mut control = [FRESH; 64];
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = control.len() as _;
            header.msg_flags = -1;
            let call = sys!(recvmsg(slot.fd, &raw mut header, flags));
            if !call.failed() {
                let shown = words::bits(words::MSG, i64::from(header.msg_flags));
                more = format!(
                    " flags {shown} control {} name {}",
                    header.msg_controllen, header.msg_namelen
                );
            }
            call
        }
    };
    let mut reply = received(&slot, call, &buffers, flags);
    reply.text.push_str(&more);
    Ok(reply)
}

/// sendmmsg and recvmmsg: messages are separated by `/`, buffers of one message by `,`.
fn several(end: &End, operation: &str, args: &Args) -> Result<Reply, String> {
    let slot = end.slot(args.get(0)?)?;
    let flags = words::int(words::MSG, args.or(2, "-"))?;
    let sending = operation == "sendmmsg";
    let mut from = slot.sent.load(Ordering::Relaxed);
    let mut messages = Vec::new();
    for lengths in args.get(1)?.split('/') {
        let buffers = if sending {
            Buffers::full(lengths, end.tag(), from)?
        } else {
            Buffers::fresh(lengths)?
        };
        from += buffers.length() as u64;
        messages.push(buffers);
    }
    let mut headers: Vec<mmsghdr> = messages
        .iter_mut()
        .map(|each| mmsghdr {
            msg_hdr: each.header(),
            msg_len: 0,
        })
        .collect();
    let count = headers.len() as u32;
    let call = if sending {
        sys!(sendmmsg(slot.fd, headers.as_mut_ptr(), count, flags as _))
    } else {
        let milliseconds: i64 = args.number_or(3, -1)?;
        let mut limit = libc::timespec {
            tv_sec: milliseconds / 1000,
            tv_nsec: milliseconds.rem_euclid(1000) * 1_000_000,
        };
        let limit = if milliseconds < 0 {
            ptr::null_mut()
        } else {
            &raw mut limit
        };
        sys!(recvmmsg(
            slot.fd,
            headers.as_mut_ptr(),
            count,
            flags as _,
            limit
        ))
    };
    let mut text = call.to_string();
    for (header, buffers) in headers.iter().zip(&messages).take(call.length()) {
        let length = header.msg_len as usize;
        advance(if sending { &slot.sent } else { &slot.received }, length);
        let seen = if sending {
            String::new()
        } else {
            buffers.received(length, false)
        };
        text.push_str(&format!(" [{length}{seen}]"));
    }
    Ok(Reply::text(text))
}

/// `sendfile S F LENGTH [OFFSET]`; the descriptor's own offset moves only without OFFSET.
fn sendfile(end: &End, args: &Args) -> Result<Reply, String> {
    let (slot, file) = (end.slot(args.get(0)?)?, end.fd(args.get(1)?)?);
    let mut offset: i64 = args.number_or(3, -1)?;
    let at = if offset < 0 {
        ptr::null_mut()
    } else {
        &raw mut offset
    };
    let call = sys!(sendfile(slot.fd, file, at, args.number(2)?));
    let own = sys!(lseek(file, 0, libc::SEEK_CUR));
    Ok(Reply::text(format!(
        "{call} offset {offset} file at {}",
        own.result
    )))
}

/// `splice IN OUT LENGTH [FLAGS]` between a socket and a pipe.
fn splice(end: &End, args: &Args) -> Result<Reply, String> {
    let (input, output) = (end.fd(args.get(0)?)?, end.fd(args.get(1)?)?);
    let flags = if args.or(3, "-") == "NONBLOCK" {
        libc::SPLICE_F_NONBLOCK
    } else {
        0
    };
    Ok(sys!(splice(
        input,
        ptr::null_mut(),
        output,
        ptr::null_mut(),
        args.number(2)?,
        flags
    ))
    .into())
}

/// Calls that the kernel refuses for their pointers, lengths or flags.
fn wrong(end: &End, args: &Args) -> Result<Reply, String> {
    let fd = end.fd(args.get(1)?)?;
    let nowhere = ptr::without_provenance_mut::<c_void>(8);
    Ok(match args.get(0)? {
        "recv-fault" => sys!(recv(fd, nowhere, 10, libc::MSG_DONTWAIT)).into(),
        "send-fault" => sys!(send(
            fd,
            nowhere,
            10,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL
        ))
        .into(),
        "recv-null-0" => sys!(recv(fd, ptr::null_mut(), 0, libc::MSG_DONTWAIT)).into(),
        "send-null-0" => sys!(send(
            fd,
            ptr::null(),
            0,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL
        ))
        .into(),
        "readv-many" => {
            let vector = vec![
                iovec {
                    iov_base: ptr::null_mut(),
                    iov_len: 0
                };
                1025
            ];
            sys!(readv(fd, vector.as_ptr(), 1025)).into()
        }
        "readv-negative" => sys!(readv(fd, ptr::null(), -1)).into(),
        "writev-negative" => sys!(writev(fd, ptr::null(), -1)).into(),
        "recvmsg-null" => sys!(recvmsg(fd, ptr::null_mut(), libc::MSG_DONTWAIT)).into(),
        "sendmsg-null" => sys!(sendmsg(fd, ptr::null(), libc::MSG_DONTWAIT)).into(),
        "pread" => sys!(pread(fd, ptr::null_mut(), 0, 0)).into(),
        "lseek" => sys!(lseek(fd, 0, libc::SEEK_CUR)).into(),
        "fsync" => sys!(fsync(fd)).into(),
        "ftruncate" => sys!(ftruncate(fd, 0)).into(),
        "isatty" => sys!(isatty(fd)).into(),
        "listen" => sys!(listen(fd, 5)).into(),
        "accept" => sys!(accept(fd, ptr::null_mut(), ptr::null_mut())).into(),
        other => return Err(format!("unknown wrong call {other}")),
    })
}

/// The operations of this module.
pub fn perform(end: &Arc<End>, operation: &str, args: &Args) -> Done {
    Ok(Some(match operation {
        "send" | "write" | "writev" | "sendto" | "sendmsg" => send(end, operation, args)?,
        "recv" | "read" | "readv" | "recvfrom" | "recvmsg" => receive(end, operation, args)?,
        "sendmmsg" | "recvmmsg" => several(end, operation, args)?,
        "sendfile" => sendfile(end, args)?,
        "splice" => splice(end, args)?,
        "wrong" => wrong(end, args)?,
        _ => return Ok(None),
    }))
}
