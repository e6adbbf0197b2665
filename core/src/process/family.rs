//! What a process and its fork children know in common: a stream that was on a lane at the fork belongs to the process that
//! put it there; a child that wants to use it asks for it in a page that both share.

use super::background;
use crate::link::bell;
use crate::socket::stream::{self, Mode, Stream};
use crate::sys;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering::*};

/// One stream slot's words.
#[repr(C)]
struct Words {
    /// One of the constants below.
    state: AtomicU32,
    /// The process that has it on a lane.
    owner: AtomicI32,
}

const NOTHING: u32 = 0;
const WANTED: u32 = 1;
const GRANTING: u32 = 2;
const ON_TCP: u32 = 3;

const SLOTS: usize = 1 << 17;

static PAGE: AtomicPtr<Words> = AtomicPtr::new(core::ptr::null_mut());
/// The doorbell of the parent's background thread, in a child.
static PARENT_BELL: AtomicI32 = AtomicI32::new(-1);

fn words(s: &Stream) -> Option<&'static Words> {
    let page = PAGE.load(Acquire);
    if page.is_null() || s.index as usize >= SLOTS {
        return None;
    }
    // SAFETY: the page has SLOTS entries and is never unmapped.
    Some(unsafe { &*page.add(s.index as usize) })
}

/// Before fork: makes the page, if streams on lanes are to be inherited.
pub fn before_fork() {
    let me = sys::getpid();
    for s in stream::all().filter(|s| s.mode() == Mode::Careful) {
        if PAGE.load(Acquire).is_null() {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let len = SLOTS * size_of::<Words>();
            // SAFETY: a new mapping wherever the kernel likes; zeros are valid words.
            match unsafe { sys::mmap(core::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1) } {
                Ok(page) => PAGE.store(page.cast(), Release),
                Err(_) => return,
            }
        }
        if let Some(w) = words(s) {
            w.owner.store(me, Release);
            w.state.store(NOTHING, Release);
        }
        s.shared.store(true, Release);
    }
}

/// In the child: what its parent had on lanes is foreign. `bell` is the parent's background doorbell, which stays open here.
pub fn after_fork_child(bell: i32) {
    PARENT_BELL.store(bell, Release);
    for s in stream::all().filter(|s| s.mode() == Mode::Careful) {
        s.set_mode(if s.hopped() || s.lane_pending() { Mode::Foreign } else { Mode::Plain });
    }
}

/// Asks the owner to hop the stream back.
pub fn ask(s: &Stream) {
    if let Some(w) = words(s)
        && w.state.compare_exchange(NOTHING, WANTED, AcqRel, Acquire).is_ok()
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
    let Some(w) = words(s) else { return Answer::OwnerGone };
    if w.state.load(Acquire) == ON_TCP {
        return Answer::OnTcp;
    }
    if sys::gone(w.owner.load(Acquire)) && w.state.load(Acquire) != ON_TCP {
        return Answer::OwnerGone;
    }
    Answer::NotYet
}

/// The owner: the stream is on TCP, whoever waits may go on.
pub fn returned(s: &Stream) {
    if s.shared.load(Acquire)
        && let Some(w) = words(s)
    {
        w.state.store(ON_TCP, Release);
    }
}

/// The owner's background thread was rung: looks whether a child wants something.
pub fn serve() {
    if PAGE.load(Acquire).is_null() {
        return;
    }
    for s in stream::all().filter(|s| s.shared.load(Acquire)) {
        let wanted = |w: &Words| w.state.compare_exchange(WANTED, GRANTING, AcqRel, Acquire).is_ok();
        if words(s).is_some_and(wanted) {
            background::pin(s);
        }
    }
}
