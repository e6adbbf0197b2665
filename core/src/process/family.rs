//! What a process and its fork children know in common: who may take a stream that both hold to a lane.
//!
//! A stream that exists at a fork has a word in memory that both share. Whoever uses it first claims it; whoever uses it
//! while another has claimed it contests it, and then it stays on TCP for good, in all of them. Only if the other one has it on a
//! lane at that moment is there something to wait for: it is asked to hop back. The asker rings the family's bell, an eventfd
//! that all of them inherit, that each one's background thread watches, and that nobody empties: each ring is an edge for all.

use super::background;
use crate::link::bell;
use crate::socket::stream::{self, Mode, Stream};
use crate::sys::{self, lock::Lock};
use crate::table;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::*};

/// Words in one piece of shared memory.
const WORDS: usize = 1 << 14;

/// States of a word; the process that is meant is in the lower half.
mod state {
    /// Nobody has used it since the fork.
    pub const FREE: u64 = 0;
    /// A process uses it, on TCP.
    pub const PLAIN: u64 = 1 << 32;
    /// A process has it on a lane, or is about to.
    pub const LANE: u64 = 2 << 32;
    /// The same, and another process wants it back on TCP.
    pub const WANTED: u64 = 3 << 32;
    /// The same, and it is going back.
    pub const GRANTING: u64 = 4 << 32;
    /// On TCP for good.
    pub const CONTESTED: u64 = 5 << 32;
    pub const MASK: u64 = 0xffff_ffff << 32;
}

/// Where this process gets words from: inherited streams keep those that they came with.
struct Words {
    /// Address of the piece in use; 0: none.
    at: usize,
    /// How many of it are given away.
    used: usize,
}

static OWN: Lock<Words> = Lock::new(Words { at: 0, used: WORDS });
/// The family's bell, or -1.
static BELL: AtomicI32 = AtomicI32::new(-1);
/// A stream of this process may be on a lane elsewhere.
static FOREIGN: AtomicBool = AtomicBool::new(false);

fn word(s: &Stream) -> Option<&'static AtomicU64> {
    // SAFETY: null, or a word that stays mapped.
    unsafe { s.family.load(Acquire).as_ref() }
}

/// A word for a stream that is about to be inherited for the first time. None: it stays on TCP.
fn new_word() -> Option<*mut AtomicU64> {
    let mut own = OWN.lock()?;
    if own.used == WORDS {
        let piece = own.at..own.at + WORDS * size_of::<AtomicU64>();
        let in_use = |s: &Stream| {
            s.mode() != Mode::Free && piece.contains(&(s.family.load(Acquire) as usize))
        };
        // A server that forks for each connection uses many, and seldom has an old one: the place is used again.
        let (at, fixed) = match own.at {
            0 => (0, 0),
            at if stream::all().any(in_use) => (at, 0),
            at => (at, libc::MAP_FIXED),
        };
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
        // SAFETY: a new mapping wherever the kernel likes, or over one of ours whose words nobody here uses any more (a late
        // reader sees a free word); zeros are valid words.
        let made = unsafe {
            sys::mmap(
                at as *mut _,
                piece.len(),
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
            )
        };
        *own = Words {
            at: made.ok()? as usize,
            used: 0,
        };
    }
    own.used += 1;
    Some((own.at as *mut AtomicU64).wrapping_add(own.used - 1))
}

/// The family's bell, made when first needed; False: it cannot be had.
fn has_bell() -> bool {
    if BELL.load(Acquire) >= 0 {
        return true;
    }
    let Ok(fd) = sys::eventfd() else { return false };
    if BELL.compare_exchange(-1, fd, AcqRel, Acquire).is_err() {
        sys::close(fd);
        return true;
    }
    table::set_internal(fd);
    background::watch_family(fd);
    true
}

/// The family's bell, if there is one.
pub fn bell() -> Option<i32> {
    Some(BELL.load(Acquire)).filter(|fd| *fd >= 0)
}

/// One of our descriptors has another number.
pub fn moved(fd: i32, new: i32) {
    super::renumber(&BELL, fd, new);
}

/// Whether streams of this process may be on lanes of another.
#[inline]
pub fn has_foreign() -> bool {
    FOREIGN.load(Relaxed)
}

/// The stream is on a lane of another process.
pub fn becomes_foreign(s: &Stream, from: Mode) {
    FOREIGN.store(true, Relaxed);
    s.change_mode(from, Mode::Foreign);
}

fn owner(word: u64) -> i32 {
    word as u32 as i32
}

fn mine(kind: u64) -> u64 {
    kind | u64::from(sys::getpid() as u32)
}

/// Before fork: whatever stream is inherited gets its word.
pub fn before_fork() {
    for s in stream::all().filter(|s| matches!(s.mode(), Mode::Plain | Mode::Careful)) {
        if s.family.load(Acquire).is_null()
            && !s.shared.load(Acquire)
            && has_bell()
            && let Some(word) = new_word()
        {
            s.family.store(word, Release);
        }
        // Without a common word nobody may take it to a lane.
        s.shared.store(true, Release);
        let Some(w) = word(s) else { continue };
        let on_lane = s.mode() == Mode::Careful && (s.hopped() || s.lane_pending());
        let now = w.load(Acquire);
        let known = owner(now) == sys::getpid()
            && matches!(
                now & state::MASK,
                state::LANE | state::WANTED | state::GRANTING
            );
        if on_lane && !known {
            w.store(mine(state::LANE), Release);
        }
    }
}

