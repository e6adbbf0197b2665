//! An epoll instance of the program, and what of it is ours: the list of hopped streams and a doorbell among its entries.

use super::registration;
use super::spin::Score;
use crate::link::bell::Bell;
use crate::link::{Link, memory};
use crate::slab::Slab;
use crate::socket::stream::Stream;
use crate::sys::{self, lock::Lock};
use crate::table::{self, Entry};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64, Ordering::*};

/// An epoll instance.
pub struct Instance {
    /// Its place in the slab.
    pub index: u32,
    generation: AtomicU32,
    fd: AtomicI32,
    refs: AtomicU32,
    /// Its bell, index + 1; 0: none yet.
    bell: AtomicU8,
    /// The data of the bell's entry in the kernel's instance: unlike any that the program registered.
    tag: AtomicU64,
    /// In a fork child: the tag of the parent's bell, which the kernel's instance, shared by both, still holds. 0: none.
    parents_tag: AtomicU64,
    /// Somebody may look at this instance from outside (poll, or another instance): its bell stays armed.
    pub inside: AtomicBool,
    /// Other instances may be in it.
    pub outside: AtomicBool,
    /// Registrations that are ours at the moment.
    pub ours: AtomicU32,
    /// Threads that sleep in the kernel with the bell armed.
    pub sleepers: AtomicU32,
    /// Whether spinning pays off here.
    pub spin: Score,
    /// Counts the scans of its list.
    pub turn: AtomicU64,
    /// When the kernel's part was looked at last (ns).
    pub looked: AtomicU64,
    /// When streams between carriers were looked at last (ns).
    pub looked_slowly: AtomicU64,
    /// What the lock guards.
    pub inner: Lock<Inner>,
}

/// The list of registrations that we look at.
pub struct Inner {
    /// The first one, index + 1.
    pub first: u32,
    /// How many there are.
    pub count: u32,
}

static INSTANCES: Slab<Instance, 8192> = Slab::new();

/// By index.
pub fn get(index: u32) -> Option<&'static Instance> {
    INSTANCES.get(index)
}

/// The instance behind a descriptor.
pub fn of(fd: i32) -> Option<&'static Instance> {
    match table::get(fd) {
        Entry::Epoll(index) => INSTANCES.get(index),
        _ => None,
    }
}

/// epoll_create or epoll_create1 returned `fd`.
pub fn made(fd: i32) {
    let blank = |index| Instance {
        index,
        generation: AtomicU32::new(0),
        fd: AtomicI32::new(-1),
        refs: AtomicU32::new(0),
        bell: AtomicU8::new(0),
        tag: AtomicU64::new(0),
        parents_tag: AtomicU64::new(0),
        inside: AtomicBool::new(false),
        outside: AtomicBool::new(false),
        ours: AtomicU32::new(0),
        sleepers: AtomicU32::new(0),
        spin: Score::new(),
        turn: AtomicU64::new(0),
        looked: AtomicU64::new(0),
        looked_slowly: AtomicU64::new(0),
        inner: Lock::new(Inner { first: 0, count: 0 }),
    };
    // An instance that we cannot keep is untracked: streams registered there stay on TCP.
    let Some(i) = INSTANCES.take(blank) else {
        return;
    };
    i.fd.store(fd, Relaxed);
    i.refs.store(1, Relaxed);
    i.parents_tag.store(0, Relaxed);
    i.ours.store(0, Relaxed);
    i.inside.store(false, Relaxed);
    i.outside.store(false, Relaxed);
    i.sleepers.store(0, Relaxed);
    i.spin.reset();
    if let Some(mut inner) = i.inner.lock() {
        *inner = Inner { first: 0, count: 0 };
    }
    if !table::set(fd, Entry::Epoll(i.index)) {
        INSTANCES.give(i.index);
    }
}

/// Another number for the same instance.
pub fn duplicated(old: i32, new: i32) {
    if let Some(i) = of(old) {
        i.refs.fetch_add(1, AcqRel);
        if !table::set(new, Entry::Epoll(i.index)) {
            i.refs.fetch_sub(1, AcqRel);
        }
    }
}

/// The program closes a number.
pub fn closed(fd: i32) {
    let Some(i) = of(fd) else { return };
    table::clear(fd);
    if i.refs.fetch_sub(1, AcqRel) > 1 {
        if i.fd() == fd
            && let Some((other, _)) =
                table::entries(0, u32::MAX).find(|(_, e)| *e == Entry::Epoll(i.index))
        {
            i.fd.store(other, Release);
        }
        return;
    }
    if let Some(mut inner) = i.inner.lock() {
        registration::let_go(&mut inner);
        i.ours.store(0, Release);
    }
    let bell = i.bell.swap(0, AcqRel);
    if let Some(b) = bell.checked_sub(1).and_then(Bell::from_index) {
        if let Some(bell_fd) = b.fd() {
            // A duplicate elsewhere (a fork child's) must not hear a bell that belongs to others from now on.
            let _ = sys::epoll_ctl(fd, libc::EPOLL_CTL_DEL, bell_fd, 0, 0);
        }
        b.drain();
        b.release();
    }
    i.generation.fetch_add(1, AcqRel);
    INSTANCES.give(i.index);
}

