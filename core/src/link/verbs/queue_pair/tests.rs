//! The data path against the fake: bytes, order, credits, small devices, failures, and peers that do not keep to the rules.

use super::super::fake::{Abilities, Fake};
use super::super::manager::Manager;
use super::super::manager::tests::pair_of;
use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

struct Pair {
    // First: queue pairs and memory go before the managers' channels, which the fake would complain about otherwise.
    pairs: [QueuePair<Fake>; 2],
    regions: Option<[Region<Fake>; 2]>,
    _managers: [Manager<Fake>; 2],
    fake: Arc<Fake>,
}

impl Pair {
    /// Connected, the greeting heard, and memory for the peer to write to.
    fn new(abilities: Abilities) -> Self {
        let (fake, managers, mut pairs) = pair_of(abilities);
        fake.deliver(100);
        let mut rooms = 0;
        pairs[0].poll(100, |happened| {
            rooms += usize::from(happened == Happened::Room)
        });
        assert_eq!(rooms, 1, "the connector's greeting opens the acceptor");
        let regions =
            [0, 1].map(|i| Region::allocate(pairs[i].device(), 1 << 16, true).expect("memory"));
        Pair {
            pairs,
            regions: Some(regions),
            _managers: managers,
            fake,
        }
    }

    fn region(&self, index: usize) -> &Region<Fake> {
        &self.regions.as_ref().expect("not yet dropped")[index]
    }

    fn byte(&self, index: usize, offset: usize) -> u8 {
        assert!(offset < self.region(index).length());
        // SAFETY: within the region.
        unsafe { self.region(index).as_ptr().add(offset).read() }
    }

    fn set(&self, index: usize, offset: usize, value: u8) {
        assert!(offset < self.region(index).length());
        // SAFETY: within the region.
        unsafe { self.region(index).as_ptr().add(offset).write(value) }
    }

    fn lost(&mut self, index: usize) -> Option<String> {
        let mut why = None;
        self.pairs[index].poll(1000, |happened| {
            if let Happened::Lost(error) = happened {
                why = Some(error.to_string());
            }
        });
        why
    }
}

fn both_transports() -> [Abilities; 2] {
    [
        Abilities::of(Transport::InfiniBand),
        Abilities::of(Transport::Iwarp),
    ]
}

/// Writes, notified writes and messages both ways under random schedules, on generous and on poor devices: everything arrives once, in order and whole, and
/// the fake never sees a queue overrun or a message without a receive request.
#[test]
fn everything_arrives_once_and_in_order() {
    for seed in 1..120u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut abilities = both_transports()[random.below(2)];
        abilities.inline = [0, 8, 64][random.below(3)];
        abilities.depth = [8, 11, 32, 1024][random.below(4)];
        let mut t = Pair::new(abilities);
        let (mut sent, mut seen) = ([0u32; 2], [0u32; 2]);
        for _ in 0..3000 {
            let me = random.below(2);
            match random.below(5) {
                0 => {
                    t.fake.deliver(1 + random.below(4));
                }
                1 | 2 => {
                    // Number n is announced in byte n of the peer's memory, which the write carries.
                    let n = sent[me];
                    let at = n as usize % 4096;
                    t.set(me, 4096 + at, n as u8);
                    let length = 1 + random.below(3);
                    let (local, remote) = (
                        t.region(me).local(4096 + at, length),
                        t.region(1 - me).remote(at),
                    );
                    let posted = if random.below(2) == 0 {
                        t.pairs[me].write_and_notify(local, remote, n)
                    } else {
                        let mut message = [n as u8; MAX_MESSAGE];
                        message[..4].copy_from_slice(&n.to_le_bytes());
                        match t.pairs[me].write(local, remote) {
                            Ok(()) => {
                                t.pairs[me].send(&message[..4 + random.below(MAX_MESSAGE - 3)])
                            }
                            busy => busy,
                        }
                    };
                    assert_ne!(posted, Err(NotPosted::Lost), "seed {seed}");
                    sent[me] += u32::from(posted.is_ok());
                }
                _ => {
                    let mut numbers = Vec::new();
                    t.pairs[me].poll(1 + random.below(20), |happened| match happened {
                        Happened::Notified(n) => numbers.push(n),
                        Happened::Message(m) => {
                            assert!(
                                m[4..].iter().all(|b| *b == m[0]),
                                "a message that was overwritten"
                            );
                            numbers.push(u32::from_le_bytes([m[0], m[1], m[2], m[3]]));
                        }
                        Happened::Room => {}
                        Happened::Lost(error) => panic!("seed {seed}: {error}"),
                    });
                    for n in numbers {
                        assert_eq!(n, seen[me], "seed {seed}");
                        assert_eq!(
                            t.byte(me, n as usize % 4096),
                            n as u8,
                            "seed {seed}: told before it was written"
                        );
                        seen[me] += 1;
                    }
                }
            }
        }
        assert!(
            seen[0] > 50 && seen[1] > 50,
            "seed {seed}: stuck at {seen:?}"
        );
    }
}

