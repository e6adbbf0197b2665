//! The segment as it lies in memory. The writer maps it; a reader copies it out and takes it apart by the offsets of these
//! types. Whoever changes a type here changes [`VERSION`].

use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use super::Reason;

/// First word of a finished segment ("rsockst" and a zero byte, as the machine orders bytes).
pub(super) const MAGIC: u64 = u64::from_ne_bytes(*b"rsockst\0");
/// Version of the layout: a reader leaves other versions alone.
pub(super) const VERSION: u32 = 1;
/// How many streams of a process can be listed. Untouched records cost no memory.
pub(super) const STREAMS: usize = 65_536;
/// Bytes kept of a socket address: sockaddr_in6 has 28.
pub(super) const ADDRESS: usize = 32;
/// Name of the memfd; /proc shows it as `/memfd:rsock-stats (deleted)`.
pub(super) const NAME: &std::ffi::CStr = c"rsock-stats";

/// Declares an enumeration that is stored as a byte, with its name for people.
macro_rules! byte_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $code:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant = $code,)* }
        impl $name {
            /// The word shown to people and scripts.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
            /// The variant with this code; `None` for a code of a newer version.
            pub const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some($name::$variant),)* _ => None }
            }
        }
    };
}

byte_enum! {
    /// What carries one direction of a stream at the moment.
    Carrier {
        /// The kernel's TCP socket.
        Tcp = 0 "tcp",
        /// A lane on a link.
        Lane = 1 "lane",
    }
}
byte_enum! {
    /// The link a stream has a lane on.
    LinkKind {
        /// The stream has no lane.
        None = 0 "none",
        /// Shared memory.
        Memory = 1 "memory",
        /// RDMA.
        Verbs = 2 "verbs",
    }
}
byte_enum! {
    /// Which end of the TCP connection this process holds.
    Role {
        /// Not known.
        Unknown = 0 "unknown",
        /// It called connect.
        Connector = 1 "connector",
        /// It called accept.
        Acceptor = 2 "acceptor",
    }
}

/// A direction of a stream, as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the program sends.
    Transmit,
    /// What the program receives.
    Receive,
}

/// A counter with one writer at a time (whoever holds the stream's lock for that direction): a plain load and store.
#[derive(Default)]
#[repr(transparent)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`. Two threads that add at once may lose one of the two; nothing else can go wrong.
    #[inline(always)]
    pub fn add(&self, n: u64) {
        self.0.store(self.get().wrapping_add(n), Ordering::Relaxed);
    }

    /// The current value.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A counter that any thread may add to at any time (a locked instruction): for what happens rarely.
#[derive(Default)]
#[repr(transparent)]
pub struct SharedCount(AtomicU64);

impl SharedCount {
    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The current value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    const fn new() -> Self {
        SharedCount(AtomicU64::new(0))
    }
}

/// The counters of one direction of a stream: a cache line of their own, as a sender and a receiver may run on two cores.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Flow {
    /// Bytes that went over a lane.
    pub bytes: Count,
    /// Calls that moved bytes over a lane.
    pub messages: Count,
    /// Bytes that went over TCP through calls that rsock saw.
    pub tcp_bytes: Count,
    /// Hops from TCP to a lane.
    pub hops: Count,
    /// Hops back from a lane to TCP.
    pub hops_back: Count,
    /// Times that the program's thread slept in the kernel on this direction.
    pub sleeps: Count,
    /// Times that spinning ended with something to do.
    pub spins: Count,
    /// Times that the peer was woken through its doorbell.
    pub doorbells: Count,
}

impl Flow {
    /// One call moved `bytes` over the lane.
    #[inline(always)]
    pub fn message(&self, bytes: u64) {
        self.bytes.add(bytes);
        self.messages.add(1);
    }

    pub(super) fn counts(&self) -> [&Count; 8] {
        [
            &self.bytes,
            &self.messages,
            &self.tcp_bytes,
            &self.hops,
            &self.hops_back,
            &self.sleeps,
            &self.spins,
            &self.doorbells,
        ]
    }
}

