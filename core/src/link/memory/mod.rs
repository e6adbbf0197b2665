//! The memory link: two processes of one host, an arena of shared memory, a Unix socket for control messages, eventfds as
//! doorbells.
//!
//! The initiator makes the arenas and hands out lane numbers; the acceptor checks what it is given. The data path is
//! [`Link::publish`] and [`Link::consume`]: a store, a full fence, one look at words that seldom change.

pub mod arena;
pub mod wire;

use super::bell::{self, Bell};
use super::doorbell;
use super::ring::{RingReader, RingWriter};
use super::{Lane, Link};
use crate::slab::Slab;
use crate::stream::{LaneId, MAX_MESSAGE, Message};
use crate::sys::{self, Errno, lock::Lock};
use crate::{stats, table};
use arena::{Arena, LANES, Side};
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use std::sync::OnceLock;

/// The most memory links of one process.
pub const MAX_LINKS: usize = 1024;
const MAX_ARENAS: usize = 64;
const VERSION: u8 = 1;
/// A lane id is a turn number and, in its low bits, a place in the arenas.
const PLACE_BITS: u32 = 10;
const PLACE_MASK: u32 = (1 << PLACE_BITS) - 1;
const _: () = assert!(MAX_ARENAS * LANES as usize == 1 << PLACE_BITS);
/// Stands in `owners` while a place is being taken.
const FREE_OWNER: u64 = u64::MAX;

const FREE: u32 = 0;
const GREETING: u32 = 1;
const OPEN: u32 = 2;
const LOST: u32 = 3;

/// One memory link. Slots are reused, never freed.
pub struct MemoryLink {
    index: usize,
    state: AtomicU32,
    side: AtomicU32,
    fd: AtomicI32,
    pid: AtomicI32,
    ring: AtomicU64,
    arenas: [AtomicPtr<u8>; MAX_ARENAS],
    peer_bells: [AtomicI32; 64],
    /// Bells that were armed before the peer's descriptor for them had come: rung when it comes.
    owed: AtomicU64,
    /// Bells whose descriptors the peer has been sent.
    sent: AtomicU64,
    /// Lanes in use in this process, both roles.
    lanes: AtomicU32,
    /// Streams by place, + 1; 0: free.
    owners: [AtomicU64; MAX_ARENAS * LANES as usize],
    /// Ids of the lanes there.
    ids: [AtomicU32; MAX_ARENAS * LANES as usize],
    /// Counts the lanes handed out: the upper part of an id.
    turn: AtomicU32,
    /// One past the highest place ever taken.
    high: AtomicU32,
    reading: Lock<()>,
}

/// What a link tells the rest of the process.
pub enum Event {
    /// The greeting is done: lanes may be opened.
    Ready,
    /// A control message, with a descriptor that the handler now owns.
    Message(Message, Option<i32>),
    /// The link is gone.
    Lost,
}

/// Who is told.
pub type Handler = fn(&'static MemoryLink, Event);
static HANDLER: OnceLock<Handler> = OnceLock::new();

/// Sets, once, who is told of a link's events.
pub fn set_handler(handler: Handler) {
    // A second start keeps the first handler: there is only one in the program.
    let _ = HANDLER.set(handler);
}

static LINKS: Slab<MemoryLink, MAX_LINKS> = Slab::new();

/// The link in slot `index`, whatever its state.
pub fn get(index: usize) -> Option<&'static MemoryLink> {
    LINKS.get(index as u32)
}

/// All links that are in use.
pub fn all() -> impl Iterator<Item = &'static MemoryLink> {
    LINKS.iter().filter(|l| l.state.load(Acquire) != FREE)
}

/// One of our descriptors has another number.
pub fn moved(fd: i32, new: i32) {
    for link in all() {
        for slot in link.peer_bells.iter().chain([&link.fd]) {
            crate::process::renumber(slot, fd, new);
        }
    }
}

