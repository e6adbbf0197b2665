//! A stream: what rsock keeps for one TCP socket of the program.
//!
//! Two locks, one a direction, guard the engine's halves and the lane. What readers without a lock need (readiness scans,
//! spinning threads) is mirrored in [`View`]. Lock order: a direction's lock, then the registrations, then an epoll
//! instance; never both directions at once, except transmit before receive.

use crate::link::Lane;
use crate::link::bell::Bell;
use crate::slab::Slab;
use crate::stats;
use crate::stream::{Position, Receiver, Sender};
use crate::sys::{self, lock::Lock};
use crate::table::{self, Entry};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::*, fence,
};

/// What a stream is at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Mode {
    /// The slot is not in use.
    Free,
    /// A TCP socket that is not connected.
    Fresh,
    /// It listens.
    Listener,
    /// Connected; calls go to the kernel and are counted.
    Plain,
    /// A lane is being asked for, or is there: calls go through the engine.
    Careful,
    /// It stays on TCP for good; calls go to the kernel.
    Pinned,
    /// Inherited over fork while its owner had it on a lane: first use asks the owner to hop back.
    Foreign,
}

impl Mode {
    fn from(value: u8) -> Mode {
        match value {
            1 => Mode::Fresh,
            2 => Mode::Listener,
            3 => Mode::Plain,
            4 => Mode::Careful,
            5 => Mode::Pinned,
            6 => Mode::Foreign,
            _ => Mode::Free,
        }
    }
}

/// The sending direction, under its lock.
pub struct Tx {
    /// The protocol.
    pub engine: Sender,
    /// The lane, while this direction may still need it.
    pub lane: Option<Lane>,
    /// Sends to let pass before the next hop is tried, and how many tries failed.
    pub hold: u32,
    /// Hops that got no answer or no.
    pub misses: u32,
    /// Counters of this direction.
    pub flow: Option<&'static stats::Flow>,
}

/// The receiving direction, under its lock.
pub struct Rx {
    /// The protocol.
    pub engine: Receiver,
    /// The lane, while this direction may still need it.
    pub lane: Option<Lane>,
    /// Counters of this direction.
    pub flow: Option<&'static stats::Flow>,
}

impl Tx {
    fn new() -> Tx {
        Tx {
            engine: Sender::new(Position::ZERO),
            lane: None,
            hold: 0,
            misses: 0,
            flow: None,
        }
    }
}

impl Rx {
    fn new() -> Rx {
        Rx {
            engine: Receiver::new(Position::ZERO),
            lane: None,
            flow: None,
        }
    }
}

/// Bits of [`View::rx`] and [`View::tx`].
pub mod flag {
    /// The lane is the carrier.
    pub const LANE: u32 = 1;
    /// Between carriers: ask under the lock.
    pub const BETWEEN: u32 = 2;
    /// The end was reached, or a reset is to be reported: a call will not wait.
    pub const END: u32 = 4;
    /// Something happened on TCP or to the link that nobody has looked at yet.
    pub const LOOK: u32 = 8;
    /// The connection was reset.
    pub const RESET: u32 = 16;
}

/// What may be read without a lock.
pub struct View {
    /// State of the receiving direction, see [`flag`].
    pub rx: AtomicU32,
    /// State of the sending direction.
    pub tx: AtomicU32,
    /// Position up to which the program has received.
    pub rx_position: AtomicU64,
    /// Position up to which the program has sent.
    pub tx_position: AtomicU64,
    /// Where the peer publishes (never null, never unmapped).
    pub published: AtomicPtr<AtomicU64>,
    /// Where the peer says what it consumed.
    pub consumed: AtomicPtr<AtomicU64>,
    /// Where the peer says that it left the lane; null without a lane.
    pub left: AtomicPtr<AtomicU32>,
    /// Where the peer looks for the bells of our receivers; null without a lane.
    pub reader_bells: AtomicPtr<AtomicU64>,
    /// Where the peer looks for the bells of our senders; null without a lane.
    pub writer_bells: AtomicPtr<AtomicU64>,
    /// The lane's link, index + 1; 0: no lane.
    pub link: AtomicU32,
    /// Size of the ring we send into, in bytes.
    pub ring: AtomicU64,
    /// Counts the times a send found no room: a new edge for EPOLLOUT is due afterwards.
    pub full: AtomicU32,
    /// Counts changes of carriers and ends: a new edge for everything is due.
    pub change: AtomicU32,
}

