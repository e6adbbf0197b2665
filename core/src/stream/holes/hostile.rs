//! H31: whatever a peer writes into messages, cursors and TCP, it gets an answer or a [`Violation`], and the program gets only
//! bytes that are there.

use crate::stream::*;

const LANE: LaneId = LaneId(1);
const RING: u64 = 8;

fn token() -> Token {
    Token::from_bytes([0x61; 16])
}

fn at(n: u64) -> Position {
    Position::new(n)
}

fn resume(token: Token, c: u64, p: u64) -> Vec<u8> {
    let mut bytes = b"R".to_vec();
    bytes.extend(token.as_bytes());
    bytes.extend(c.to_le_bytes());
    bytes.extend(p.to_le_bytes());
    bytes
}

/// A receiver on the lane from 100 on; 4 bytes are there.
fn receiver() -> Receiver {
    let mut r = Receiver::new(at(100));
    assert!(r.open_lane(LANE, token()));
    let hop = Hop {
        lane: LANE,
        seq: 1,
        at: at(100),
        guard: 0,
    };
    assert_eq!(r.hop(hop, false), HopAnswer::Ack { seq: 1 });
    let mut bytes = vec![0];
    bytes.extend(token().as_bytes());
    assert_eq!(r.tcp_control(&bytes), Ok(ControlSeen::Hopped));
    assert_eq!(r.lane_available(104, RING), Ok(4));
    r
}

/// A sender on the lane from 100 on; 5 bytes are in the ring.
fn sender() -> Sender {
    let mut s = Sender::new(at(100));
    s.open_lane(LANE, token(), RING).expect("on TCP");
    let hop = s.request_hop(1).expect("may hop");
    assert!(s.hop_acked(hop.seq));
    s.control_written(TOKEN_LEN);
    s.accepted(5);
    s
}

#[test]
fn h31_a_published_cursor_out_of_range_costs_the_lane() {
    for published in [0, 99, 103, 109, u64::MAX] {
        let mut r = receiver();
        assert!(r.lane_available(published, RING).is_err(), "{published}");
        assert!(!r.lane_open());
        assert_eq!(
            r.lane_available(108, RING),
            Ok(4),
            "what was there is still delivered"
        );
    }
    assert_eq!(receiver().lane_available(108, RING), Ok(8));
}

#[test]
fn h31_a_consumed_cursor_out_of_range_is_refused() {
    let mut s = sender();
    assert_eq!(s.consumed_to(at(102)), Ok(2));
    for x in [0, 101, 106, u64::MAX] {
        assert!(
            matches!(s.consumed_to(at(x)), Err(Violation::Consumed { .. })),
            "{x}"
        );
        assert_eq!((s.consumed(), s.room()), (at(102), 5));
    }
}

#[test]
fn h31_a_resume_that_does_not_fit_resets_the_stream() {
    let other = Token::from_bytes([0; 16]);
    let bad = [
        resume(other, 100, 104),
        resume(token(), 105, 110),
        resume(token(), 100, 103),
        resume(token(), u64::MAX, 0),
    ];
    for bytes in bad {
        let mut r = receiver();
        assert!(r.tcp_control(&bytes).is_err());
        assert_eq!((r.state(), r.lane_open()), (RecvState::Dead, false));
        r.delivered(4);
        assert!(r.take_reset());
    }
}

#[test]
fn h31_a_resume_with_an_absurd_position_is_only_a_stream_that_never_ends_well() {
    let mut r = receiver();
    assert_eq!(
        r.tcp_control(&resume(token(), 0, u64::MAX)),
        Ok(ControlSeen::Resumed)
    );
    assert_eq!(r.tcp_read(), TcpRead::Skip { max: 104 });
    r.skipped(104);
    r.delivered(4);
    r.tcp_data(1000);
    assert!(!r.hopped_back());
    assert_eq!(
        r.tcp_eof(
            PeerFate::Dead {
                published: Some(u64::MAX)
            },
            false
        ),
        EofOutcome::DeliverFirst
    );
    assert!(r.lane_available(u64::MAX, RING).is_err());
    assert!(r.take_reset());
}

#[test]
fn h31_any_other_byte_below_a_lane_resets_the_stream() {
    let mut r = receiver();
    assert_eq!(r.tcp_control(b"NNX"), Err(Violation::ControlByte(b'X')));
    r.delivered(4);
    assert!(r.take_reset());
}

#[test]
fn h31_an_end_that_contradicts_what_is_there_costs_the_lane() {
    let mut r = receiver();
    assert_eq!(r.lane_fin(at(106)), Ok(()));
    assert!(matches!(
        r.lane_available(107, RING),
        Err(Violation::Published { .. })
    ));
    let mut r = receiver();
    assert!(matches!(r.lane_fin(at(103)), Err(Violation::Fin { .. })));
    let mut r = receiver();
    assert_eq!(r.lane_fin(at(106)), Ok(()));
    assert!(matches!(r.lane_fin(at(107)), Err(Violation::Fin { .. })));
    assert!(!r.lane_open());
}

#[test]
fn h31_an_end_that_a_link_peer_claims_before_it_proved_itself_is_forgotten() {
    let mut r = Receiver::new(at(5));
    assert!(r.open_lane(LANE, token()));
    let hop = Hop {
        lane: LANE,
        seq: 1,
        at: at(5),
        guard: 0,
    };
    assert_eq!(r.hop(hop, false), HopAnswer::Ack { seq: 1 });
    assert_eq!(r.lane_fin(at(5)), Ok(()));
    assert!(!r.at_eof(), "no token was seen");
    assert_eq!(r.tcp_control(&[7, 7]), Ok(ControlSeen::Data));
    r.take_pushback(2);
    assert!(!r.at_eof());
    assert_eq!(r.tcp_read(), TcpRead::Data { max: u64::MAX });
}

