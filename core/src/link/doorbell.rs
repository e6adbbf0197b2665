//! The doorbell protocol: whoever moves a cursor looks at the armed bells after it, whoever wants to sleep arms his bell and
//! looks at the cursor after that. One of the two always sees the other, so nobody sleeps through news.
//!
//! The steps are here, apart from the memory they work on, so that a model checker can run the very same code under
//! every order of them it finds (`tests`, shuttle). Each access is sequentially consistent: a swap, not a store, moves the cursor,
//! because the look at the bells must not overtake it.

use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// A word that two sides share.
pub trait Word {
    /// Its value.
    fn get(&self) -> u64;
    /// Sets it, as a full fence.
    fn set(&self, value: u64);
    /// Sets bits.
    fn add(&self, bits: u64);
    /// Clears bits; the value before.
    fn remove(&self, bits: u64) -> u64;
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn get(&self) -> u64 {
        self.load(SeqCst)
    }
    #[inline(always)]
    fn set(&self, value: u64) {
        self.swap(value, SeqCst);
    }
    #[inline(always)]
    fn add(&self, bits: u64) {
        self.fetch_or(bits, SeqCst);
    }
    #[inline(always)]
    fn remove(&self, bits: u64) -> u64 {
        self.fetch_and(!bits, SeqCst)
    }
}

/// After a cursor was moved: the bells that wait for it and are armed. Whoever gets them has disarmed them, and rings each.
#[inline(always)]
pub fn due<W: Word>(waiting: &W, armed: &W) -> u64 {
    let waiting = waiting.get();
    if waiting == 0 {
        return 0;
    }
    let hit = armed.get() & waiting;
    if hit == 0 {
        return 0;
    }
    armed.remove(hit) & hit
}

/// Moves a cursor, and says which bells to ring.
#[inline(always)]
pub fn publish<W: Word>(cursor: &W, to: u64, waiting: &W, armed: &W) -> u64 {
    cursor.set(to);
    due(waiting, armed)
}

/// Before a sleep, with the bell's bit in `waiting` already: the caller looks at the cursor once more after it.
#[inline(always)]
pub fn arm<W: Word>(armed: &W, bell: u64) {
    armed.add(bell);
}

/// After a sleep, however it ended.
#[inline(always)]
pub fn disarm<W: Word>(armed: &W, bell: u64) {
    armed.remove(bell);
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::sync::atomic::{AtomicU64 as Checked, Ordering};
    use shuttle::sync::{Arc, Condvar, Mutex};
    use shuttle::thread;

    impl Word for Checked {
        fn get(&self) -> u64 {
            self.load(Ordering::SeqCst)
        }
        fn set(&self, value: u64) {
            self.swap(value, Ordering::SeqCst);
        }
        fn add(&self, bits: u64) {
            self.fetch_or(bits, Ordering::SeqCst);
        }
        fn remove(&self, bits: u64) -> u64 {
            self.fetch_and(!bits, Ordering::SeqCst)
        }
    }

    /// One direction of a lane, and the eventfds of its sleepers.
    struct Direction {
        cursor: Checked,
        waiting: Checked,
        armed: Checked,
        rung: [(Mutex<bool>, Condvar); 2],
    }

    impl Direction {
        fn new() -> Arc<Direction> {
            let bell = || (Mutex::new(false), Condvar::new());
            Arc::new(Direction {
                cursor: Checked::new(0),
                waiting: Checked::new(0),
                armed: Checked::new(0),
                rung: [bell(), bell()],
            })
        }

        fn ring(&self, set: u64) {
            for (i, (rung, wake)) in self.rung.iter().enumerate() {
                if set >> i & 1 != 0 {
                    *rung.lock().expect("not poisoned") = true;
                    wake.notify_all();
                }
            }
        }

        /// Sleeps until the bell rings; a bell that rang before ends it at once, as an eventfd does.
        fn sleep(&self, bell: usize) {
            let (rung, wake) = &self.rung[bell];
            let mut rung = rung.lock().expect("not poisoned");
            while !*rung {
                rung = wake.wait(rung).expect("not poisoned");
            }
            *rung = false;
        }

        fn write(&self, last: u64) {
            for to in 1..=last {
                let set = publish(&self.cursor, to, &self.waiting, &self.armed);
                self.ring(set);
            }
        }

        fn read(&self, bell: usize, last: u64, look_again: bool) {
            let bit = 1 << bell;
            while self.cursor.get() < last {
                let seen = self.cursor.get();
                self.waiting.add(bit);
                arm(&self.armed, bit);
                if (!look_again || self.cursor.get() == seen) && seen < last {
                    self.sleep(bell);
                }
                disarm(&self.armed, bit);
                self.waiting.remove(bit);
            }
        }
    }

    fn run(readers: usize, look_again: bool) {
        let d = Direction::new();
        let sleepers: Vec<_> = (0..readers)
            .map(|bell| {
                let d = d.clone();
                thread::spawn(move || d.read(bell, 3, look_again))
            })
            .collect();
        d.write(3);
        for sleeper in sleepers {
            sleeper.join().expect("the sleeper woke");
        }
    }

    #[test]
    fn nobody_sleeps_through_news() {
        shuttle::check_random(|| run(1, true), 20_000);
        shuttle::check_pct(|| run(1, true), 20_000, 3);
    }

    #[test]
    fn two_sleepers_on_one_direction_both_wake() {
        shuttle::check_random(|| run(2, true), 20_000);
        shuttle::check_pct(|| run(2, true), 20_000, 4);
    }

    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_sleeper_that_does_not_look_again_sleeps_for_ever() {
        shuttle::check_random(|| run(1, false), 20_000);
    }
}