/// In a fork child: the kernel's instance is shared with the parent, its bell is the parent's.
pub fn in_child() {
    INSTANCES.reset_lock();
    registration::reset_locks();
    for i in INSTANCES.iter() {
        i.inner.reset();
        if i.bell.swap(0, AcqRel) != 0 {
            i.parents_tag.store(i.tag.load(Acquire), Release);
        }
        i.sleepers.store(0, Release);
    }
}

impl Instance {
    /// Its descriptor.
    pub fn fd(&self) -> i32 {
        self.fd.load(Acquire)
    }

    /// Changes when the slot is reused.
    pub fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }

    /// Its bell, if it has one.
    pub fn bell(&self) -> Option<Bell> {
        self.bell
            .load(Acquire)
            .checked_sub(1)
            .and_then(Bell::from_index)
    }

    /// Whether an event of the kernel's is our bell's.
    pub fn is_bell(&self, data: u64) -> bool {
        self.bell.load(Acquire) != 0 && data == self.tag.load(Acquire)
    }

    /// Whether an event of the kernel's is the parent's bell's, which only the parent can empty.
    pub fn is_parents_bell(&self, data: u64) -> bool {
        data != 0 && data == self.parents_tag.load(Acquire)
    }

    /// Wakes whoever sleeps in it.
    pub fn ring(&self) {
        if let Some(bell) = self.bell() {
            bell.ring();
        }
    }

    /// For those who look at the instance's descriptor itself: its bell is rung if and only if a stream of ours has something
    /// to report, and armed for what comes.
    pub fn settle(&self) {
        let Some(bell) = self.bell() else { return };
        self.inside.store(true, Release);
        bell.drain();
        if self.ours.load(Acquire) > 0 {
            self.arm(bell);
            if super::epoll::ready(self) {
                bell.ring();
            }
        }
    }

    /// [`Instance::settle`] for all that may be inside of this one.
    pub fn settle_inside(&self) {
        if self.outside.load(Acquire) {
            INSTANCES
                .iter()
                .filter(|i| i.inside.load(Acquire) && i.refs.load(Acquire) > 0)
                .for_each(Instance::settle);
        }
    }

    /// The program uses this data: ours must be another one.
    pub fn avoid(&self, data: u64) {
        if self.is_bell(data)
            && let Some(fd) = self.bell().and_then(Bell::fd)
        {
            let tag = fresh_tag(data);
            if sys::epoll_ctl(
                self.fd(),
                libc::EPOLL_CTL_MOD,
                fd,
                libc::EPOLLIN as u32,
                tag,
            )
            .is_ok()
            {
                self.tag.store(tag, Release);
            }
        }
    }

    /// A stream is ours to look at here: its lane rings our bell, which is in the kernel's instance from now on.
    pub fn watch(&self, s: &Stream) {
        let bell = match self.bell() {
            Some(bell) => bell,
            None => {
                let made = Bell::take(None).and_then(|bell| {
                    let tag = fresh_tag(0);
                    let fd = bell.fd()?;
                    self.tag.store(tag, Release);
                    match sys::epoll_ctl(
                        self.fd(),
                        libc::EPOLL_CTL_ADD,
                        fd,
                        libc::EPOLLIN as u32,
                        tag,
                    ) {
                        Ok(()) => Some(bell),
                        Err(_) => {
                            bell.release();
                            None
                        }
                    }
                });
                let Some(bell) = made else {
                    // Without a bell nobody would hear of it: back to TCP.
                    crate::process::background::pin(s);
                    return;
                };
                self.bell.store(bell.index() as u8 + 1, Release);
                bell
            }
        };
        s.rx_bells.fetch_or(bell.bit(), SeqCst);
        s.tx_bells.fetch_or(bell.bit(), SeqCst);
        s.view.show_bell(s, bell);
    }

    /// Arms the bell on every link that has a lane here. False: on some it cannot be.
    pub fn arm(&self, bell: Bell) -> bool {
        let mut ok = true;
        self.each_link(|link| ok &= link.arm(bell));
        ok
    }

    /// The sleep is over.
    pub fn disarm(&self, bell: Bell) {
        if self.inside.load(Acquire) {
            return;
        }
        self.each_link(|link| link.disarm(bell));
    }

    fn each_link(&self, mut f: impl FnMut(&'static memory::MemoryLink)) {
        let Some(inner) = self.inner.lock() else {
            return;
        };
        let mut link = inner.first;
        let mut last = u32::MAX;
        // SAFETY: the instance's lock is held.
        while let Some(d) = unsafe { registration::data(link) } {
            if let Some(s) = d.stream() {
                let index = s.view.link.load(Acquire);
                if index != last && index != 0 {
                    last = index;
                    if let Some(l) = memory::get(index as usize - 1).filter(|l| !l.lost()) {
                        f(l);
                    }
                }
            }
            link = d.next;
        }
    }
}

/// A number that the program hardly uses, and certainly not `not`. Programs register pointers and small integers; this is
/// neither, and [`Instance::avoid`] changes it should one ever do so.
fn fresh_tag(not: u64) -> u64 {
    let mut bytes = [0u8; 8];
    if sys::random(&mut bytes).is_err() {
        bytes = sys::now().wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes();
    }
    let tag = u64::from_ne_bytes(bytes) | 1 << 63 | 1;
    if tag == not { tag ^ 2 } else { tag }
}
