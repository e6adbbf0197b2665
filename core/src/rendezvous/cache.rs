//! The negative cache: where nobody answered lately, nobody is asked for a while.

use std::collections::HashMap;

/// Keys with the time (ns, CLOCK_MONOTONIC) until which "no" holds, and why it was one.
pub struct NegativeCache<K, V> {
    until: HashMap<K, (u64, V)>,
    limit: usize,
}

impl<K: std::hash::Hash + Eq, V: Copy> NegativeCache<K, V> {
    /// A cache of at most `limit` entries.
    pub fn new(limit: usize) -> Self {
        NegativeCache {
            until: HashMap::new(),
            limit,
        }
    }

    /// Why "no" still holds for `key`; None: it does not.
    pub fn says_no(&self, key: &K, now: u64) -> Option<V> {
        self.until
            .get(key)
            .and_then(|(until, why)| (now < *until).then_some(*why))
    }

    /// Remembers a "no" until then. A full cache forgets what is over, and if nothing is, everything.
    pub fn remember(&mut self, key: K, why: V, until: u64, now: u64) {
        if self.until.len() >= self.limit {
            self.until.retain(|_, (u, _)| *u > now);
            if self.until.len() >= self.limit {
                self.until.clear();
            }
        }
        self.until.insert(key, (until, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_holds_for_its_time_and_the_cache_stays_small() {
        let mut cache = NegativeCache::new(4);
        cache.remember(1, "why", 100, 0);
        assert_eq!(cache.says_no(&1, 99), Some("why"));
        assert_eq!(cache.says_no(&1, 100), None);
        assert_eq!(cache.says_no(&2, 0), None);
        for k in 0..100 {
            cache.remember(k, "full", 1000, 0);
            assert!(cache.until.len() <= 4);
        }
        assert_eq!(cache.says_no(&99, 0), Some("full"));
    }
}
