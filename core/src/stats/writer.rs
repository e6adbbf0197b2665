//! The writer: makes this process's segment when the first stream needs it, hands out records, and survives fork.
//!
//! The segment stays at one address for the life of the process, also across fork, so references into it never dangle: the
//! child puts private memory over the mapping ([`forked`]) and replaces that by a segment of its own when it has a stream.

use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use libc::c_int;

use super::layout::{
    Carrier, Direction, LinkKind, MAGIC, NAME, ProcessCounters, Role, STREAMS, Segment,
    StreamRecord, VERSION,
};
use super::{Flow, Reason, sys};

/// Where the segment is mapped; null before the first stream.
static SEGMENT: AtomicPtr<Segment> = AtomicPtr::new(std::ptr::null_mut());
/// One of the constants below.
static STATE: AtomicU8 = AtomicU8::new(ABSENT);
/// The memfd, or -1.
static FD: AtomicI32 = AtomicI32::new(-1);
/// Counts the forks on the way to this process: a slot of the parent means nothing here.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// Top of the list of free records: index + 1, and above it a tag that changes with each operation (against ABA).
static FREE: AtomicU64 = AtomicU64::new(0);
/// Stands in for the counters where no segment can be had, so that whoever counts need not ask.
static UNSEEN: ProcessCounters = ProcessCounters::new();

/// Nothing is there that others could see.
const ABSENT: u8 = 0;
/// A thread is making the segment.
const BUSY: u8 = 1;
/// The segment can be used.
const READY: u8 = 2;
/// There will be no segment (no memory, no descriptors, forbidden); nobody tries again.
const FAILED: u8 = 3;

/// Names a record of this process, until [`close_stream`] or fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    index: u32,
    epoch: u32,
}

/// Lists a new stream, on TCP in both directions. `local` and `peer` are sockaddr bytes and may be empty (not known; readers
/// find them in /proc). `None` if the stream cannot be listed: it works all the same.
pub fn open_stream(fd: c_int, role: Role, local: &[u8], peer: &[u8]) -> Option<Slot> {
    let segment = segment()?;
    segment.process.streams.add(1);
    let Some(index) = take_record(segment) else {
        segment.process.unlisted.add(1);
        return None;
    };
    segment.streams[index as usize].begin(fd, role, sys::now(), local, peer);
    Some(Slot {
        index,
        epoch: EPOCH.load(Ordering::Relaxed),
    })
}

/// The record of a listed stream; `None` for a slot from before a fork. The reference stays valid for ever (it may be kept
/// beside the stream), but after [`close_stream`] it is another stream's.
#[inline]
pub fn record(slot: Slot) -> Option<&'static StreamRecord> {
    if slot.epoch != EPOCH.load(Ordering::Relaxed) {
        return None;
    }
    let segment = SEGMENT.load(Ordering::Acquire);
    // SAFETY: a slot exists only if the segment does, and that is never unmapped.
    unsafe { segment.as_ref() }?
        .streams
        .get(slot.index as usize)
}

/// The stream is gone: its counts go to the process's sums, its record is free. Does nothing for a slot from before a fork.
pub fn close_stream(slot: Slot) {
    let (Some(record), Some(segment)) = (record(slot), existing()) else {
        return;
    };
    if record.open.swap(0, Ordering::AcqRel) == 0 {
        return;
    }
    for (sum, flow) in segment.process.closed.iter().zip([&record.tx, &record.rx]) {
        add_up(&sum.0, flow);
    }
    free_record(segment, slot.index);
}

/// The counters of the process. Where no segment can be had, counters that nobody sees.
pub fn counters() -> &'static ProcessCounters {
    segment().map_or(&UNSEEN, |segment| &segment.process)
}

/// Counts for the process, if there is a segment: making one takes a descriptor, for a moment a low one, which the background
/// thread must not do behind the program's back.
#[inline]
pub fn note(count: impl FnOnce(&'static ProcessCounters)) {
    if let Some(segment) = existing() {
        count(&segment.process);
    }
}

/// The descriptor of the segment, which the program must not close by sweeping over descriptors that are not its own.
pub fn descriptor() -> Option<c_int> {
    Some(FD.load(Ordering::Relaxed)).filter(|fd| *fd >= 0)
}

/// One of our descriptors has another number.
pub fn moved(fd: c_int, new: c_int) {
    crate::process::renumber(&FD, fd, new);
}

/// For the child after fork, before it does anything else with streams: what it counts from now on is its own. Slots
/// from before are void. Not for a child of vfork, which runs in its parent's memory.
pub fn forked() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
    FREE.store(0, Ordering::Relaxed);
    if let Some(fd) = descriptor() {
        FD.store(-1, Ordering::Relaxed);
        crate::table::clear(fd);
        sys::close(fd);
    }
    let segment = SEGMENT.load(Ordering::Relaxed);
    if segment.is_null() {
        // A thread of the parent that was just making it does not exist here.
        STATE.store(ABSENT, Ordering::Relaxed);
        return;
    }
    // SAFETY: replaces our own mapping, which holds nothing but atomics for which zero is valid; the child has one thread.
    let detached = unsafe { sys::map(segment.cast(), size_of::<Segment>(), None) };
    // If the parent's segment could not be detached, nobody may count here: it is not ours.
    STATE.store(
        if detached.is_ok() { ABSENT } else { FAILED },
        Ordering::Relaxed,
    );
}