/// A stream. Slots are reused and never unmapped.
#[repr(align(128))]
pub struct Stream {
    /// Its place in the slab.
    pub index: u32,
    generation: AtomicU32,
    mode: AtomicU8,
    fd: AtomicI32,
    /// Descriptor numbers of this process that lead here.
    pub refs: AtomicU32,
    /// O_NONBLOCK as the program set it.
    pub nonblocking: AtomicBool,
    /// TCP_NODELAY as the program set it.
    pub nodelay: AtomicBool,
    /// This end called connect.
    pub connector: AtomicBool,
    /// SO_RCVLOWAT as the program set it.
    pub low_water: AtomicU32,
    /// Which descriptor is the background thread's own duplicate, or -1.
    pub kept: AtomicI32,
    /// Until when the duplicate is kept (CLOCK_MONOTONIC, ns).
    pub keep_until: AtomicU64,
    /// shutdown(SHUT_RD) is due in the kernel once no control bytes are awaited any more.
    pub shut_receive: AtomicBool,
    /// Kernel calls in flight, receiving and sending.
    pub receiving: AtomicU32,
    /// See `receiving`.
    pub sending: AtomicU32,
    /// Threads that sleep in poll or select on the TCP socket itself, without a bell.
    pub polling: AtomicU32,
    /// Messages and bytes of both directions while in `Plain`, for the policy.
    pub messages: AtomicU64,
    /// See `messages`.
    pub bytes: AtomicU64,
    /// The background thread has been told about this stream.
    pub asked: AtomicBool,
    /// The peer refused that many times.
    pub refusals: AtomicU32,
    /// When TCP ended without a RESUME before it (CLOCK_MONOTONIC, ns), 0: it did not.
    pub ended_at: AtomicU64,
    /// The link ended because the peer closed everything: go back to TCP with the next send.
    pub peer_left: AtomicBool,
    /// It existed when this process forked: its descriptors may be used elsewhere too.
    pub shared: AtomicBool,
    /// Its word that all processes which share it see (process/family.rs); null: none.
    pub family: AtomicPtr<AtomicU64>,
    /// Both ports of an accepted connection once they were looked up (local << 16 | peer), else 0.
    pub ports: AtomicU32,
    /// What the kernel's sk_err would be: the errno that the next call reports, once. 0: none yet; negative: it was reported.
    error: AtomicI32,
    /// Answer to the last HOP: seq << 2 | 1 for yes, 2 for no; above it why not (`outgoing::no`).
    pub answer: AtomicU64,
    /// The sending direction.
    pub tx: Lock<Tx>,
    /// The receiving direction.
    pub rx: Lock<Rx>,
    /// What may be read without a lock.
    pub view: View,
    /// Bells of this process to ring when something can be received.
    pub rx_bells: AtomicU64,
    /// Bells of this process to ring when something can be sent.
    pub tx_bells: AtomicU64,
    /// The bells that a blocked receiver and a blocked sender had last (index + 1).
    pub rx_hint: AtomicU8,
    /// See `rx_hint`.
    pub tx_hint: AtomicU8,
    /// How much spinning pays off when receiving.
    pub rx_spin: crate::readiness::spin::Score,
    /// How much spinning pays off when sending.
    pub tx_spin: crate::readiness::spin::Score,
    /// First registration in an epoll instance (index + 1), see readiness/registration.rs.
    pub registrations: Lock<u32>,
    /// What the background thread's epoll watches on the TCP socket.
    pub watched: AtomicU32,
    /// Its row in the statistics.
    pub record: Lock<Option<stats::Slot>>,
    /// Why it is, or was last, on TCP.
    pub reason: AtomicU8,
}

impl View {
    /// A lane is there: what readers without a lock need of it.
    pub fn show_lane(&self, lane: &Lane) {
        let (input, out) = (lane.input.0.cursors(), lane.out.0.cursors());
        self.left.store((&raw const input.left).cast_mut(), Release);
        self.reader_bells
            .store((&raw const input.reader_bells).cast_mut(), Release);
        self.writer_bells
            .store((&raw const out.writer_bells).cast_mut(), Release);
        self.link.store(lane.link.index() as u32 + 1, Release);
    }

    /// Whether TCP or the peer gave a reason to look under the locks.
    pub fn needs_look(&self) -> bool {
        // SAFETY: the word stays mapped for the life of the process; null means that there is no lane.
        let left =
            unsafe { self.left.load(Acquire).as_ref() }.is_some_and(|w| w.load(Acquire) != 0);
        left || (self.rx.load(Acquire) | self.tx.load(Acquire)) & flag::LOOK != 0
    }

