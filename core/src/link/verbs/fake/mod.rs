//! An RDMA stack in memory: hosts that share one world, as the tests of this layer need it.
//!
//! It is stricter than hardware. It panics when a queue overruns, a message finds no receive request, an iWARP acceptor speaks first or
//! something is given back in the wrong order; [`Fake::live`] says what was not given back at all. Requests wait on a wire
//! until [`Fake::deliver`] lets them through, so that memory which is used again too early shows.

mod connections;
mod wire;

use super::provider::*;
use super::{Error, Result};
use core::net::SocketAddr;
use std::cell::{RefCell, RefMut};
use std::collections::{HashMap, VecDeque};

/// What the fake's devices can do.
#[derive(Clone, Copy)]
pub struct Abilities {
    pub limits: Limits,
    /// The most inline bytes that a queue pair is made with.
    pub inline: u32,
    /// The most requests that a queue pair is really made with, whatever the limits say.
    pub depth: u32,
    /// What registering memory answers, if not 0.
    pub register_errno: i32,
}

impl Abilities {
    pub fn of(transport: Transport) -> Self {
        Abilities {
            limits: Limits {
                work_requests: 1024,
                completions: 4096,
                region: 1 << 30,
                transport,
            },
            inline: 64,
            depth: 1024,
            register_errno: 0,
        }
    }
}

pub(super) struct FakePair {
    queue: usize,
    sizes: QueueSizes,
    receive: VecDeque<ReceiveWork>,
    /// Send requests whose queue entries are in use: id, and whether its completion was polled.
    sending: VecDeque<u64>,
    error: bool,
}

pub(super) struct FakeId {
    channel: usize,
    token: usize,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    on_device: bool,
    listening: bool,
    /// The connector's identifier, for a request; then the other end.
    other: Option<usize>,
    connected: bool,
    acceptor: bool,
    heard: bool,
    pair: Option<FakePair>,
}

pub(super) struct FakeQueue {
    channel: usize,
    token: usize,
    capacity: usize,
    armed: bool,
    completions: VecDeque<Completion>,
}

pub(super) struct FakeRegion {
    address: u64,
    length: u64,
    remote: bool,
}

pub(super) struct InFlight {
    from: usize,
    work: SendWork,
    /// The bytes, if they went with the request.
    inline: Option<Vec<u8>>,
}

#[derive(Default)]
pub(super) struct World {
    last_handle: usize,
    events: HashMap<usize, VecDeque<(usize, Event)>>,
    ids: HashMap<usize, FakeId>,
    domains: Vec<usize>,
    doorbells: HashMap<usize, VecDeque<usize>>,
    queues: HashMap<usize, FakeQueue>,
    regions: HashMap<usize, FakeRegion>,
    wire: VecDeque<InFlight>,
    removed: bool,
    /// The largest inline request and the number of requests, for tests.
    pub posted: u64,
    pub signalled: u64,
}

pub struct Fake {
    pub abilities: RefCell<Abilities>,
    world: RefCell<World>,
}

impl Fake {
    pub fn new(abilities: Abilities) -> Self {
        Fake {
            abilities: RefCell::new(abilities),
            world: RefCell::default(),
        }
    }

    fn world(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// How many things were made and not given back.
    pub fn live(&self) -> usize {
        let w = self.world();
        w.events.len()
            + w.ids.len()
            + w.domains.len()
            + w.doorbells.len()
            + w.queues.len()
            + w.regions.len()
    }

    /// How many requests were posted, and how many of them asked for a completion.
    pub fn posted(&self) -> (u64, u64) {
        let w = self.world();
        (w.posted, w.signalled)
    }

    fn gone(&self) -> Result<()> {
        if self.world().removed {
            Err(Error::System {
                what: "using a removed device",
                errno: libc::EIO,
            })
        } else {
            Ok(())
        }
    }
}

impl World {
    fn handle(&mut self) -> usize {
        self.last_handle += 1;
        self.last_handle
    }

    fn id(&mut self, id: &Id) -> &mut FakeId {
        self.ids.get_mut(&id.0).expect("a live identifier")
    }
}

impl Provider for Fake {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(vec![DeviceInfo {
            name: "fake0".into(),
            opened: Ok((self.abilities.borrow().limits, Vec::new())),
        }])
    }

