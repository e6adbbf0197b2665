//! Bytes of TCP that are not the program's: tokens, records, and what was on the lane already.

use super::{ControlSeen, Position, Receiver, RecvState, TcpRead, Token, Violation};
use crate::stream::record::{LaneRecord, RESUME_LEN, TOKEN_LEN};

impl Receiver {
    /// Bytes were read from TCP as [`TcpRead::Control`] allowed.
    ///
    /// An error is the peer's fault and ends the stream: what the lane holds is still delivered, then comes ECONNRESET. The
    /// driver closes the lane and resets the connection.
    pub fn tcp_control(&mut self, bytes: &[u8]) -> Result<ControlSeen, Violation> {
        let mut rest = bytes;
        let mut last = ControlSeen::More;
        while !rest.is_empty() {
            if !matches!(self.tcp_read(), TcpRead::Control { .. }) {
                self.tcp_reset();
                return Err(Violation::Overread);
            }
            let (used, seen) = self.feed(rest)?;
            rest = &rest[used..];
            if seen != ControlSeen::More {
                last = seen;
            }
            if matches!(seen, ControlSeen::Data | ControlSeen::WrongToken) {
                return self.push_back(rest).map(|()| seen);
            }
        }
        Ok(last)
    }

    /// Takes bytes up to the next change: how many, and what they were. Where they turn out to be data, those held back so far
    /// are in `pushback` and those given now were not taken.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<(usize, ControlSeen), Violation> {
        if self.state == RecvState::Lane {
            return self.feed_lane(bytes);
        }
        let (_, guard) = self.hop;
        let Some(lane) = self.lane else {
            return Err(Violation::Overread);
        };
        let (taken, differs) = self.control.take_token(bytes, guard, &lane.token);
        if differs {
            // `taken` bytes of this read are in `control` as well; hand only the earlier ones back here.
            let earlier = self.control.held().len() - taken;
            let begun = earlier + taken > 0;
            self.pushback[..earlier].copy_from_slice(&self.control.held()[..earlier]);
            self.pushback_range = (0, earlier);
            self.control.clear();
            self.drop_hop();
            if !begun {
                return Ok((0, ControlSeen::Data));
            }
            self.freeze();
            return Ok((0, ControlSeen::WrongToken));
        }
        self.state = RecvState::TokenIn;
        if self.control.held().len() < TOKEN_LEN {
            return Ok((taken, ControlSeen::More));
        }
        self.control.clear();
        self.received = self.x;
        self.state = RecvState::Lane;
        Ok((taken, ControlSeen::Hopped))
    }

    pub(super) fn feed_lane(&mut self, bytes: &[u8]) -> Result<(usize, ControlSeen), Violation> {
        let step = self
            .control
            .take_record(bytes)
            .and_then(|(taken, record)| match record {
                None | Some(LaneRecord::Nop) => Ok((taken, ControlSeen::More)),
                Some(LaneRecord::Resume {
                    token,
                    consumed,
                    position,
                }) => {
                    self.resumed(token, consumed, position)?;
                    Ok((taken, ControlSeen::Resumed))
                }
            });
        if step.is_err() {
            self.freeze();
            self.tcp_reset();
        }
        step
    }

    pub(super) fn resumed(
        &mut self,
        token: Token,
        consumed: Position,
        position: Position,
    ) -> Result<(), Violation> {
        if self.lane.is_none_or(|lane| lane.token != token) {
            return Err(Violation::ResumeToken);
        }
        let received = self.received;
        let fits = consumed <= received && received <= position;
        if !fits || self.fin.is_some_and(|fin| fin != position) {
            return Err(Violation::ResumePositions {
                consumed,
                received,
                position,
            });
        }
        self.freeze();
        self.resumed_at = consumed;
        self.skip = received - consumed;
        self.floor = position;
        self.state = RecvState::Skip;
        self.leave_skip();
        Ok(())
    }

    pub(super) fn leave_skip(&mut self) {
        if self.state == RecvState::Skip && self.skip == 0 && self.x >= self.received {
            self.state = RecvState::Raw;
        }
    }

    /// Bytes read as control that turned out to be the program's: they come next.
    pub fn pushback(&self) -> &[u8] {
        let (start, end) = self.pushback_range;
        &self.pushback[start..end]
    }

    /// The program got the first `n` bytes of [`Receiver::pushback`].
    pub fn take_pushback(&mut self, n: usize) {
        debug_assert!(
            n <= self.pushback().len(),
            "more pushback taken than there is"
        );
        let n = n.min(self.pushback().len());
        self.pushback_range.0 += n;
        self.x = self.x + n as u64;
    }

    pub(super) fn push_back(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let (_, end) = self.pushback_range;
        if bytes.len() > RESUME_LEN - end {
            self.tcp_reset();
            return Err(Violation::Overread);
        }
        self.pushback[end..end + bytes.len()].copy_from_slice(bytes);
        self.pushback_range.1 += bytes.len();
        Ok(())
    }

    /// `n` bytes were thrown away as [`TcpRead::Skip`] allowed.
    pub fn skipped(&mut self, n: u64) {
        if self.state == RecvState::Skip {
            debug_assert!(n <= self.skip, "{n} bytes skipped of {}", self.skip);
            self.skip -= n.min(self.skip);
            self.leave_skip();
        }
    }
}