/// In the child: what its parent had on lanes is foreign.
pub fn after_fork_child() {
    OWN.reset();
    if let Some(mut own) = OWN.lock() {
        *own = Words { at: 0, used: WORDS };
    }
    for s in stream::all().filter(|s| s.mode() == Mode::Careful) {
        if word(s).is_none_or(|w| w.load(Acquire) & state::MASK != state::FREE) {
            becomes_foreign(s, Mode::Careful);
        } else {
            s.set_mode(Mode::Plain);
        }
    }
}

/// What a process may do with a stream that others hold too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Go on: nobody else uses it.
    Mine,
    /// It stays on TCP.
    OnTcp,
    /// Another process has it on a lane: [`ask`].
    OnLaneElsewhere,
}

/// The calling process is about to use a shared stream.
pub fn claim(s: &Stream) -> Claim {
    let Some(w) = word(s) else {
        return Claim::OnTcp;
    };
    let me = sys::getpid();
    loop {
        let now = w.load(Acquire);
        let next = match now & state::MASK {
            state::FREE => mine(state::PLAIN),
            state::PLAIN | state::LANE | state::WANTED | state::GRANTING if owner(now) == me => {
                return Claim::Mine;
            }
            state::PLAIN => state::CONTESTED,
            state::CONTESTED => return Claim::OnTcp,
            _ => return Claim::OnLaneElsewhere,
        };
        if w.compare_exchange(now, next, AcqRel, Acquire).is_ok() {
            return if next == state::CONTESTED {
                Claim::OnTcp
            } else {
                Claim::Mine
            };
        }
    }
}

/// The calling process wants to take a stream to a lane. False: it must not.
pub fn may_hop(s: &Stream) -> bool {
    if !s.shared.load(Acquire) {
        return true;
    }
    let Some(w) = word(s) else { return false };
    let now = w.load(Acquire);
    match now & state::MASK {
        state::FREE => w
            .compare_exchange(now, mine(state::LANE), AcqRel, Acquire)
            .is_ok(),
        state::PLAIN if owner(now) == sys::getpid() => w
            .compare_exchange(now, mine(state::LANE), AcqRel, Acquire)
            .is_ok(),
        state::LANE => owner(now) == sys::getpid(),
        _ => false,
    }
}

/// What became of [`ask`].
pub enum Answer {
    /// It is on TCP, for good.
    OnTcp,
    /// Nobody will answer.
    OwnerGone,
    /// Wait a little.
    NotYet,
}

/// The calling process wants a stream that another had on a lane: asks the owner to hop back. Called until it is on TCP.
pub fn ask(s: &Stream) -> Answer {
    let Some(w) = word(s) else {
        return Answer::OwnerGone;
    };
    loop {
        let now = w.load(Acquire);
        let next = match now & state::MASK {
            state::CONTESTED => return Answer::OnTcp,
            state::LANE => state::WANTED | (now & !state::MASK),
            state::WANTED | state::GRANTING if !sys::gone(owner(now)) => return Answer::NotYet,
            state::WANTED | state::GRANTING if w.load(Acquire) == now => return Answer::OwnerGone,
            state::WANTED | state::GRANTING => continue,
            // Whoever else has it must not take it to a lane again.
            _ => state::CONTESTED,
        };
        if w.compare_exchange(now, next, AcqRel, Acquire).is_ok()
            && next != state::CONTESTED
            && let Some(fd) = bell()
        {
            bell::ring_fd(fd);
        }
    }
}

/// The owner: the stream is on TCP for good, whoever waits may go on.
pub fn returned(s: &Stream) {
    if s.shared.load(Acquire)
        && let Some(w) = word(s)
    {
        w.store(state::CONTESTED, Release);
    }
}

/// The calling process closes its last descriptor of a shared stream, which is on TCP by now: the others may have it.
pub fn leave(s: &Stream) {
    let Some(w) = word(s) else { return };
    let now = w.load(Acquire);
    if owner(now) != sys::getpid() {
        return;
    }
    let then = if now & state::MASK == state::PLAIN {
        state::FREE
    } else {
        state::CONTESTED
    };
    // Somebody who contests it meanwhile has said what had to be said.
    let _ = w.compare_exchange(now, then, AcqRel, Acquire);
}

/// The family's bell was rung: looks whether somebody wants something of this process.
pub fn serve() {
    for s in stream::all().filter(|s| s.shared.load(Acquire) && s.mode() != Mode::Free) {
        let Some(w) = word(s) else { continue };
        let now = w.load(Acquire);
        if now == mine(state::WANTED)
            && w.compare_exchange(now, mine(state::GRANTING), AcqRel, Acquire)
                .is_ok()
        {
            background::pin(s);
        }
    }
}