    fn create_event_channel(&self) -> Result<EventChannel> {
        let mut w = self.world();
        let handle = w.handle();
        w.events.insert(handle, VecDeque::new());
        Ok(EventChannel(handle))
    }

    fn event_channel_fd(&self, _: &EventChannel) -> i32 {
        -1
    }

    fn next_event(&self, channel: &EventChannel) -> Result<Option<Event>> {
        Ok(self
            .world()
            .events
            .get_mut(&channel.0)
            .expect("a live channel")
            .pop_front()
            .map(|(_, event)| event))
    }

    fn destroy_event_channel(&self, channel: EventChannel) {
        // Requests that nobody took go with the channel.
        let unread = self
            .world()
            .events
            .get_mut(&channel.0)
            .map(core::mem::take)
            .unwrap_or_default();
        unread
            .into_iter()
            .filter_map(|(_, event)| event.request)
            .for_each(|id| self.forget(id));
        let mut w = self.world();
        assert!(
            w.ids.values().all(|id| id.channel != channel.0),
            "its identifiers go first"
        );
        w.events.remove(&channel.0).expect("a live channel");
    }

    fn create_id(&self, channel: &EventChannel, token: usize) -> Result<Id> {
        Ok(self.new_id(channel.0, token))
    }

    fn set_token(&self, id: &Id, token: usize) {
        self.world().id(id).token = token;
    }

    fn bind(&self, id: &Id, address: SocketAddr) -> Result<()> {
        let mut w = self.world();
        let removed = w.removed;
        let id = w.id(id);
        id.local = Some(address);
        id.on_device = !address.ip().is_unspecified() && !removed;
        Ok(())
    }

    fn listen(&self, id: &Id, _: u32) -> Result<()> {
        self.world().id(id).listening = true;
        Ok(())
    }

    fn resolve_address(
        &self,
        id: &Id,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        _: u32,
    ) -> Result<()> {
        self.start_resolving(id, source, peer);
        Ok(())
    }

    fn resolve_route(&self, id: &Id, _: u32) -> Result<()> {
        self.event(id.0, EventKind::RouteResolved, 0, &[]);
        Ok(())
    }

    fn connect(&self, id: &Id, parameters: Parameters<'_>) -> Result<()> {
        self.start_connecting(id, parameters.data);
        Ok(())
    }

    fn accept(&self, id: &Id, parameters: Parameters<'_>) -> Result<()> {
        self.establish(id, parameters.data)
    }

    fn reject(&self, id: &Id, data: &[u8]) -> Result<()> {
        self.refuse(id.0, 28, data);
        Ok(())
    }

    fn disconnect(&self, id: &Id) {
        self.hang_up(id.0);
    }

    fn local_address(&self, id: &Id) -> Option<SocketAddr> {
        self.world().id(id).local
    }

    fn peer_address(&self, id: &Id) -> Option<SocketAddr> {
        self.world().id(id).peer
    }

    fn context(&self, id: &Id) -> Option<ContextKey> {
        self.world().id(id).on_device.then_some(ContextKey(1))
    }

    fn destroy_id(&self, id: Id) {
        self.forget(id);
    }

    fn limits(&self, _: &Id) -> Result<Limits> {
        Ok(self.abilities.borrow().limits)
    }

    fn create_domain(&self, _: &Id) -> Result<Domain> {
        self.gone()?;
        let mut w = self.world();
        let handle = w.handle();
        w.domains.push(handle);
        Ok(Domain(handle))
    }

    fn destroy_domain(&self, domain: Domain) {
        let mut w = self.world();
        assert!(
            w.domains.len() > 1 || (w.regions.is_empty() && w.queues.is_empty()),
            "memory and queue pairs go before their domain"
        );
        assert!(
            w.ids.values().any(|id| id.on_device),
            "the device is closed with its last identifier"
        );
        w.domains.retain(|d| *d != domain.0);
    }

    fn create_completion_channel(&self, _: &Id) -> Result<CompletionChannel> {
        self.gone()?;
        let mut w = self.world();
        let handle = w.handle();
        w.doorbells.insert(handle, VecDeque::new());
        Ok(CompletionChannel(handle))
    }

