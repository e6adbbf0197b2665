//! What a reader that was already in the kernel when a hop was agreed to brought back.

use super::{ControlSeen, Receiver, RecvState, TcpRead, Violation};

/// What [`Receiver::strip`] left in the program's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripped {
    /// So many bytes at the front are the program's, already counted as delivered; the rest is zeroed. 0 of more than 0 does not
    /// mean an end: the read has to be repeated on the carrier of now.
    pub data: usize,
    /// The last change that the control bytes among them brought; an error ends the stream as in [`Receiver::tcp_control`].
    pub seen: Result<ControlSeen, Violation>,
}

impl Receiver {
    /// Removes control bytes from what a plain `recv` of the program brought that was in the kernel while [`Receiver::hop`]
    /// was answered. While it is there nobody else reads this TCP socket, so nothing has been delivered from the lane yet and
    /// whatever follows the control bytes (even a hop back's data) is in order.
    pub fn strip(&mut self, buffer: &mut [u8]) -> Stripped {
        let mut data = 0;
        let mut at = 0;
        let mut seen = match self.state {
            RecvState::Raw | RecvState::HopSeen if self.pushback().is_empty() => {
                Ok(ControlSeen::More)
            }
            _ => Err(Violation::Overread),
        };
        while at < buffer.len() && seen.is_ok() {
            let left = buffer.len() - at;
            match self.tcp_read() {
                TcpRead::Data { max } => {
                    let n = left.min(usize::try_from(max).unwrap_or(usize::MAX));
                    buffer.copy_within(at..at + n, data);
                    self.tcp_data(n as u64);
                    at += n;
                    data += n;
                }
                TcpRead::Control { .. } => match self.feed(&buffer[at..]) {
                    Ok((used, change)) => {
                        at += used;
                        if change != ControlSeen::More {
                            seen = Ok(change);
                        }
                    }
                    Err(violation) => seen = Err(violation),
                },
                TcpRead::Skip { max } => {
                    let n = left.min(usize::try_from(max).unwrap_or(usize::MAX));
                    self.skipped(n as u64);
                    at += n;
                }
                TcpRead::Nothing => seen = Err(Violation::Overread),
            }
        }
        if seen == Err(Violation::Overread) {
            self.tcp_reset();
        }
        buffer[data..].fill(0);
        Stripped { data, seen }
    }
}
