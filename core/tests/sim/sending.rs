//! The sending half of an end.

use rsock_core::stream::{Message, SendState};

use crate::end::{Check, End};
use crate::faults::Fault;
use crate::net::Net;

impl End {
    /// Bytes that look like control as often as chance allows it.
    fn some_data(&self, net: &mut Net) -> Vec<u8> {
        let len = net.rng.within(1, 8).min(self.budget);
        (0..len)
            .map(|_| match net.rng.below(4) {
                0 => net.rng.one_of(b"RN\x00\xff\xfe\x01"),
                1 => self.send.forbidden_next().unwrap_or(b'R'),
                _ => net.rng.next() as u8,
            })
            .collect()
    }

    /// The program calls send.
    pub fn program_sends(&mut self, net: &mut Net, hop_permille: u64) -> Check {
        let inside = !self.waiting.is_empty();
        if self.budget == 0 || self.ended || self.send_failed || self.finished || inside {
            return Ok(());
        }
        let mut data = self.some_data(net);
        self.flush(net);
        match self.send.state() {
            SendState::Tcp if self.send.may_write_tcp() => {
                if self.early.is_empty() && net.rng.permille(hop_permille) && self.ask(net, &data) {
                    return Ok(());
                }
                let forbidden = self.send.forbidden_next();
                let settled = net.fault == Fault::OtherByteAfterAbandon;
                if forbidden.is_some() && !settled {
                    return Err("a hop given up was not settled".into());
                }
                if self.early.is_empty() {
                    self.write_raw(net, &data);
                }
            }
            SendState::Lane if self.send.room() > 0 && self.early.is_empty() => {
                data.truncate(self.send.room() as usize);
                self.write_lane(net, &data);
                self.took(net, &data);
            }
            SendState::TokenOut if net.fault == Fault::AcceptBeforeToken => {
                self.early.extend(&data);
                self.took(net, &data);
            }
            SendState::Resuming if net.fault == Fault::AcceptWhileResuming => {
                self.early.extend(&data);
                self.took(net, &data);
            }
            _ => {}
        }
        Ok(())
    }

    fn ask(&mut self, net: &mut Net, data: &[u8]) -> bool {
        let first = if net.fault == Fault::AnyGuard {
            !data[0]
        } else {
            data[0]
        };
        let (Some(lane), false) = (self.lane, self.lost) else {
            return false;
        };
        let Some(hop) = self.send.request_hop(first) else {
            return false;
        };
        self.waiting = data.to_vec();
        self.progress = true;
        if net.memory {
            net.ring(lane, self.e).published = hop.at.get();
        }
        net.send(self.e, Message::Hop(hop));
        true
    }

    /// The program's send call returned these bytes as taken.
    fn took(&mut self, net: &mut Net, data: &[u8]) {
        self.progress |= !data.is_empty();
        self.budget = self.budget.saturating_sub(data.len() as u64);
        net.log[self.e].extend(data);
    }

    fn write_lane(&mut self, net: &mut Net, data: &[u8]) {
        if let (Some(lane), false) = (self.lane, data.is_empty()) {
            net.ring_write(self.e, lane, self.send.position().get(), data);
            self.send.accepted(data.len() as u64);
        }
    }

    fn write_raw(&mut self, net: &mut Net, data: &[u8]) -> usize {
        match net.write(self.e, data) {
            Ok(n) => {
                self.send.wrote_tcp(n as u64);
                self.took(net, &data[..n]);
                n
            }
            Err(()) => {
                self.send_error(net);
                0
            }
        }
    }

    /// A broken driver now passes on what it took too early.
    fn take_early(&mut self, net: &mut Net) {
        let early = std::mem::take(&mut self.early);
        let n = match self.send.state() {
            SendState::Tcp if self.send.may_write_tcp() => match net.write(self.e, &early) {
                Ok(n) => {
                    self.send.wrote_tcp(n as u64);
                    n
                }
                Err(()) => {
                    self.send_error(net);
                    early.len()
                }
            },
            SendState::Lane => {
                let n = early.len().min(self.send.room() as usize);
                self.write_lane(net, &early[..n]);
                n
            }
            _ => 0,
        };
        self.progress |= n > 0;
        self.early = early[n..].to_vec();
    }

    fn send_error(&mut self, net: &mut Net) {
        let e = self.e;
        net.note(|| format!("end {e}: TCP takes no more"));
        self.send_failed = true;
        self.progress = true;
        self.waiting.clear();
        self.early.clear();
        self.close_lane(net, true);
        self.send.reset();
    }

