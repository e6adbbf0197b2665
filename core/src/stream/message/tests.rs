use core::net::IpAddr;

use proptest::prelude::*;

use super::codec::{MAGIC, VERSION};
use super::*;

fn token() -> impl Strategy<Value = Token> {
    any::<[u8; 16]>().prop_map(Token::from_bytes)
}

fn position() -> impl Strategy<Value = Position> {
    any::<u64>().prop_map(Position::new)
}

fn address() -> impl Strategy<Value = SocketAddr> {
    any::<(IpAddr, u16)>().prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn proof() -> impl Strategy<Value = Proof> {
    (position(), position(), any::<[u8; 16]>()).prop_map(|(sent, received, digest)| Proof {
        sent,
        received,
        digest,
    })
}

fn ring() -> impl Strategy<Value = u32> {
    (0..32u32).prop_map(|shift| 1 << shift)
}

fn message() -> impl Strategy<Value = Message> {
    let lane = || any::<u32>().prop_map(LaneId);
    let place = || (lane(), ring(), any::<u32>(), any::<u64>(), token());
    prop_oneof![
        (place(), any::<[u8; 16]>(), address(), address(), proof()).prop_map(
            |((lane, ring, key, offset, token), nonce, a, b, proof)| Message::Open {
                lane,
                ring,
                key,
                offset,
                token,
                nonce,
                addresses: Addresses::new(a, b),
                proof
            }
        ),
        (place(), proof()).prop_map(|((lane, ring, key, offset, token), proof)| {
            Message::OpenAck {
                lane,
                ring,
                key,
                offset,
                token,
                proof,
            }
        }),
        (lane(), any::<u8>()).prop_map(|(lane, code)| Message::Refuse {
            lane,
            reason: RefuseReason::from_code(code)
        }),
        (lane(), any::<u32>(), position(), any::<u8>()).prop_map(|(lane, seq, at, guard)| {
            Message::Hop(Hop {
                lane,
                seq,
                at,
                guard,
            })
        }),
        (lane(), any::<u32>()).prop_map(|(lane, seq)| Message::HopAck { lane, seq }),
        (lane(), any::<u32>(), any::<u8>()).prop_map(|(lane, seq, code)| Message::HopNak {
            lane,
            seq,
            reason: NakReason::from_code(code)
        }),
        (lane(), position()).prop_map(|(lane, to)| Message::Published { lane, to }),
        (lane(), position()).prop_map(|(lane, to)| Message::Consumed { lane, to }),
        (lane(), position()).prop_map(|(lane, at)| Message::Fin { lane, at }),
        lane().prop_map(|lane| Message::Close { lane }),
    ]
}

proptest! {
    #[test]
    fn every_message_comes_back_as_it_was(message in message(), tail in any::<[u8; 8]>()) {
        let mut buffer = [0; MAX_MESSAGE];
        let len = message.encode(&mut buffer);
        prop_assert_eq!(Message::decode(&buffer[..len]), Ok(message));
        prop_assert_eq!(Message::decode(&buffer), Ok(message), "in a slot of fixed size");
        let mut longer = buffer[..len].to_vec();
        longer.extend(tail);
        prop_assert_eq!(Message::decode(&longer), Ok(message), "with the next one behind it");
    }

    #[test]
    fn no_part_of_a_message_is_a_message(message in message(), cut in any::<prop::sample::Index>()) {
        let mut buffer = [0; MAX_MESSAGE];
        let len = message.encode(&mut buffer);
        let short = cut.index(len);
        prop_assert_eq!(Message::decode(&buffer[..short]), Err(DecodeError::Truncated));
    }

    #[test]
    fn any_input_is_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_any(&bytes);
    }

    #[test]
    fn any_damage_leaves_a_message_or_an_error(message in message(), at in 0..MAX_MESSAGE, byte in any::<u8>()) {
        let mut buffer = [0; MAX_MESSAGE];
        message.encode(&mut buffer);
        buffer[at] = byte;
        check_any(&buffer);
    }
}

/// What decodes must have just that encoding, but for what a mapped address and a slot's tail allow.
fn check_any(bytes: &[u8]) {
    let Ok(message) = Message::decode(bytes) else {
        return;
    };
    let mut buffer = [0; MAX_MESSAGE];
    let len = message.encode(&mut buffer);
    assert_eq!(len, usize::from(bytes[3]));
    assert_eq!(Message::decode(&buffer[..len]), Ok(message));
    assert_eq!(&buffer[..len], &bytes[..len]);
}

#[test]
fn a_million_random_inputs_with_a_valid_header_do_no_harm() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut accepted = 0u32;
    for _ in 0..1_000_000 {
        let mut bytes = [0u8; MAX_MESSAGE];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&next().to_le_bytes());
        }
        bytes[0] = MAGIC;
        bytes[1] = VERSION;
        bytes[2] %= 12;
        if next() % 2 == 0 {
            bytes[3] =
                [124, 72, 9, 21, 12, 13, 16, 16, 16, 8][usize::from(bytes[2].clamp(1, 10)) - 1];
        }
        let len = (next() % (MAX_MESSAGE as u64 + 1)) as usize;
        check_any(&bytes[..len]);
        accepted += u32::from(Message::decode(&bytes[..len]).is_ok());
    }
    assert!(
        accepted > 10_000,
        "the test looks at messages, not only at rubbish: {accepted}"
    );
}

#[test]
fn the_layout_stays_what_peers_expect() {
    let mut buffer = [0; MAX_MESSAGE];
    let hop = Hop {
        lane: LaneId(0x0a),
        seq: 2,
        at: Position::new(0x0102),
        guard: 0x7f,
    };
    let len = Message::Hop(hop).encode(&mut buffer);
    assert_eq!(
        &buffer[..len],
        &[
            0xa7, 1, 4, 21, 0x0a, 0, 0, 0, 2, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0x7f
        ]
    );
    assert_eq!(Message::Close { lane: LaneId(1) }.encode(&mut buffer), 8);
}

#[test]
fn headers_that_are_not_ours_are_named() {
    let mut buffer = [0; MAX_MESSAGE];
    Message::Close { lane: LaneId(1) }.encode(&mut buffer);
    let with = |at: usize, byte: u8| {
        let mut bytes = buffer;
        bytes[at] = byte;
        Message::decode(&bytes)
    };
    assert_eq!(with(0, 1), Err(DecodeError::Magic(1)));
    assert_eq!(with(1, 9), Err(DecodeError::Version(9)));
    assert_eq!(with(2, 77), Err(DecodeError::Type(77)));
    assert_eq!(with(3, 7), Err(DecodeError::Length(7)));
    assert_eq!(with(3, 9), Err(DecodeError::Length(9)));
    assert_eq!(with(3, 200), Err(DecodeError::Truncated));
}

#[test]
fn a_mapped_address_is_the_plain_one() {
    let mapped: SocketAddr = "[::ffff:192.0.2.1]:80".parse().expect("an address");
    let plain: SocketAddr = "192.0.2.1:80".parse().expect("an address");
    let other: SocketAddr = "[2001:db8::1]:9".parse().expect("an address");
    assert_eq!(Addresses::new(mapped, other), Addresses::new(plain, other));
    assert_eq!(
        Addresses::new(mapped, other).mirrored(),
        Addresses::new(other, plain)
    );
}
