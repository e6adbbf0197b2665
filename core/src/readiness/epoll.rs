//! epoll_wait, epoll_pwait, epoll_pwait2.
//!
//! A waiting thread looks at the lanes without a system call, spins as long as that pays, then arms the instance's bell,
//! looks once more, and sleeps in the kernel on the program's own instance, in which the bell is an entry.

use super::instance::{self, Inner, Instance};
use super::look;
use super::registration::{self, Data};
use super::spin;
use crate::calls::Ready;
use crate::process::family;
use crate::socket::stream::{Mode, Stream, StreamId};
use crate::{stats, sys};
use core::sync::atomic::Ordering::*;
use libc::{c_int, epoll_event, timespec};

/// How long the kernel's part of a busy instance may go unlooked at, in nanoseconds.
const KERNEL_EVERY_NS: u64 = 20_000;
/// Streams whose locks are needed to know, in one pass; for more of them there are more passes.
const SLOW: usize = 32;

/// How long streams between carriers may go unlooked at while others are busy, in nanoseconds.
const SLOW_EVERY_NS: u64 = 10_000;

/// A wait in progress.
pub struct EpollWait {
    instance: Option<&'static Instance>,
    generation: u32,
    events: *mut epoll_event,
    max: usize,
    timeout: Option<timespec>,
    /// CLOCK_MONOTONIC in ns; computed when first needed.
    deadline: Option<u64>,
    armed: bool,
    begun: bool,
}

impl EpollWait {
    /// `timeout`: None for ever.
    pub fn new(
        epfd: c_int,
        events: *mut epoll_event,
        max: c_int,
        timeout: Option<timespec>,
    ) -> Self {
        let instance = instance::of(epfd).filter(|_| max > 0 && !events.is_null());
        EpollWait {
            instance,
            generation: instance.map_or(0, Instance::generation),
            events,
            max: max.max(0) as usize,
            timeout,
            deadline: None,
            armed: false,
            begun: false,
        }
    }

    /// What to do now.
    pub fn step(&mut self) -> Ready {
        let Some(i) = self.instance else {
            return Ready::Kernel;
        };
        i.settle_inside();
        if i.ours.load(Acquire) == 0 {
            return Ready::Sleep(self.left());
        }
        if family::has_foreign() {
            fetch(i);
        }
        let n = self.first_look(i);
        if n > 0 {
            return Ready::Return(n as c_int);
        }
        let left = self.left();
        if left.is_some_and(|t| sys::nanoseconds(t) == 0) {
            return Ready::Sleep(left);
        }
        let mut checks = 0u32;
        let mut found = 0;
        let seen = spin::spin(&i.spin, || {
            checks += 1;
            // Between two looks at the kernel's part many at the lanes.
            if checks & 0xff == 0 {
                found = self.kernel_now(i, 0);
            }
            found > 0 || news(i)
        });
        if found > 0 {
            return Ready::Return(found as c_int);
        }
        if seen {
            let n = self.scan(i, 0);
            if n > 0 {
                return Ready::Return(n as c_int);
            }
        }
        self.arm(i);
        let n = self.scan(i, 0);
        if n > 0 {
            self.disarm(i);
            return Ready::Return(n as c_int);
        }
        Ready::Sleep(self.left())
    }

    /// The real call, asked for by `Sleep`, returned `result` (negative: errno is set). What to do now.
    pub fn done(&mut self, result: c_int) -> Ready {
        let Some(i) = self.instance else {
            return Ready::Return(result);
        };
        self.disarm(i);
        if result < 0 || i.generation() != self.generation {
            return Ready::Return(result);
        }
        let mut n = self.without_bell(i, 0, result as usize);
        if i.ours.load(Acquire) > 0 && n < self.max {
            n += self.scan(i, n);
        }
        self.pass_on(i);
        if n > 0 || self.left().is_some_and(|t| sys::nanoseconds(t) == 0) {
            return Ready::Return(n as c_int);
        }
        self.step()
    }

    /// What is left of the time-out.
    fn left(&mut self) -> Option<timespec> {
        let timeout = self.timeout?;
        let span = sys::nanoseconds(timeout);
        if span == 0 {
            return Some(timeout);
        }
        let now = sys::now();
        if !self.begun {
            self.begun = true;
            self.deadline = now.checked_add(span);
        }
        Some(sys::span(
            self.deadline.unwrap_or(u64::MAX).saturating_sub(now),
        ))
    }

