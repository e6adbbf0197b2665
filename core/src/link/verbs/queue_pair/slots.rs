//! Which send requests are on their way, and which of them ask for a completion.
//!
//! Requests are numbered from 0; a completion for n says that all up to n are done. One in four of the queue's depth asks for one, so that
//! at most a quarter is ever done without our knowing. Each request has a message slot, the number modulo the depth: it
//! is free when the request is, so messages need no list of their own.

/// The send queue's book.
#[derive(Debug)]
pub(super) struct Slots {
    depth: u64,
    /// The number of the next request.
    next: u64,
    /// All below this are done.
    done: u64,
    /// All from here on did not ask for a completion yet.
    unsignalled: u64,
}

/// A completion for a request that is not on its way.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unknown;

impl Slots {
    pub(super) fn new(depth: u32) -> Self {
        Slots {
            depth: depth.into(),
            next: 0,
            done: 0,
            unsignalled: 0,
        }
    }

    /// How many requests may be posted now.
    pub(super) fn room(&self) -> u64 {
        self.depth - (self.next - self.done)
    }

    /// The number of the next request.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The message slot of the request that will be taken after `ahead` others.
    pub(super) fn slot(&self, ahead: u64) -> u32 {
        ((self.next + ahead) % self.depth) as u32
    }

    /// Takes the next number, and tells whether it asks for a completion (as it does anyhow if `signalled`).
    pub(super) fn take(&mut self, signalled: bool) -> (u64, bool) {
        let id = self.next;
        self.next += 1;
        let signalled = signalled || self.next - self.unsignalled >= (self.depth / 4).max(1);
        if signalled {
            self.unsignalled = self.next;
        }
        (id, signalled)
    }

    /// A completion: `id` and all before it are done.
    pub(super) fn done(&mut self, id: u64) -> Result<(), Unknown> {
        if id < self.done || id >= self.next {
            return Err(Unknown);
        }
        self.done = id + 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_always_has_a_completion_to_come() {
        for depth in 1..40 {
            let mut slots = Slots::new(depth);
            let mut signalled = Vec::new();
            for _ in 0..200 {
                while slots.room() > 0 {
                    let (id, asks) = slots.take(false);
                    if asks {
                        signalled.push(id);
                    }
                }
                assert!(
                    !signalled.is_empty(),
                    "depth {depth}: full, and no completion will come"
                );
                slots.done(signalled.remove(0)).expect("it is on its way");
            }
        }
    }

    #[test]
    fn a_slot_is_used_again_only_when_its_request_is_done() {
        let mut slots = Slots::new(8);
        let first = slots.slot(0);
        for _ in 0..8 {
            slots.take(false);
        }
        assert_eq!(slots.room(), 0);
        assert_eq!(slots.slot(0), first);
        assert_eq!(slots.done(8), Err(Unknown));
        assert_eq!(slots.done(1), Ok(()));
        assert_eq!(slots.done(1), Err(Unknown));
        assert_eq!(slots.room(), 2);
    }
}
