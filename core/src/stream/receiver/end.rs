//! How a direction ends at its receiver: cleanly only where that is certain, with what is there delivered first.

use super::{Position, Receiver, RecvState, Violation};

/// What is known of the peer's process when TCP ended. The order in which "the process is gone" and "TCP has ended" become
/// visible is arbitrary, so the driver finds this out before it reports the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerFate {
    /// It lives, and closed or shut the connection down itself.
    Alive,
    /// It is gone.
    Dead {
        /// On a memory link its last published cursor, read after its death; `None` where its memory died with it.
        published: Option<u64>,
    },
}

/// What an end of TCP means for the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EofOutcome {
    /// A clean end, nothing is left to deliver.
    Clean,
    /// A reset, nothing is left to deliver ([`Receiver::take_reset`]).
    Reset,
    /// Bytes are left to deliver (pushback, ring); then [`Receiver::at_eof`] or [`Receiver::take_reset`] tell which it was.
    DeliverFirst,
}

/// The end of the direction, as far as TCP showed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// None yet.
    None,
    /// A dead peer's ring is delivered up to `to`, read once, then comes a clean end, or ECONNRESET if `reset`.
    Draining { to: Position, reset: bool },
    /// Clean, once everything is delivered.
    Clean,
    /// ECONNRESET is due, once everything is delivered.
    Reset,
    /// It has been reported.
    ResetTaken,
}

impl Receiver {
    /// TCP ended (`recv` returned 0), everything before was read and, on a live link, its queue was emptied.
    ///
    /// `own_ring_unread_by_peer`: our ring towards a dead peer holds bytes that it never consumed; TCP would send a reset for
    /// them. After `DeliverFirst` on a memory link the ring has to be delivered by [`Receiver::lane_available`], whose
    /// `published` is then taken from `peer`. The end of a direction that is not on a lane leaves the lane to the other one;
    /// otherwise [`Receiver::lane_open`] is false afterwards, and this end's sender has to resume.
    pub fn tcp_eof(&mut self, peer: PeerFate, own_ring_unread_by_peer: bool) -> EofOutcome {
        if self.end == End::None {
            let on_lane = matches!(self.state, RecvState::Lane | RecvState::Skip);
            if !on_lane {
                self.received = self.x;
            }
            self.end = match self.shut {
                true => End::Clean,
                false => self.judge(peer, own_ring_unread_by_peer),
            };
            self.state = match self.end {
                End::Clean | End::Draining { reset: false, .. } => RecvState::Eof,
                _ => RecvState::Dead,
            };
            if on_lane || self.state == RecvState::Dead {
                self.freeze();
            }
        }
        match self.end {
            _ if self.undelivered() => EofOutcome::DeliverFirst,
            End::Clean => EofOutcome::Clean,
            _ => EofOutcome::Reset,
        }
    }

    /// What comes behind what is there.
    fn judge(&mut self, peer: PeerFate, own_ring_unread: bool) -> End {
        let on_lane = matches!(self.state, RecvState::Lane | RecvState::Skip);
        let there = match on_lane {
            true => self.received,
            false => self.x + self.pushback().len() as u64,
        };
        if self.fin.is_some_and(|fin| there >= fin) {
            // The sender's end is here already; what becomes of its process afterwards is no news for this direction.
            return End::Clean;
        }
        let complete = match self.state {
            RecvState::Raw | RecvState::Skip => there >= self.floor,
            // Nothing is accepted beyond the hop before the whole token is in the kernel.
            RecvState::HopSeen | RecvState::TokenIn => there >= self.hop.0.max(self.floor),
            RecvState::Lane => false,
            RecvState::Eof | RecvState::Dead => return self.end,
        };
        let aborted = own_ring_unread && peer != PeerFate::Alive;
        if complete {
            return if aborted { End::Reset } else { End::Clean };
        }
        let needs_ring = on_lane || self.state == RecvState::Raw;
        match peer {
            PeerFate::Dead {
                published: Some(published),
            } if needs_ring => {
                let to = Position::new(published);
                let within = if self.state == RecvState::Lane {
                    self.fin.is_none_or(|fin| to <= fin)
                } else {
                    to == self.floor
                };
                if to < self.received || !within {
                    return End::Reset;
                }
                End::Draining {
                    to,
                    reset: aborted && self.fin != Some(to),
                }
            }
            _ => End::Reset,
        }
    }

