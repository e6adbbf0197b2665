//! A registration: what the program asked an epoll instance to tell it about a stream.
//!
//! While the stream is on TCP in both directions the kernel's entry is the program's own. As soon as one direction leaves,
//! the entry is taken out of the kernel's instance and level, edge and one-shot are done here; when both are back it goes
//! in again. Lock order: a stream's `registrations`, then the instance.

use super::instance::{self, Inner, Instance};
use super::look::{self, IN, OUT};
use crate::slab::Slab;
use crate::socket::stream::{Mode, Stream, StreamId};
use crate::sys::{self, Errno, set_errno};
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::*;
use libc::{c_int, epoll_event};

const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;
const ET: u32 = libc::EPOLLET as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
/// What may stand beside EPOLLEXCLUSIVE (fs/eventpoll.c, EPOLLEXCLUSIVE_OK_BITS).
const BESIDE_EXCLUSIVE: u32 =
    ALWAYS | ET | EXCLUSIVE | (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLWAKEUP) as u32;

/// A registration, guarded by its instance's lock (the chain of a stream by the stream's).
pub struct Registration {
    index: u32,
    cell: UnsafeCell<Data>,
}

// SAFETY: see the lock order above.
unsafe impl Sync for Registration {}

/// What a registration holds.
pub struct Data {
    instance: u32,
    generation: u32,
    /// The stream.
    pub stream: u64,
    fd: c_int,
    /// The program's mask.
    pub events: u32,
    /// The program's data.
    pub data: u64,
    /// The scan in which its stream was last asked under its locks.
    pub asked: u64,
    /// The scan in which it was reported last.
    pub turn: u64,
    /// Not disarmed by EPOLLONESHOT.
    pub armed: bool,
    /// The kernel has the program's entry.
    in_kernel: bool,
    /// It is in the instance's list of those that we look at.
    listed: bool,
    seen: Seen,
    next_of_stream: u32,
    /// Next in the instance's list (index + 1).
    pub next: u32,
    previous: u32,
}

/// What an edge-triggered program has been told.
#[derive(Clone, Copy, Default)]
struct Seen {
    bits: u32,
    published: u64,
    full: u32,
    change: u32,
}

static REGISTRATIONS: Slab<Registration, { 1 << 18 }> = Slab::new();

/// By index + 1.
///
/// # Safety
/// The instance's lock (or, for the chain, the stream's) is held for as long as the reference is used.
#[allow(clippy::mut_from_ref)]
pub unsafe fn data(link: u32) -> Option<&'static mut Data> {
    let r = REGISTRATIONS.get(link.checked_sub(1)?)?;
    // SAFETY: the caller holds the lock.
    Some(unsafe { &mut *r.cell.get() })
}

/// In a fork child.
pub fn reset_locks() {
    REGISTRATIONS.reset_lock();
}

/// Moves the start of the instance's list to `link`, so that a full event array does not starve those behind it.
pub fn rotate(inner: &mut Inner, link: u32) {
    // SAFETY: the instance's lock is held.
    unsafe {
        let Some(d) = data(link) else { return };
        let Some(before) = data(d.previous) else {
            return;
        };
        before.next = 0;
        d.previous = 0;
        let mut tail = link;
        while let Some(t) = data(tail)
            && t.next != 0
        {
            tail = t.next;
        }
        let old = core::mem::replace(&mut inner.first, link);
        if let Some(t) = data(tail) {
            t.next = old;
        }
        if let Some(o) = data(old) {
            o.previous = tail;
        }
    }
}

impl Data {
    /// Whether [`Data::report`] might have something; changes nothing. `ready` None: ask under the stream's locks.
    pub fn may_report(&self, ready: Option<u32>, s: &Stream) -> bool {
        if !self.armed {
            return false;
        }
        let Some(ready) = ready else {
            return self.seen.change != s.view.change.load(Acquire) || s.view.needs_look();
        };
        let ready = ready & (self.events | ALWAYS);
        if self.events & ET == 0 || ready == 0 {
            return ready != 0;
        }
        // SAFETY: the pointer always leads to a word that stays mapped.
        let published = unsafe { (*s.view.published.load(Acquire)).load(Acquire) };
        ready & !self.seen.bits != 0
            || s.view.change.load(Acquire) != self.seen.change
            || ready & IN != 0 && published != self.seen.published
            || ready & OUT != 0 && s.view.full.load(Acquire) != self.seen.full
    }

    fn matches(&self, instance: &Instance, fd: c_int) -> bool {
        self.instance == instance.index && self.generation == instance.generation() && self.fd == fd
    }

    /// Its instance is closed, and has let go of it ([`let_go`]).
    fn stale(&self) -> bool {
        instance::get(self.instance).is_none_or(|i| i.generation() != self.generation)
    }