    fn arm(&mut self, i: &Instance) {
        if let Some(bell) = i.bell() {
            self.armed = true;
            stats::note(|c| c.sleeps.add(1));
            i.sleepers.fetch_add(1, SeqCst);
            // A link that cannot be armed is as good as lost: its streams hear of it from the background thread.
            i.arm(bell);
        }
    }

    fn disarm(&mut self, i: &Instance) {
        if !core::mem::take(&mut self.armed) {
            return;
        }
        let others = i.sleepers.fetch_sub(1, SeqCst) > 1;
        if let Some(bell) = i.bell() {
            if others {
                // The ring that woke this thread disarmed the bell for all.
                i.arm(bell);
            } else {
                i.disarm(bell);
            }
        }
    }

    /// Several threads sleep in the instance and one bell wakes them: whoever has taken its share wakes the next.
    fn pass_on(&self, i: &Instance) {
        if i.sleepers.load(SeqCst) > 0 && news(i) {
            i.ring();
        }
    }

    fn put(&self, at: usize, bits: u32, data: u64) {
        // SAFETY: at < max, and the program vouches for that many events; their layout may be packed.
        unsafe {
            self.events.add(at).write_unaligned(epoll_event {
                events: bits,
                u64: data,
            })
        };
    }

    /// Takes our bell out of what the kernel reported behind `from`; how many are left of `n`.
    fn without_bell(&self, i: &Instance, from: usize, n: usize) -> usize {
        let mut kept = 0;
        for at in from..from + n {
            // SAFETY: the kernel has just written it.
            let event = unsafe { self.events.add(at).read_unaligned() };
            let (bits, data) = (event.events, event.u64);
            if i.is_bell(data) {
                if let Some(bell) = i.bell() {
                    bell.drain();
                }
                continue;
            }
            if i.is_parents_bell(data) {
                continue;
            }
            if at != from + kept {
                self.put(from + kept, bits, data);
            }
            kept += 1;
        }
        kept
    }

    /// What the kernel's part has right now, put behind `from`.
    fn kernel_now(&self, i: &Instance, from: usize) -> usize {
        i.looked.store(sys::now(), Relaxed);
        if from >= self.max {
            return 0;
        }
        // SAFETY: room for max - from events.
        let got = unsafe {
            sys::epoll_wait(i.fd(), self.events.add(from), (self.max - from) as c_int, 0)
        };
        self.without_bell(i, from, got.unwrap_or(0))
    }

    /// Reports what is there. Busy lanes must not starve the instance's other descriptors. A stream that goes back to TCP in
    /// between is in both parts, and one event.
    fn first_look(&self, i: &Instance) -> usize {
        let n = self.scan(i, 0);
        // A program that does not want to wait wants the whole picture.
        let at_once = self.timeout.is_some_and(|t| sys::nanoseconds(t) == 0);
        if n == 0 || !at_once && sys::now() - i.looked.load(Relaxed) < KERNEL_EVERY_NS {
            return n;
        }
        let more = self.kernel_now(i, n);
        let mut kept = n;
        for at in n..n + more {
            // SAFETY: the kernel has just written it, as we and it have those in front of it.
            let event = |at: usize| unsafe { self.events.add(at).read_unaligned() };
            let (bits, data) = (event(at).events, event(at).u64);
            match (0..n).find(|other| event(*other).u64 == data) {
                Some(other) => self.put(other, event(other).events | bits, data),
                None => {
                    self.put(kept, bits, data);
                    kept += 1;
                }
            }
        }
        kept
    }

    /// Whether the kernel has reported something under this data in front of `to`: then it may be the same registration.
    fn reported(&self, to: usize, data: u64) -> bool {
        // SAFETY: to <= max, and the kernel has written these.
        (0..to).any(|at| unsafe { self.events.add(at).read_unaligned() }.u64 == data)
    }

