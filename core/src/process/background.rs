//! The background thread: the rendezvous, the links' control messages, and the TCP sockets under lanes.
//!
//! Everything that a program's thread must not wait for happens here; it never waits for a peer itself. It sleeps in one
//! epoll instance and is idle when nothing happens.

use super::events::{self, News};
use super::{family, thread};
use crate::link::Link;
use crate::link::bell::{self, Bell};
use crate::link::memory::wire::{self, Name};
use crate::link::memory::{self, MemoryLink};
use crate::log::{debug, error, warn};
use crate::policy;
use crate::rendezvous::diag;
use crate::rendezvous::local::{Callbacks, Local, Outcome};
use crate::socket::close;
use crate::socket::incoming;
use crate::socket::lanes::{self, NotOpened};
use crate::socket::pin::Pin;
use crate::socket::stream::{Stream, StreamId};
use crate::stats::{self, Reason};
use crate::stream::{Addresses, RefuseReason};
use crate::sys::{self, Errno, lock::Lock};
use crate::table;
use core::panic::AssertUnwindSafe;
use core::sync::atomic::{AtomicI32, Ordering::*};
use libc::epoll_event;
use std::collections::HashMap;

static EPOLL: AtomicI32 = AtomicI32::new(-1);

/// What an entry of the epoll instance is, in the upper byte of its data.
mod kind {
    pub const BELL: u64 = 1 << 56;
    pub const RENDEZVOUS: u64 = 2 << 56;
    pub const PROCESS: u64 = 3 << 56;
    pub const GUEST: u64 = 4 << 56;
    pub const LINK: u64 = 5 << 56;
    pub const STREAM: u64 = 6 << 56;
    pub const FAMILY: u64 = 7 << 56;
    pub const MASK: u64 = 0xff << 56;
}

/// What program threads ask of the background thread: a stream, and in the upper byte why.
mod wish {
    pub const ASK: u64 = 1 << 56;
    pub const LOOK: u64 = 2 << 56;
    pub const PIN: u64 = 3 << 56;
    pub const KEEP: u64 = 4 << 56;
    pub const DOUBT: u64 = 5 << 56;
}

/// How long after the loss of its link a peer may take to end, in nanoseconds.
const DOUBT_NS: u64 = 50_000_000;
/// How often closed streams are looked at whose peers say nothing, in nanoseconds.
const KEPT_EVERY_NS: u64 = 1_000_000_000;

/// The most processes that may be about to greet us; more are refused.
const MAX_GUESTS: usize = 256;
/// How long each of them may take, in nanoseconds.
const GREETING_NS: u64 = 10_000_000_000;

const INBOX: usize = 1024;

struct Inbox {
    items: [u64; INBOX],
    count: usize,
}

static WISHES: Lock<Inbox> = Lock::new(Inbox {
    items: [0; INBOX],
    count: 0,
});

fn post(item: u64) -> bool {
    let fits = WISHES.lock().is_some_and(|mut inbox| {
        let n = inbox.count;
        let fits = n < INBOX;
        if fits {
            inbox.items[n] = item;
            inbox.count += 1;
        }
        fits
    });
    kick();
    fits
}

/// Wakes the thread.
pub fn kick() {
    Bell::BACKGROUND.ring();
}

/// A stream is worth a lane: asks for one, or sees to it that it can be asked.
pub fn ask(s: &Stream) {
    if !thread::ensure() {
        s.stays_on_tcp(Reason::Internal);
    } else if !post(wish::ASK | s.id().get()) {
        s.asked.store(false, Relaxed);
    }
}

/// Have another look at a stream's TCP socket in a moment.
pub fn look_later(s: &Stream) {
    thread::ensure();
    post(wish::LOOK | s.id().get());
}

/// A fork child wants the stream back on TCP.
pub fn pin(s: &Stream) {
    post(wish::PIN | s.id().get());
}

/// The stream's link is lost; whether its peer is there is seen a little later.
pub fn doubt(s: &Stream) {
    post(wish::DOUBT | s.id().get());
}

/// The program closed the stream; the rest of it is the background thread's.
pub fn keep(s: &Stream) {
    thread::ensure();
    post(wish::KEEP | s.id().get());
}

