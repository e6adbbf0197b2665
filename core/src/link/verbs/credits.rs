//! Credits: the sender's knowledge of how many receive requests its peer surely has, so that none of our messages ever finds none.
//!
//! Both sides keep `depth` receive requests and post consumed ones again in batches. Each side tells the other how many *ordinary*
//! messages it may send: `depth - reserve(batch)`. The reserve is for messages that do nothing but return credits, which need no
//! credit themselves (else two ends without credit would wait for each other). Why `batch + 1` is enough: a credit
//! goes back only when its request is posted again, so ordinary messages never hold more than the allotment. A return is sent when half of
//! the allotment (rounded up) is owed, so the peer can have sent for two returns at most without having seen the first; two
//! requests for those, and up to `batch - 1` that were consumed by returns and wait for their batch.

/// The credits of one queue pair, in both directions.
#[derive(Debug)]
pub struct Credits {
    /// Ordinary messages we may send now.
    available: u32,
    /// What the peer allotted us in all: `available` never exceeds it.
    allotted: u32,
    /// What we allotted the peer.
    granted: u32,
    /// Ordinary messages of the peer whose requests are posted again, but which it does not know of yet.
    owed: u32,
    /// Ordinary messages among those that wait for their batch.
    waiting: u32,
}

/// The peer returned credits that it never got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany;

impl Credits {
    /// What `depth` receive requests allow to grant. At least 1 for depths that [`Credits::batch`] is made for (8 or more).
    pub fn grant(depth: u32) -> u32 {
        depth.saturating_sub(Self::batch(depth) + 1)
    }

    /// How many consumed receive requests are posted again at once.
    pub fn batch(depth: u32) -> u32 {
        (depth / 8).clamp(1, super::provider::MAX_CHAIN as u32)
    }

    /// A fresh connection: what the peer allotted us, and what we granted it.
    pub fn new(allotted: u32, granted: u32) -> Self {
        Credits {
            available: allotted,
            allotted,
            granted,
            owed: 0,
            waiting: 0,
        }
    }

    /// How many ordinary messages may be sent now.
    pub fn available(&self) -> u32 {
        self.available
    }

    /// An ordinary message is being sent. False, and nothing changes, if there is no credit for it.
    pub fn spend(&mut self) -> bool {
        self.available = match self.available.checked_sub(1) {
            Some(rest) => rest,
            None => return false,
        };
        true
    }

    /// The peer returned `count`.
    pub fn returned(&mut self, count: u32) -> Result<(), TooMany> {
        match self.available.checked_add(count) {
            Some(sum) if sum <= self.allotted => self.available = sum,
            _ => return Err(TooMany),
        }
        Ok(())
    }

    /// An ordinary message arrived; its receive request waits for its batch.
    pub fn received(&mut self) {
        self.waiting += 1;
    }

    /// All consumed receive requests are posted again.
    pub fn posted_again(&mut self) {
        self.owed += self.waiting;
        self.waiting = 0;
    }

    /// Enough is owed to the peer that a message of its own is worth while.
    pub fn return_is_due(&self) -> bool {
        self.owed > 0 && self.owed >= self.granted.div_ceil(2)
    }

    /// Takes what is owed, to go with a message that is being sent now.
    pub fn take_owed(&mut self) -> u16 {
        let owed = u16::try_from(self.owed).unwrap_or(u16::MAX);
        self.owed -= u32::from(owed);
        owed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn nothing_is_sent_without_credit_and_no_more_comes_back_than_was_given() {
        let mut c = Credits::new(2, 2);
        assert!(c.spend() && c.spend() && !c.spend());
        assert_eq!(c.returned(3), Err(TooMany));
        assert_eq!(c.returned(2), Ok(()));
        assert_eq!(c.available(), 2);
        assert_eq!(c.returned(1), Err(TooMany));
        assert_eq!(c.returned(u32::MAX), Err(TooMany));
    }

    #[derive(Clone, Copy)]
    enum Packet {
        Ordinary(u16),
        Return(u16),
    }

    struct End {
        credits: Credits,
        posted: u32,
        consumed: u32,
        inbox: VecDeque<Packet>,
    }

    /// Two ends that send whenever they may, under random schedules: a packet always finds a receive request, and nobody gets stuck.
    #[test]
    fn a_receive_request_is_always_there() {
        for seed in 1u64..400 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut next = |n: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % n
            };
            let depths = [8 + next(60) as u32, 8 + next(60) as u32];
            let mut ends: Vec<End> = (0..2)
                .map(|i| End {
                    credits: Credits::new(Credits::grant(depths[1 - i]), Credits::grant(depths[i])),
                    posted: depths[i],
                    consumed: 0,
                    inbox: VecDeque::new(),
                })
                .collect();
            let mut sent = [0u32; 2];
            for _ in 0..4000 {
                let me = next(2) as usize;
                let mut out = None;
                if next(2) == 0 {
                    if ends[me].credits.spend() {
                        // Half of the ordinary messages are writes with immediate data, which carry no credits.
                        let returned = if next(2) == 0 {
                            ends[me].credits.take_owed()
                        } else {
                            0
                        };
                        sent[me] += 1;
                        out = Some(Packet::Ordinary(returned));
                    }
                } else if let Some(packet) = ends[me].inbox.pop_front() {
                    let end = &mut ends[me];
                    end.consumed += 1;
                    match packet {
                        Packet::Ordinary(n) => {
                            end.credits.returned(n.into()).expect("honest");
                            end.credits.received();
                        }
                        Packet::Return(n) => end.credits.returned(n.into()).expect("honest"),
                    }
                    if end.consumed >= Credits::batch(depths[me]) {
                        end.posted += core::mem::take(&mut end.consumed);
                        end.credits.posted_again();
                    }
                    if end.credits.return_is_due() {
                        out = Some(Packet::Return(end.credits.take_owed()));
                    }
                }
                if let Some(packet) = out {
                    let peer = &mut ends[1 - me];
                    assert!(peer.posted > 0, "seed {seed}: no receive request");
                    peer.posted -= 1;
                    peer.inbox.push_back(packet);
                }
            }
            assert!(
                sent[0] > 100 && sent[1] > 100,
                "seed {seed}: stuck after {sent:?}"
            );
        }
    }
}