#[test]
fn a_poor_device_is_used_as_it_is() {
    let mut abilities = Abilities::of(Transport::InfiniBand);
    (abilities.inline, abilities.depth) = (0, 10);
    let t = Pair::new(abilities);
    assert_eq!(
        t.pairs[0].sizes(),
        QueueSizes {
            send: 8,
            receive: 8,
            inline: 0
        }
    );
    abilities.inline = 20;
    let t = Pair::new(abilities);
    assert_eq!(t.pairs[0].sizes().inline, 16);
}

#[test]
fn busy_is_followed_by_room() {
    for abilities in both_transports() {
        let mut t = Pair::new(abilities);
        while t.pairs[1].send(b"x").is_ok() {
            t.fake.deliver(1);
        }
        let mut heard = 0;
        t.pairs[1].poll(1000, |happened| {
            assert_ne!(happened, Happened::Room, "there is no credit yet")
        });
        t.pairs[0].poll(1000, |happened| {
            heard += usize::from(matches!(happened, Happened::Message(_)))
        });
        // The greeting took one as well.
        assert_eq!(heard as u32 + 1, Credits::grant(32));
        t.fake.deliver(100);
        let mut room = 0;
        t.pairs[1].poll(1000, |happened| {
            room += usize::from(happened == Happened::Room)
        });
        assert_eq!(room, 1);
        assert_eq!(t.pairs[1].send(b"x"), Ok(()));
    }
}

#[test]
fn few_requests_ask_for_a_completion() {
    let mut t = Pair::new(Abilities::of(Transport::InfiniBand));
    let (local, remote) = (t.region(1).local(0, 64), t.region(0).remote(0));
    let before = t.fake.posted();
    for _ in 0..8000 {
        assert_eq!(t.pairs[1].write(local, remote), Ok(()));
        t.fake.deliver(1);
        t.pairs[1].poll(16, |_| {});
    }
    let after = t.fake.posted();
    assert_eq!(after.0 - before.0, 8000);
    assert!(after.1 - before.1 <= 1001, "{} of 8000", after.1 - before.1);
}

#[test]
fn a_notified_write_is_one_request_where_the_device_can() {
    for (abilities, requests) in both_transports().into_iter().zip([1, 2]) {
        let mut t = Pair::new(abilities);
        let (local, remote) = (t.region(1).local(0, 64), t.region(0).remote(0));
        let before = t.fake.posted().0;
        assert_eq!(t.pairs[1].write_and_notify(local, remote, 7), Ok(()));
        assert_eq!(t.fake.posted().0 - before, requests);
    }
}

#[test]
fn the_doorbell_rings_once_per_arming() {
    let mut t = Pair::new(Abilities::of(Transport::Iwarp));
    let device = t.pairs[0].device().clone();
    while device.rung().expect("no failure").is_some() {}
    t.pairs[0].arm();
    for _ in 0..3 {
        assert_eq!(t.pairs[1].send(b"x"), Ok(()));
    }
    t.fake.deliver(100);
    assert_eq!(device.rung(), Ok(Some(t.pairs[0].token())));
    assert_eq!(device.rung(), Ok(None));
}

#[test]
fn a_failed_completion_ends_the_queue_pair_once() {
    let mut t = Pair::new(Abilities::of(Transport::InfiniBand));
    t.fake.fail_completion(t.pairs[1].token(), 12);
    assert_eq!(
        t.lost(1).as_deref(),
        Some("the queue pair is lost: status 12")
    );
    assert_eq!(t.lost(1), None);
    assert_eq!(t.pairs[1].send(b"x"), Err(NotPosted::Lost));
    assert!(t.pairs[1].lost().is_some());
}