    /// What there is to report of `ready`, with edge and one-shot done; None: nothing.
    pub fn report(&mut self, s: &Stream, ready: u32) -> Option<u32> {
        if !self.armed {
            return None;
        }
        let ready = ready & (self.events | ALWAYS);
        let edge = self.events & ET != 0;
        if ready == 0 {
            self.seen.bits = 0;
            return None;
        }
        if edge {
            // SAFETY: the pointer always leads to a word that stays mapped.
            let published = unsafe { (*s.view.published.load(Acquire)).load(Acquire) };
            let now = Seen {
                bits: ready,
                published,
                full: s.view.full.load(Acquire),
                change: s.view.change.load(Acquire),
            };
            let before = self.seen;
            let new = ready & !before.bits != 0
                || now.change != before.change
                || ready & IN != 0 && now.published != before.published
                || ready & OUT != 0 && now.full != before.full;
            self.seen = now;
            if !new {
                return None;
            }
        }
        if self.events & ONESHOT != 0 {
            self.armed = false;
        }
        Some(ready)
    }

    fn list(&mut self, inner: &mut Inner, link: u32) {
        if self.listed {
            return;
        }
        self.listed = true;
        self.previous = 0;
        self.next = inner.first;
        // SAFETY: the instance's lock is held (`inner`).
        if let Some(old) = unsafe { data(inner.first) } {
            old.previous = link;
        }
        inner.first = link;
        inner.count += 1;
    }

    fn unlist(&mut self, inner: &mut Inner) {
        if !self.listed {
            return;
        }
        self.listed = false;
        inner.count -= 1;
        // SAFETY: the instance's lock is held; neighbours are other registrations.
        unsafe {
            match data(self.previous) {
                Some(p) => p.next = self.next,
                None => inner.first = self.next,
            }
            if let Some(n) = data(self.next) {
                n.previous = self.previous;
            }
        }
    }
}

/// Brings the kernel's entry and the instance's list into line with what carries the stream.
fn sync(
    s: &Stream,
    instance: &Instance,
    inner: &mut Inner,
    d: &mut Data,
    link: u32,
) -> sys::Result<()> {
    if look::ours(s) {
        if d.in_kernel {
            d.in_kernel = false;
            // Gone already when the program closed the descriptor.
            let _ = sys::epoll_ctl(instance.fd(), libc::EPOLL_CTL_DEL, d.fd, 0, 0);
        }
        d.list(inner, link);
        instance.watch(s);
    } else {
        d.unlist(inner);
        if !d.in_kernel && d.armed {
            sys::epoll_ctl(instance.fd(), libc::EPOLL_CTL_ADD, d.fd, d.events, d.data)?;
            d.in_kernel = true;
        }
    }
    instance.ours.store(inner.count, Release);
    Ok(())
}

/// A stream's carriers have changed.
pub fn carrier_changed(s: &Stream) {
    let Some(first) = s.registrations.lock() else {
        return;
    };
    let mut link = *first;
    // SAFETY: the chain is guarded by the stream's lock, the rest by the instance's.
    while let Some(d) = unsafe { data(link) } {
        if let Some(instance) = instance::get(d.instance).filter(|i| i.generation() == d.generation)
            && let Some(mut inner) = instance.inner.lock()
        {
            // An entry that the kernel does not take back is lost to the program only if its instance is.
            let _ = sync(s, instance, &mut inner, d, link);
            drop(inner);
            instance.ring();
        }
        link = d.next_of_stream;
    }
}

/// The instance is closed: its list is empty from now on. The registrations stay in their streams' chains, until somebody looks
/// along these ([`control`]) or the streams end.
pub fn let_go(inner: &mut Inner) {
    // SAFETY: the instance's lock is held.
    while let Some(d) = unsafe { data(inner.first) } {
        d.unlist(inner);
    }
}

/// The stream ends: its registrations with it. The kernel's entries end by themselves when the open file does, which another
/// process may keep; only where we keep it ourselves (`kept`) they have to be taken out.
pub fn closed(s: &Stream, kept: bool) {
    let Some(mut first) = s.registrations.lock() else {
        return;
    };
    let mut link = core::mem::take(&mut *first);
    // SAFETY: as above.
    while let Some(d) = unsafe { data(link) } {
        if let Some(instance) = instance::get(d.instance).filter(|i| i.generation() == d.generation)
            && let Some(mut inner) = instance.inner.lock()
        {
            d.unlist(&mut inner);
            instance.ours.store(inner.count, Release);
            if d.in_kernel && kept {
                let _ = sys::epoll_ctl(instance.fd(), libc::EPOLL_CTL_DEL, d.fd, 0, 0);
            }
        }
        let next = d.next_of_stream;
        REGISTRATIONS.give(link - 1);
        link = next;
    }
}

fn fail(e: Errno) -> c_int {
    set_errno(e.0);
    -1
}