/// Adds, changes or removes a stream's TCP socket in the epoll instance.
pub fn watch(op: i32, fd: i32, events: u32, id: StreamId) -> bool {
    thread::ensure()
        && sys::epoll_ctl(EPOLL.load(Acquire), op, fd, events, kind::STREAM | id.get()).is_ok()
}

/// Makes what the thread needs; before its first start, and again after a fork.
pub fn prepare() -> bool {
    if EPOLL.load(Acquire) >= 0 {
        return true;
    }
    let Some(bell) = Bell::BACKGROUND.fd() else {
        return false;
    };
    let Ok(epoll) = sys::epoll_create().and_then(sys::move_high) else {
        return false;
    };
    table::set_internal(epoll);
    EPOLL.store(epoll, Release);
    memory::set_handler(events::on_link);
    if let Some(fd) = family::bell() {
        watch_family(fd);
    }
    sys::epoll_ctl(
        epoll,
        libc::EPOLL_CTL_ADD,
        bell,
        libc::EPOLLIN as u32,
        kind::BELL,
    )
    .is_ok()
}

/// The family has a bell: each ring of it is an edge. (Twice is once: EEXIST. Before [`prepare`] there is nobody to hear it.)
pub fn watch_family(fd: i32) {
    let edge = (libc::EPOLLIN | libc::EPOLLET) as u32;
    let _ = sys::epoll_ctl(
        EPOLL.load(Acquire),
        libc::EPOLL_CTL_ADD,
        fd,
        edge,
        kind::FAMILY,
    );
}

/// One of our descriptors has another number.
pub fn moved(fd: i32, new: i32) {
    super::renumber(&EPOLL, fd, new);
    // None: a handler of the program interrupted nobody but the background thread, which has none.
    if let Some(mut state) = STATE.lock()
        && let Some(state) = state.as_mut()
    {
        if state.listener == fd {
            state.listener = new;
        }
        if let Some((guest, _)) = state.guests.iter_mut().find(|(guest, _)| *guest == fd) {
            *guest = new;
            let epoll = EPOLL.load(Acquire);
            let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, 0, 0);
            let data = kind::GUEST | new as u64;
            let _ = sys::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, new, libc::EPOLLIN as u32, data);
        }
        state.local.moved(fd, new);
    }
}

/// In a fork child: everything here was the parent's.
pub fn abandon() {
    WISHES.reset();
    if let Some(mut inbox) = WISHES.lock() {
        inbox.count = 0;
    }
    let epoll = EPOLL.swap(-1, AcqRel);
    if epoll >= 0 {
        table::clear(epoll);
        sys::close(epoll);
    }
    STATE.reset();
    if let Some(mut state) = STATE.lock()
        && let Some(old) = state.take()
    {
        for fd in old.descriptors() {
            table::clear(fd);
            sys::close(fd);
        }
        // Its memory stays: the allocator of a forked threaded program must not be called here.
        core::mem::forget(old);
    }
}

struct Waiting {
    stream: u64,
    link: usize,
    tries: u32,
    due: u64,
}

struct State {
    local: Local,
    listener: i32,
    /// Who connected and has not greeted yet, and until when it may.
    guests: Vec<(i32, u64)>,
    by_name: HashMap<Vec<u8>, usize>,
    waiting: Vec<Waiting>,
    pins: Vec<Pin>,
    looks: Vec<u64>,
    kept: Vec<u64>,
    doubts: Vec<(u64, u64)>,
    lost: bool,
}

static STATE: Lock<Option<Box<State>>> = Lock::new(None);

fn watch_rendezvous(fd: i32, on: bool) {
    let op = if on {
        libc::EPOLL_CTL_ADD
    } else {
        libc::EPOLL_CTL_DEL
    };
    // Removal fails when the descriptor is gone already.
    let _ = sys::epoll_ctl(
        EPOLL.load(Acquire),
        op,
        fd,
        libc::EPOLLIN as u32,
        kind::RENDEZVOUS | fd as u64,
    );
}

