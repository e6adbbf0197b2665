//! The data path: an RC queue pair between two processes, its messages, its credits and its completions.
//!
//! What is posted goes out in order. Only every so many send requests ask for a completion ([`Slots`] tells when), since one
//! completion says that all before it are done. A write that is to be noticed is one request where the device knows
//! immediate data and two (write, then a short send) on iWARP. When the send queue is full or the peer's receive requests are used up
//! ([`super::credits`]) posting says so and changes nothing; [`Happened::Room`] tells when to try again.
//!
//! Everything that the peer can send is checked; what makes no sense ends the queue pair. Whoever uses a queue pair holds a lock
//! around it: nothing in here is shared.

use super::credits::Credits;
use super::device::Device;
use super::frame::{Frame, HEADER};
use super::identifier::Identifier;
use super::provider::*;
use super::region::Region;
use super::{Error, Result};
use std::sync::Arc;

mod build;
mod slots;
pub use build::Wanted;
use slots::Slots;

/// The longest message of the link in bytes.
pub const MAX_MESSAGE: usize = 128;
/// Bytes of a slot in the message buffers.
const SLOT: usize = (HEADER + MAX_MESSAGE).next_multiple_of(64);

/// Seven unanswered tries and the link is lost. A missing receive request would be a fault of ours or the peer's (see [`super::credits`]), so
/// that is tried again only a few times.
fn parameters(data: &[u8]) -> Parameters<'_> {
    Parameters {
        data,
        retries: 7,
        receiver_retries: 3,
    }
}

/// Why a request was not posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotPosted {
    /// The send queue is full, the peer has no receive request left, or (at the acceptor) the connector has not spoken yet.
    Busy,
    /// The queue pair is finished.
    Lost,
}

/// What [`QueuePair::poll`] found.
#[derive(PartialEq, Eq, Debug)]
pub enum Happened<'a> {
    /// A message of the peer's link.
    Message(&'a [u8]),
    /// A write of the peer's is in our memory; its number.
    Notified(u32),
    /// Something that was Busy may go now.
    Room,
    /// The queue pair is finished; why. Said once.
    Lost(&'a Error),
}

/// What answers a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Probe {
    /// The completion of this send request or a later one.
    Request(u64),
    /// The peer's process.
    Pong,
    /// Any completion.
    Anything,
}

/// An RC queue pair, connected or about to be. Dropping it ends the connection, and what was posted may never arrive.
pub struct QueuePair<P: Provider> {
    token: usize,
    queue: Option<CompletionQueue>,
    buffers: Option<Region<P>>,
    sizes: QueueSizes,
    immediate: bool,
    /// May send: always true for the connector, for the acceptor from the connector's first message on.
    open: bool,
    slots: Slots,
    credits: Credits,
    /// Receive slots that were consumed and wait to be posted together; at most one batch.
    consumed: Vec<u32>,
    /// Somebody was told Busy.
    waiting: bool,
    probe: Option<Probe>,
    /// The peer asked for an answer, and there was no room for it.
    owes_pong: bool,
    lost: Option<Error>,
    lost_was_said: bool,
    device: Arc<Device<P>>,
    // Last: see `Device`.
    identifier: Identifier<P>,
}

impl<P: Provider> QueuePair<P> {
    /// Names it in [`Device::rung`] and in the manager's events.
    pub fn token(&self) -> usize {
        self.token
    }

    /// Its device, for registering memory.
    pub fn device(&self) -> &Arc<Device<P>> {
        &self.device
    }

    /// What was granted.
    pub fn sizes(&self) -> QueueSizes {
        self.sizes
    }

    /// Why it is finished, if it is.
    pub fn lost(&self) -> Option<&Error> {
        self.lost.as_ref()
    }

    /// This end's and the other end's address.
    pub fn addresses(&self) -> Option<(core::net::SocketAddr, core::net::SocketAddr)> {
        let (provider, id) = (self.identifier.provider(), self.identifier.id());
        Some((provider.local_address(id)?, provider.peer_address(id)?))
    }

    /// How many ordinary messages could be sent now.
    pub fn credits(&self) -> u32 {
        self.credits.available()
    }

