//! Connecting and accepting against the fake: what both ends are told, in every order of events, and that nothing is left over.

use super::super::fake::{Abilities, Fake};
use super::*;

const WANTED: Wanted = Wanted {
    depth: 32,
    inline: 64,
};

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

// The managers share the fake through an `Arc` as they would a real provider; the tests have one thread.
#[allow(clippy::arc_with_non_send_sync)]
fn hosts(abilities: Abilities) -> (Arc<Fake>, Manager<Fake>, Manager<Fake>) {
    let fake = Arc::new(Fake::new(abilities));
    let manager = || Manager::new(fake.clone(), WANTED).expect("the fake has a device");
    let (a, b) = (manager(), manager());
    (fake, a, b)
}

fn next(manager: &mut Manager<Fake>) -> Outcome<Fake> {
    manager
        .poll()
        .expect("no failure")
        .expect("something happened")
}

fn request(manager: &mut Manager<Fake>) -> (Token, Vec<u8>) {
    match next(manager) {
        Outcome::Requested { token, body, .. } => (token, body),
        _ => panic!("no request"),
    }
}

/// Two connected queue pairs.
pub(in super::super) fn pair_of(
    abilities: Abilities,
) -> (Arc<Fake>, [Manager<Fake>; 2], [QueuePair<Fake>; 2]) {
    let (fake, mut a, mut b) = hosts(abilities);
    a.listen(address("192.0.2.2:80"), 8).expect("listening");
    b.connect(None, address("192.0.2.2:80"), b"wish")
        .expect("resolving");
    assert!(b.poll().expect("no failure").is_none());
    let (token, body) = request(&mut a);
    assert_eq!(body, b"wish");
    a.accept(token, b"yes").expect("accepting");
    let Outcome::Connected {
        pair: connector,
        body,
        ..
    } = next(&mut b)
    else {
        panic!("not connected")
    };
    assert_eq!(body, b"yes");
    let Outcome::Connected { pair: acceptor, .. } = next(&mut a) else {
        panic!("not connected")
    };
    (fake, [a, b], [acceptor, connector])
}

#[test]
fn both_ends_get_a_queue_pair_and_give_everything_back() {
    for transport in [Transport::InfiniBand, Transport::Iwarp] {
        let (fake, managers, pairs) = pair_of(Abilities::of(transport));
        assert_eq!(pairs[0].sizes().receive, 32);
        drop(managers);
        assert!(fake.live() > 0);
        drop(pairs);
        assert_eq!(fake.live(), 0);
    }
}

#[test]
fn a_refusal_says_where_to_go_instead() {
    for transport in [Transport::InfiniBand, Transport::Iwarp] {
        let (fake, mut a, mut b) = hosts(Abilities::of(transport));
        a.listen(address("0.0.0.0:80"), 8).expect("listening");
        let wish = b
            .connect(None, address("192.0.2.2:80"), b"")
            .expect("resolving");
        assert!(b.poll().expect("no failure").is_none());
        let (token, _) = request(&mut a);
        a.reject(token, b"port 4711").expect("refusing");
        assert!(
            matches!(next(&mut b), Outcome::Refused { token, body: Some(body) } if token == wish && body == b"port 4711")
        );
        assert!(a.accept(token, b"").is_err(), "it is decided");
        drop((a, b));
        assert_eq!(fake.live(), 0);
    }
}

#[test]
fn nobody_there_is_a_refusal_without_a_word() {
    let (_fake, _a, mut b) = hosts(Abilities::of(Transport::InfiniBand));
    b.connect(None, address("192.0.2.2:81"), b"")
        .expect("resolving");
    assert!(matches!(next(&mut b), Outcome::Refused { body: None, .. }));
}

#[test]
fn a_stranger_is_refused_and_nobody_hears_of_it() {
    let (fake, mut a, b) = hosts(Abilities::of(Transport::Iwarp));
    a.listen(address("192.0.2.2:80"), 8).expect("listening");
    let stranger = Identifier::new(&b.channel, 77).expect("an identifier");
    let mut devices = Devices::new();
    fake.resolve_address(stranger.id(), None, address("192.0.2.2:80"), 1)
        .expect("resolving");
    let device = devices.of(&stranger).expect("the device");
    let pair = QueuePair::build(stranger, device, 77, WANTED).expect("a queue pair");
    for data in [
        &b"GET / HTTP/1.1"[..],
        b"",
        b"rsk1\x02\0\0\0",
        b"rsk1\x01\0\0\0",
        b"rsk1\x01\xff\x01\0",
    ] {
        pair.connect(data).expect("connecting");
        assert!(a.poll().expect("no failure").is_none(), "{data:?}");
    }
}

