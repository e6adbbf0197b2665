//! What the verbs layer needs of an RDMA stack, in plain values: the seam between it and rdma-core.
//!
//! [`super::rdma_core::RdmaCore`] passes each call on to the library; the tests' fake keeps two hosts in memory. Handles are
//! made by the provider only, cannot be copied, and are given back by value, so that nothing is used after it is gone. Owners give them
//! back in the order that the documentation of each demands.

use super::Result;
use core::net::SocketAddr;

macro_rules! handle {
    ($($(#[$doc:meta])* $name:ident;)*) => { $(
        $(#[$doc])*
        #[derive(PartialEq, Eq, Hash, Debug)]
        pub struct $name(pub(super) usize);
    )* };
}

handle! {
    /// An rdma_cm event channel. Goes after all its identifiers.
    EventChannel;
    /// An rdma_cm identifier, with its queue pair if it has one. Goes last of all that belongs to its device.
    Id;
    /// A protection domain. Goes after its memory and queue pairs.
    Domain;
    /// A completion channel. Goes after its completion queues.
    CompletionChannel;
    /// A completion queue. Goes after its queue pair.
    CompletionQueue;
}

/// Names an open device context while an identifier holds it; only for comparing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ContextKey(pub(super) usize);

/// Registered memory. Goes after the queue pairs that use it.
#[derive(PartialEq, Eq, Debug)]
pub struct Registration {
    pub(super) handle: usize,
    /// For our own work requests.
    pub local_key: u32,
    /// For the peer's.
    pub remote_key: u32,
}

/// The transport of a device, which decides what work requests it knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// InfiniBand and RoCE: writes with immediate data; a port space of its own.
    InfiniBand,
    /// iWARP: no immediate data; the connector has to send first; ports are the kernel's TCP ports.
    Iwarp,
}

/// The limits of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Work requests in one queue.
    pub work_requests: u32,
    /// Entries in one completion queue.
    pub completions: u32,
    /// Bytes in one registration.
    pub region: u64,
    /// What it speaks.
    pub transport: Transport,
}

/// The sizes of a queue pair: asked for, and then granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueSizes {
    /// Send work requests.
    pub send: u32,
    /// Receive work requests.
    pub receive: u32,
    /// Bytes that a send work request can carry itself.
    pub inline: u32,
}

/// Bytes of ours in a registered region.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// Where they start.
    pub address: u64,
    /// How many.
    pub length: u32,
    /// Their region's local key.
    pub key: u32,
}

/// A place in the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Its address there.
    pub address: u64,
    /// The remote key of the region it is in.
    pub key: u32,
}

/// What a send work request does.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Writes into the peer's memory; the peer does not notice.
    Write(Remote),
    /// The same, and takes one of the peer's receive requests to tell it a number. Not on iWARP.
    WriteImmediate(Remote, u32),
    /// Goes into the memory of the peer's next receive request.
    Send,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub struct SendWork {
    /// Comes back in its completion. Below [`RECEIVE`].
    pub id: u64,
    /// What to do.
    pub operation: Operation,
    /// With which bytes.
    pub local: Local,
    /// The bytes are copied at once.
    pub inline: bool,
    /// Wants a completion also on success.
    pub signalled: bool,
}

/// A receive work request.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWork {
    /// Comes back in its completion. Has the bit [`RECEIVE`].
    pub id: u64,
    /// Where the bytes go.
    pub local: Local,
}

/// This bit in a work request's id says that it is a receive request: a failed completion has nothing else to tell by.
pub const RECEIVE: u64 = 1 << 63;

/// A work request is finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// As posted.
    pub id: u64,
    /// 0, or why it failed, as `ibv_wc_status` has it.
    pub status: u32,
    /// Bytes that arrived, for receive requests.
    pub length: u32,
    /// The number of the peer's [`Operation::WriteImmediate`], for receive requests.
    pub immediate: Option<u32>,
}

impl Completion {
    /// To fill arrays with.
    pub const EMPTY: Completion = Completion {
        id: 0,
        status: 0,
        length: 0,
        immediate: None,
    };
}