/// One stream. 256 bytes: two lines about what it is, one line of counters for each direction.
#[derive(Default)]
#[repr(C, align(64))]
pub struct StreamRecord {
    /// Odd while the fields down to `peer` are written; changes with each stream that uses the record.
    pub(super) generation: AtomicU32,
    /// 1 while a stream uses the record.
    pub(super) open: AtomicU32,
    pub(super) fd: AtomicI32,
    pub(super) role: AtomicU8,
    /// Indexed by [`Direction`].
    pub(super) carriers: [AtomicU8; 2],
    pub(super) link: AtomicU8,
    /// CLOCK_REALTIME in nanoseconds.
    pub(super) since: AtomicU64,
    /// sockaddr as the kernel gives it; all zero: not known.
    pub(super) local: [AtomicU64; ADDRESS / 8],
    pub(super) peer: [AtomicU64; ADDRESS / 8],
    pub(super) peer_pid: AtomicI32,
    pub(super) reason: AtomicU8,
    /// The next free record of the writer's list (index + 1; 0: none). Of no meaning to readers.
    pub(super) next_free: AtomicU32,
    /// What the program sent.
    pub tx: Flow,
    /// What the program received.
    pub rx: Flow,
}

impl StreamRecord {
    /// A hop or a hop back of one direction is complete.
    pub fn set_carrier(&self, direction: Direction, carrier: Carrier) {
        let flow = match direction {
            Direction::Transmit => &self.tx,
            Direction::Receive => &self.rx,
        };
        let before = self.carriers[direction as usize].swap(carrier as u8, Ordering::Relaxed);
        match (Carrier::from_code(before), carrier) {
            (Some(Carrier::Tcp), Carrier::Lane) => flow.hops.add(1),
            (Some(Carrier::Lane), Carrier::Tcp) => flow.hops_back.add(1),
            _ => {}
        }
    }

    /// Is either direction on a lane?
    pub(super) fn on_lane(&self) -> bool {
        let lane = Carrier::Lane as u8;
        self.carriers
            .iter()
            .any(|c| c.load(Ordering::Relaxed) == lane)
    }

    /// Why the stream is on TCP ([`Reason::None`] while it is on a lane).
    pub fn set_reason(&self, reason: Reason) {
        self.reason.store(reason as u8, Ordering::Relaxed);
    }

    /// The stream got a lane on a link to this process (0: not known), or lost it ([`LinkKind::None`]).
    pub fn set_link(&self, link: LinkKind, peer_pid: i32) {
        self.link.store(link as u8, Ordering::Relaxed);
        self.peer_pid.store(peer_pid, Ordering::Relaxed);
    }

    /// The addresses became known: sockaddr_in or sockaddr_in6, of which at most 32 bytes are kept. An empty slice leaves
    /// an address as it was; readers look up what is not known in /proc/PID/net/tcp.
    pub fn set_addresses(&self, local: &[u8], peer: &[u8]) {
        self.identify(|| {
            store_address(&self.local, local);
            store_address(&self.peer, peer);
        });
    }

    /// The descriptor by which the program knows the stream changed (dup2 and close of the first one).
    pub fn set_fd(&self, fd: i32) {
        self.identify(|| self.fd.store(fd, Ordering::Relaxed));
    }

    /// Clears the record and fills it in for a new stream. Only for the thread that took the record off the free list.
    pub(super) fn begin(&self, fd: i32, role: Role, since: u64, local: &[u8], peer: &[u8]) {
        self.identify(|| {
            self.fd.store(fd, Ordering::Relaxed);
            self.role.store(role as u8, Ordering::Relaxed);
            self.since.store(since, Ordering::Relaxed);
            for word in self.local.iter().chain(&self.peer) {
                word.store(0, Ordering::Relaxed);
            }
            store_address(&self.local, local);
            store_address(&self.peer, peer);
            for carrier in &self.carriers {
                carrier.store(Carrier::Tcp as u8, Ordering::Relaxed);
            }
            self.set_link(LinkKind::None, 0);
            self.set_reason(Reason::NotAskedYet);
            for flow in [&self.tx, &self.rx] {
                flow.counts().into_iter().for_each(Count::reset);
            }
            self.open.store(1, Ordering::Relaxed);
        });
    }