    /// Reports what our streams are ready for, behind `from`, where the kernel's events end: how many events.
    fn scan(&self, i: &Instance, from: usize) -> usize {
        let mut total = 0;
        let mut first = true;
        let turn = i.turn.fetch_add(1, Relaxed) + 1;
        loop {
            let mut slow = [(0u64, 0u32); SLOW];
            let mut asked = 0;
            {
                let Some(mut inner) = i.inner.lock() else {
                    return total;
                };
                total += self.pass(&mut inner, turn, from, from + total, |s, d| {
                    let bits = look::fast(s, d.events);
                    if bits.is_none() && d.asked != turn && asked < SLOW {
                        d.asked = turn;
                        slow[asked] = (s.id().get(), 0);
                        asked += 1;
                    }
                    bits.filter(|_| first)
                });
            }
            // Those on lanes in both directions, if they are busy, must neither starve the others nor wait for them each time.
            if asked == 0 || total > 0 && sys::now() - i.looked_slowly.load(Relaxed) < SLOW_EVERY_NS
            {
                return total;
            }
            if core::mem::take(&mut first) {
                i.looked_slowly.store(sys::now(), Relaxed);
            }
            // Their locks come before the instance's.
            for (id, bits) in &mut slow[..asked] {
                if let Some(s) = StreamId::from(*id).stream() {
                    *bits = look::slow(s);
                }
            }
            let Some(mut inner) = i.inner.lock() else {
                return total;
            };
            total += self.pass(&mut inner, turn, from, from + total, |s, _| {
                let id = s.id().get();
                slow[..asked]
                    .iter()
                    .find(|(other, _)| *other == id)
                    .map(|(_, bits)| *bits)
            });
            if asked < SLOW {
                return total;
            }
        }
    }

    fn pass(
        &self,
        inner: &mut Inner,
        turn: u64,
        kernels: usize,
        from: usize,
        mut ready: impl FnMut(&Stream, &mut Data) -> Option<u32>,
    ) -> usize {
        let mut n = from;
        let mut link = inner.first;
        // SAFETY: the instance's lock is held.
        while let Some(d) = unsafe { registration::data(link) } {
            if n == self.max {
                // Others come first next time.
                registration::rotate(inner, link);
                break;
            }
            // What is fast or slow changes meanwhile: a stream may come by twice.
            if d.armed
                && d.turn != turn
                && let Some(s) = d.stream()
                && let Some(bits) = ready(s, d)
                && !self.reported(kernels, d.data)
                && let Some(report) = d.report(s, bits)
            {
                d.turn = turn;
                self.put(n, report, d.data);
                n += 1;
            }
            link = d.next;
        }
        n - from
    }
}

/// In a fork child with its parent's instance: asks for streams that the parent has on lanes. It puts them back into the kernel's
/// instance, which both share, when they are on TCP.
fn fetch(i: &Instance) {
    let Some(inner) = i.inner.lock() else { return };
    let mut link = inner.first;
    // SAFETY: the instance's lock is held.
    while let Some(d) = unsafe { registration::data(link) } {
        if let Some(s) = StreamId::from(d.stream)
            .stream()
            .filter(|s| s.mode() == Mode::Foreign)
        {
            // Whatever the answer: the kernel tells when there is something to read.
            let _ = family::ask(s);
        }
        link = d.next;
    }
}

/// Whether any of our streams has something to report; nothing is taken as reported.
pub fn ready(i: &Instance) -> bool {
    let turn = i.turn.fetch_add(1, Relaxed) + 1;
    loop {
        let mut slow = [0u64; SLOW];
        let mut asked = 0;
        {
            let Some(inner) = i.inner.lock() else {
                return false;
            };
            let mut link = inner.first;
            // SAFETY: the instance's lock is held.
            while let Some(d) = unsafe { registration::data(link) } {
                link = d.next;
                let Some(s) = d.stream() else { continue };
                match look::fast(s, d.events) {
                    Some(bits) if d.may_report(Some(bits), s) => return true,
                    Some(_) => {}
                    None if d.asked != turn && asked < SLOW => {
                        d.asked = turn;
                        slow[asked] = s.id().get();
                        asked += 1;
                    }
                    None => {}
                }
            }
        }
        // Their locks come before the instance's.
        for id in &slow[..asked] {
            let Some(s) = StreamId::from(*id).stream() else {
                continue;
            };
            let bits = look::slow(s);
            let Some(inner) = i.inner.lock() else {
                return false;
            };
            let mut link = inner.first;
            // SAFETY: the instance's lock is held.
            while let Some(d) = unsafe { registration::data(link) } {
                if d.stream == *id && d.may_report(Some(bits), s) {
                    return true;
                }
                link = d.next;
            }
        }
        if asked < SLOW {
            return false;
        }
    }
}

/// Whether any of our streams may have something: without their locks, and without a system call.
#[inline]
fn news(i: &Instance) -> bool {
    let Some(inner) = i.inner.try_lock() else {
        return false;
    };
    let mut link = inner.first;
    // SAFETY: the instance's lock is held.
    while let Some(d) = unsafe { registration::data(link) } {
        if let Some(s) = d.stream()
            && d.may_report(look::fast(s, d.events), s)
        {
            return true;
        }
        link = d.next;
    }
    false
}

impl Drop for EpollWait {
    fn drop(&mut self) {
        if let Some(i) = self.instance {
            self.disarm(i);
        }
    }
}