    /// Messages the peer may send at first, for the private data.
    pub(super) fn granted(&self) -> u16 {
        Credits::grant(self.sizes.receive) as u16
    }

    /// The peer said how much we may send. At the connector this opens the link with the first message, which the acceptor waits for.
    pub(super) fn connected(&mut self, allotted: u16, connector: bool) {
        self.credits = Credits::new(allotted.into(), self.granted().into());
        if connector {
            self.open = true;
            if self.post_frame(Frame::Hello).is_err() {
                self.fail(Error::Lost("the peer takes no messages".into()));
            }
        }
    }

    /// Writes `local` into the peer's memory. It does not notice, and `local` must stay as it is until the peer has acknowledged it by other means
    /// (or the queue pair is gone).
    pub fn write(&mut self, local: Local, remote: Remote) -> core::result::Result<(), NotPosted> {
        self.check(1, false)?;
        let work = self.work(Operation::Write(remote), local);
        self.post(&mut [work])
    }

    /// Writes `local` (possibly nothing) into the peer's memory, and tells it `number` when that is there.
    pub fn write_and_notify(
        &mut self,
        local: Local,
        remote: Remote,
        number: u32,
    ) -> core::result::Result<(), NotPosted> {
        if self.immediate {
            self.check(1, true)?;
            self.credits.spend();
            let work = self.work(Operation::WriteImmediate(remote, number), local);
            return self.post(&mut [work]);
        }
        if local.length == 0 {
            return self.post_frame(Frame::Notify(number));
        }
        self.check(2, true)?;
        let write = self.work(Operation::Write(remote), local);
        self.credits.spend();
        let notify = self.frame_work(Frame::Notify(number), 1);
        self.post(&mut [write, notify])
    }

    /// Sends a message of the link.
    ///
    /// # Panics
    /// If it is longer than [`MAX_MESSAGE`].
    pub fn send(&mut self, message: &[u8]) -> core::result::Result<(), NotPosted> {
        assert!(
            message.len() <= MAX_MESSAGE,
            "a message of {} bytes",
            message.len()
        );
        self.post_frame(Frame::Message(message))
    }

    /// Finds out whether the peer still answers; [`QueuePair::unanswered`] says whether it has. Needed where nothing is sent for long: a queue pair
    /// notices only by sending that its peer is gone. Where the device itself answers (InfiniBand, RoCE) a peer that does not ends the queue
    /// pair after some seconds; on iWARP, where TCP goes on trying for a quarter of an hour, it is the peer's process that
    /// answers, and the owner decides how long is too long.
    pub fn probe(&mut self) {
        if self.lost.is_some() || !self.open || self.probe.is_some() {
            return;
        }
        if self.slots.room() == 0 || (!self.immediate && self.credits.available() == 0) {
            // Something has to come from the peer anyhow before anything else can be sent.
            self.probe = Some(Probe::Anything);
        } else if self.immediate {
            self.probe = Some(Probe::Request(self.slots.next()));
            let nothing = Local {
                address: 0,
                length: 0,
                key: 0,
            };
            let mut work = self.work(Operation::Write(Remote { address: 0, key: 0 }), nothing);
            work.signalled = true;
            // A failure is noted where it happens, and told by the next poll.
            let _ = self.post(&mut [work]);
        } else {
            self.probe = Some(Probe::Pong);
            let _ = self.post_frame(Frame::Ping);
        }
    }

    /// A probe is on its way and not answered yet.
    pub fn unanswered(&self) -> bool {
        self.probe.is_some()
    }

    /// Asks the doorbell to ring at the next completion. What came before is not rung for: poll once more after it.
    pub fn arm(&mut self) {
        if let Some(queue) = &self.queue
            && let Err(error) = self.identifier.provider().arm(queue)
        {
            self.fail(error);
        }
    }

    /// Ends it: nothing is posted any more, and the peer loses it too.
    pub fn end(&mut self, why: Error) {
        self.identifier.provider().disconnect(self.identifier.id());
        self.fail(why);
    }