    /// The lane is gone.
    pub fn hide_lane(&self) {
        self.link.store(0, Release);
        self.left.store(core::ptr::null_mut(), Release);
        self.reader_bells.store(core::ptr::null_mut(), Release);
        self.writer_bells.store(core::ptr::null_mut(), Release);
    }

    /// Tells the peer whether `bell` waits: its holder has just put it into the stream's sets, or taken it out. One bit changes,
    /// for other threads' bells are in the same words.
    pub fn show_bell(&self, s: &Stream, bell: Bell) {
        let show = |word: &AtomicPtr<AtomicU64>, bells: &AtomicU64| {
            // SAFETY: the words stay mapped for the life of the process; null means that there is no lane.
            let Some(word) = (unsafe { word.load(Acquire).as_ref() }) else {
                return;
            };
            if bells.load(SeqCst) & bell.bit() != 0 {
                word.fetch_or(bell.bit(), SeqCst);
            } else if word.load(Relaxed) & bell.bit() != 0 {
                word.fetch_and(!bell.bit(), SeqCst);
            }
        };
        show(&self.reader_bells, &s.rx_bells);
        show(&self.writer_bells, &s.tx_bells);
    }

    /// Tells the peer of a new lane which bells of this process wait already. (One that is taken back meanwhile may stay shown,
    /// which costs a ring that nobody needs.)
    pub fn show_bells(&self, s: &Stream) {
        // Before the look at the bells: where the words are has been said, so who takes a bell after it shows it himself.
        fence(SeqCst);
        // SAFETY: the words stay mapped for the life of the process; null means that there is no lane.
        unsafe {
            if let Some(word) = self.reader_bells.load(Acquire).as_ref() {
                word.fetch_or(s.rx_bells.load(SeqCst), SeqCst);
            }
            if let Some(word) = self.writer_bells.load(Acquire).as_ref() {
                word.fetch_or(s.tx_bells.load(SeqCst), SeqCst);
            }
        }
    }
}

static STREAMS: Slab<Stream, { 1 << 17 }> = Slab::new();

/// Stands in where there is no lane: nothing published, nothing consumed.
pub static NOTHING: AtomicU64 = AtomicU64::new(0);

fn nothing() -> *mut AtomicU64 {
    (&raw const NOTHING).cast_mut()
}

/// Generations count in 24 bits, so that an id leaves the upper byte of a word free.
const GENERATION: u32 = 0xff_ffff;

/// A stream's name that does not outlive it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamId(u64);

impl StreamId {
    /// As a number, to be kept in an atomic or an epoll entry.
    pub fn get(self) -> u64 {
        self.0
    }

    /// From [`StreamId::get`].
    pub fn from(raw: u64) -> Self {
        StreamId(raw)
    }

    /// The stream, if it still is the same.
    pub fn stream(self) -> Option<&'static Stream> {
        STREAMS
            .get(self.0 as u32)
            .filter(|s| s.id() == self && s.mode() != Mode::Free)
    }
}

/// The stream behind a descriptor.
#[inline(always)]
pub fn of(fd: i32) -> Option<&'static Stream> {
    match table::get(fd) {
        Entry::Stream(index) => STREAMS.get(index),
        _ => None,
    }
}

/// All stream slots ever used.
pub fn all() -> impl Iterator<Item = &'static Stream> {
    STREAMS.iter()
}

/// In a fork child.
pub fn reset_locks() {
    STREAMS.reset_lock();
}

