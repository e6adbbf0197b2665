//! poll and ppoll. What is not ours sleeps in the kernel as it is; in the place of each stream of ours stands nothing, and
//! one bell of the waiting thread stands for all of them.

use super::instance::{self, Instance};
use super::look;
use super::select::Sets;
use super::spin::{self, Score};
use crate::calls::{Next, Ready};
use crate::link::bell::Bell;
use crate::link::{Link, memory};
use crate::process::{background, family};
use crate::socket::pin::Pin;
use crate::socket::stream::{self, Mode, Stream};
use crate::stats::{self, Reason};
use crate::sys;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::*;
use libc::{c_int, nfds_t, pollfd, timespec};

/// Longer arrays are the kernel's alone: nobody polls more than this, and RLIMIT_NOFILE seldom allows it.
const LIMIT: usize = 1 << 16;

/// What was learned about spinning in poll, for all of the process.
static SPIN: Score = Score::new();

/// Sets of this size need no memory of their own.
const INLINE: usize = 32;

/// Memory for an array that the kernel gets instead of the program's, and in front of it, for select, for the array that plays
/// the program's.
struct Scratch {
    inline: UnsafeCell<[pollfd; INLINE]>,
    mapped: *mut pollfd,
    room: usize,
}

impl Scratch {
    const fn new() -> Scratch {
        Scratch {
            inline: UnsafeCell::new(
                [pollfd {
                    fd: -1,
                    events: 0,
                    revents: 0,
                }; INLINE],
            ),
            mapped: core::ptr::null_mut(),
            room: INLINE,
        }
    }

    /// Where it is. Moves with its owner as long as it is small.
    fn at(&self) -> *mut pollfd {
        if self.mapped.is_null() {
            self.inline.get().cast()
        } else {
            self.mapped
        }
    }

    /// Makes room; contents are lost if it grows.
    fn reserve(&mut self, n: usize) -> bool {
        if self.room >= n {
            return true;
        }
        match sys::reserve(n * size_of::<pollfd>()) {
            Ok(p) => {
                self.free();
                (self.mapped, self.room) = (p.cast(), n);
                true
            }
            Err(_) => false,
        }
    }

    fn free(&mut self) {
        if !self.mapped.is_null() {
            sys::unmap(self.mapped.cast(), self.room * size_of::<pollfd>());
            (self.mapped, self.room) = (core::ptr::null_mut(), INLINE);
        }
    }
}

/// A wait in progress.
pub struct Poll {
    fds: *mut pollfd,
    count: usize,
    sets: Option<Sets>,
    timeout: Option<timespec>,
    deadline: Option<u64>,
    begun: bool,
    scratch: Scratch,
    bell: Option<Bell>,
    /// The kernel sleeps on `scratch`, not on the program's array.
    mixed: bool,
    /// This thread is counted in [`Stream::polling`].
    counted: bool,
    /// A stream in the set is being fetched from another process's lane.
    fetching: Option<Pin>,
}

/// Streams that may hop: what the kernel says of them has to be looked at again.
fn candidate(fd: c_int) -> Option<&'static Stream> {
    stream::of(fd).filter(|s| matches!(s.mode(), Mode::Plain | Mode::Careful))
}

/// A stream that another process has on a lane.
fn foreign(fd: c_int) -> Option<&'static Stream> {
    stream::of(fd).filter(|s| s.mode() == Mode::Foreign)
}

/// An epoll instance in the set whose bell, one of its entries, the kernel takes for something of the program's.
fn nested(fd: c_int) -> Option<&'static Instance> {
    instance::of(fd).filter(|i| i.ours.load(Acquire) > 0)
}

impl Poll {
    /// `timeout`: None for ever.
    pub fn new(fds: *mut pollfd, count: nfds_t, timeout: Option<timespec>) -> Self {
        let mut poll = Poll {
            fds,
            count: count as usize,
            sets: None,
            timeout,
            deadline: None,
            begun: false,
            scratch: Scratch::new(),
            bell: None,
            mixed: false,
            counted: false,
            fetching: None,
        };
        if fds.is_null() || poll.count > LIMIT {
            poll.count = 0;
        }
        poll
    }