#[test]
fn a_device_without_memory_to_lock_fails_with_the_reason() {
    let mut abilities = Abilities::of(Transport::InfiniBand);
    abilities.register_errno = libc::ENOMEM;
    let (fake, mut a, mut b) = hosts(abilities);
    a.listen(address("192.0.2.2:80"), 8).expect("listening");
    b.connect(None, address("192.0.2.2:80"), b"")
        .expect("resolving");
    assert!(
        matches!(next(&mut b), Outcome::Failed { error, .. } if error.errno() == Some(libc::ENOMEM))
    );
    drop((a, b));
    assert_eq!(fake.live(), 0);
}

#[test]
fn an_acceptor_that_cannot_refuses() {
    let (fake, mut a, mut b) = hosts(Abilities::of(Transport::InfiniBand));
    a.listen(address("192.0.2.2:80"), 8).expect("listening");
    b.connect(None, address("192.0.2.2:80"), b"")
        .expect("resolving");
    assert!(b.poll().expect("no failure").is_none());
    let (token, _) = request(&mut a);
    fake.abilities.borrow_mut().register_errno = libc::ENOMEM;
    assert!(a.accept(token, b"").is_err());
    assert!(matches!(next(&mut b), Outcome::Refused { body: None, .. }));
}

#[test]
fn a_removed_device_ends_what_is_on_it() {
    let (fake, [mut a, mut b], pairs) = pair_of(Abilities::of(Transport::InfiniBand));
    fake.remove_device();
    assert!(
        matches!(next(&mut b), Outcome::Ended { token, removed: true } if token == pairs[1].token())
    );
    // The listener on that device's address, and the connection.
    let (mut ended, mut failed) = (0, 0);
    while let Some(outcome) = a.poll().expect("no failure") {
        match outcome {
            Outcome::Ended { removed: true, .. } => ended += 1,
            Outcome::Failed { .. } => failed += 1,
            _ => panic!("neither"),
        }
    }
    assert_eq!((ended, failed), (1, 1));
    b.connect(None, address("192.0.2.2:80"), b"")
        .expect("resolving");
    assert!(matches!(next(&mut b), Outcome::Failed { .. }));
    drop(pairs);
    drop((a, b));
    assert_eq!(fake.live(), 0);
}

#[test]
fn a_peer_that_goes_away_ends_the_connection() {
    let (_fake, [_a, mut b], [acceptor, mut connector]) = pair_of(Abilities::of(Transport::Iwarp));
    drop(acceptor);
    assert!(matches!(
        next(&mut b),
        Outcome::Ended { removed: false, .. }
    ));
    let mut lost = 0;
    connector.poll(100, |happened| {
        lost += usize::from(matches!(
            happened,
            super::super::queue_pair::Happened::Lost(_)
        ))
    });
    assert_eq!(lost, 1);
}

/// Events that never happened, for tokens in every stage, in random order: no panic, and nothing is left over.
#[test]
fn events_may_come_in_any_order() {
    const KINDS: [EventKind; 9] = [
        EventKind::AddressResolved,
        EventKind::RouteResolved,
        EventKind::Established,
        EventKind::Rejected,
        EventKind::Failed,
        EventKind::Disconnected,
        EventKind::DeviceRemoved,
        EventKind::Other,
        EventKind::ConnectRequest,
    ];
    for seed in 1u64..500 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut roll = |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % n as u64) as usize
        };
        let transport = if roll(2) == 0 {
            Transport::InfiniBand
        } else {
            Transport::Iwarp
        };
        let (fake, mut a, mut b) = hosts(Abilities::of(transport));
        a.listen(address("192.0.2.2:80"), 8).expect("listening");
        let mut pairs = Vec::new();
        let mut requests = Vec::new();
        for _ in 0..60 {
            match roll(8) {
                0 => drop(b.connect(None, address("192.0.2.2:80"), b"x")),
                1 | 2 => fake.inject(
                    KINDS[roll(KINDS.len())],
                    roll(8),
                    -(roll(3) as i32) * libc::ETIMEDOUT,
                ),
                3 if !requests.is_empty() => {
                    drop(a.accept(requests.swap_remove(roll(requests.len())), b""))
                }
                4 if !requests.is_empty() => {
                    drop(a.reject(requests.swap_remove(roll(requests.len())), b""))
                }
                5 if !pairs.is_empty() => {
                    drop::<QueuePair<Fake>>(pairs.swap_remove(roll(pairs.len())))
                }
                6 if roll(20) == 0 => fake.remove_device(),
                _ => {
                    for manager in [&mut a, &mut b] {
                        match manager.poll().expect("the fake's channel works") {
                            Some(Outcome::Requested { token, .. }) => requests.push(token),
                            Some(Outcome::Connected { pair, .. }) => pairs.push(pair),
                            _ => {}
                        }
                    }
                }
            }
            fake.deliver(1000);
        }
        drop((a, b, pairs));
        assert_eq!(fake.live(), 0, "seed {seed}");
    }
}
