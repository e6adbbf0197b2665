//! What lies between the two ends: a TCP connection of two byte pipes, a link with ordered messages that can be lost at any
//! time, and the rings of its lanes. Direction `d` is what end `d` sends.

use std::collections::VecDeque;

use rsock_core::stream::{LaneId, MAX_MESSAGE, Message, Position};

use crate::faults::Fault;
use crate::rng::Rng;

/// One direction of a TCP connection: what its sender's kernel took and its receiver has not read.
pub struct Pipe {
    pub bytes: VecDeque<u8>,
    pub capacity: usize,
    /// A FIN follows the bytes.
    pub fin: bool,
    /// A reset follows the bytes.
    pub rst: bool,
    /// Nobody reads any more: bytes vanish and are answered by a reset.
    pub gone: bool,
}

/// What a kernel read brought.
pub enum Read {
    Bytes(Vec<u8>),
    Eof,
    Reset,
    Again,
}

/// One direction of a lane. On a memory link both ends see the same ring and cursors; on a verbs link the sender's copy and the
/// receiver's differ by what is on its way.
pub struct Ring {
    pub size: u64,
    pub at_sender: Vec<u8>,
    pub at_receiver: Vec<u8>,
    /// As the receiver sees it.
    pub published: u64,
    /// As the sender sees it.
    pub consumed: u64,
}

impl Ring {
    fn new(size: u64) -> Self {
        let bytes = vec![0xee; size as usize];
        Ring {
            size,
            at_sender: bytes.clone(),
            at_receiver: bytes,
            published: 0,
            consumed: 0,
        }
    }

    pub fn slot(&self, position: u64) -> usize {
        (position & (self.size - 1)) as usize
    }
}

/// What travels on a link, in order.
pub enum Wire {
    Message([u8; MAX_MESSAGE], usize),
    /// A verbs WRITE into the peer's ring.
    Write {
        lane: LaneId,
        at: u64,
        bytes: Vec<u8>,
    },
}

pub struct Net {
    pub rng: Rng,
    pub memory: bool,
    pub fault: Fault,
    pub pipes: [Pipe; 2],
    /// `queues[e]`: sent by end `e`.
    pub queues: [VecDeque<Wire>; 2],
    pub up: bool,
    /// By lane id.
    pub rings: Vec<[Ring; 2]>,
    /// Everything the programs' send calls took, by direction.
    pub log: [Vec<u8>; 2],
    pub killed: [bool; 2],
    /// May the receiver of the direction see a reset?
    pub error_allowed: [bool; 2],
    /// A byte that a given-up hop had to accept before the kernel took it, lost by a kill: the protocol's one exception (H37).
    pub lost_byte: [u64; 2],
    /// Has the program ended the direction?
    pub ended: [bool; 2],
    /// Control bytes met a closed socket, whose kernel resets the connection for them.
    pub control_to_closed: bool,
    /// Nothing new happens from outside any more, and a kernel that has room takes something.
    pub quiet: bool,
    pub trace: Option<Vec<String>>,
}

