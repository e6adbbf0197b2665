//! One end of the connection: a program that sends and receives, above a driver of the engine that is like the product's,
//! except that every step is taken when chance says so. Here: the lane and what the link says of it.

use rsock_core::stream::{
    Addresses, Hop, HopAnswer, LaneId, Message, Position, Proof, Receiver, RecvState, RefuseReason,
    SendState, Sender, Token,
};

use crate::faults::Fault;
use crate::net::{Net, Wire};

/// An error is why the run failed.
pub type Check = Result<(), String>;

pub struct End {
    /// 0 is the connector.
    pub e: usize,
    pub send: Sender,
    pub recv: Receiver,
    /// The lane of now, or the last one.
    pub lane: Option<LaneId>,
    /// An OPEN of ours without an answer, and the token in it.
    opening: Option<(LaneId, Token)>,
    /// An acknowledgement that waits for its turn on the link.
    ack: Option<u32>,
    /// A CLOSE that does.
    close: Option<LaneId>,
    /// The link's death was noticed.
    pub lost: bool,
    /// The data of a send call that waits for the answer to its hop.
    pub waiting: Vec<u8>,
    /// A reader sleeps in the kernel with a buffer of this size.
    pub in_kernel: Option<u64>,
    /// Bytes the program may still send.
    pub budget: u64,
    /// shutdown(SHUT_WR) or close().
    pub ended: bool,
    /// close(): the program is gone, the driver finishes.
    pub closed: bool,
    /// The kernel socket is closed too, or the process is dead.
    pub finished: bool,
    /// What the program was told last.
    pub eof: bool,
    pub reset: bool,
    pub send_failed: bool,
    /// Bytes that a broken driver took too early.
    pub early: Vec<u8>,
    /// For the record: bytes the program got from the lane, reads from which control bytes were stripped.
    pub lane_bytes: u64,
    pub strips: u64,
    /// The consumed position that the peer was told last.
    told: Option<Position>,
    /// Something happened since this was last cleared.
    pub progress: bool,
}

impl End {
    pub fn new(e: usize, budget: u64) -> Self {
        End {
            e,
            send: Sender::new(Position::ZERO),
            recv: Receiver::new(Position::ZERO),
            lane: None,
            opening: None,
            ack: None,
            close: None,
            lost: false,
            waiting: Vec::new(),
            in_kernel: None,
            budget,
            ended: false,
            closed: false,
            finished: false,
            eof: false,
            reset: false,
            send_failed: false,
            early: Vec::new(),
            lane_bytes: 0,
            strips: 0,
            told: None,
            progress: false,
        }
    }

    /// The direction this end receives.
    pub fn d(&self) -> usize {
        1 - self.e
    }