    /// Runs `write` with an odd generation (a sequence lock with one writer).
    fn identify(&self, write: impl FnOnce()) {
        let generation = self.generation.load(Ordering::Relaxed);
        self.generation.store(generation | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        write();
        self.generation
            .store((generation | 1).wrapping_add(1), Ordering::Release);
    }
}

fn store_address(words: &[AtomicU64; ADDRESS / 8], bytes: &[u8]) {
    for (word, chunk) in words.iter().zip(bytes.chunks(8)) {
        let mut value = [0u8; 8];
        value[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
    }
}

/// What a process did altogether. Bytes, messages, sleeps, spins and doorbells of streams are counted in their records, and
/// added to `closed` when they end; the process's own counters hold what belongs to no single stream.
#[derive(Default)]
#[repr(C, align(64))]
pub struct ProcessCounters {
    /// Streams ever listed.
    pub streams: SharedCount,
    /// Streams that found no free record.
    pub unlisted: SharedCount,
    /// Links opened.
    pub links: SharedCount,
    /// Links that ended because something went wrong.
    pub links_lost: SharedCount,
    /// Directions that hopped to a lane.
    pub hops: SharedCount,
    /// Times that a thread slept for several streams at once (epoll, poll, select).
    pub sleeps: SharedCount,
    /// Times that spinning for several streams at once paid off.
    pub spins: SharedCount,
    /// Doorbells rung for no single stream.
    pub doorbells: SharedCount,
    /// Times that the background thread woke up.
    pub wakeups: SharedCount,
    /// Directions that hopped back, by reason.
    pub hops_back: ByReason,
    /// Streams that asked for a lane, or could have, and stayed on TCP, by reason.
    pub fallbacks: ByReason,
    /// Sums over the streams that ended: first what was sent, then what was received.
    pub(super) closed: [ClosedFlow; 2],
}

impl ProcessCounters {
    pub(super) const fn new() -> Self {
        ProcessCounters {
            streams: SharedCount::new(),
            unlisted: SharedCount::new(),
            links: SharedCount::new(),
            links_lost: SharedCount::new(),
            hops: SharedCount::new(),
            sleeps: SharedCount::new(),
            spins: SharedCount::new(),
            doorbells: SharedCount::new(),
            wakeups: SharedCount::new(),
            hops_back: ByReason::new(),
            fallbacks: ByReason::new(),
            closed: [ClosedFlow::new(), ClosedFlow::new()],
        }
    }
}

/// A counter for each reason.
#[repr(C)]
pub struct ByReason([SharedCount; Reason::SLOTS]);

impl ByReason {
    /// The counter of this reason.
    pub fn of(&self, reason: Reason) -> &SharedCount {
        &self.0[reason as usize]
    }

    const fn new() -> Self {
        ByReason([const { SharedCount::new() }; Reason::SLOTS])
    }
}

impl Default for ByReason {
    fn default() -> Self {
        Self::new()
    }
}

/// Sums of the fields of [`Flow`], in their order.
#[derive(Default)]
#[repr(C)]
pub(super) struct ClosedFlow(pub(super) [SharedCount; 8]);

impl ClosedFlow {
    const fn new() -> Self {
        ClosedFlow([const { SharedCount::new() }; 8])
    }
}

/// What a reader needs before it can make sense of the rest.
#[repr(C, align(64))]
pub(super) struct Header {
    /// [`MAGIC`], stored last.
    pub(super) magic: AtomicU64,
    /// [`VERSION`].
    pub(super) version: AtomicU32,
    /// The process that writes, as it knows itself (in its own pid namespace).
    pub(super) pid: AtomicI32,
    /// When the segment was made: CLOCK_REALTIME in nanoseconds.
    pub(super) since: AtomicU64,
    /// Version of rsock, padded with zero bytes.
    pub(super) rsock: [AtomicU64; 4],
    /// Size of the segment in bytes.
    pub(super) size: AtomicU64,
    /// Records from this index on were never used.
    pub(super) high_water: AtomicU32,
}

/// The whole segment.
#[repr(C)]
pub(super) struct Segment {
    pub(super) header: Header,
    pub(super) process: ProcessCounters,
    pub(super) streams: [StreamRecord; STREAMS],
}

const _: () = assert!(size_of::<StreamRecord>() == 256);