impl MemoryLink {
    fn new(index: u32) -> Self {
        MemoryLink {
            index: index as usize,
            state: AtomicU32::new(FREE),
            side: AtomicU32::new(0),
            fd: AtomicI32::new(-1),
            pid: AtomicI32::new(0),
            ring: AtomicU64::new(0),
            arenas: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_ARENAS],
            peer_bells: [const { AtomicI32::new(-1) }; 64],
            owed: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            lanes: AtomicU32::new(0),
            owners: [const { AtomicU64::new(0) }; MAX_ARENAS * LANES as usize],
            ids: [const { AtomicU32::new(0) }; MAX_ARENAS * LANES as usize],
            turn: AtomicU32::new(0),
            high: AtomicU32::new(0),
            reading: Lock::new(()),
        }
    }

    fn claim(fd: i32, side: Side) -> Option<&'static MemoryLink> {
        let link = LINKS.take(MemoryLink::new)?;
        link.state.store(GREETING, Release);
        link.fd.store(fd, Release);
        link.side.store(side as u32, Release);
        link.owed.store(0, Release);
        link.sent.store(1 << Bell::BACKGROUND.index(), Release);
        link.lanes.store(0, Release);
        for owner in &link.owners {
            owner.store(0, Release);
        }
        // Ids differ from those of the links that had this slot before, so that what is late cannot be taken for new.
        let mut seed = [0u8; 4];
        if sys::random(&mut seed).is_ok() {
            link.turn.store(u32::from_ne_bytes(seed), Release);
        }
        link.high.store(0, Release);
        table::set_internal(fd);
        Some(link)
    }

    /// Starts a link as the initiator on a connected Unix socket, which it owns from then on. The peer's answer comes as
    /// [`Event::Ready`]. `ring` is the size of the rings in bytes.
    pub fn initiate(fd: i32, ring: u64) -> sys::Result<&'static MemoryLink> {
        let Some(link) = Self::claim(fd, Side::Initiator) else {
            sys::close(fd);
            return Err(Errno(libc::ENFILE));
        };
        link.ring.store(ring, Release);
        let started = link.greet();
        if started.is_err() {
            link.release();
        }
        started.map(|()| link)
    }

    fn greet(&self) -> sys::Result<()> {
        let ring = self.ring.load(Relaxed);
        let memfd = arena::create(ring)?;
        let sent = Arena::map(memfd, ring).and_then(|a| {
            self.arenas[0].store(a.address(), Release);
            let bell = Bell::BACKGROUND.fd().ok_or(Errno(libc::EMFILE))?;
            let mut hello = [0u8; 16];
            hello[0] = b'H';
            hello[1] = VERSION;
            hello[4..8].copy_from_slice(&(ring as u32).to_le_bytes());
            wire::send(self.fd.load(Relaxed), &hello, &[memfd, bell])
        });
        sys::close(memfd);
        sent
    }

    /// Starts a link as the acceptor, with the greeting that came on `fd` (which the link owns from then on).
    pub fn accept(fd: i32, hello: &mut wire::Packet) -> sys::Result<&'static MemoryLink> {
        let Some(link) = Self::claim(fd, Side::Acceptor) else {
            sys::close(fd);
            return Err(Errno(libc::ENFILE));
        };
        match link.greeted(hello) {
            Ok(()) => {
                link.state.store(OPEN, Release);
                stats::note(|c| c.links.add(1));
                Ok(link)
            }
            Err(e) => {
                link.release();
                Err(e)
            }
        }
    }

    fn greeted(&self, hello: &mut wire::Packet) -> sys::Result<()> {
        const BAD: Errno = Errno(libc::EPROTO);
        let bytes = hello.bytes();
        if bytes.len() != 16 || bytes[0] != b'H' || bytes[1] != VERSION {
            return Err(BAD);
        }
        let ring = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) as u64;
        if !ring.is_power_of_two() || !(4096..=1 << 26).contains(&ring) {
            return Err(BAD);
        }
        self.ring.store(ring, Release);
        let memfd = hello.take_fd(0).ok_or(BAD)?;
        let mapped = Arena::map(memfd, ring);
        sys::close(memfd);
        self.arenas[0].store(mapped?.address(), Release);
        self.set_bell(0, hello.take_fd(1).ok_or(BAD)?)?;
        self.pid
            .store(wire::peer(self.fd.load(Relaxed))?.0, Release);
        let bell = Bell::BACKGROUND.fd().ok_or(Errno(libc::EMFILE))?;
        wire::send(self.fd.load(Relaxed), &[b'h', VERSION], &[bell])
    }

    /// Takes the descriptor that the peer passed for one of its bells. EPROTO for what could keep a thread that rings it, or be
    /// harmed by it: anything but an anonymous inode that does not block. (The peer may still make its own eventfd block later, and
    /// fill it: see Security in docs/operations.md.)
    fn set_bell(&self, index: usize, fd: i32) -> sys::Result<()> {
        let flags = sys::fcntl(fd, libc::F_GETFL, 0).unwrap_or(0) as i32;
        if flags & libc::O_NONBLOCK == 0 || !sys::anonymous(fd) {
            sys::close(fd);
            return Err(Errno(libc::EPROTO));
        }
        let high = sys::move_high(fd)?;
        table::set_internal(high);
        let old = self.peer_bells[index].swap(high, AcqRel);
        if old >= 0 {
            table::clear(old);
            sys::close(old);
        }
        let bit = 1u64 << index;
        if self.owed.fetch_and(!bit, AcqRel) & bit != 0 {
            bell::ring_fd(high);
        }
        Ok(())
    }

    /// Its Unix socket, for the background thread's epoll.
    pub fn fd(&self) -> i32 {
        self.fd.load(Acquire)
    }

    /// Whether lanes may be opened.
    pub fn open(&self) -> bool {
        self.state.load(Acquire) == OPEN
    }

    /// Whether this end handed out the lane numbers.
    pub fn initiator(&self) -> bool {
        self.side() == Side::Initiator
    }

    fn side(&self) -> Side {
        if self.side.load(Relaxed) == Side::Initiator as u32 {
            Side::Initiator
        } else {
            Side::Acceptor
        }
    }

    /// The ring size of its lanes in bytes.
    pub fn ring_size(&self) -> u64 {
        self.ring.load(Relaxed)
    }

    fn arena(&self, index: usize) -> Option<Arena> {
        Arena::at(
            self.arenas.get(index)?.load(Acquire),
            self.ring.load(Relaxed),
        )
    }

    /// Takes a lane for the stream `owner` (initiator only); makes a new arena when none has room. None: no more lanes, or no
    /// memory. Its id is never used again; its place is, when both ends are done with it.
    pub fn new_lane(&self, owner: u64) -> Option<LaneId> {
        let turn = self.turn.fetch_add(1, Relaxed);
        let start = self.high.load(Relaxed) as usize;
        // The place after the last one taken, so that a place rests a while; new places only when all known ones are in use.
        let place = (0..start)
            .map(|i| (i + turn as usize) % start)
            .chain(start..LANES as usize * MAX_ARENAS)
            .find(|p| {
                self.owners[*p]
                    .compare_exchange(0, FREE_OWNER, AcqRel, Relaxed)
                    .is_ok()
            })?;
        if !self.provide((place as u32 / LANES) as usize) {
            self.owners[place].store(0, Release);
            return None;
        }
        self.high.fetch_max(place as u32 + 1, Relaxed);
        let id = LaneId((turn << PLACE_BITS) | place as u32);
        self.ids[place].store(id.0, Release);
        self.owners[place].store(owner + 1, Release);
        self.lanes.fetch_add(1, AcqRel);
        Some(id)
    }

    /// Sees to it that arena `index` is there and that the peer has it.
    fn provide(&self, index: usize) -> bool {
        if self.arena(index).is_some() {
            return true;
        }
        let ring = self.ring.load(Relaxed);
        let Ok(memfd) = arena::create(ring) else {
            return false;
        };
        let made = Arena::map(memfd, ring).and_then(|a| {
            self.arenas[index].store(a.address(), Release);
            wire::send(self.fd(), &[b'A', index as u8], &[memfd])
        });
        sys::close(memfd);
        if made.is_err()
            && let Some(a) = self.arena(index)
        {
            self.arenas[index].store(ptr::null_mut(), Release);
            a.retire();
        }
        made.is_ok()
    }

    /// The acceptor's side of [`MemoryLink::new_lane`]: false when the place is still in use here.
    pub fn claim_lane(&self, lane: LaneId, owner: u64) -> bool {
        let place = (lane.0 & PLACE_MASK) as usize;
        let free = self.owners[place]
            .compare_exchange(0, owner + 1, AcqRel, Relaxed)
            .is_ok();
        if free {
            self.ids[place].store(lane.0, Release);
            self.lanes.fetch_add(1, AcqRel);
        }
        free
    }

    /// Which stream a lane belongs to in this process; None for a lane that is gone.
    pub fn owner(&self, lane: LaneId) -> Option<u64> {
        let place = (lane.0 & PLACE_MASK) as usize;
        let owner = self.owners[place].load(Acquire);
        (owner != 0 && owner != FREE_OWNER && self.ids[place].load(Acquire) == lane.0)
            .then(|| owner - 1)
    }

    /// All streams of this process with a lane on this link.
    pub fn owners(&self) -> impl Iterator<Item = u64> {
        let high = LANES as usize * MAX_ARENAS;
        self.owners[..high]
            .iter()
            .map(|o| o.load(Acquire))
            .filter(|o| *o != 0 && *o != FREE_OWNER)
            .map(|o| o - 1)
    }

    /// The lane's place is free on this end.
    pub fn free_lane(&self, lane: LaneId) {
        let place = (lane.0 & PLACE_MASK) as usize;
        if self.ids[place].load(Acquire) == lane.0 && self.owners[place].swap(0, AcqRel) != 0 {
            self.lanes.fetch_sub(1, AcqRel);
        }
    }

    /// The lane with that number; None when the peer named one that does not exist.
    pub fn lane(&'static self, id: LaneId) -> Option<Lane> {
        let place = id.0 & PLACE_MASK;
        let arena = self.arena((place / LANES) as usize)?;
        let (out, input) = arena.lane(place % LANES, self.side());
        Some(Lane {
            link: self,
            id,
            out,
            input,
        })
    }

    fn armed(&self, side: Side) -> Option<&'static AtomicU64> {
        self.arena(0).map(|a| a.armed(side))
    }

    #[cold]
    fn ring_peer(&self, mut hit: u64) {
        while hit != 0 {
            let index = hit.trailing_zeros() as usize;
            hit &= hit - 1;
            let mut fd = self.peer_bells[index].load(Acquire);
            if fd < 0 {
                self.owed.fetch_or(1 << index, SeqCst);
                // The descriptor may have come between the two looks.
                fd = self.peer_bells[index].load(SeqCst);
            }
            if fd >= 0 {
                bell::ring_fd(fd);
                stats::note(|c| c.doorbells.add(1));
            }
        }
    }

    /// Moves a cursor that the peer may sleep on.
    #[inline]
    fn move_cursor(&self, cursor: &AtomicU64, to: u64, waiting: &AtomicU64) {
        let Some(armed) = self.armed(self.side().other()) else {
            cursor.store(to, Release);
            return;
        };
        let due = doorbell::publish(cursor, to, waiting, armed);
        if due != 0 {
            self.ring_peer(due);
        }
    }

    /// Takes all packets that have come. Called by the background thread, and by a thread that waits for an answer.
    pub fn read(&'static self) {
        // Whoever holds it reads everything; when it is free again, what had come is done. (None: a handler of ours asks.)
        let Some(reading) = self.reading.lock() else {
            return;
        };
        while matches!(self.state.load(Acquire), GREETING | OPEN) {
            match wire::receive(self.fd()) {
                Ok(mut packet) => {
                    if let Err(e) = self.packet(&mut packet) {
                        crate::log::warn!(
                            "memory link to process {}: bad packet ({e:?}), giving the link up",
                            self.pid.load(Relaxed)
                        );
                        self.fail();
                    }
                }
                Err(Errno(libc::EAGAIN)) => break,
                Err(Errno(libc::EINTR)) => {}
                Err(Errno(libc::ENOTCONN | libc::ECONNRESET)) => self.lose(),
                Err(_) => self.fail(),
            }
        }
        drop(reading);
    }

    fn packet(&'static self, packet: &mut wire::Packet) -> sys::Result<()> {
        const BAD: Errno = Errno(libc::EPROTO);
        let Some(handler) = HANDLER.get() else {
            return Ok(());
        };
        let mut fd = packet.take_fd(0);
        let result = match (packet.bytes(), self.state.load(Relaxed)) {
            ([b'h', VERSION], GREETING) if self.initiator() => match fd.take() {
                Some(bell) => {
                    self.set_bell(0, bell)?;
                    self.pid.store(wire::peer(self.fd())?.0, Release);
                    self.state.store(OPEN, Release);
                    stats::note(|c| c.links.add(1));
                    handler(self, Event::Ready);
                    Ok(())
                }
                None => Err(BAD),
            },
            ([b'A', index], OPEN) if !self.initiator() => {
                match (self.arenas.get(*index as usize), &fd) {
                    (Some(slot), Some(memfd)) if slot.load(Relaxed).is_null() => {
                        match Arena::map(*memfd, self.ring.load(Relaxed)) {
                            Ok(arena) => {
                                slot.store(arena.address(), Release);
                                Ok(())
                            }
                            // Lanes in it will be refused for want of memory.
                            Err(Errno(libc::ENOMEM)) => Ok(()),
                            Err(e) => Err(e),
                        }
                    }
                    _ => Err(BAD),
                }
            }
            ([b'B', index @ 0..64], OPEN) => match fd.take() {
                Some(bell) => self.set_bell(*index as usize, bell),
                None => Err(BAD),
            },
            ([b'M', bytes @ ..], OPEN) => match Message::decode(bytes) {
                Ok(message) => {
                    handler(self, Event::Message(message, fd.take()));
                    Ok(())
                }
                Err(_) => Err(BAD),
            },
            _ => Err(BAD),
        };
        if let Some(fd) = fd {
            sys::close(fd);
        }
        result
    }

    /// [`MemoryLink::lose`] because something went wrong; not because the peer ended.
    pub fn fail(&'static self) {
        stats::note(|c| c.links_lost.add(1));
        self.lose();
    }

    /// Gives the link up: the peer notices, all its streams are told to resume on TCP.
    pub fn lose(&'static self) {
        let before = self.state.swap(LOST, AcqRel);
        if before == LOST || before == FREE {
            return;
        }
        // The peer sees the end of the connection even if somebody else still holds a duplicate of the socket.
        let _ = sys::shutdown(self.fd(), libc::SHUT_RDWR);
        if let Some(handler) = HANDLER.get() {
            handler(self, Event::Lost);
        }
    }

    /// Frees a lost link that no stream uses any more.
    pub fn release(&self) {
        let fd = self.fd.swap(-1, AcqRel);
        if fd >= 0 {
            table::clear(fd);
            sys::close(fd);
        }
        for slot in &self.peer_bells {
            let bell = slot.swap(-1, AcqRel);
            if bell >= 0 {
                table::clear(bell);
                sys::close(bell);
            }
        }
        let ring = self.ring.load(Relaxed);
        for slot in &self.arenas {
            if let Some(a) = Arena::at(slot.swap(ptr::null_mut(), AcqRel), ring) {
                a.retire();
            }
        }
        self.pid.store(0, Release);
        self.state.store(FREE, Release);
        LINKS.give(self.index as u32);
    }

    /// Whether it is lost and may be released.
    pub fn idle_and_lost(&self) -> bool {
        self.state.load(Acquire) == LOST && self.lanes.load(Acquire) == 0
    }

    /// In a fork child: the parent's links are not ours. Descriptors are closed, memory stays mapped (inherited streams
    /// may be looked at), nothing is said to the peer.
    pub fn abandon_all() {
        LINKS.reset_lock();
        for link in LINKS.iter() {
            if link.state.swap(FREE, AcqRel) == FREE {
                continue;
            }
            LINKS.give(link.index as u32);
            link.reading.reset();
            let bells = link.peer_bells.iter().map(|b| b.swap(-1, AcqRel));
            for fd in bells.chain([link.fd.swap(-1, AcqRel)]) {
                if fd >= 0 {
                    table::clear(fd);
                    sys::close(fd);
                }
            }
            for slot in &link.arenas {
                slot.store(ptr::null_mut(), Release);
            }
        }
    }
}

