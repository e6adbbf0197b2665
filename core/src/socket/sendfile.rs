//! sendfile to a stream on a lane: the file's bytes are read and sent a piece at a time. splice hops back first, for bytes
//! taken out of a pipe cannot be put back.

use super::pin::Pin;
use super::send::Transmit;
use super::stream::{self, Mode};
use crate::calls::Next;
use crate::stats::Reason;
use crate::sys::{self, Errno, set_errno};
use libc::{c_int, off_t, ssize_t};

/// Bytes read from the file at once, on the stack.
const PIECE: usize = 32 << 10;
/// The most that one sendfile(2) sends.
const LIMIT: usize = 0x7fff_f000;

/// sendfile: `out` is a tracked descriptor.
pub struct SendFile {
    out: c_int,
    input: c_int,
    offset: *mut off_t,
    count: usize,
    done: usize,
    send: Option<Transmit>,
    pin: Option<Pin>,
}

impl SendFile {
    /// `offset` may be null, as for sendfile(2).
    pub fn new(out: c_int, input: c_int, offset: *mut off_t, count: usize) -> Self {
        SendFile {
            out,
            input,
            offset,
            count: count.min(LIMIT),
            done: 0,
            send: None,
            pin: None,
        }
    }

    /// What to do now.
    pub fn step(&mut self) -> Next<ssize_t> {
        let Some(s) = stream::of(self.out)
            .filter(|s| matches!(s.mode(), Mode::Careful | Mode::Foreign | Mode::Plain))
        else {
            return Next::Kernel;
        };
        if s.mode() == Mode::Plain {
            return match super::inflight::InFlight::send(s) {
                Some(counted) if self.done == 0 => Next::Counted(counted),
                _ if self.done > 0 => Next::Return(self.done as ssize_t),
                _ => self.step(),
            };
        }
        // Only a file with a position can be read again when the stream takes less than was read.
        let position = if self.offset.is_null() {
            sys::lseek(self.input, 0, libc::SEEK_CUR)
        } else {
            // SAFETY: the program's offset, not null.
            Ok(unsafe { *self.offset })
        };
        let Ok(mut position) = position else {
            return self.by_kernel();
        };
        if s.mode() == Mode::Foreign {
            return self.by_kernel();
        }
        let mut buf = [0u8; PIECE];
        loop {
            let want = (self.count - self.done).min(PIECE);
            if want == 0 {
                return Next::Return(self.done as ssize_t);
            }
            let n = match sys::pread(self.input, &mut buf[..want], position) {
                Ok(0) => return Next::Return(self.done as ssize_t),
                Ok(n) => n,
                Err(Errno(libc::ESPIPE)) if self.done == 0 => return self.by_kernel(),
                Err(_) if self.done > 0 => return Next::Return(self.done as ssize_t),
                Err(Errno(e)) => {
                    set_errno(e);
                    return Next::Return(-1);
                }
            };
            let mut iov = sys::iov(&buf[..n]);
            let mut send = self
                .send
                .take()
                .unwrap_or_else(|| Transmit::new(self.out, &raw const iov, 1, 0));
            send.aim(&raw mut iov, 1);
            let next = send.step();
            let accepted = send.accepted();
            self.done += accepted;
            position += accepted as i64;
            self.note(position);
            match next {
                Next::Return(r) if r >= 0 && (r as usize) == n => {}
                Next::Return(r) if r >= 0 => return Next::Return(self.done as ssize_t),
                Next::Return(_) if self.done > 0 => return Next::Return(self.done as ssize_t),
                Next::Return(r) => return Next::Return(r),
                Next::Wait(w) => {
                    self.send = Some(send);
                    return Next::Wait(w);
                }
                Next::Kernel | Next::Counted(_) if self.done > 0 => {
                    return Next::Return(self.done as ssize_t);
                }
                Next::Kernel => return Next::Kernel,
                Next::Counted(c) => return Next::Counted(c),
            }
        }
    }

    /// Where the file is now.
    fn note(&self, position: i64) {
        if self.offset.is_null() {
            // The file was seekable a moment ago.
            let _ = sys::lseek(self.input, position, libc::SEEK_SET);
        } else {
            // SAFETY: the program's offset, not null.
            unsafe { *self.offset = position };
        }
    }

    fn by_kernel(&mut self) -> Next<ssize_t> {
        let pin = self
            .pin
            .get_or_insert_with(|| Pin::because(self.out, Reason::PinnedCall));
        match pin.step() {
            Next::Wait(w) => Next::Wait(w),
            _ => Next::Kernel,
        }
    }

    /// As for [`super::receive::Receive::woke`].
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        if let Some(send) = &mut self.send {
            send.woke(result, errno);
        }
    }
}

/// splice with a tracked descriptor at either end.
pub struct Splice {
    ends: [Option<Pin>; 2],
}

impl Splice {
    /// The arguments of splice(2).
    pub fn new(
        input: c_int,
        _off_in: *mut i64,
        out: c_int,
        _off_out: *mut i64,
        _len: usize,
        _flags: u32,
    ) -> Self {
        let pin = |fd| stream::of(fd).map(|_| Pin::because(fd, Reason::PinnedCall));
        Splice {
            ends: [pin(input), pin(out)],
        }
    }

    /// What to do now.
    pub fn step(&mut self) -> Next<ssize_t> {
        for pin in self.ends.iter_mut().flatten() {
            if let Next::Wait(w) = pin.step() {
                return Next::Wait(w);
            }
        }
        Next::Kernel
    }

    /// As for [`super::receive::Receive::woke`].
    pub fn woke(&mut self, _result: c_int, _errno: c_int) {}
}