    /// Room for `count` send requests, and for one ordinary message if it takes a `credit`.
    fn check(&mut self, count: u64, credit: bool) -> core::result::Result<(), NotPosted> {
        if self.lost.is_some() {
            return Err(NotPosted::Lost);
        }
        if !self.open || self.slots.room() < count || (credit && self.credits.available() == 0) {
            self.waiting = true;
            return Err(NotPosted::Busy);
        }
        Ok(())
    }

    fn work(&self, operation: Operation, local: Local) -> SendWork {
        SendWork {
            id: 0,
            operation,
            local,
            inline: local.length > 0 && local.length <= self.sizes.inline,
            signalled: false,
        }
    }

    /// A frame in the send slot that belongs to the request `ahead` of the next one.
    fn frame_work(&mut self, frame: Frame<'_>, ahead: u64) -> SendWork {
        let owed = self.credits.take_owed();
        let index = self.sizes.receive as usize + self.slots.slot(ahead) as usize;
        let buffers = self.buffers.as_ref().expect("taken only by drop");
        // SAFETY: the slot is within the region, and no request uses it: the one that did is done (see `Slots`).
        let bytes =
            unsafe { core::slice::from_raw_parts_mut(buffers.as_ptr().add(index * SLOT), SLOT) };
        let length = frame.encode(owed, bytes);
        self.work(Operation::Send, buffers.local(index * SLOT, length))
    }

    /// Posts a frame that takes a credit.
    fn post_frame(&mut self, frame: Frame<'_>) -> core::result::Result<(), NotPosted> {
        self.check(1, true)?;
        self.credits.spend();
        let work = self.frame_work(frame, 0);
        self.post(&mut [work])
    }

    fn post(&mut self, work: &mut [SendWork]) -> core::result::Result<(), NotPosted> {
        for each in work.iter_mut() {
            let (id, signalled) = self.slots.take(each.signalled);
            each.id = id;
            each.signalled = signalled;
        }
        self.identifier
            .provider()
            .post_send(self.identifier.id(), work)
            .map_err(|error| {
                self.fail(error);
                NotPosted::Lost
            })
    }

    fn fail(&mut self, why: Error) {
        if self.lost.is_none() {
            self.lost = Some(why);
        }
    }