impl Link for MemoryLink {
    #[inline]
    fn publish(&self, out: &RingWriter, to: u64) {
        let c = out.0.cursors();
        self.move_cursor(&c.published, to, &c.reader_bells);
    }

    #[inline]
    fn consume(&self, input: &RingReader, from: u64, to: u64) {
        let c = input.0.cursors();
        // A writer sleeps only when less than a quarter is free, so it is enough to look once a quarter.
        let quarter = input.0.size() / 4;
        if from / quarter == to / quarter {
            c.consumed.store(to, Release);
        } else {
            self.move_cursor(&c.consumed, to, &c.writer_bells);
        }
    }

    fn send(&self, message: &Message, descriptor: Option<i32>) -> bool {
        if !self.open() {
            return false;
        }
        let mut packet = [0u8; 1 + MAX_MESSAGE];
        packet[0] = b'M';
        let mut body = [0u8; MAX_MESSAGE];
        let len = message.encode(&mut body);
        packet[1..1 + len].copy_from_slice(&body[..len]);
        wire::send(self.fd(), &packet[..1 + len], descriptor.as_slice()).is_ok()
    }

    fn arm(&self, bell: Bell) -> bool {
        if self.sent.load(Acquire) & bell.bit() == 0 {
            let Some(fd) = bell.fd() else { return false };
            if wire::send(self.fd(), &[b'B', bell.index() as u8], &[fd]).is_err() {
                return false;
            }
            self.sent.fetch_or(bell.bit(), AcqRel);
        }
        let Some(armed) = self.armed(self.side()) else {
            return false;
        };
        doorbell::arm(armed, bell.bit());
        true
    }

    fn disarm(&self, bell: Bell) {
        if let Some(armed) = self.armed(self.side()) {
            doorbell::disarm(armed, bell.bit());
        }
    }

    fn lost(&self) -> bool {
        self.state.load(Acquire) == LOST
    }

    fn poll(&self) {
        if let Some(link) = get(self.index) {
            link.read();
        }
    }

    fn peer_pid(&self) -> i32 {
        self.pid.load(Relaxed)
    }

    fn index(&self) -> usize {
        self.index
    }
}