/// At most so many bytes of private data are given or taken (what RoCE carries in a rejection).
pub const MAX_PRIVATE_DATA: usize = 148;

/// The private data of a connection set-up. On InfiniBand its length is that of the packet, filled up with zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateData {
    bytes: [u8; MAX_PRIVATE_DATA],
    length: usize,
}

impl PrivateData {
    /// The first [`MAX_PRIVATE_DATA`] of these bytes.
    pub fn new(from: &[u8]) -> Self {
        let length = from.len().min(MAX_PRIVATE_DATA);
        let mut bytes = [0; MAX_PRIVATE_DATA];
        bytes[..length].copy_from_slice(&from[..length]);
        PrivateData { bytes, length }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl core::fmt::Debug for PrivateData {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.bytes().fmt(f)
    }
}

/// What an rdma_cm event says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// An address was resolved: the device is known.
    AddressResolved,
    /// A route was resolved.
    RouteResolved,
    /// Somebody wants to connect.
    ConnectRequest,
    /// The connection stands.
    Established,
    /// The peer said no, or nobody listens there.
    Rejected,
    /// Resolving or connecting failed, or nobody answered.
    Failed,
    /// The peer is gone or has closed.
    Disconnected,
    /// The device is being removed: everything on it is to be given back.
    DeviceRemoved,
    /// Anything else, of no consequence here.
    Other,
}

/// An rdma_cm event.
#[derive(Debug)]
pub struct Event {
    /// What it says.
    pub kind: EventKind,
    /// The token of the identifier it is about; for a request the listener's.
    pub token: usize,
    /// Negative errno, or a protocol's reason for a rejection.
    pub status: i32,
    /// What the peer sent with it.
    pub data: PrivateData,
    /// For a request: the identifier of the connection to be.
    pub request: Option<Id>,
}

/// What goes with connecting or accepting.
#[derive(Clone, Copy, Debug)]
pub struct Parameters<'a> {
    /// For the peer.
    pub data: &'a [u8],
    /// How often an unanswered packet is sent again, up to 7.
    pub retries: u8,
    /// How often a packet is sent again to a peer that has no receive request, up to 6 (7: for ever).
    pub receiver_retries: u8,
}

/// A port of a device, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// 1, 2, …
    pub number: u8,
    /// As `ibv_port_state`: 1 down, 4 active.
    pub state: u32,
    /// The RDMA MTU in bytes.
    pub mtu: u32,
    /// InfiniBand rather than Ethernet.
    pub infiniband: bool,
    /// The GIDs that are set, by index.
    pub gids: Vec<(u32, [u8; 16])>,
}

/// A device, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// "mlx5_0", "rxe0".
    pub name: String,
    /// Its limits and ports, or why it cannot be opened.
    pub opened: Result<(Limits, Vec<PortInfo>)>,
}

/// An RDMA stack. Nothing here sleeps, except that giving back an identifier may wait for the kernel to end its connection.
///
/// Errors name the call. Functions that give back what is already broken (a removed device) succeed.
pub trait Provider {
    /// The devices of this host, each opened for a moment.
    fn devices(&self) -> Result<Vec<DeviceInfo>>;

    /// Opens an event channel that does not block.
    fn create_event_channel(&self) -> Result<EventChannel>;
    /// Readable when [`Provider::next_event`] has something.
    fn event_channel_fd(&self, channel: &EventChannel) -> i32;
    /// The next event, if there is one.
    fn next_event(&self, channel: &EventChannel) -> Result<Option<Event>>;
    /// Gives it back.
    fn destroy_event_channel(&self, channel: EventChannel);