impl State {
    fn new() -> Option<State> {
        let mut bytes = [0u8; 8];
        sys::random(&mut bytes).ok()?;
        let name = format!("p/{}-{:016x}", sys::getpid(), u64::from_ne_bytes(bytes)).into_bytes();
        let listener = Name::new(&name).listen().ok()?;
        table::set_internal(listener);
        let epoll = EPOLL.load(Acquire);
        sys::epoll_ctl(
            epoll,
            libc::EPOLL_CTL_ADD,
            listener,
            libc::EPOLLIN as u32,
            kind::PROCESS,
        )
        .ok()?;
        let call = Callbacks {
            watch: watch_rendezvous,
            hold: |names| lanes::find(names).is_some(),
            alive: |id| StreamId::from(id).stream().is_some(),
        };
        Some(State {
            local: Local::new(name, call),
            listener,
            guests: Vec::new(),
            by_name: HashMap::new(),
            waiting: Vec::new(),
            pins: Vec::new(),
            looks: Vec::new(),
            kept: Vec::new(),
            doubts: Vec::new(),
            lost: false,
        })
    }

    fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.local
            .descriptors()
            .chain(self.guests.iter().map(|(fd, _)| *fd))
            .chain([self.listener])
    }

    /// One wake-up's work. Returns when to wake up again, if at all.
    fn turn(&mut self, events: &[epoll_event]) -> Option<u64> {
        let now = sys::now();
        for e in events {
            let (what, data, bits) = (e.u64 & kind::MASK, e.u64 & !kind::MASK, e.events);
            match what {
                kind::BELL => Bell::BACKGROUND.drain(),
                kind::FAMILY => family::serve(),
                kind::RENDEZVOUS => self.local.readable(data as i32, now),
                kind::PROCESS => self.accept(now),
                kind::GUEST => self.greeted(data as i32),
                kind::LINK => {
                    if let Some(link) = memory::get(data as usize) {
                        link.read();
                    }
                }
                kind::STREAM => events::on_tcp(StreamId::from(data), bits),
                _ => {}
            }
        }
        self.wishes(now);
        for news in events::news() {
            self.news(news, now);
        }
        let mut next = self.local.tick(now);
        for outcome in self.local.outcomes() {
            self.outcome(outcome, now);
        }
        self.local.tidy();
        next = earlier(next, self.open_waiting(now));
        while let Some((fd, _)) = self.guests.iter().copied().find(|(_, until)| *until <= now) {
            self.dismiss(fd);
        }
        next = earlier(next, self.guests.iter().map(|(_, until)| *until).min());
        self.pins
            .retain_mut(|pin| matches!(pin.step(), crate::calls::Next::Wait(_)));
        let looks = core::mem::take(&mut self.looks);
        for id in looks {
            if let Some(s) = StreamId::from(id).stream() {
                events::on_tcp(s.id(), 0);
            }
        }
        self.doubts.retain(|(id, due)| {
            let Some(s) = StreamId::from(*id).stream() else {
                return false;
            };
            if *due <= now {
                lanes::resolve_doubt(s);
            }
            *due > now
        });
        next = earlier(next, self.doubts.iter().map(|(_, due)| *due).min());
        self.kept.retain(|id| {
            StreamId::from(*id)
                .stream()
                .is_some_and(|s| !close::finish_if_done(s))
        });
        if !self.kept.is_empty() {
            next = earlier(next, Some(now + KEPT_EVERY_NS));
        }
        if !self.pins.is_empty()
            || !self.looks.is_empty()
            || WISHES.lock().is_some_and(|i| i.count > 0)
        {
            next = earlier(next, Some(now + 1_000_000));
        }
        if self.lost {
            self.lost = memory::all().any(|l| l.lost());
            for link in memory::all().filter(|l| l.idle_and_lost()) {
                let _ = sys::epoll_ctl(EPOLL.load(Acquire), libc::EPOLL_CTL_DEL, link.fd(), 0, 0);
                self.by_name.retain(|_, index| *index != link.index());
                link.release();
            }
        }
        next
    }

    fn wishes(&mut self, now: u64) {
        let mut items = Vec::new();
        if let Some(mut inbox) = WISHES.lock() {
            items.extend_from_slice(&inbox.items[..inbox.count]);
            inbox.count = 0;
        }
        for item in items {
            let id = StreamId::from(item & !kind::MASK);
            let Some(s) = id.stream() else { continue };
            match item & kind::MASK {
                wish::ASK => self.ask(s, now),
                wish::LOOK => self.looks.push(id.get()),
                wish::DOUBT => self.doubts.push((id.get(), now + DOUBT_NS)),
                wish::KEEP => self.kept.push(id.get()),
                wish::PIN => self.pins.push(Pin::stream(s, Reason::PinnedFork)),
                _ => {}
            }
        }
    }

    fn ask(&mut self, s: &Stream, now: u64) {
        let Some(names) = lanes::addresses(s.fd()) else {
            return;
        };
        if s.connector.load(Relaxed) {
            self.local.ask(s.id().get(), names, now);
        } else {
            self.local.join(names.local.port());
        }
    }

    fn outcome(&mut self, outcome: Outcome, now: u64) {
        match outcome {
            Outcome::Failed(id, reason) => {
                if let Some(s) = StreamId::from(id).stream() {
                    debug!("stream {}: stays on TCP ({})", s.fd(), reason.name());
                    s.stays_on_tcp(reason);
                    // It was made careful if it got as far as an OPEN.
                    lanes::uncareful(s);
                }
            }
            Outcome::Found(id, name) => {
                let Some(s) = StreamId::from(id).stream() else {
                    return;
                };
                match self.link_to(&name) {
                    Ok(link) => self.waiting.push(Waiting {
                        stream: id,
                        link,
                        tries: 0,
                        due: now,
                    }),
                    Err(e) => {
                        warn!("stream {}: no link to the peer (error {})", s.fd(), e.0);
                        s.stays_on_tcp(Reason::PeerNotReachable);
                    }
                }
            }
        }
    }

    fn link_to(&mut self, name: &[u8]) -> sys::Result<usize> {
        if let Some(index) = self.by_name.get(name)
            && memory::get(*index).is_some_and(|l| !l.lost())
        {
            return Ok(*index);
        }
        let link = MemoryLink::initiate(Name::new(name).connect()?, policy::RING_SIZE.get())?;
        watch_link(link);
        self.by_name.insert(name.to_vec(), link.index());
        Ok(link.index())
    }

    /// Sends OPEN for streams whose link is ready.
    fn open_waiting(&mut self, now: u64) -> Option<u64> {
        let mut next = None;
        let waiting = core::mem::take(&mut self.waiting);
        for mut w in waiting {
            let Some(s) = StreamId::from(w.stream).stream() else {
                continue;
            };
            let Some(link) = memory::get(w.link) else {
                continue;
            };
            if link.lost() {
                s.stays_on_tcp(Reason::LinkLost);
                lanes::uncareful(s);
                continue;
            }
            if !link.open() {
                self.waiting.push(w);
                continue;
            }
            if w.due > now {
                next = earlier(next, Some(w.due));
                self.waiting.push(w);
                continue;
            }
            match lanes::addresses(s.fd()) {
                Some(names) if trusted(link, names) => {}
                _ => {
                    s.stays_on_tcp(Reason::Credentials);
                    lanes::uncareful(s);
                    continue;
                }
            }
            match lanes::open(s, link) {
                Ok(()) => {}
                Err(NotOpened::NotYet) if w.tries < 24 => {
                    w.tries += 1;
                    w.due = now + (200_000 << w.tries.min(10)).min(50_000_000);
                    next = earlier(next, Some(w.due));
                    self.waiting.push(w);
                }
                Err(why) => {
                    let reason = match why {
                        NotOpened::NoRoom => Reason::NoMemory,
                        NotOpened::NotYet => Reason::ReaderBusy,
                        NotOpened::Never => Reason::Draining,
                    };
                    s.stays_on_tcp(reason);
                    lanes::uncareful(s);
                }
            }
        }
        next
    }

    fn news(&mut self, news: News, now: u64) {
        match news {
            News::Ready(_) => {}
            News::Lost(_) => self.lost = true,
            News::Closed(id) => {
                if let Some(s) = StreamId::from(id).stream() {
                    incoming::settle(s);
                    bell::ring_all(s.rx_bells.load(Acquire) | s.tx_bells.load(Acquire));
                }
            }
            News::Refused(id, reason) => {
                let Some(s) = StreamId::from(id).stream() else {
                    return;
                };
                debug!("stream {}: refused ({reason:?})", s.fd());
                match (reason, lanes::addresses(s.fd())) {
                    (
                        RefuseReason::NotYet | RefuseReason::Busy | RefuseReason::Redirect,
                        Some(names),
                    ) => {
                        let tries = s.refusals.fetch_add(1, Relaxed) + 1;
                        self.local.again(id, names, tries, now);
                    }
                    (RefuseReason::NoMemory, _) => self.stay(s, Reason::NoMemory),
                    (RefuseReason::Proof, _) => self.stay(s, Reason::Credentials),
                    _ => self.stay(s, Reason::Refused),
                }
            }
        }
    }

    fn stay(&self, s: &Stream, reason: Reason) {
        s.stays_on_tcp(reason);
        lanes::uncareful(s);
    }

    fn accept(&mut self, now: u64) {
        while let Ok(fd) = sys::accept(self.listener) {
            if self.guests.len() >= MAX_GUESTS {
                sys::close(fd);
                continue;
            }
            let Ok(fd) = sys::move_high(fd) else { continue };
            table::set_internal(fd);
            self.guests.push((fd, now + GREETING_NS));
            let data = kind::GUEST | fd as u64;
            let events = libc::EPOLLIN as u32;
            if sys::epoll_ctl(EPOLL.load(Acquire), libc::EPOLL_CTL_ADD, fd, events, data).is_err() {
                self.dismiss(fd);
            }
        }
    }

    fn dismiss(&mut self, fd: i32) {
        self.guests.retain(|(g, _)| *g != fd);
        table::clear(fd);
        sys::close(fd);
    }

    fn greeted(&mut self, fd: i32) {
        if !self.guests.iter().any(|(g, _)| *g == fd) {
            return;
        }
        match wire::receive(fd) {
            Ok(mut hello) => {
                self.guests.retain(|(g, _)| *g != fd);
                let _ = sys::epoll_ctl(EPOLL.load(Acquire), libc::EPOLL_CTL_DEL, fd, 0, 0);
                match MemoryLink::accept(fd, &mut hello) {
                    Ok(link) => watch_link(link),
                    Err(e) => warn!("a process wanted a link and did not get it (error {})", e.0),
                }
            }
            Err(Errno(libc::EAGAIN | libc::EINTR)) => {}
            Err(_) => self.dismiss(fd),
        }
    }
}