    /// [`Receiver::lane_available`] for a dead peer's ring: its cursor was read once, and is checked here against the ring.
    pub(super) fn drain(&mut self, ring: u64) -> Result<u64, Violation> {
        let End::Draining { to, reset } = self.end else {
            return Ok(0);
        };
        if to - self.x > ring {
            let (before, delivered) = (self.received, self.x);
            self.received = before.max(delivered);
            self.end = End::Reset;
            self.state = RecvState::Dead;
            return Err(Violation::Published {
                claimed: to,
                before,
                delivered,
            });
        }
        self.received = to;
        self.end = if reset { End::Reset } else { End::Clean };
        Ok(self.received - self.x)
    }

    fn undelivered(&self) -> bool {
        match self.end {
            End::Draining { .. } => true,
            _ => !self.pushback().is_empty() || self.received > self.x,
        }
    }

    /// The connection was reset (`recv` returned ECONNRESET, or a violation): what is there is delivered, then
    /// [`Receiver::take_reset`] says so once. Behind the sender's end
    /// of the direction it means nothing (Linux tcp_reset() and SOCK_DONE).
    pub fn tcp_reset(&mut self) {
        if self.end != End::None {
            return;
        }
        let on_lane = matches!(self.state, RecvState::Lane | RecvState::Skip);
        let finished = self.at_eof() || (on_lane && self.fin == Some(self.received));
        if !on_lane {
            self.received = self.x;
        }
        self.end = if finished { End::Clean } else { End::Reset };
        self.state = if finished {
            RecvState::Eof
        } else {
            RecvState::Dead
        };
        self.freeze();
    }

    /// The direction has ended cleanly and the program has got everything: `recv` returns 0.
    pub fn at_eof(&self) -> bool {
        let by_lane = self.fin == Some(self.x)
            && matches!(
                self.state,
                RecvState::Lane | RecvState::Skip | RecvState::Raw
            );
        let shut = self.shut && self.state != RecvState::Raw && self.end == End::None;
        by_lane || ((self.end == End::Clean || shut) && !self.undelivered())
    }

    /// True once, when ECONNRESET is due and everything before was delivered; from then on `recv` returns 0.
    pub fn take_reset(&mut self) -> bool {
        let due = self.end == End::Reset && !self.undelivered();
        if due {
            self.end = End::ResetTaken;
        }
        due
    }

    /// The program wants no more of this direction (`shutdown(SHUT_RD)`): what is there may still be delivered, then comes the
    /// end. The protocol goes on: control is read as before, so the kernel's own SHUT_RD has to wait until
    /// [`Receiver::awaits_control`] is false, and where TCP carries data the end is the kernel's to tell.
    pub fn shut(&mut self) {
        self.shut = true;
    }

    /// [`Receiver::shut`] was called.
    pub fn is_shut(&self) -> bool {
        self.shut
    }

    /// ECONNRESET is due and everything before was delivered.
    pub fn reset_due(&self) -> bool {
        self.end == End::Reset && !self.undelivered()
    }

    /// TCP has shown the end of this direction, whatever is still to be delivered.
    pub fn finished(&self) -> bool {
        self.end != End::None || self.fin.is_some() || self.shut
    }

    /// The reset was reported: `recv` returns 0 from then on, as on Linux.
    pub fn reset_taken(&self) -> bool {
        self.end == End::ResetTaken
    }
}