#[test]
fn an_unsignalled_request_that_fails_is_noticed() {
    let mut t = Pair::new(Abilities::of(Transport::InfiniBand));
    let local = t.region(1).local(0, 64);
    let beyond = t.region(0).remote(t.region(0).length() - 10);
    assert_eq!(t.pairs[1].write(local, beyond), Ok(()));
    t.fake.deliver(1);
    assert!(t.lost(1).is_some());
    assert!(t.lost(0).is_some());
}

#[test]
fn the_peer_cannot_write_to_message_buffers() {
    let mut t = Pair::new(Abilities::of(Transport::InfiniBand));
    let local = t.region(1).local(0, 64);
    let buffers = t.pairs[0].buffers.as_ref().expect("built").remote(0);
    assert_eq!(t.pairs[1].write(local, buffers), Ok(()));
    t.fake.deliver(1);
    assert!(t.lost(1).is_some());
}

#[test]
fn a_probe_finds_out_whether_the_peer_is_there() {
    for abilities in both_transports() {
        let mut t = Pair::new(abilities);
        for _ in 0..200 {
            t.pairs[1].probe();
            assert!(t.pairs[1].unanswered());
            t.fake.deliver(100);
            assert_eq!(t.lost(0), None);
            t.fake.deliver(100);
            assert_eq!(t.lost(1), None);
            assert!(!t.pairs[1].unanswered());
        }
        t.pairs[0].end(Error::Lost("enough".into()));
        assert!(t.lost(1).is_some());
    }
}

/// With no credit left there is no room for a question; what the peer has to send before anything else answers it.
#[test]
fn a_probe_without_credit_waits_for_the_credits() {
    let mut t = Pair::new(Abilities::of(Transport::Iwarp));
    while t.pairs[1].send(b"x").is_ok() {
        t.fake.deliver(1);
    }
    t.lost(1);
    t.pairs[1].probe();
    assert_eq!(t.lost(1), None);
    assert!(t.pairs[1].unanswered());
    assert_eq!(t.lost(0), None);
    t.fake.deliver(100);
    assert_eq!(t.lost(1), None);
    assert!(!t.pairs[1].unanswered());
}

/// A peer that asks while we may not send gets its answer later.
#[test]
fn an_answer_waits_for_room() {
    let mut t = Pair::new(Abilities::of(Transport::Iwarp));
    while t.pairs[0].send(b"x").is_ok() {
        t.fake.deliver(1);
    }
    t.pairs[1].probe();
    t.fake.deliver(100);
    assert_eq!(t.lost(0), None);
    t.fake.deliver(100);
    assert!(t.pairs[1].unanswered(), "there was no credit for an answer");
    for end in [1, 0, 1] {
        t.lost(end);
        t.fake.deliver(100);
    }
    assert!(!t.pairs[1].unanswered());
}

#[test]
fn nonsense_from_the_peer_costs_it_the_link() {
    let mut too_many = [0; 8];
    Frame::Message(b"").encode(60000, &mut too_many);
    let mut greeting = [0; 8];
    Frame::Hello.encode(0, &mut greeting);
    for nonsense in [&b""[..], b"GET / HT", b"\x04\0\0", &too_many, &greeting] {
        let mut t = Pair::new(Abilities::of(Transport::Iwarp));
        t.fake.forge(t.pairs[0].token(), nonsense);
        assert!(t.lost(0).is_some(), "{nonsense:?}");
    }
}

#[test]
fn a_removed_device_is_an_error_and_no_more() {
    let mut t = Pair::new(Abilities::of(Transport::InfiniBand));
    t.fake.remove_device();
    assert_eq!(t.pairs[1].send(b"x"), Err(NotPosted::Lost));
    t.pairs[0].arm();
    assert!(t.lost(0).is_some());
    let fake = t.fake.clone();
    drop(t);
    assert_eq!(fake.live(), 0);
}

#[test]
#[should_panic(expected = "beyond a region")]
fn a_request_beyond_our_own_memory_is_our_fault() {
    let t = Pair::new(Abilities::of(Transport::InfiniBand));
    t.region(0).local(1 << 16, 1);
}