/// Whether the process at the other end of the link may be given a descriptor of the connection: it runs under our user id
/// or root's, or under the one that the kernel names as the owner of the connection's other end.
fn trusted(link: &MemoryLink, names: Addresses) -> bool {
    let Ok((_, uid)) = wire::peer(link.fd()) else {
        return false;
    };
    uid == 0 || uid == sys::geteuid() || diag::peer_uid(names) == Some(uid)
}

fn watch_link(link: &'static MemoryLink) {
    let data = kind::LINK | link.index() as u64;
    if sys::epoll_ctl(
        EPOLL.load(Acquire),
        libc::EPOLL_CTL_ADD,
        link.fd(),
        libc::EPOLLIN as u32,
        data,
    )
    .is_err()
    {
        link.fail();
    }
}

fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The thread's life.
pub fn run() {
    let mut events = [epoll_event { events: 0, u64: 0 }; 64];
    let mut due: Option<u64> = Some(0);
    while !thread::stopping() {
        let longest = thread::longest_sleep_ns().map(|ns| sys::now() + ns);
        let timeout = match earlier(due, longest) {
            None => -1,
            Some(at) => (at.saturating_sub(sys::now()))
                .div_ceil(1_000_000)
                .min(60_000) as i32,
        };
        // SAFETY: the array has room for 64.
        let count =
            match unsafe { sys::epoll_wait(EPOLL.load(Acquire), events.as_mut_ptr(), 64, timeout) }
            {
                Ok(n) => n,
                Err(Errno(libc::EINTR)) => 0,
                Err(e) => {
                    error!("the background thread cannot wait (error {}), it ends", e.0);
                    return;
                }
            };
        stats::note(|c| c.wakeups.add(1));
        let turn = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let mut state = STATE.lock()?;
            if state.is_none() {
                *state = Some(Box::new(State::new()?));
            }
            state.as_mut()?.turn(&events[..count])
        }));
        due = turn.unwrap_or(None);
    }
}