#[test]
fn h31_a_hop_from_the_end_of_the_world_is_only_never_reached() {
    let mut r = Receiver::new(at(5));
    assert!(r.open_lane(LANE, token()));
    let hop = Hop {
        lane: LANE,
        seq: u32::MAX,
        at: at(u64::MAX),
        guard: 0,
    };
    assert_eq!(r.hop(hop, false), HopAnswer::Ack { seq: u32::MAX });
    r.tcp_data(1000);
    assert_eq!(
        r.tcp_eof(PeerFate::Alive, false),
        EofOutcome::Reset,
        "it claimed more"
    );
}

/// A driver that keeps to the rules, and a peer that writes whatever it likes, most of it nearly right.
#[test]
fn h31_no_sequence_of_lies_panics_or_invents_bytes() {
    let mut state = 0x0123_4567_89ab_cdefu64;
    let mut next = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if n == 0 { 0 } else { state % n }
    };
    let (mut lanes, mut violations, mut ends) = (0u32, 0u32, 0u32);
    for _ in 0..100_000 {
        let (mut r, mut s, mut opened) = match next(4) {
            0 => (Receiver::new(at(next(4))), Sender::new(at(next(4))), 0),
            _ => (receiver(), sender(), 1),
        };
        for _ in 0..40 {
            let near = (r.position().get() + next(20)).saturating_sub(next(6));
            let lie = [near, near, near, next(50), u64::MAX][next(5) as usize];
            let before = r.position();
            match next(14) {
                0 => {
                    opened += 1;
                    r.open_lane(LaneId(opened), token());
                    let _ = s.open_lane(LaneId(opened), token(), RING);
                }
                1 => {
                    let seq = 1 + next(8) as u32;
                    let _ = r.hop(
                        Hop {
                            lane: LaneId(opened),
                            seq,
                            at: at(lie),
                            guard: 0,
                        },
                        next(9) == 0,
                    );
                }
                2 | 3 => {
                    let mut bytes = match next(6) {
                        0 => vec![0; 1],
                        1 => resume(token(), lie, near + next(9)),
                        2 => b"N".to_vec(),
                        3 => vec![next(256) as u8; 5],
                        _ => {
                            let mut bytes = vec![0];
                            bytes.extend(token().as_bytes());
                            bytes
                        }
                    };
                    match r.tcp_read() {
                        TcpRead::Control { max } => {
                            bytes.truncate(max);
                            violations += u32::from(r.tcp_control(&bytes).is_err());
                        }
                        TcpRead::Data { max } => r.tcp_data(next(max.min(9) + 1)),
                        TcpRead::Skip { max } => r.skipped(next(max.min(9) + 1)),
                        TcpRead::Nothing => {
                            let n = r.pushback().len();
                            r.take_pushback(n);
                        }
                    }
                }
                4 | 5 => match r.lane_available(lie, RING) {
                    Ok(n) => {
                        assert!(n <= RING, "bytes that no ring of this size holds");
                        assert_eq!(n, r.lane_ready());
                        let take = next(n + 1);
                        r.delivered(take);
                        assert_eq!(r.position() - before, take);
                    }
                    Err(_) => {
                        violations += 1;
                        assert!(!r.lane_open());
                    }
                },
                6 => violations += u32::from(r.lane_fin(at(lie)).is_err()),
                7 if next(8) == 0 => {
                    let fate = [
                        PeerFate::Alive,
                        PeerFate::Dead { published: None },
                        PeerFate::Dead {
                            published: Some(lie),
                        },
                    ];
                    r.tcp_eof(fate[next(3) as usize], next(2) == 0);
                    ends += 1;
                }
                8 if next(8) == 0 => r.tcp_reset(),
                9 if next(8) == 0 => r.freeze(),
                10 if next(8) == 0 => {
                    r.freeze_at_delivered();
                }
                11 => {
                    let mut buffer = [0u8; 40];
                    buffer.fill_with(|| [0, 0x61, b'R', b'N'][next(4) as usize]);
                    let raw = matches!(r.state(), RecvState::Raw | RecvState::HopSeen);
                    if raw && r.pushback().is_empty() {
                        let stripped = r.strip(&mut buffer[..1 + next(39) as usize]);
                        assert!(stripped.data <= 40);
                    }
                }
                12 => match next(6) {
                    0 => drop(s.request_hop(next(256) as u8)),
                    1 => drop(s.hop_acked(1 + next(4) as u32)),
                    2 => s.control_written(s.control().len()),
                    3 => s.accepted(next(s.room() + 1)),
                    4 => s.resume(next(4) == 0),
                    _ => violations += u32::from(s.consumed_to(at(lie)).is_err()),
                },
                _ => {
                    let owed = s.resend();
                    if s.control().is_empty() {
                        s.resent(next(owed.end - owed.start + 1));
                    }
                    assert!(owed.end - owed.start <= RING);
                }
            }
            assert!(r.position() >= before);
            assert!(
                !(r.at_eof() && r.take_reset()),
                "an end is clean or it is not"
            );
            lanes += u32::from(r.state() == RecvState::Lane);
        }
    }
    assert!(
        lanes > 10_000 && violations > 10_000 && ends > 1_000,
        "{lanes} {violations} {ends}"
    );
}