    /// select, pselect: the same with descriptor sets; `Return` has filled them in.
    pub fn select(
        nfds: c_int,
        read: *mut libc::fd_set,
        write: *mut libc::fd_set,
        except: *mut libc::fd_set,
        timeout: Option<timespec>,
    ) -> Self {
        let mut poll = Poll::new(core::ptr::null_mut(), 0, timeout);
        // SAFETY: the program's sets, as select(2) asks for them.
        if let Some(sets) = unsafe { Sets::new(nfds, read, write, except) }
            && sets.any(|fd| {
                candidate(fd).is_some() || foreign(fd).is_some() || instance::of(fd).is_some()
            })
            && poll.scratch.reserve(2 * sets.count() + 1)
        {
            // The first half of the scratch memory plays the program's array.
            poll.count = sets.count();
            // SAFETY: reserved a line above.
            unsafe { sets.describe(poll.scratch.at()) };
            poll.sets = Some(sets);
        }
        poll
    }

    /// The program's array; for select, the first half of the scratch memory plays it.
    fn base(&self) -> *mut pollfd {
        if self.sets.is_some() {
            self.scratch.at()
        } else {
            self.fds
        }
    }

    fn program(&self) -> &'static mut [pollfd] {
        if self.count == 0 {
            return &mut [];
        }
        // SAFETY: the program's array (or our own, for select), of `count` entries; nobody keeps what this returns longer than
        // the step that asked for it, in which the operation does not move.
        unsafe { core::slice::from_raw_parts_mut(self.base(), self.count) }
    }

    /// What to do now.
    pub fn step(&mut self) -> Ready {
        if family::has_foreign()
            && let Some(soon) = self.fetch()
        {
            return Ready::Sleep(Some(soon));
        }
        let fds = self.program();
        let mut inside = false;
        for i in fds.iter().filter_map(|p| instance::of(p.fd)) {
            i.settle_inside();
            i.settle();
            inside = true;
        }
        if inside && !fds.iter().any(|p| careful(p.fd)) {
            self.mixed = false;
            return Ready::Sleep(self.remaining());
        }
        if !fds.iter().any(|p| candidate(p.fd).is_some()) {
            return if self.sets.is_some() {
                Ready::Sleep(self.remaining())
            } else {
                Ready::Kernel
            };
        }
        if !fds.iter().any(|p| careful(p.fd)) {
            self.mixed = false;
            self.count_sleeper(true);
            return Ready::Sleep(self.remaining());
        }
        // Ours without a system call, then the others, once, without sleeping.
        if self.ready() > 0 {
            return self.collect();
        }
        if self.remaining().is_some_and(|t| sys::nanoseconds(t) == 0) {
            return self.collect();
        }
        let mut checks = 0u32;
        let others = fds.iter().any(|p| p.fd >= 0 && ours(p.fd).is_none());
        let seen = spin::spin(&SPIN, || {
            checks += 1;
            self.peek() || others && checks & 0xff == 0 && self.others_now() > 0
        });
        if seen && (self.ready() > 0 || self.others_now() > 0) {
            return self.collect();
        }
        if !self.arm() {
            return self.without_bell();
        }
        if self.ready() > 0 {
            self.disarm();
            return self.collect();
        }
        if !self.prepare() {
            self.disarm();
            return Ready::Kernel;
        }
        self.mixed = true;
        Ready::Sleep(self.remaining())
    }

    /// Has streams that other processes have on lanes hop back: as a receive would, whatever the time-out. Some: wait so long, then
    /// come again.
    fn fetch(&mut self) -> Option<timespec> {
        while let Some(s) = self.program().iter().find_map(|p| foreign(p.fd)) {
            let mut pin = self
                .fetching
                .take()
                .unwrap_or_else(|| Pin::stream(s, Reason::PinnedFork));
            if let Next::Wait(wait) = pin.step() {
                self.fetching = Some(pin);
                return wait.timeout;
            }
        }
        None
    }

    /// What `Sleep` sleeps on.
    pub fn array(&mut self) -> (*mut pollfd, nfds_t) {
        if self.fetching.is_some() {
            (self.fds, 0)
        } else if self.mixed {
            (self.kernel_part(), self.count as nfds_t + 1)
        } else {
            (self.base(), self.count as nfds_t)
        }
    }

    /// As for [`super::epoll::EpollWait::done`].
    pub fn done(&mut self, result: c_int) -> Ready {
        self.disarm();
        self.count_sleeper(false);
        if result < 0 {
            return Ready::Return(result);
        }
        if self.fetching.is_some() {
            return self.step();
        }
        if self.mixed {
            let answer = self.collect_from_kernel();
            if answer > 0 || self.remaining().is_some_and(|t| sys::nanoseconds(t) == 0) {
                return self.answer(answer);
            }
            return self.step();
        }
        // Of a stream that hopped meanwhile the kernel saw control bytes: ours is the right answer.
        let fds = self.program();
        let mut n = 0;
        for p in fds.iter_mut() {
            if let Some(s) = ours(p.fd) {
                p.revents = revents(s, p.events);
            } else if let Some(i) = nested(p.fd).filter(|_| p.revents != 0) {
                // Its bell also rings for what is nothing to report.
                i.settle();
                p.revents = sys::poll_now(p.fd, p.events);
            }
            n += c_int::from(p.revents != 0);
        }
        // Also a sleep of ours that was shorter than the program's time-out (without a bell) is no time-out.
        if n > 0 || self.remaining().is_some_and(|t| sys::nanoseconds(t) == 0) {
            return self.answer(n);
        }
        self.step()
    }

    /// Streams in the program's array on which this thread sleeps without a bell.
    fn count_sleeper(&mut self, begin: bool) {
        if begin == self.counted {
            return;
        }
        self.counted = begin;
        for s in self.program().iter().filter_map(|p| candidate(p.fd)) {
            if begin {
                s.polling.fetch_add(1, SeqCst);
            } else {
                // A stream that took the place of another meanwhile began with 0.
                let _ = s.polling.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
            }
        }
    }

    /// How much of the time-out is left, for select(2), which says so.
    pub fn left(&self) -> timespec {
        match (self.deadline, self.timeout) {
            (Some(deadline), _) => sys::span(deadline.saturating_sub(sys::now())),
            (None, timeout) => timeout.unwrap_or(timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        }
    }

    fn remaining(&mut self) -> Option<timespec> {
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

    /// Fills in what our streams are ready for; how many are.
    fn ready(&self) -> c_int {
        let mut n = 0;
        for p in self.program() {
            if let Some(s) = ours(p.fd) {
                p.revents = revents(s, p.events);
                n += c_int::from(p.revents != 0);
            }
        }
        n
    }

    /// Whether one of ours may be ready, without locks.
    fn peek(&self) -> bool {
        self.program().iter().any(|p| match ours(p.fd) {
            Some(s) => look::fast(s, mask(p.events))
                .map_or(s.view.needs_look(), |bits| bits & mask(p.events) != 0),
            None => false,
        })
    }

    fn kernel_part(&self) -> *mut pollfd {
        let skip = if self.sets.is_some() { self.count } else { 0 };
        // SAFETY: reserved by `select` or `prepare`.
        unsafe { self.scratch.at().add(skip) }
    }

    /// Fills the scratch memory with what is not ours, and the bell.
    fn prepare(&mut self) -> bool {
        let room = if self.sets.is_some() {
            2 * self.count + 1
        } else {
            self.count + 1
        };
        if !self.scratch.reserve(room) {
            return false;
        }
        let to = self.kernel_part();
        for (i, p) in self.program().iter().enumerate() {
            let fd = if ours(p.fd).is_some() { -1 } else { p.fd };
            // SAFETY: room for count + 1.
            unsafe {
                to.add(i).write(pollfd {
                    fd,
                    events: p.events,
                    revents: 0,
                })
            };
        }
        let fd = self.bell.and_then(Bell::fd).unwrap_or(-1);
        // SAFETY: as above.
        unsafe {
            to.add(self.count).write(pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
        };
        true
    }

    /// Asks the kernel about the others, without sleeping; how many are ready (in the scratch memory).
    fn others_now(&mut self) -> usize {
        if !self.prepare() {
            return 0;
        }
        // SAFETY: prepared with count entries and one more.
        let others = unsafe { core::slice::from_raw_parts_mut(self.kernel_part(), self.count) };
        sys::poll(
            others,
            Some(timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .unwrap_or(0)
    }

    /// The whole answer, now.
    fn collect(&mut self) -> Ready {
        self.others_now();
        let n = self.collect_from_kernel();
        self.answer(n)
    }

    fn collect_from_kernel(&mut self) -> c_int {
        let from = self.kernel_part();
        let mut n = 0;
        for (i, p) in self.program().iter_mut().enumerate() {
            p.revents = match ours(p.fd) {
                Some(s) => revents(s, p.events),
                // SAFETY: prepared for this many.
                None => unsafe { (*from.add(i)).revents },
            };
            n += c_int::from(p.revents != 0);
        }
        n
    }

    fn answer(&mut self, n: c_int) -> Ready {
        match &self.sets {
            Some(sets) => Ready::Return(sets.fill(self.program())),
            None => Ready::Return(n),
        }
    }

    fn each_stream(&self, mut f: impl FnMut(&'static Stream)) {
        self.program()
            .iter()
            .filter(|p| careful(p.fd))
            .filter_map(|p| stream::of(p.fd))
            .for_each(&mut f);
    }

    fn arm(&mut self) -> bool {
        let Some(bell) = Bell::take_to_sleep(None) else {
            return false;
        };
        self.bell = Some(bell);
        stats::note(|c| c.sleeps.add(1));
        let mut ok = true;
        let mut last = 0;
        self.each_stream(|s| {
            s.rx_bells.fetch_or(bell.bit(), SeqCst);
            s.tx_bells.fetch_or(bell.bit(), SeqCst);
            s.view.show_bell(s, bell);
            let link = s.view.link.load(Acquire);
            if link != last && link != 0 {
                last = link;
                ok &= memory::get(link as usize - 1).is_none_or(|l| l.lost() || l.arm(bell));
            }
        });
        ok
    }

    fn disarm(&mut self) {
        let Some(bell) = self.bell.take().filter(|bell| bell.is_mine()) else {
            return;
        };
        self.each_stream(|s| {
            s.rx_bells.fetch_and(!bell.bit(), SeqCst);
            s.tx_bells.fetch_and(!bell.bit(), SeqCst);
            s.view.show_bell(s, bell);
            if let Some(l) = (s.view.link.load(Acquire) as usize)
                .checked_sub(1)
                .and_then(memory::get)
            {
                l.disarm(bell);
            }
        });
        bell.woken();
    }

    /// No bell is to be had: the streams go back to TCP, where the kernel wakes us.
    fn without_bell(&mut self) -> Ready {
        self.disarm();
        self.each_stream(background::pin);
        self.mixed = false;
        let soon = sys::span(1_000_000);
        let left = self.remaining();
        Ready::Sleep(Some(match left {
            Some(t) if sys::nanoseconds(t) < 1_000_000 => t,
            _ => soon,
        }))
    }
}

impl Drop for Poll {
    fn drop(&mut self) {
        self.disarm();
        self.count_sleeper(false);
        self.scratch.free();
    }
}

/// Streams that have, or may get, a lane: a bell can wake whoever waits for them.
fn careful(fd: c_int) -> bool {
    stream::of(fd).is_some_and(|s| s.mode() == Mode::Careful)
}

fn ours(fd: c_int) -> Option<&'static Stream> {
    stream::of(fd).filter(|s| look::ours(s))
}

fn mask(events: i16) -> u32 {
    u32::from(events as u16) | (libc::POLLERR | libc::POLLHUP) as u32
}

fn revents(s: &Stream, events: i16) -> i16 {
    (look::now(s, mask(events)) & mask(events)) as u16 as i16
}