impl Stream {
    fn new(index: u32) -> Stream {
        Stream {
            index,
            generation: AtomicU32::new(0),
            mode: AtomicU8::new(Mode::Free as u8),
            fd: AtomicI32::new(-1),
            refs: AtomicU32::new(0),
            nonblocking: AtomicBool::new(false),
            nodelay: AtomicBool::new(false),
            connector: AtomicBool::new(false),
            low_water: AtomicU32::new(1),
            kept: AtomicI32::new(-1),
            keep_until: AtomicU64::new(0),
            shut_receive: AtomicBool::new(false),
            receiving: AtomicU32::new(0),
            sending: AtomicU32::new(0),
            polling: AtomicU32::new(0),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            ended_at: AtomicU64::new(0),
            peer_left: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            family: AtomicPtr::new(core::ptr::null_mut()),
            ports: AtomicU32::new(0),
            error: AtomicI32::new(0),
            answer: AtomicU64::new(0),
            tx: Lock::new(Tx::new()),
            rx: Lock::new(Rx::new()),
            view: View {
                rx: AtomicU32::new(0),
                tx: AtomicU32::new(0),
                rx_position: AtomicU64::new(0),
                tx_position: AtomicU64::new(0),
                published: AtomicPtr::new(nothing()),
                consumed: AtomicPtr::new(nothing()),
                left: AtomicPtr::new(core::ptr::null_mut()),
                reader_bells: AtomicPtr::new(core::ptr::null_mut()),
                writer_bells: AtomicPtr::new(core::ptr::null_mut()),
                link: AtomicU32::new(0),
                ring: AtomicU64::new(0),
                full: AtomicU32::new(0),
                change: AtomicU32::new(0),
            },
            rx_bells: AtomicU64::new(0),
            tx_bells: AtomicU64::new(0),
            rx_hint: AtomicU8::new(0),
            tx_hint: AtomicU8::new(0),
            rx_spin: crate::readiness::spin::Score::new(),
            tx_spin: crate::readiness::spin::Score::new(),
            registrations: Lock::new(0),
            watched: AtomicU32::new(0),
            record: Lock::new(None),
            reason: AtomicU8::new(stats::Reason::NotAskedYet as u8),
        }
    }