/// The segment if it was ever made.
fn existing() -> Option<&'static Segment> {
    // SAFETY: null, or a mapping of a whole segment that stays for ever.
    unsafe { SEGMENT.load(Ordering::Acquire).as_ref() }
}

/// The segment, made now if need be.
#[inline]
fn segment() -> Option<&'static Segment> {
    match STATE.load(Ordering::Acquire) {
        READY => existing(),
        FAILED => None,
        _ => make_segment(),
    }
}

#[cold]
fn make_segment() -> Option<&'static Segment> {
    if STATE
        .compare_exchange(ABSENT, BUSY, Ordering::Acquire, Ordering::Acquire)
        .is_err()
    {
        // Another thread makes it, which takes microseconds; but if we are a signal handler that interrupted it, never.
        for _ in 0..1000 {
            match STATE.load(Ordering::Acquire) {
                READY => return existing(),
                FAILED => return None,
                _ => sys::yield_now(),
            }
        }
        return None;
    }
    let made = map_segment();
    STATE.store(
        if made.is_some() { READY } else { FAILED },
        Ordering::Release,
    );
    made
}

/// Maps a new segment, over the private memory that a forked child left in its place if there is some.
fn map_segment() -> Option<&'static Segment> {
    let size = size_of::<Segment>();
    let fd = sys::move_high(sys::sealed_memfd(NAME, size).ok()?);
    let place = SEGMENT.load(Ordering::Relaxed);
    // SAFETY: `place` is null or our own mapping of this size in a child that has no stream listed yet.
    let Ok(address) = (unsafe { sys::map(place.cast(), size, Some(fd)) }) else {
        sys::close(fd);
        return None;
    };
    // SAFETY: a fresh mapping of `size` zero bytes, page-aligned; a Segment is atomics only, for which zero is valid.
    let segment = unsafe { &*address.cast::<Segment>() };
    let header = &segment.header;
    header.version.store(VERSION, Ordering::Relaxed);
    header.pid.store(sys::pid(), Ordering::Relaxed);
    header.since.store(sys::now(), Ordering::Relaxed);
    header.size.store(size as u64, Ordering::Relaxed);
    let mut version = [0u8; 32];
    let text = env!("CARGO_PKG_VERSION").as_bytes();
    let length = text.len().min(version.len());
    version[..length].copy_from_slice(&text[..length]);
    for (word, chunk) in header.rsock.iter().zip(version.chunks_exact(8)) {
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(chunk);
        word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
    }
    header.magic.store(MAGIC, Ordering::Release);
    FD.store(fd, Ordering::Relaxed);
    crate::table::set_internal(fd);
    SEGMENT.store(address.cast(), Ordering::Release);
    Some(segment)
}

/// Takes a record that was used before, or the next one that never was.
fn take_record(segment: &Segment) -> Option<u32> {
    let mut top = FREE.load(Ordering::Acquire);
    while let Some(index) = (top as u32).checked_sub(1) {
        // Shared memory: a value that we did not write must not lead us astray.
        let next = segment
            .streams
            .get(index as usize)?
            .next_free
            .load(Ordering::Relaxed);
        match FREE.compare_exchange_weak(
            top,
            tagged(top, next),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => return Some(index),
            Err(now) => top = now,
        }
    }
    segment
        .header
        .high_water
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
            (used < STREAMS as u32).then_some(used + 1)
        })
        .ok()
}

fn free_record(segment: &Segment, index: u32) {
    let Some(record) = segment.streams.get(index as usize) else {
        return;
    };
    let mut top = FREE.load(Ordering::Acquire);
    loop {
        record.next_free.store(top as u32, Ordering::Relaxed);
        match FREE.compare_exchange_weak(
            top,
            tagged(top, index + 1),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

/// The list's top with a new first entry and the next tag.
fn tagged(top: u64, entry: u32) -> u64 {
    ((top >> 32).wrapping_add(1) << 32) | u64::from(entry)
}

fn add_up(sums: &[super::SharedCount; 8], flow: &Flow) {
    for (sum, count) in sums.iter().zip(flow.counts()) {
        let value = count.get();
        if value != 0 {
            sum.add(value);
        }
    }
}

/// One direction of a stream went over to a lane, on a link of this kind to this process (pid 0: not known).
pub fn hopped(slot: Slot, direction: Direction, link: LinkKind, peer_pid: i32) {
    counters().hops.add(1);
    if let Some(record) = record(slot) {
        record.set_carrier(direction, Carrier::Lane);
        record.set_link(link, peer_pid);
        record.set_reason(Reason::None);
    }
}

/// One direction of a stream is back on TCP.
pub fn hopped_back(slot: Slot, direction: Direction, reason: Reason) {
    counters().hops_back.of(reason).add(1);
    if let Some(record) = record(slot) {
        record.set_carrier(direction, Carrier::Tcp);
        record.set_reason(reason);
        if !record.on_lane() {
            record.set_link(LinkKind::None, 0);
        }
    }
}

/// A stream asked for a lane, or could have asked, and stays on TCP for now.
pub fn stays_on_tcp(slot: Slot, reason: Reason) {
    counters().fallbacks.of(reason).add(1);
    if let Some(record) = record(slot) {
        record.set_reason(reason);
    }
}