    fn completion_channel_fd(&self, _: &CompletionChannel) -> i32 {
        -1
    }

    fn next_completion_event(&self, channel: &CompletionChannel) -> Result<Option<usize>> {
        Ok(self
            .world()
            .doorbells
            .get_mut(&channel.0)
            .expect("a live channel")
            .pop_front())
    }

    fn destroy_completion_channel(&self, channel: CompletionChannel) {
        let mut w = self.world();
        assert!(
            w.queues.values().all(|q| q.channel != channel.0),
            "its queues go first"
        );
        w.doorbells.remove(&channel.0).expect("a live channel");
    }

    unsafe fn register(
        &self,
        _: &Domain,
        address: *mut u8,
        length: usize,
        remote: bool,
    ) -> Result<Registration> {
        self.gone()?;
        let errno = self.abilities.borrow().register_errno;
        if errno != 0 {
            return Err(Error::System {
                what: "registering memory",
                errno,
            });
        }
        let mut w = self.world();
        let handle = w.handle();
        w.regions.insert(
            handle,
            FakeRegion {
                address: address.expose_provenance() as u64,
                length: length as u64,
                remote,
            },
        );
        Ok(Registration {
            handle,
            local_key: handle as u32,
            remote_key: handle as u32,
        })
    }

    fn deregister(&self, registration: Registration) {
        self.world()
            .regions
            .remove(&registration.handle)
            .expect("a live region");
    }

    fn create_completion_queue(
        &self,
        _: &Id,
        channel: &CompletionChannel,
        entries: u32,
        token: usize,
    ) -> Result<CompletionQueue> {
        self.gone()?;
        if entries > self.abilities.borrow().limits.completions {
            return Err(Error::System {
                what: "creating a completion queue",
                errno: libc::EINVAL,
            });
        }
        let mut w = self.world();
        let handle = w.handle();
        let queue = FakeQueue {
            channel: channel.0,
            token,
            capacity: entries as usize,
            armed: false,
            completions: VecDeque::new(),
        };
        w.queues.insert(handle, queue);
        Ok(CompletionQueue(handle))
    }

    fn arm(&self, queue: &CompletionQueue) -> Result<()> {
        self.gone()?;
        self.world()
            .queues
            .get_mut(&queue.0)
            .expect("a live queue")
            .armed = true;
        Ok(())
    }

    fn poll(&self, queue: &CompletionQueue, into: &mut [Completion]) -> Result<usize> {
        Ok(self.take_completions(queue, into))
    }

    fn destroy_completion_queue(&self, queue: CompletionQueue) {
        let mut w = self.world();
        assert!(
            w.ids
                .values()
                .all(|id| id.pair.as_ref().is_none_or(|p| p.queue != queue.0)),
            "its queue pairs go first"
        );
        w.queues.remove(&queue.0).expect("a live queue");
    }

    fn create_queue_pair(
        &self,
        id: &Id,
        _: &Domain,
        queue: &CompletionQueue,
        sizes: QueueSizes,
    ) -> Result<QueueSizes> {
        self.gone()?;
        let abilities = *self.abilities.borrow();
        if sizes.inline > abilities.inline || sizes.send.max(sizes.receive) > abilities.depth {
            return Err(Error::System {
                what: "creating a queue pair",
                errno: libc::EINVAL,
            });
        }
        self.world().id(id).pair = Some(FakePair {
            queue: queue.0,
            sizes,
            receive: VecDeque::new(),
            sending: VecDeque::new(),
            error: false,
        });
        Ok(sizes)
    }

    fn destroy_queue_pair(&self, id: &Id) {
        let mut w = self.world();
        w.wire.retain(|f| f.from != id.0);
        w.id(id).pair = None;
    }

    fn post_send(&self, id: &Id, work: &[SendWork]) -> Result<()> {
        self.gone()?;
        self.send(id, work)
    }

    fn post_receive(&self, id: &Id, work: &[ReceiveWork]) -> Result<()> {
        self.gone()?;
        self.receive(id, work);
        Ok(())
    }

    fn status_text(&self, status: u32) -> String {
        format!("status {status}")
    }
}
