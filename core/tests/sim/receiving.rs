//! The receiving half of an end, with the checks of what reaches the program.

use rsock_core::stream::{ControlSeen, EofOutcome, PeerFate, RecvState, SendState, TcpRead};

use crate::end::{Check, End};
use crate::faults::Fault;
use crate::net::{Net, Read};

impl End {
    /// The program gets `bytes` as those from `at` on.
    fn check(&self, net: &Net, at: u64, bytes: &[u8]) -> Check {
        let log = &net.log[self.d()];
        let from = at as usize;
        match log.get(from..from + bytes.len()) {
            Some(sent) if sent == bytes => Ok(()),
            _ => Err(format!(
                "end {} delivers {bytes:?} at {at}, sent were {:?}",
                self.e,
                log.get(from..).unwrap_or(&[])
            )),
        }
    }

    /// The program calls recv once.
    pub fn program_receives(&mut self, net: &mut Net) -> Check {
        if self.closed || self.finished || self.in_kernel.is_some() {
            return Ok(());
        }
        let max = net.rng.within(1, 24);
        if !self.recv.pushback().is_empty() {
            let n = self.recv.pushback().len().min(max as usize);
            self.check(net, self.recv.position().get(), &self.recv.pushback()[..n])?;
            self.recv.take_pushback(n);
            self.progress = true;
        } else if !self.lane_receives(net, max)? {
            self.read_tcp(net, max, true)?;
        }
        self.look_for_the_end(net)
    }

    fn available(&mut self, net: &mut Net) -> Result<u64, String> {
        let Some(lane) = self.lane else { return Ok(0) };
        let ring = net.ring(lane, self.d());
        let (published, size) = (ring.published, ring.size);
        self.recv
            .lane_available(published, size)
            .map_err(|v| v.to_string())
    }

    fn lane_receives(&mut self, net: &mut Net, max: u64) -> Result<bool, String> {
        let needed = self.recv.needs_ring();
        let n = self.available(net)?.min(max);
        let (Some(lane), 1..) = (self.lane, n) else {
            return Ok(false);
        };
        if !needed {
            return Err("the ring was said to be needless".into());
        }
        let x = self.recv.position().get();
        let ring = net.ring(lane, self.d());
        let bytes: Vec<u8> = (x..x + n).map(|p| ring.at_receiver[ring.slot(p)]).collect();
        self.check(net, x, &bytes)?;
        self.recv.delivered(n);
        self.lane_bytes += n;
        self.progress = true;
        if net.rng.permille(500) {
            self.tell_consumed(net);
        }
        Ok(true)
    }

    /// Reads TCP as the engine allows it: the program's bytes only if it asks.
    pub fn read_tcp(&mut self, net: &mut Net, max: u64, program: bool) -> Check {
        if self.in_kernel.is_some() || self.finished {
            return Ok(());
        }
        let allowed = self.recv.tcp_read();
        let most = match allowed {
            TcpRead::Data { max: most } if program => most.min(max),
            TcpRead::Control { max } => max as u64,
            TcpRead::Skip { max } => max,
            TcpRead::Data { .. } | TcpRead::Nothing => return Ok(()),
        };
        let bytes = match net.read(self.d(), most) {
            Read::Bytes(bytes) => bytes,
            Read::Again => return Ok(()),
            Read::Eof => return self.tcp_ends(net),
            Read::Reset => {
                self.tcp_resets(net);
                return Ok(());
            }
        };
        self.progress = true;
        match allowed {
            TcpRead::Data { .. } => {
                self.check(net, self.recv.position().get(), &bytes)?;
                self.recv.tcp_data(bytes.len() as u64);
            }
            TcpRead::Skip { .. } => self.recv.skipped(bytes.len() as u64),
            _ => {
                let seen = self.recv.tcp_control(&bytes).map_err(|v| v.to_string())?;
                self.saw(net, seen)?;
            }
        }
        Ok(())
    }

    fn saw(&mut self, net: &mut Net, seen: ControlSeen) -> Check {
        let (e, state) = (self.e, self.recv.state());
        match seen {
            ControlSeen::More => {}
            ControlSeen::WrongToken => return Err("a token of an honest peer is wrong".into()),
            ControlSeen::Resumed => {
                if net.fault != Fault::NoPropagation {
                    self.close_lane(net, true);
                }
                if let (Fault::NoSkip, TcpRead::Skip { max }) = (net.fault, self.recv.tcp_read()) {
                    self.recv.skipped(max);
                }
                net.note(|| format!("end {e} sees RESUME, now {state:?}"));
            }
            seen => net.note(|| format!("end {e} sees {seen:?}, now {state:?}")),
        }
        Ok(())
    }

    /// A reader goes to sleep in the kernel.
    pub fn enter_kernel(&mut self, net: &mut Net) {
        let raw = matches!(self.recv.tcp_read(), TcpRead::Data { max: u64::MAX });
        if raw && !self.closed && !self.finished && !self.eof && !self.reset {
            self.in_kernel = Some(net.rng.within(1, 64));
        }
    }

