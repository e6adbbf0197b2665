//! The fake's data path: queues, and a wire that holds what was posted until a test lets it through.

use super::super::provider::*;
use super::super::{Error, Result};
use super::{Fake, InFlight, World};

const FLUSHED: u32 = 5;
const REMOTE_ACCESS: u32 = 10;

impl World {
    fn complete(&mut self, queue: usize, completion: Completion) {
        let queue = self.queues.get_mut(&queue).expect("a live queue");
        assert!(
            queue.completions.len() < queue.capacity,
            "the completion queue overruns"
        );
        queue.completions.push_back(completion);
        if core::mem::take(&mut queue.armed) {
            let (channel, token) = (queue.channel, queue.token);
            self.doorbells
                .get_mut(&channel)
                .expect("a live channel")
                .push_back(token);
        }
    }

    /// The queue pair goes into error: all that it has comes back as flushed.
    pub(super) fn flush(&mut self, id: usize) {
        let Some(pair) = self.ids.get_mut(&id).and_then(|id| id.pair.as_mut()) else {
            return;
        };
        pair.error = true;
        let queue = pair.queue;
        let receive: Vec<u64> = pair.receive.drain(..).map(|work| work.id).collect();
        let mut ids: Vec<u64> = self
            .wire
            .iter()
            .filter(|f| f.from == id)
            .map(|f| f.work.id)
            .collect();
        self.wire.retain(|f| f.from != id);
        ids.extend(receive);
        for id in ids {
            self.complete(
                queue,
                Completion {
                    id,
                    status: FLUSHED,
                    ..Completion::EMPTY
                },
            );
        }
    }

    fn memory(&self, address: u64, length: u64, key: u32, remote: bool) -> bool {
        let end = address.checked_add(length);
        self.regions.get(&(key as usize)).is_some_and(|r| {
            (!remote || r.remote)
                && address >= r.address
                && end.is_some_and(|end| end <= r.address + r.length)
        })
    }

    fn bytes(&self, local: &Local) -> Vec<u8> {
        if local.length == 0 {
            return Vec::new();
        }
        assert!(
            self.memory(local.address, local.length.into(), local.key, false),
            "a request with memory that is not registered"
        );
        let mut bytes = vec![0; local.length as usize];
        // SAFETY: within a region that is registered, so that it is there.
        unsafe {
            core::ptr::copy_nonoverlapping(
                core::ptr::with_exposed_provenance(local.address as usize),
                bytes.as_mut_ptr(),
                bytes.len(),
            )
        };
        bytes
    }

    fn store(&self, address: u64, bytes: &[u8]) {
        // SAFETY: callers have checked that it is within a registered region.
        unsafe {
            core::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                core::ptr::with_exposed_provenance_mut(address as usize),
                bytes.len(),
            )
        };
    }

    fn carry(&mut self, flight: InFlight) {
        let from = flight.from;
        let sender = &self.ids[&from];
        let Some(to) = sender.other.filter(|_| sender.connected) else {
            return;
        };
        let queue = sender.pair.as_ref().expect("it has posted").queue;
        let bytes = flight
            .inline
            .unwrap_or_else(|| self.bytes(&flight.work.local));
        let length = bytes.len() as u64;
        let mut immediate = None;
        if let Operation::Write(remote) | Operation::WriteImmediate(remote, _) =
            flight.work.operation
            && length > 0
        {
            if !self.memory(remote.address, length, remote.key, true) {
                self.complete(
                    queue,
                    Completion {
                        id: flight.work.id,
                        status: REMOTE_ACCESS,
                        ..Completion::EMPTY
                    },
                );
                for end in [from, to] {
                    self.flush(end);
                    self.event(end, EventKind::Disconnected, 0, &[]);
                    self.ids.get_mut(&end).expect("connected").connected = false;
                }
                return;
            }
            self.store(remote.address, &bytes);
        }
        if let Operation::WriteImmediate(_, number) = flight.work.operation {
            immediate = Some(number);
        }
        if !matches!(flight.work.operation, Operation::Write(_)) {
            let receiver = self.ids.get_mut(&to).expect("connected");
            receiver.heard = true;
            let pair = receiver.pair.as_mut().expect("connected");
            let receive_queue = pair.queue;
            let request = pair
                .receive
                .pop_front()
                .expect("a message finds a receive request");
            if immediate.is_none() {
                assert!(
                    length <= request.local.length.into(),
                    "a message that is longer than its buffer"
                );
                self.store(request.local.address, &bytes);
            }
            self.complete(
                receive_queue,
                Completion {
                    id: request.id,
                    status: 0,
                    length: length as u32,
                    immediate,
                },
            );
        }
        if flight.work.signalled {
            self.complete(
                queue,
                Completion {
                    id: flight.work.id,
                    ..Completion::EMPTY
                },
            );
        }
    }
}

