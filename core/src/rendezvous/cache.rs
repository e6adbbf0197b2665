//! The negative cache: where nobody answered lately, nobody is asked for a while.

use std::collections::HashMap;

/// Keys with the time (ns, CLOCK_MONOTONIC) until which "no" holds.
pub struct NegativeCache<K> {
    until: HashMap<K, u64>,
    limit: usize,
}

impl<K: std::hash::Hash + Eq + Copy> NegativeCache<K> {
    /// A cache of at most `limit` entries.
    pub fn new(limit: usize) -> Self {
        NegativeCache {
            until: HashMap::new(),
            limit,
        }
    }

    /// Whether "no" still holds for `key`.
    pub fn says_no(&self, key: K, now: u64) -> bool {
        self.until.get(&key).is_some_and(|until| now < *until)
    }

    /// Remembers a "no" until then. A full cache forgets what is over, and if nothing is, everything.
    pub fn remember(&mut self, key: K, until: u64, now: u64) {
        if self.until.len() >= self.limit {
            self.until.retain(|_, u| *u > now);
            if self.until.len() >= self.limit {
                self.until.clear();
            }
        }
        self.until.insert(key, until);
    }

    /// Somebody is there after all.
    pub fn forget(&mut self, key: K) {
        self.until.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_holds_for_its_time_and_the_cache_stays_small() {
        let mut cache = NegativeCache::new(4);
        cache.remember(1, 100, 0);
        assert!(cache.says_no(1, 99) && !cache.says_no(1, 100) && !cache.says_no(2, 0));
        cache.forget(1);
        assert!(!cache.says_no(1, 0));
        for k in 0..100 {
            cache.remember(k, 1000, 0);
            assert!(cache.until.len() <= 4);
        }
        assert!(cache.says_no(99, 0));
    }
}