    /// It comes back, if TCP is readable.
    pub fn leave_kernel(&mut self, net: &mut Net) -> Check {
        let Some(size) = self.in_kernel else {
            return Ok(());
        };
        if self.finished {
            return Ok(());
        }
        let x = self.recv.position().get();
        match net.read(self.d(), size) {
            Read::Again => return Ok(()),
            Read::Bytes(mut bytes) => {
                self.in_kernel = None;
                if net.fault == Fault::NoStrip {
                    self.check(net, x, &bytes)?;
                }
                let stripped = self.recv.strip(&mut bytes);
                self.check(net, x, &bytes[..stripped.data])?;
                if bytes[stripped.data..].iter().any(|byte| *byte != 0) {
                    return Err("control bytes are left in the program's buffer".into());
                }
                self.strips += u64::from(stripped.data < bytes.len());
                let seen = stripped.seen.map_err(|v| v.to_string())?;
                self.saw(net, seen)?;
            }
            Read::Eof => {
                self.in_kernel = None;
                self.tcp_ends(net)?;
            }
            Read::Reset => {
                self.in_kernel = None;
                self.tcp_resets(net);
            }
        }
        self.progress = true;
        self.look_for_the_end(net)
    }

    fn tcp_ends(&mut self, net: &mut Net) -> Check {
        if matches!(self.recv.state(), RecvState::Eof | RecvState::Dead) {
            return Ok(());
        }
        self.progress = true;
        while self.read_link(net)? {}
        let (e, d) = (self.e, self.d());
        let memory = net.memory;
        let fault = net.fault;
        let published = self
            .lane
            .filter(|_| memory)
            .map(|lane| net.ring(lane, d).published);
        let fate = match net.killed[d] {
            false => PeerFate::Alive,
            true if fault == Fault::ForgetsRing => PeerFate::Dead { published: None },
            true if fault == Fault::StalePublished => {
                let known = self.recv.position().get() + self.recv.lane_ready();
                PeerFate::Dead {
                    published: published.and(Some(known)),
                }
            }
            true => PeerFate::Dead { published },
        };
        let on_lane = matches!(self.send.state(), SendState::Lane | SendState::Resuming);
        let unread = match self.lane {
            Some(lane) if memory && on_lane && net.killed[d] => {
                net.ring(lane, e).consumed < self.send.position().get()
            }
            _ => false,
        };
        net.error_allowed[d] |= unread;
        let before = self.recv.state();
        let outcome = self.recv.tcp_eof(fate, unread);
        net.note(|| format!("end {e}: TCP ends in {before:?}, {fate:?}: {outcome:?}"));
        if !self.recv.lane_open() {
            self.close_lane(net, true);
        }
        let cut = outcome == EofOutcome::Reset && before == RecvState::Raw && !unread;
        if fault == Fault::NoFloor && cut {
            return self.clean_end(net);
        }
        Ok(())
    }

    fn tcp_resets(&mut self, net: &mut Net) {
        let e = self.e;
        net.note(|| format!("end {e}: TCP is reset"));
        self.progress = true;
        self.recv.tcp_reset();
        self.close_lane(net, true);
        self.send.reset();
        self.send_failed = true;
        self.waiting.clear();
        self.early.clear();
    }

    fn look_for_the_end(&mut self, net: &mut Net) -> Check {
        if self.recv.take_reset() {
            let e = self.e;
            net.note(|| format!("end {e}: the program sees ECONNRESET"));
            self.progress = true;
            if self.eof || self.reset {
                return Err("ECONNRESET after the end".into());
            }
            self.reset = true;
            if !net.error_allowed[self.d()] {
                return Err(format!("end {e} sees a reset that TCP would not have had"));
            }
        }
        if self.recv.at_eof() && !self.eof {
            self.clean_end(net)?;
        }
        Ok(())
    }

    fn clean_end(&mut self, net: &mut Net) -> Check {
        let (e, d) = (self.e, self.d());
        net.note(|| format!("end {e}: the program sees the end"));
        self.progress = true;
        self.eof = true;
        let sent = net.log[d].len() as u64 - net.lost_byte[d];
        let x = self.recv.position().get();
        match () {
            _ if self.reset => Err("a clean end after ECONNRESET".into()),
            _ if x != sent => Err(format!(
                "end {e}: a clean end at {x}, but {sent} bytes were sent"
            )),
            _ if !net.ended[d] && !net.killed[d] => {
                Err(format!("end {e}: an end that nobody made"))
            }
            _ => Ok(()),
        }
    }

    /// After close(): control is read on, data that nobody will read is answered by a reset, as by the kernel.
    pub fn orphan(&mut self, net: &mut Net) -> Check {
        if !self.closed || self.finished {
            return Ok(());
        }
        let raw = matches!(self.recv.tcp_read(), TcpRead::Data { .. });
        let on_tcp = raw && !net.pipes[self.d()].bytes.is_empty();
        if on_tcp || !self.recv.pushback().is_empty() || self.available(net)? > 0 {
            self.close_lane(net, true);
            self.flush_link(net);
            self.send.reset();
            self.recv.tcp_reset();
            self.finished = true;
            self.progress = true;
            net.reset_by(self.e);
            return Ok(());
        }
        if !raw {
            self.read_tcp(net, 1, false)?;
        }
        Ok(())
    }
}
