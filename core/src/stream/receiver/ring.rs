//! The program's bytes in the ring of the lane.

use super::{End, Position, Receiver, RecvState, Violation};

impl Receiver {
    /// The lane's cursor says that the peer published everything below `published` in a ring of `ring` bytes: how many bytes
    /// the program may get from the lane now, from [`Receiver::position`] on. On a frozen lane the cursor is not looked at.
    ///
    /// An error freezes the lane: tell the peer by CLOSE, and let this end's sender resume.
    pub fn lane_available(&mut self, published: u64, ring: u64) -> Result<u64, Violation> {
        if let End::Draining { .. } = self.end {
            return self.drain(ring);
        }
        match self.state {
            RecvState::Lane if self.lane_open() => {
                let claimed = Position::new(published);
                let beyond = self.fin.is_some_and(|fin| claimed > fin);
                if claimed < self.received || claimed - self.x > ring || beyond {
                    self.freeze();
                    let (before, delivered) = (self.received, self.x);
                    return Err(Violation::Published {
                        claimed,
                        before,
                        delivered,
                    });
                }
                self.received = claimed;
                Ok(claimed - self.x)
            }
            _ => Ok(self.lane_ready()),
        }
    }

    /// Bytes that the lane is known to hold for the program, without a new look at the peer's cursor.
    pub fn lane_ready(&self) -> u64 {
        match self.state {
            RecvState::Raw | RecvState::HopSeen | RecvState::TokenIn => 0,
            _ => self.received - self.x,
        }
    }

    /// The program got `n` bytes from the lane. The new [`Receiver::position`] is what the consumed cursor may say.
    pub fn delivered(&mut self, n: u64) {
        let there = self.lane_ready();
        debug_assert!(n <= there, "{n} bytes delivered of {there}");
        self.x = self.x + n.min(there);
        self.leave_skip();
    }

    pub(super) fn ring_undelivered(&self) -> bool {
        self.lane_ready() > 0 || matches!(self.end, End::Draining { .. })
    }

    /// FIN{m}: the direction ends at `m`. A hint that lets the program see the end at lane speed. An error freezes the lane.
    pub fn lane_fin(&mut self, m: Position) -> Result<(), Violation> {
        let live = matches!(
            self.state,
            RecvState::HopSeen | RecvState::TokenIn | RecvState::Lane
        );
        if !live || !self.lane_open() {
            return Ok(());
        }
        let known = self.fin.unwrap_or(self.received);
        if m < self.received || self.fin.is_some_and(|fin| fin != m) {
            self.freeze();
            return Err(Violation::Fin { claimed: m, known });
        }
        self.fin = Some(m);
        Ok(())
    }

    /// The lane is given up (LOST, CLOSE seen or sent): its cursors are not looked at any more, and an agreement that has not
    /// been passed on yet must not be. What is known to be there is still delivered; the rest comes on TCP.
    pub fn freeze(&mut self) {
        if let Some(lane) = &mut self.lane {
            lane.open = false;
        }
        self.ack_stands = false;
    }

    /// As [`Receiver::freeze`], and gives up what the program has not got from the ring: it comes again on TCP (fork, exec).
    /// False if some of it cannot come again, because TCP's copy was thrown away already or its sender is gone: that has to be
    /// delivered from the ring.
    pub fn freeze_at_delivered(&mut self) -> bool {
        self.freeze();
        match self.state {
            RecvState::Lane => self.received = self.x,
            RecvState::Skip => {
                let skipped = (self.received - self.resumed_at) - self.skip;
                let keep = self.x.max(self.resumed_at + skipped);
                self.skip -= self.received - keep;
                self.received = keep;
                self.leave_skip();
            }
            _ => {}
        }
        !self.ring_undelivered()
    }
}