/// epoll_ctl on a stream in an instance that we know.
pub fn control(
    instance: &'static Instance,
    s: &'static Stream,
    op: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let Some(mut first) = s.registrations.lock() else {
        return fail(Errno(libc::EAGAIN));
    };
    // Find it, and what leads to it.
    let (mut link, mut before) = (*first, 0);
    // SAFETY: the stream's lock is held.
    while let Some(d) = unsafe { data(link) } {
        if d.matches(instance, fd) {
            break;
        }
        if d.stale() {
            // The chain must not grow with every instance that ever was.
            let next = d.next_of_stream;
            // SAFETY: as above.
            match unsafe { data(before) } {
                Some(b) => b.next_of_stream = next,
                None => *first = next,
            }
            REGISTRATIONS.give(link - 1);
            link = next;
            continue;
        }
        (before, link) = (link, d.next_of_stream);
    }
    let event = match op {
        libc::EPOLL_CTL_DEL => epoll_event { events: 0, u64: 0 },
        // SAFETY: the program's event.
        _ if !event.is_null() => unsafe { event.read_unaligned() },
        _ => return fail(Errno(libc::EFAULT)),
    };
    if event.events & EXCLUSIVE != 0
        && (op == libc::EPOLL_CTL_MOD || event.events & !BESIDE_EXCLUSIVE != 0)
    {
        return fail(Errno(libc::EINVAL));
    }
    // SAFETY: as above.
    match (op, unsafe { data(link) }) {
        (libc::EPOLL_CTL_ADD, Some(_)) => fail(Errno(libc::EEXIST)),
        (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => fail(Errno(libc::ENOENT)),
        (libc::EPOLL_CTL_ADD, None) => {
            let blank = |index| Registration {
                index,
                cell: UnsafeCell::new(Data::none()),
            };
            let Some(r) = REGISTRATIONS.take(blank) else {
                return fail(Errno(libc::ENOSPC));
            };
            let link = r.index + 1;
            // SAFETY: nobody else knows it yet.
            let d = unsafe { &mut *r.cell.get() };
            *d = Data {
                instance: instance.index,
                generation: instance.generation(),
                stream: s.id().get(),
                fd,
                events: event.events,
                data: event.u64,
                armed: true,
                next_of_stream: *first,
                ..Data::none()
            };
            let Some(mut inner) = instance.inner.lock() else {
                return fail(Errno(libc::EAGAIN));
            };
            instance.avoid(event.u64);
            if let Err(e) = sync(s, instance, &mut inner, d, link) {
                REGISTRATIONS.give(r.index);
                return fail(e);
            }
            *first = link;
            drop(inner);
            wake_if_ours(instance, s);
            0
        }
        (libc::EPOLL_CTL_MOD, Some(d)) => {
            if d.events & EXCLUSIVE != 0 {
                return fail(Errno(libc::EINVAL));
            }
            let Some(mut inner) = instance.inner.lock() else {
                return fail(Errno(libc::EAGAIN));
            };
            instance.avoid(event.u64);
            if d.in_kernel
                && let Err(e) = sys::epoll_ctl(
                    instance.fd(),
                    libc::EPOLL_CTL_MOD,
                    fd,
                    event.events,
                    event.u64,
                )
            {
                return fail(e);
            }
            (d.events, d.data, d.armed, d.seen) = (event.events, event.u64, true, Seen::default());
            if let Err(e) = sync(s, instance, &mut inner, d, link) {
                return fail(e);
            }
            drop(inner);
            wake_if_ours(instance, s);
            0
        }
        (libc::EPOLL_CTL_DEL, Some(d)) => {
            let Some(mut inner) = instance.inner.lock() else {
                return fail(Errno(libc::EAGAIN));
            };
            d.unlist(&mut inner);
            instance.ours.store(inner.count, Release);
            if d.in_kernel {
                let _ = sys::epoll_ctl(instance.fd(), libc::EPOLL_CTL_DEL, fd, 0, 0);
            }
            drop(inner);
            let next = d.next_of_stream;
            // SAFETY: as above.
            match unsafe { data(before) } {
                Some(b) => b.next_of_stream = next,
                None => *first = next,
            }
            REGISTRATIONS.give(link - 1);
            0
        }
        _ => fail(Errno(libc::EINVAL)),
    }
}

/// A thread that sleeps in the instance has to look at what it was told.
fn wake_if_ours(instance: &Instance, s: &Stream) {
    if look::ours(s) {
        instance.ring();
    }
}

impl Data {
    fn none() -> Data {
        Data {
            instance: 0,
            generation: 0,
            stream: 0,
            fd: -1,
            events: 0,
            data: 0,
            asked: 0,
            turn: 0,
            armed: false,
            in_kernel: false,
            listed: false,
            seen: Seen::default(),
            next_of_stream: 0,
            next: 0,
            previous: 0,
        }
    }

    /// Its stream, if that still is the same and ours to look at.
    pub fn stream(&self) -> Option<&'static Stream> {
        StreamId::from(self.stream)
            .stream()
            .filter(|s| s.mode() == Mode::Careful)
    }
}
