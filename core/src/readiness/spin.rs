//! Spinning before a sleep: only as long as it pays, never when cores are scarce.
//!
//! A waiter looks at its lanes without a system call for at most `RSOCK_SPIN_US`. Whether that is worth it is learned for
//! each stream and each epoll instance ([`Score`]): a wait that ended while spinning raises the score, one that had to
//! sleep lowers it, and at zero only every sixteenth wait tries again. A spinner that was descheduled meanwhile knows that
//! another thread wants its core: then nobody in this process spins for a while.

use crate::policy;
use crate::sys;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// What was learned about waiting in one place.
pub struct Score(AtomicU32);

const BEST: u32 = 8;
const START: u32 = 4;
const TRY_EVERY: u32 = 16;

impl Score {
    /// Nothing learned yet.
    pub const fn new() -> Self {
        Score(AtomicU32::new(START))
    }

    /// Forgets.
    pub fn reset(&self) {
        self.0.store(START, Relaxed);
    }

    fn allows(&self) -> bool {
        let word = self.0.load(Relaxed);
        if word & 0xff != 0 {
            return true;
        }
        // The upper bits count waits that did not spin.
        let waits = (word >> 8) + 1;
        self.0
            .store(if waits >= TRY_EVERY { 1 } else { waits << 8 }, Relaxed);
        false
    }

    fn paid(&self, yes: bool) {
        let score = self.0.load(Relaxed) & 0xff;
        let new = if yes {
            (score + 1).min(BEST)
        } else {
            score / 2
        };
        self.0.store(new, Relaxed);
    }
}

impl Default for Score {
    fn default() -> Self {
        Self::new()
    }
}

/// Until when (CLOCK_MONOTONIC, ns) this process does not spin because cores are scarce.
static SCARCE_UNTIL: AtomicU64 = AtomicU64::new(0);
/// A gap this long between two looks means that the thread was descheduled.
const GAP_NS: u64 = 40_000;
/// How long nobody spins after that.
const PAUSE_NS: u64 = 5_000_000;

/// Looks until `ready` says so (true), or until spinning does not pay any more (false: sleep now).
#[inline]
pub fn spin(score: &Score, mut ready: impl FnMut() -> bool) -> bool {
    let limit = policy::SPIN_US.get() * 1000;
    if limit == 0 || !score.allows() {
        return false;
    }
    let start = sys::now();
    if start < SCARCE_UNTIL.load(Relaxed) {
        return false;
    }
    let mut last = start;
    loop {
        for _ in 0..32 {
            if ready() {
                score.paid(true);
                return true;
            }
            core::hint::spin_loop();
        }
        let now = sys::now();
        if now - last > GAP_NS {
            SCARCE_UNTIL.store(now + PAUSE_NS, Relaxed);
            return ready();
        }
        if now - start > limit {
            score.paid(false);
            return false;
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_where_spinning_never_pays_stops_and_tries_again_now_and_then() {
        let score = Score::new();
        for _ in 0..4 {
            if score.allows() {
                score.paid(false);
            }
        }
        let tries = (0..160).filter(|_| {
            let allowed = score.allows();
            if allowed {
                score.paid(false);
            }
            allowed
        });
        let tries = tries.count();
        assert!((5..=12).contains(&tries), "{tries} tries");
        score.paid(true);
        assert!(score.allows());
    }

    #[test]
    fn what_is_ready_is_seen_at_once() {
        let score = Score::new();
        assert!(spin(&score, || true));
    }
}