    fn token(net: &mut Net) -> Token {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&net.rng.next().to_le_bytes());
        bytes[8..].copy_from_slice(&net.rng.next().to_le_bytes());
        Token::from_bytes(bytes)
    }

    /// The connector asks for a lane, if all is back on TCP.
    pub fn open(&mut self, net: &mut Net, size: u64) {
        let raw = self.send.on_tcp() && self.recv.hopped_back() && !self.recv.at_eof();
        let have = self.opening.is_some() || self.recv.lane_open() || self.send.lane_open();
        if !raw || have || self.lost || self.closed || self.finished || !net.up {
            return;
        }
        self.flush_link(net);
        let lane = net.new_lane(size);
        let token = Self::token(net);
        self.opening = Some((lane, token));
        let here = "127.0.0.1:1".parse().expect("an address");
        let message = Message::Open {
            lane,
            ring: size as u32,
            key: 0,
            offset: 0,
            token,
            nonce: [0; 16],
            addresses: Addresses::new(here, here),
            proof: self.proof(),
        };
        net.send(self.e, message);
    }

    fn proof(&self) -> Proof {
        Proof {
            sent: self.send.position(),
            received: self.recv.position(),
            digest: [0; 16],
        }
    }

    fn adopt(&mut self, lane: LaneId, own: Token, theirs: Token, ring: u32) -> bool {
        let opened = self.send.open_lane(lane, theirs, u64::from(ring)).is_ok();
        let opened = opened && self.recv.open_lane(lane, own);
        if opened {
            self.lane = Some(lane);
            self.told = None;
        } else {
            self.send.resume(false);
        }
        opened
    }

    /// LOST, CLOSE, RESUME, a planned return, close(): the lane is given up for both halves; `say`: tell the peer.
    pub fn close_lane(&mut self, net: &mut Net, say: bool) {
        let open = self.recv.lane_open() || self.send.lane_open();
        self.recv.freeze();
        if net.fault != Fault::AckAfterClose {
            self.ack = None;
        }
        if net.fault != Fault::AckAfterClose || self.send.state() != SendState::HopSent {
            self.send.resume(false);
        }
        if say {
            let opening = self.opening.map(|(lane, _)| lane);
            self.opening = None;
            for lane in opening.into_iter().chain(self.lane.filter(|_| open)) {
                self.say_close(net, lane);
            }
        }
    }

    fn say_close(&mut self, net: &mut Net, lane: LaneId) {
        if let (Some(earlier), false) = (self.close.replace(lane), self.lost) {
            net.send(self.e, Message::Close { lane: earlier });
        }
        self.progress = true;
    }

    /// Messages that waited go out, unless they have become wrong meanwhile.
    pub fn flush_link(&mut self, net: &mut Net) {
        if self.lost {
            return;
        }
        if let Some(lane) = self.close.take() {
            self.progress = true;
            net.send(self.e, Message::Close { lane });
        }
        if let (Some(seq), Some(lane)) = (self.ack.take(), self.lane) {
            self.progress = true;
            if self.recv.ack_stands(seq) || net.fault == Fault::AckAfterClose {
                net.send(self.e, Message::HopAck { lane, seq });
            }
        }
    }

    /// The link's death shows.
    pub fn notice_loss(&mut self, net: &mut Net) {
        if !net.up && !self.lost && net.fault != Fault::NeverNoticesLoss {
            let e = self.e;
            net.note(|| format!("end {e} notices the loss"));
            self.progress = true;
            self.lost = true;
            self.opening = None;
            self.close = None;
            self.close_lane(net, false);
        }
    }

    /// The next thing that the link brought, if any.
    pub fn read_link(&mut self, net: &mut Net) -> Result<bool, String> {
        if self.lost {
            return Ok(false);
        }
        match net.queues[self.d()].pop_front() {
            None => Ok(false),
            Some(Wire::Write { lane, at, bytes }) => {
                let d = self.d();
                let ring = net.ring(lane, d);
                for (i, byte) in bytes.into_iter().enumerate() {
                    let slot = ring.slot(at + i as u64);
                    ring.at_receiver[slot] = byte;
                }
                self.progress = true;
                Ok(true)
            }
            Some(Wire::Message(bytes, len)) => {
                let message = Message::decode(&bytes[..len]).map_err(|e| e.to_string())?;
                let e = self.e;
                net.note(|| format!("end {e} hears {message:?}"));
                self.progress = true;
                self.hear(net, message)?;
                Ok(true)
            }
        }
    }

    fn hear(&mut self, net: &mut Net, message: Message) -> Check {
        match message {
            Message::Open {
                lane, ring, token, ..
            } => {
                let own = Self::token(net);
                let free = !self.closed && !self.finished && !self.send.lane_open();
                let answer = if free && self.adopt(lane, own, token, ring) {
                    let proof = self.proof();
                    Message::OpenAck {
                        lane,
                        ring,
                        key: 0,
                        offset: 0,
                        token: own,
                        proof,
                    }
                } else {
                    Message::Refuse {
                        lane,
                        reason: RefuseReason::Busy,
                    }
                };
                net.send(self.e, answer);
                return Ok(());
            }
            Message::OpenAck {
                lane, ring, token, ..
            } => {
                let ours = self.opening.take_if(|(opening, _)| *opening == lane);
                if ours.is_some_and(|(_, own)| !self.adopt(lane, own, token, ring)) {
                    self.say_close(net, lane);
                }
                return Ok(());
            }
            Message::Refuse { lane, .. } => {
                self.opening.take_if(|(opening, _)| *opening == lane);
                return Ok(());
            }
            _ => {}
        }
        if self.lane != Some(message.lane()) {
            return Ok(());
        }
        let d = self.d();
        match message {
            Message::Hop(hop) => self.answer(net, hop),
            Message::HopAck { seq, .. } => {
                if self.send.hop_acked(seq) {
                    self.waiting.clear();
                }
            }
            Message::HopNak { seq, .. } => {
                if self.send.hop_pending(seq) {
                    self.give_hop_up(net);
                }
            }
            Message::Published { lane, to } => net.ring(lane, d).published = to.get(),
            Message::Consumed { lane, to } => {
                let e = self.e;
                net.ring(lane, e).consumed = to.get();
                self.send.consumed_to(to).map_err(|v| v.to_string())?;
            }
            Message::Fin { at, .. } => self.recv.lane_fin(at).map_err(|v| v.to_string())?,
            Message::Close { .. } => self.close_lane(net, false),
            Message::Open { .. } | Message::OpenAck { .. } | Message::Refuse { .. } => {}
        }
        Ok(())
    }

    fn answer(&mut self, net: &mut Net, hop: Hop) {
        let answer = if net.rng.permille(30) {
            self.recv
                .refuse_hop(hop, rsock_core::stream::NakReason::Census)
        } else {
            self.recv.hop(hop, false)
        };
        match answer {
            HopAnswer::Ack { seq } => {
                let d = self.d();
                let memory = net.memory;
                let ring = net.ring(hop.lane, d);
                match memory {
                    true => ring.consumed = hop.at.get(),
                    false => ring.published = hop.at.get(),
                }
                self.ack = Some(seq);
            }
            other => {
                self.ack = None;
                if let Some(message) = other.message(hop.lane) {
                    net.send(self.e, message);
                }
            }
        }
    }

    /// Tells the sender what was consumed (verbs), or lets it see (memory).
    pub fn tell_consumed(&mut self, net: &mut Net) {
        let d = self.d();
        let (Some(lane), RecvState::Lane) = (self.lane, self.recv.state()) else {
            return;
        };
        let mut x = self.recv.position();
        if net.fault == Fault::EarlyConsumed {
            let ring = net.ring(lane, d);
            let (published, size) = (ring.published, ring.size);
            x = x + self.recv.lane_available(published, size).unwrap_or(0);
        }
        if self.told.replace(x) == Some(x) {
            return;
        }
        self.progress = true;
        if net.memory {
            net.ring(lane, d).consumed = x.get();
        } else if !self.lost && self.recv.lane_open() {
            net.send(self.e, Message::Consumed { lane, to: x });
        }
    }

    /// Looks at the receiver's cursor, on a memory link.
    pub fn poll_consumed(&mut self, net: &mut Net) -> Check {
        if let (true, Some(lane)) = (net.memory, self.lane) {
            let cursor = Position::new(net.ring(lane, self.e).consumed);
            let freed = self.send.consumed_to(cursor).map_err(|v| v.to_string())?;
            self.progress |= freed > 0;
        }
        Ok(())
    }
}