impl Net {
    pub fn new(rng: Rng, memory: bool, capacity: [usize; 2], fault: Fault, trace: bool) -> Self {
        let pipe = |capacity| Pipe {
            bytes: VecDeque::new(),
            capacity,
            fin: false,
            rst: false,
            gone: false,
        };
        Net {
            rng,
            memory,
            fault,
            pipes: capacity.map(pipe),
            queues: [VecDeque::new(), VecDeque::new()],
            up: true,
            rings: Vec::new(),
            log: [Vec::new(), Vec::new()],
            killed: [false; 2],
            error_allowed: [false; 2],
            ended: [false; 2],
            lost_byte: [0; 2],
            quiet: false,
            control_to_closed: false,
            trace: trace.then(Vec::new),
        }
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(text());
        }
    }

    /// A new lane with a ring each way, its cursors at the start of the world.
    pub fn new_lane(&mut self, size: u64) -> LaneId {
        self.rings.push([Ring::new(size), Ring::new(size)]);
        LaneId(self.rings.len() as u32 - 1)
    }

    pub fn ring(&mut self, lane: LaneId, d: usize) -> &mut Ring {
        &mut self.rings[lane.0 as usize][d]
    }

    /// The kernel takes as much of `bytes` as there is room for; `Err` is EPIPE or ECONNRESET.
    pub fn write(&mut self, d: usize, bytes: &[u8]) -> Result<usize, ()> {
        let pipe = &mut self.pipes[d];
        if pipe.rst {
            return Err(());
        }
        if pipe.gone {
            pipe.rst = true;
            self.error_allowed[1 - d] = true;
            self.pipes[1 - d].rst = true;
            return Ok(bytes.len());
        }
        let room = pipe.capacity - pipe.bytes.len().min(pipe.capacity);
        let most = bytes.len().min(room);
        let least = u64::from(self.quiet && most > 0);
        let n = match self.rng.permille(300) {
            true => self.rng.within(least, most as u64) as usize,
            false => most,
        };
        pipe.bytes.extend(&bytes[..n]);
        Ok(n)
    }

    pub fn read(&mut self, d: usize, max: u64) -> Read {
        let pipe = &mut self.pipes[d];
        let there = (pipe.bytes.len() as u64).min(max);
        if there > 0 {
            let n = if self.rng.permille(300) {
                self.rng.within(1, there)
            } else {
                there
            };
            return Read::Bytes(pipe.bytes.drain(..n as usize).collect());
        }
        match () {
            _ if !pipe.bytes.is_empty() => Read::Again,
            _ if pipe.fin => Read::Eof,
            _ if pipe.rst => Read::Reset,
            _ => Read::Again,
        }
    }

    /// A reset sent by end `e` (or by its kernel): some of what it sent may never arrive, and nothing more will either way.
    pub fn reset_by(&mut self, e: usize) {
        let kept = self.rng.below(self.pipes[e].bytes.len() as u64 + 1) as usize;
        let fin_arrives = self.rng.permille(500);
        let out = &mut self.pipes[e];
        if !out.fin || !fin_arrives {
            out.fin = false;
            out.bytes.truncate(kept);
            out.rst = true;
            self.error_allowed[e] = true;
        }
        let back = &mut self.pipes[1 - e];
        back.bytes.clear();
        back.rst = true;
        back.gone = true;
        self.note(|| format!("end {e} resets, {kept} bytes of it arrive"));
    }

    pub fn send(&mut self, e: usize, message: Message) {
        self.note(|| format!("end {e} says {message:?}"));
        if self.up {
            let mut bytes = [0; MAX_MESSAGE];
            let len = message.encode(&mut bytes);
            self.queues[e].push_back(Wire::Message(bytes, len));
        }
    }

    /// End `e` puts bytes into its ring and publishes them.
    pub fn ring_write(&mut self, e: usize, lane: LaneId, at: u64, bytes: &[u8]) {
        let memory = self.memory;
        let ring = self.ring(lane, e);
        for (i, byte) in bytes.iter().enumerate() {
            let slot = ring.slot(at + i as u64);
            ring.at_sender[slot] = *byte;
            if memory {
                ring.at_receiver[slot] = *byte;
            }
        }
        let to = at + bytes.len() as u64;
        if memory {
            ring.published = to;
        } else if self.up {
            self.queues[e].push_back(Wire::Write {
                lane,
                at,
                bytes: bytes.to_vec(),
            });
            self.send(
                e,
                Message::Published {
                    lane,
                    to: Position::new(to),
                },
            );
        }
    }

    /// The link dies; of what is under way, the front part still arrives (all of it on a memory link, whose socket buffers stay
    /// readable).
    pub fn lose_link(&mut self) {
        if !self.up {
            return;
        }
        self.up = false;
        if !self.memory {
            for queue in &mut self.queues {
                let kept = self.rng.below(queue.len() as u64 + 1) as usize;
                queue.truncate(kept);
            }
        }
        self.note(|| "the link is lost".into());
    }

    /// A new link between the two processes; what was under way on the old one is gone.
    pub fn reconnect(&mut self) {
        self.note(|| "a new link".into());
        self.up = true;
        self.queues = Default::default();
    }

    /// SIGKILL of the process at end `e`.
    pub fn kill(&mut self, e: usize) {
        self.note(|| format!("end {e} is killed"));
        self.killed[e] = true;
        self.lose_link();
        self.queues[1 - e].clear();
        if !self.pipes[1 - e].bytes.is_empty() {
            self.reset_by(e);
        } else {
            if !self.pipes[e].rst {
                self.pipes[e].fin = true;
            }
            self.pipes[1 - e].gone = true;
        }
    }
}
