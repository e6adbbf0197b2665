//! A direction about to leave TCP: questions of the sender and our answers.

use super::{Hop, HopAnswer, NakReason, Receiver, RecvState};

impl Receiver {
    /// The sender asks to hop. `readers_in_kernel`: a reader is inside the kernel from whose buffer a token could not be
    /// stripped by [`Receiver::strip`]. Before an `Ack` is passed on, the lane's consumed cursor has to be set to [`Hop::at`].
    pub fn hop(&mut self, hop: Hop, readers_in_kernel: bool) -> HopAnswer {
        self.answer_hop(hop, readers_in_kernel.then_some(NakReason::Readers))
    }

    /// The sender asks to hop and the driver knows why not ([`NakReason::Census`], [`NakReason::Pinned`]).
    pub fn refuse_hop(&mut self, hop: Hop, reason: NakReason) -> HopAnswer {
        self.answer_hop(hop, Some(reason))
    }

    pub(super) fn answer_hop(&mut self, hop: Hop, refusal: Option<NakReason>) -> HopAnswer {
        let seq = hop.seq;
        let nak = |reason| HopAnswer::Nak { seq, reason };
        match self.lane {
            Some(lane) if lane.id == hop.lane && seq > self.seq => {
                if !lane.open {
                    return nak(NakReason::Closed);
                }
            }
            _ => return HopAnswer::Ignore,
        }
        // Whoever asks anew has given the last hop up, so the bytes from there are data.
        let older = match self.state {
            RecvState::HopSeen => Some(self.hop.0),
            RecvState::Raw if self.fin.is_none() => None,
            _ => return nak(NakReason::State),
        };
        self.seq = seq;
        if older.is_some() {
            self.drop_hop();
        }
        let read = self.x + self.pushback().len() as u64;
        if let Some(reason) = refusal {
            return nak(reason);
        }
        if hop.at < read || older.is_some_and(|older| hop.at < older) {
            return nak(NakReason::Overtaken);
        }
        self.state = RecvState::HopSeen;
        self.hop = (hop.at, hop.guard);
        self.received = hop.at;
        self.ack_stands = true;
        HopAnswer::Ack { seq }
    }

    /// May a queued HOP_ACK for `seq` still be passed on? Not once the lane is frozen or a newer HOP was looked at.
    pub fn ack_stands(&self, seq: u32) -> bool {
        self.ack_stands && self.seq == seq
    }

    /// There is no hop any more: what TCP carries is data, and what the lane said of its end is not about this connection.
    pub(super) fn drop_hop(&mut self) {
        self.state = RecvState::Raw;
        self.ack_stands = false;
        self.fin = None;
    }
}