    /// A stream for a new TCP socket. None when there are too many: the socket is then a plain kernel socket.
    pub fn begin(fd: i32, mode: Mode, nonblocking: bool) -> Option<&'static Stream> {
        let s = STREAMS.take(Stream::new)?;
        s.fd.store(fd, Relaxed);
        s.refs.store(1, Relaxed);
        s.nonblocking.store(nonblocking, Relaxed);
        s.mode.store(mode as u8, Release);
        if !table::set(fd, Entry::Stream(s.index)) {
            s.end();
            return None;
        }
        Some(s)
    }

    /// The slot is free again. Nothing may lead to it any more but stale ids.
    pub fn end(&self) {
        self.mode.store(Mode::Free as u8, Release);
        self.generation.fetch_add(1, AcqRel);
        // The counters of calls in flight belong to the old stream; a call that still runs ends its own count (see `InFlight`).
        self.receiving.store(0, Relaxed);
        self.sending.store(0, Relaxed);
        self.polling.store(0, Relaxed);
        self.messages.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        self.nodelay.store(false, Relaxed);
        self.connector.store(false, Relaxed);
        self.asked.store(false, Relaxed);
        self.refusals.store(0, Relaxed);
        self.ended_at.store(0, Relaxed);
        self.peer_left.store(false, Relaxed);
        self.shared.store(false, Relaxed);
        self.family.store(core::ptr::null_mut(), Relaxed);
        self.kept.store(-1, Relaxed);
        self.shut_receive.store(false, Relaxed);
        self.ports.store(0, Relaxed);
        self.error.store(0, Relaxed);
        self.answer.store(0, Relaxed);
        self.low_water.store(1, Relaxed);
        self.rx_bells.store(0, Relaxed);
        self.tx_bells.store(0, Relaxed);
        self.rx_hint.store(0, Relaxed);
        self.tx_hint.store(0, Relaxed);
        self.rx_spin.reset();
        self.tx_spin.reset();
        self.watched.store(0, Relaxed);
        self.reason.store(stats::Reason::NotAskedYet as u8, Relaxed);
        if let Some(mut tx) = self.tx.lock() {
            *tx = Tx::new();
        }
        if let Some(mut rx) = self.rx.lock() {
            *rx = Rx::new();
        }
        self.view.rx.store(0, Relaxed);
        self.view.tx.store(0, Relaxed);
        self.view.published.store(nothing(), Relaxed);
        self.view.consumed.store(nothing(), Relaxed);
        self.view.hide_lane();
        if let Some(slot) = self.record.lock().and_then(|mut r| r.take()) {
            stats::close_stream(slot);
        }
        STREAMS.give(self.index);
    }

    /// In a fork child: the lane is the parent's, and its link's slot will be another one's.
    pub fn forget_lane(&self) {
        if let Some(mut tx) = self.tx.lock() {
            (tx.lane, tx.flow) = (None, None);
        }
        if let Some(mut rx) = self.rx.lock() {
            (rx.lane, rx.flow) = (None, None);
        }
        self.view.published.store(nothing(), Release);
        self.view.consumed.store(nothing(), Release);
        self.view.hide_lane();
    }

    /// In a fork child: whoever held a lock does not exist here.
    pub fn reset_locks(&self) {
        self.tx.reset();
        self.rx.reset();
        self.registrations.reset();
        self.record.reset();
        self.receiving.store(0, Relaxed);
        self.sending.store(0, Relaxed);
        self.polling.store(0, Relaxed);
        self.rx_bells.store(0, Relaxed);
        self.tx_bells.store(0, Relaxed);
        self.watched.store(0, Relaxed);
    }

    /// Its name.
    pub fn id(&self) -> StreamId {
        StreamId(
            u64::from(self.generation.load(Acquire) & GENERATION) << 32 | u64::from(self.index),
        )
    }

    /// What it is.
    #[inline(always)]
    pub fn mode(&self) -> Mode {
        Mode::from(self.mode.load(Acquire))
    }

    /// Changes what it is.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, SeqCst);
    }

    /// Changes what it is if it still is `from`.
    pub fn change_mode(&self, from: Mode, to: Mode) -> bool {
        self.mode
            .compare_exchange(from as u8, to as u8, SeqCst, SeqCst)
            .is_ok()
    }

    /// A descriptor of the TCP socket.
    #[inline(always)]
    pub fn fd(&self) -> i32 {
        self.fd.load(Relaxed)
    }

    /// The program reaches the socket by another number from now on.
    pub fn set_fd(&self, fd: i32) {
        self.fd.store(fd, Relaxed);
    }

    /// Whether either direction uses or is about to use a lane.
    pub fn hopped(&self) -> bool {
        (self.view.rx.load(Acquire) | self.view.tx.load(Acquire)) & (flag::LANE | flag::BETWEEN)
            != 0
    }

    /// Whether a lane is asked for or agreed on, hopped or not.
    pub fn lane_pending(&self) -> bool {
        self.rx.try_lock().is_none_or(|rx| rx.lane.is_some())
            || self.tx.try_lock().is_none_or(|tx| tx.lane.is_some())
    }

    /// Statistics of this stream, listing it first if need be.
    pub fn with_record(&self, f: impl FnOnce(stats::Slot)) {
        let Some(mut record) = self.record.lock() else {
            return;
        };
        if record.is_none() {
            let role = if self.connector.load(Relaxed) {
                stats::Role::Connector
            } else {
                stats::Role::Acceptor
            };
            let bytes = |r: sys::Result<(libc::sockaddr_storage, u32)>| {
                let mut out = ([0u8; 28], 0);
                if let Ok((address, len)) = r {
                    out.1 = (len as usize).min(28);
                    // SAFETY: a sockaddr_storage has at least 28 bytes, all initialised.
                    let raw = unsafe {
                        core::slice::from_raw_parts((&raw const address).cast::<u8>(), 28)
                    };
                    out.0.copy_from_slice(raw);
                }
                out
            };
            let (local, peer) = (
                bytes(sys::getsockname(self.fd())),
                bytes(sys::getpeername(self.fd())),
            );
            *record = stats::open_stream(self.fd(), role, &local.0[..local.1], &peer.0[..peer.1]);
        }
        if let Some(slot) = *record {
            f(slot);
        }
    }

    /// Why it is on TCP, for the statistics and the log.
    pub fn stays_on_tcp(&self, reason: stats::Reason) {
        self.reason.store(reason as u8, Relaxed);
        self.with_record(|slot| stats::stays_on_tcp(slot, reason));
    }

    /// The connection broke with `errno`, of which the kernel has told us and will tell nobody else. The first one counts.
    pub fn note_error(&self, errno: i32) {
        let _ = self.error.compare_exchange(0, errno, AcqRel, Relaxed);
    }

    /// The program has learned from the kernel that the connection broke.
    pub fn error_told(&self) {
        self.error.store(-1, Release);
    }

    /// Whether the connection broke, reported or not.
    pub fn broken(&self) -> bool {
        self.error.load(Acquire) != 0
    }

    /// Whether an errno is to be reported.
    pub fn error_pending(&self) -> bool {
        self.error.load(Acquire) > 0
    }

    /// The errno to be reported; once.
    pub fn take_error(&self) -> Option<i32> {
        self.error
            .fetch_update(AcqRel, Acquire, |e| (e > 0).then_some(-1))
            .ok()
    }

    /// A bell for a thread that wants to sleep until something can be received or sent.
    pub fn take_bell(&self, hint: &AtomicU8) -> Option<Bell> {
        let before = hint.load(Relaxed);
        let bell = Bell::take_to_sleep(before.checked_sub(1).and_then(Bell::from_index))?;
        hint.store(bell.index() as u8 + 1, Relaxed);
        Some(bell)
    }
}
