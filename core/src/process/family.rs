//! What a process and its fork children know in common: who may take a stream that both hold to a lane.
//!
//! A stream that exists at a fork has a word in a page that both share. Whoever uses it first claims it; whoever uses it
//! while another has claimed it contests it, and then it stays on TCP for good, in all of them. Only if the other one has it on a
//! lane at that moment is there something to wait for: it is asked to hop back.

use super::background;
use crate::link::bell;
use crate::socket::stream::{self, Mode, Stream};
use crate::sys;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering::*};

const SLOTS: usize = 1 << 17;

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

static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
/// The doorbell of the parent's background thread, in a child.
static PARENT_BELL: AtomicI32 = AtomicI32::new(-1);

fn word(s: &Stream) -> Option<&'static AtomicU64> {
    let page = PAGE.load(Acquire);
    if page.is_null() || s.index as usize >= SLOTS {
        return None;
    }
    // SAFETY: the page has SLOTS entries and is never unmapped.
    Some(unsafe { &*page.add(s.index as usize) })
}

fn owner(word: u64) -> i32 {
    word as u32 as i32
}

fn mine(kind: u64) -> u64 {
    kind | u64::from(sys::getpid() as u32)
}

/// Before fork: whatever stream is inherited gets its word.
pub fn before_fork() {
    let inherited = |s: &&Stream| matches!(s.mode(), Mode::Plain | Mode::Careful);
    if PAGE.load(Acquire).is_null() {
        if stream::all().find(inherited).is_none() {
            return;
        }
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let len = SLOTS * size_of::<AtomicU64>();
        // SAFETY: a new mapping wherever the kernel likes; zeros are valid words.
        match unsafe {
            sys::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
            )
        } {
            Ok(page) => PAGE.store(page.cast(), Release),
            Err(_) => {
                // Without a common word nobody may take such a stream to a lane.
                stream::all()
                    .filter(inherited)
                    .for_each(|s| s.shared.store(true, Release));
                return;
            }
        }
    }
    for s in stream::all().filter(inherited) {
        let Some(w) = word(s) else { continue };
        let on_lane = s.mode() == Mode::Careful && (s.hopped() || s.lane_pending());
        if on_lane {
            w.store(mine(state::LANE), Release);
        } else if !s.shared.load(Acquire) {
            w.store(state::FREE, Release);
        }
        s.shared.store(true, Release);
    }
}

/// In the child: what its parent had on lanes is foreign. `bell` is the parent's background doorbell, which stays open here.
pub fn after_fork_child(bell: i32) {
    PARENT_BELL.store(bell, Release);
    for s in stream::all().filter(|s| s.mode() == Mode::Careful) {
        let on_lane = word(s).is_none_or(|w| w.load(Acquire) & state::MASK != state::FREE);
        s.set_mode(if on_lane { Mode::Foreign } else { Mode::Plain });
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

/// Asks the owner to hop the stream back.
pub fn ask(s: &Stream) {
    let Some(w) = word(s) else { return };
    let now = w.load(Acquire);
    if now & state::MASK == state::LANE
        && w.compare_exchange(now, state::WANTED | (now & !state::MASK), AcqRel, Acquire)
            .is_ok()
    {
        let bell = PARENT_BELL.load(Acquire);
        if bell >= 0 {
            bell::ring_fd(bell);
        }
    }
}

/// What became of [`ask`].
pub enum Answer {
    /// It is on TCP.
    OnTcp,
    /// Nobody will answer.
    OwnerGone,
    /// Wait a little.
    NotYet,
}

/// What became of [`ask`].
pub fn answer(s: &Stream) -> Answer {
    let Some(w) = word(s) else {
        return Answer::OwnerGone;
    };
    let on_tcp = |now: u64| {
        matches!(
            now & state::MASK,
            state::CONTESTED | state::FREE | state::PLAIN
        )
    };
    let now = w.load(Acquire);
    if on_tcp(now) {
        return Answer::OnTcp;
    }
    if sys::gone(owner(now)) && !on_tcp(w.load(Acquire)) {
        return Answer::OwnerGone;
    }
    Answer::NotYet
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

/// The owner's background thread was rung: looks whether a child wants something.
pub fn serve() {
    if PAGE.load(Acquire).is_null() {
        return;
    }
    for s in stream::all().filter(|s| s.shared.load(Acquire)) {
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