    /// A new identifier for RC connections; its events carry `token`.
    fn create_id(&self, channel: &EventChannel, token: usize) -> Result<Id>;
    /// From now on its events carry `token` (for the identifier of a request).
    fn set_token(&self, id: &Id, token: usize);
    /// Gives an identifier an address of this host; port 0: any. An address of one device puts it on that device.
    fn bind(&self, id: &Id, address: SocketAddr) -> Result<()>;
    /// Listens on the bound address.
    fn listen(&self, id: &Id, backlog: u32) -> Result<()>;
    /// Starts to resolve a peer's address, on the device that leads to it or has `source`.
    fn resolve_address(
        &self,
        id: &Id,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout_ms: u32,
    ) -> Result<()>;
    /// Starts to resolve the route.
    fn resolve_route(&self, id: &Id, timeout_ms: u32) -> Result<()>;
    /// Starts to connect; the queue pair is there.
    fn connect(&self, id: &Id, parameters: Parameters<'_>) -> Result<()>;
    /// Accepts a request; the queue pair is there and has its receive requests.
    fn accept(&self, id: &Id, parameters: Parameters<'_>) -> Result<()>;
    /// Refuses a request.
    fn reject(&self, id: &Id, data: &[u8]) -> Result<()>;
    /// Ends a connection: both queue pairs go into error.
    fn disconnect(&self, id: &Id);
    /// This end's address.
    fn local_address(&self, id: &Id) -> Option<SocketAddr>;
    /// The other end's address.
    fn peer_address(&self, id: &Id) -> Option<SocketAddr>;
    /// The device it is on, once that is known.
    fn context(&self, id: &Id) -> Option<ContextKey>;
    /// Gives it back.
    fn destroy_id(&self, id: Id);

    /// The limits of an identifier's device.
    fn limits(&self, id: &Id) -> Result<Limits>;
    /// A protection domain on an identifier's device.
    fn create_domain(&self, id: &Id) -> Result<Domain>;
    /// Gives it back.
    fn destroy_domain(&self, domain: Domain);
    /// A completion channel, that does not block, on an identifier's device.
    fn create_completion_channel(&self, id: &Id) -> Result<CompletionChannel>;
    /// Readable when an armed completion queue has got something.
    fn completion_channel_fd(&self, channel: &CompletionChannel) -> i32;
    /// The token of a completion queue that has got something, if there is one. It is no longer armed then.
    fn next_completion_event(&self, channel: &CompletionChannel) -> Result<Option<usize>>;
    /// Gives it back.
    fn destroy_completion_channel(&self, channel: CompletionChannel);
    /// Registers memory, with `remote` for the peer to write to.
    ///
    /// # Safety
    /// It stays mapped until the registration is given back.
    unsafe fn register(
        &self,
        domain: &Domain,
        address: *mut u8,
        length: usize,
        remote: bool,
    ) -> Result<Registration>;
    /// Gives it back.
    fn deregister(&self, registration: Registration);
    /// A completion queue for at least `entries` completions on an identifier's device.
    fn create_completion_queue(
        &self,
        id: &Id,
        channel: &CompletionChannel,
        entries: u32,
        token: usize,
    ) -> Result<CompletionQueue>;
    /// Asks for one event on the channel at the next completion.
    fn arm(&self, queue: &CompletionQueue) -> Result<()>;
    /// Takes completions; how many.
    fn poll(&self, queue: &CompletionQueue, into: &mut [Completion]) -> Result<usize>;
    /// Gives it back.
    fn destroy_completion_queue(&self, queue: CompletionQueue);
    /// Gives an identifier a queue pair; what was granted, which is at least what was asked for.
    fn create_queue_pair(
        &self,
        id: &Id,
        domain: &Domain,
        queue: &CompletionQueue,
        sizes: QueueSizes,
    ) -> Result<QueueSizes>;
    /// Takes it away again: no request of it touches memory any more.
    fn destroy_queue_pair(&self, id: &Id);
    /// Posts to the send queue, in this order, all or none of up to [`MAX_CHAIN`].
    fn post_send(&self, id: &Id, work: &[SendWork]) -> Result<()>;
    /// Posts receive requests, all of up to [`MAX_CHAIN`].
    fn post_receive(&self, id: &Id, work: &[ReceiveWork]) -> Result<()>;

    /// The word for a completion's status.
    fn status_text(&self, status: u32) -> String;
}

/// The longest chain of work requests that is posted at once.
pub const MAX_CHAIN: usize = 16;