    /// The wait for the answer to a hop is over: the data goes to TCP after all.
    pub fn give_hop_up(&mut self, net: &mut Net) {
        if !matches!(self.send.state(), SendState::HopSent | SendState::Tcp) {
            return;
        }
        let data = std::mem::take(&mut self.waiting);
        self.send.abandon_hop();
        if data.is_empty() || !self.send.may_write_tcp() {
            return;
        }
        let e = self.e;
        net.note(|| format!("end {e} gives its hop up"));
        self.progress = true;
        let none = self.write_raw(net, &data) == 0 && !self.send_failed;
        if none && net.fault != Fault::OtherByteAfterAbandon {
            self.send.abandon_with(data[0]);
            self.took(net, &data[..1]);
        }
    }

    /// What any call on the stream and the background thread do when TCP is writable.
    pub fn flush(&mut self, net: &mut Net) {
        if self.send.state() == SendState::Dead || self.finished {
            return;
        }
        if !self.send.control().is_empty() {
            let pipe = &net.pipes[self.e];
            let data = self.send.state() == SendState::Tcp;
            if pipe.gone && !data && !pipe.rst && !net.killed[self.d()] {
                net.control_to_closed = true;
            }
            match net.write(self.e, self.send.control()) {
                Ok(n) => {
                    self.progress |= n > 0;
                    self.send.control_written(n);
                }
                Err(()) => return self.send_error(net),
            }
        }
        let mut owed = self.send.resend();
        if let (true, false, Some(lane)) =
            (self.send.control().is_empty(), owed.is_empty(), self.lane)
        {
            if net.fault == Fault::LateConsumedTrims {
                let ring = net.ring(lane, self.e);
                let late = ring.consumed.clamp(owed.start, owed.end) - owed.start;
                self.send.resent(late);
                owed.start += late;
            }
            let ring = net.ring(lane, self.e);
            let bytes: Vec<u8> = owed.map(|p| ring.at_sender[ring.slot(p)]).collect();
            match net.write(self.e, &bytes) {
                Ok(n) => {
                    self.progress |= n > 0;
                    self.send.resent(n as u64);
                }
                Err(()) => return self.send_error(net),
            }
        }
        self.take_early(net);
        if self.send.owes_fin() {
            let e = self.e;
            net.note(|| format!("end {e}: FIN"));
            self.progress = true;
            self.send.fin_done();
            net.pipes[e].fin |= !net.pipes[e].rst;
        }
        let early = net.fault == Fault::ClosesEarly;
        if self.closed && self.send.on_tcp() && (early || !self.recv.awaits_control()) {
            self.kernel_close(net);
        }
    }

    /// The last descriptor of the socket is gone.
    fn kernel_close(&mut self, net: &mut Net) {
        let (e, d) = (self.e, self.d());
        net.note(|| format!("end {e}: the kernel socket is closed"));
        self.progress = true;
        self.finished = true;
        let unread = !net.pipes[d].bytes.is_empty();
        net.control_to_closed |= unread && self.recv.awaits_control();
        if !unread {
            net.pipes[d].gone = true;
        } else {
            net.reset_by(e);
        }
    }

    /// shutdown(SHUT_WR).
    pub fn shutdown(&mut self, net: &mut Net) {
        if self.ended || self.finished || !self.waiting.is_empty() || !self.early.is_empty() {
            return;
        }
        let e = self.e;
        net.note(|| format!("end {e}: shutdown"));
        self.progress = true;
        self.ended = true;
        net.ended[self.e] = true;
        let before = self.send.lane_open();
        match (self.send.shutdown(), self.lane) {
            (Some(at), Some(lane)) if !self.lost => net.send(self.e, Message::Fin { lane, at }),
            _ if before && !self.send.lane_open() => self.close_lane(net, true),
            _ => {}
        }
    }

    /// The wait for the peer to consume the lane's last bytes is over, or it has.
    pub fn end_lane(&mut self, net: &mut Net) {
        if self.ended && self.send.state() == SendState::Lane {
            self.progress = true;
            self.send.resume(true);
            self.close_lane(net, true);
        }
    }

    /// close().
    pub fn close(&mut self, net: &mut Net) -> Check {
        if self.closed || self.finished || !self.waiting.is_empty() || !self.early.is_empty() {
            return Ok(());
        }
        let e = self.e;
        net.note(|| format!("end {e}: close"));
        self.progress = true;
        self.in_kernel = None;
        self.ended = true;
        net.ended[self.e] = true;
        self.closed = true;
        self.orphan(net)?;
        if !self.finished {
            self.send.resume(true);
            self.close_lane(net, true);
        }
        Ok(())
    }
}