    /// Takes what has happened, at most `limit` completions, and tells it one by one. True if there may be more.
    pub fn poll(&mut self, limit: usize, mut tell: impl FnMut(Happened<'_>)) -> bool {
        let mut left = limit;
        let mut more = false;
        while left > 0 && self.lost.is_none() {
            let mut completions = [Completion::EMPTY; 16];
            let wanted = left.min(completions.len());
            let queue = self.queue.as_ref().expect("taken only by drop");
            let count = match self
                .identifier
                .provider()
                .poll(queue, &mut completions[..wanted])
            {
                Ok(count) => count,
                Err(error) => {
                    self.fail(error);
                    break;
                }
            };
            for completion in &completions[..count] {
                if let Err(error) = self.completed(completion, &mut tell) {
                    self.fail(error);
                    break;
                }
            }
            left -= count;
            more = count == wanted;
            if !more {
                break;
            }
        }
        if self.lost.is_none() {
            self.return_credits();
            if self.owes_pong && self.slots.room() > 0 && self.credits.available() > 0 {
                self.owes_pong = false;
                // A failure is noted where it happens, and told below.
                let _ = self.post_frame(Frame::Pong);
            }
        }
        if let Some(error) = &self.lost {
            if !core::mem::replace(&mut self.lost_was_said, true) {
                tell(Happened::Lost(error));
            }
            return false;
        }
        if self.waiting && self.open && self.slots.room() >= 2 && self.credits.available() > 0 {
            self.waiting = false;
            tell(Happened::Room);
        }
        more
    }

    /// Returns credits in a message of its own, if it is time. With a full send queue its next completion brings us here again.
    fn return_credits(&mut self) {
        if self.open && self.credits.return_is_due() && self.slots.room() > 0 {
            let work = self.frame_work(Frame::Credits, 0);
            // A failure is noted where it happens, and told by the caller.
            let _ = self.post(&mut [work]);
        }
    }

    fn completed(
        &mut self,
        completion: &Completion,
        tell: &mut impl FnMut(Happened<'_>),
    ) -> Result<()> {
        if completion.status != 0 {
            return Err(Error::Lost(
                self.identifier.provider().status_text(completion.status),
            ));
        }
        let sent = completion.id & RECEIVE == 0;
        match self.probe {
            Some(Probe::Request(id)) if sent && completion.id >= id => self.probe = None,
            Some(Probe::Anything) => self.probe = None,
            _ => {}
        }
        if sent {
            return self
                .slots
                .done(completion.id)
                .map_err(|_| Error::Lost("the device completed a request twice".into()));
        }
        let slot = (completion.id & !RECEIVE) as u32;
        if let Some(number) = completion.immediate {
            self.credits.received();
            tell(Happened::Notified(number));
        } else {
            let buffers = self.buffers.as_ref().expect("taken only by drop");
            let length = completion.length as usize;
            if slot >= self.sizes.receive || length > SLOT {
                return Err(Error::Lost(
                    "the device completed a request that was never posted".into(),
                ));
            }
            // SAFETY: the slot is within the region, and the device is done with it until it is posted again below. The
            // region does not admit remote writes.
            let bytes = unsafe {
                core::slice::from_raw_parts(buffers.as_ptr().add(slot as usize * SLOT), length)
            };
            let (frame, credits) = Frame::decode(bytes)
                .map_err(|_| Error::Lost("the peer sent no frame of ours".into()))?;
            self.credits
                .returned(credits.into())
                .map_err(|_| Error::Lost("the peer returned more credits than it had".into()))?;
            match frame {
                Frame::Hello if self.open => {
                    return Err(Error::Lost("the peer greeted twice".into()));
                }
                Frame::Hello => {
                    self.open = true;
                    self.waiting = true;
                    self.credits.received();
                }
                Frame::Credits => {}
                Frame::Ping => {
                    self.owes_pong = true;
                    self.credits.received();
                }
                Frame::Pong => {
                    self.probe = None;
                    self.credits.received();
                }
                Frame::Notify(number) => {
                    self.credits.received();
                    tell(Happened::Notified(number));
                }
                Frame::Message(message) => {
                    self.credits.received();
                    tell(Happened::Message(message));
                }
            }
        }
        self.consumed.push(slot);
        self.post_consumed(Credits::batch(self.sizes.receive) as usize)
    }

    /// Posts the consumed receive slots again if there are at least `batch`.
    fn post_consumed(&mut self, batch: usize) -> Result<()> {
        if self.consumed.len() < batch {
            return Ok(());
        }
        let buffers = self.buffers.as_ref().expect("taken only by drop");
        for chunk in self.consumed.chunks(MAX_CHAIN) {
            let mut work = [ReceiveWork {
                id: 0,
                local: Local {
                    address: 0,
                    length: 0,
                    key: 0,
                },
            }; MAX_CHAIN];
            for (to, &slot) in work.iter_mut().zip(chunk) {
                *to = ReceiveWork {
                    id: RECEIVE | u64::from(slot),
                    local: buffers.local(slot as usize * SLOT, SLOT),
                };
            }
            self.identifier
                .provider()
                .post_receive(self.identifier.id(), &work[..chunk.len()])?;
        }
        self.consumed.clear();
        self.credits.posted_again();
        Ok(())
    }

    /// Starts to connect, with this private data.
    pub(super) fn connect(&self, data: &[u8]) -> Result<()> {
        self.identifier
            .provider()
            .connect(self.identifier.id(), parameters(data))
    }

    /// Accepts the request, with this private data.
    pub(super) fn accept(&self, data: &[u8]) -> Result<()> {
        self.identifier
            .provider()
            .accept(self.identifier.id(), parameters(data))
    }
}

impl<P: Provider> Drop for QueuePair<P> {
    fn drop(&mut self) {
        let provider = self.identifier.provider().clone();
        provider.disconnect(self.identifier.id());
        provider.destroy_queue_pair(self.identifier.id());
        if let Some(queue) = self.queue.take() {
            provider.destroy_completion_queue(queue);
        }
        self.buffers = None;
    }
}

#[cfg(test)]
mod tests;