impl Fake {
    /// Lets up to `count` requests through; how many.
    pub fn deliver(&self, count: usize) -> usize {
        let mut w = self.world();
        for done in 0..count {
            let Some(flight) = w.wire.pop_front() else {
                return done;
            };
            w.carry(flight);
        }
        count
    }

    /// Puts a failed completion in front of the queue pair that has `token`.
    pub fn fail_completion(&self, token: usize, status: u32) {
        let mut w = self.world();
        let queue = *w
            .queues
            .iter()
            .find(|(_, q)| q.token == token)
            .expect("a queue pair with this token")
            .0;
        w.complete(
            queue,
            Completion {
                id: 0,
                status,
                ..Completion::EMPTY
            },
        );
    }

    /// Sends bytes of the test's own to the queue pair that has `token`, as a peer that does not keep to the rules would.
    pub fn forge(&self, token: usize, bytes: &[u8]) {
        let mut w = self.world();
        let queue = *w
            .queues
            .iter()
            .find(|(_, q)| q.token == token)
            .expect("a queue pair with this token")
            .0;
        let pair = w
            .ids
            .values_mut()
            .filter_map(|id| id.pair.as_mut())
            .find(|p| p.queue == queue)
            .expect("its queue pair");
        let request = pair.receive.pop_front().expect("a receive request");
        w.store(request.local.address, bytes);
        w.complete(
            queue,
            Completion {
                id: request.id,
                length: bytes.len() as u32,
                ..Completion::EMPTY
            },
        );
    }

    pub(super) fn send(&self, id: &Id, work: &[SendWork]) -> Result<()> {
        let transport = self.abilities.borrow().limits.transport;
        let mut w = self.world();
        for work in work {
            let inline = work.inline.then(|| w.bytes(&work.local));
            let fake = w.id(id);
            let pair = fake.pair.as_mut().expect("a queue pair");
            assert!(
                fake.connected || pair.error,
                "posted before the connection stands"
            );
            let impossible = transport == Transport::Iwarp
                && matches!(work.operation, Operation::WriteImmediate(..));
            if impossible || (work.inline && work.local.length > pair.sizes.inline) {
                return Err(Error::System {
                    what: "posting to the send queue",
                    errno: libc::EINVAL,
                });
            }
            assert!(
                !(transport == Transport::Iwarp && fake.acceptor && !fake.heard),
                "on iWARP the connector speaks first"
            );
            assert!(
                pair.sending.len() < pair.sizes.send as usize,
                "the send queue overruns"
            );
            pair.sending.push_back(work.id);
            let (error, queue) = (pair.error, pair.queue);
            w.posted += 1;
            w.signalled += u64::from(work.signalled);
            if error {
                w.complete(
                    queue,
                    Completion {
                        id: work.id,
                        status: FLUSHED,
                        ..Completion::EMPTY
                    },
                );
            } else {
                w.wire.push_back(InFlight {
                    from: id.0,
                    work: *work,
                    inline,
                });
            }
        }
        Ok(())
    }

    pub(super) fn receive(&self, id: &Id, work: &[ReceiveWork]) {
        let mut w = self.world();
        let pair = w.id(id).pair.as_mut().expect("a queue pair");
        pair.receive.extend(work);
        assert!(
            pair.receive.len() <= pair.sizes.receive as usize,
            "the receive queue overruns"
        );
    }

    pub(super) fn take_completions(
        &self,
        queue: &CompletionQueue,
        into: &mut [Completion],
    ) -> usize {
        let mut w = self.world();
        let completions = &mut w
            .queues
            .get_mut(&queue.0)
            .expect("a live queue")
            .completions;
        let count = into.len().min(completions.len());
        for (to, from) in into.iter_mut().zip(completions.drain(..count)) {
            *to = from;
        }
        let pair = w
            .ids
            .values_mut()
            .filter_map(|id| id.pair.as_mut())
            .find(|p| p.queue == queue.0)
            .expect("its queue pair");
        for completion in &into[..count] {
            if completion.id & RECEIVE == 0 {
                while pair
                    .sending
                    .front()
                    .is_some_and(|first| *first <= completion.id)
                {
                    pair.sending.pop_front();
                }
            }
        }
        count
    }
}
