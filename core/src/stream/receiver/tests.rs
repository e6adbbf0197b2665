use super::*;
use crate::stream::record::ControlOut;

const LANE: LaneId = LaneId(9);
const RING: u64 = 16;
const GUARD: u8 = 0x55;

fn token() -> Token {
    Token::from_bytes(*b"0123456789abcdef")
}

fn hop(seq: u32, at: u64) -> Hop {
    Hop {
        lane: LANE,
        seq,
        at: Position::new(at),
        guard: GUARD,
    }
}

fn token_record() -> Vec<u8> {
    let mut out = ControlOut::new();
    out.push_token(GUARD, &token());
    out.as_slice().to_vec()
}

fn resume_record(c: u64, p: u64) -> Vec<u8> {
    let mut out = ControlOut::new();
    out.push_resume(&token(), Position::new(c), Position::new(p));
    out.as_slice().to_vec()
}

/// A receiver that has got 100 bytes and agreed to hop at 100.
fn hop_seen() -> Receiver {
    let mut r = Receiver::new(Position::new(100));
    assert!(r.open_lane(LANE, token()));
    assert_eq!(r.hop(hop(1, 100), false), HopAnswer::Ack { seq: 1 });
    r
}

fn on_lane() -> Receiver {
    let mut r = hop_seen();
    assert_eq!(r.tcp_control(&token_record()), Ok(ControlSeen::Hopped));
    assert_eq!(r.state(), RecvState::Lane);
    r
}

#[test]
fn a_hop_and_the_way_back() {
    let mut r = Receiver::new(Position::new(90));
    assert_eq!(r.tcp_read(), TcpRead::Data { max: u64::MAX });
    assert!(r.open_lane(LANE, token()));
    assert_eq!(r.hop(hop(1, 100), false), HopAnswer::Ack { seq: 1 });
    assert!(!r.hopped_back());
    assert_eq!(r.tcp_read(), TcpRead::Data { max: 10 });
    r.tcp_data(10);
    assert_eq!(r.tcp_read(), TcpRead::Control { max: 17 });
    assert_eq!(r.lane_available(105, RING), Ok(0), "not before the token");
    assert_eq!(r.tcp_control(&token_record()[..5]), Ok(ControlSeen::More));
    assert_eq!(
        (r.state(), r.tcp_read()),
        (RecvState::TokenIn, TcpRead::Control { max: 12 })
    );
    assert_eq!(r.tcp_control(&token_record()[5..]), Ok(ControlSeen::Hopped));
    assert_eq!(r.lane_available(105, RING), Ok(5));
    r.delivered(3);
    assert_eq!(r.lane_available(108, RING), Ok(5));
    assert_eq!(r.tcp_control(b"N"), Ok(ControlSeen::More));
    assert_eq!(
        r.tcp_control(&resume_record(101, 112)),
        Ok(ControlSeen::Resumed)
    );
    assert_eq!(
        (r.state(), r.tcp_read()),
        (RecvState::Skip, TcpRead::Skip { max: 7 })
    );
    r.skipped(7);
    assert_eq!(r.tcp_read(), TcpRead::Nothing, "the ring comes first");
    assert_eq!(
        r.lane_available(112, RING),
        Ok(5),
        "frozen: what it had when RESUME came"
    );
    r.delivered(5);
    assert_eq!(
        (r.state(), r.position()),
        (RecvState::Raw, Position::new(108))
    );
    assert!(
        !r.hopped_back() && r.needs_ring(),
        "up to the RESUME's position"
    );
    r.tcp_data(4);
    assert!(r.hopped_back() && !r.needs_ring());
    assert!(r.open_lane(LaneId(10), token()));
}

#[test]
fn hops_of_other_lanes_and_old_ones_get_no_answer() {
    let mut r = hop_seen();
    assert_eq!(r.hop(hop(1, 100), false), HopAnswer::Ignore);
    assert_eq!(
        r.hop(
            Hop {
                lane: LaneId(1),
                ..hop(5, 100)
            },
            false
        ),
        HopAnswer::Ignore
    );
    let mut fresh = Receiver::new(Position::ZERO);
    assert_eq!(fresh.hop(hop(1, 0), false), HopAnswer::Ignore);
}

#[test]
fn a_hop_is_refused_with_its_reason() {
    let mut r = Receiver::new(Position::new(5));
    r.open_lane(LANE, token());
    let nak = |seq, reason| HopAnswer::Nak { seq, reason };
    assert_eq!(r.hop(hop(1, 5), true), nak(1, NakReason::Readers));
    assert_eq!(
        r.refuse_hop(hop(2, 5), NakReason::Census),
        nak(2, NakReason::Census)
    );
    assert_eq!(r.state(), RecvState::Raw);
    r.freeze();
    assert_eq!(r.hop(hop(3, 5), false), nak(3, NakReason::Closed));
    let mut r = on_lane();
    assert_eq!(r.hop(hop(2, 100), false), nak(2, NakReason::State));
    assert_eq!(r.state(), RecvState::Lane);
}

#[test]
fn a_newer_hop_replaces_an_abandoned_one() {
    let mut r = hop_seen();
    assert_eq!(r.hop(hop(2, 103), false), HopAnswer::Ack { seq: 2 });
    assert!(!r.ack_stands(1) && r.ack_stands(2));
    assert_eq!(r.tcp_read(), TcpRead::Data { max: 3 });
    assert_eq!(
        r.hop(hop(3, 104), true),
        HopAnswer::Nak {
            seq: 3,
            reason: NakReason::Readers
        }
    );
    assert_eq!(
        r.tcp_read(),
        TcpRead::Data { max: u64::MAX },
        "both are given up"
    );
}

#[test]
fn a_wrong_token_is_data_wherever_it_differs() {
    for split in 0..17 {
        for wrong in 1..17 {
            let mut bytes = token_record();
            bytes[wrong] ^= 0x80;
            let mut r = hop_seen();
            let mut seen = Vec::new();
            let mut got = Vec::new();
            for part in [&bytes[..split], &bytes[split..]] {
                match r.tcp_read() {
                    TcpRead::Control { max } => {
                        assert!(part.len() <= max);
                        seen.push(r.tcp_control(part).expect("no violation before the token"));
                    }
                    _ => {
                        while !r.pushback().is_empty() {
                            got.push(r.pushback()[0]);
                            r.take_pushback(1);
                        }
                        r.tcp_data(part.len() as u64);
                        got.extend(part);
                    }
                }
            }
            assert!(seen.contains(&ControlSeen::WrongToken));
            assert!(!r.lane_open());
            while !r.pushback().is_empty() {
                assert_eq!(r.tcp_read(), TcpRead::Nothing, "pushback first");
                got.push(r.pushback()[0]);
                r.take_pushback(1);
            }
            assert_eq!(got, bytes, "split {split}, wrong at {wrong}");
            assert_eq!(r.position(), Position::new(117));
            assert!(r.hopped_back());
        }
    }
}

#[test]
fn reset_after_what_the_lane_holds_and_once() {
    let mut r = on_lane();
    assert_eq!(r.lane_available(104, RING), Ok(4));
    r.tcp_reset();
    assert_eq!(r.state(), RecvState::Dead);
    assert!(!r.take_reset() && r.needs_ring());
    assert_eq!(r.lane_available(110, RING), Ok(4));
    r.delivered(4);
    assert!(r.take_reset());
    assert!(!r.take_reset() && !r.at_eof() && r.reset_taken());
}

#[test]
fn giving_the_ring_up_lets_it_come_again() {
    let mut r = on_lane();
    assert_eq!(r.lane_available(108, RING), Ok(8));
    r.delivered(3);
    assert!(r.freeze_at_delivered());
    assert_eq!(r.lane_available(108, RING), Ok(0));
    assert_eq!(
        r.tcp_control(&resume_record(102, 108)),
        Ok(ControlSeen::Resumed)
    );
    assert_eq!(r.tcp_read(), TcpRead::Skip { max: 1 });
    r.skipped(1);
    assert_eq!(r.state(), RecvState::Raw);
}

#[test]
fn giving_the_ring_up_in_the_skip_keeps_what_was_thrown_away() {
    let mut r = on_lane();
    assert_eq!(r.lane_available(110, RING), Ok(10));
    r.delivered(2);
    assert_eq!(
        r.tcp_control(&resume_record(100, 110)),
        Ok(ControlSeen::Resumed)
    );
    r.skipped(5);
    assert!(!r.freeze_at_delivered());
    assert_eq!(
        r.lane_available(0, RING),
        Ok(3),
        "102..105 are gone from TCP"
    );
    assert_eq!(r.tcp_read(), TcpRead::Nothing);
    r.delivered(3);
    assert_eq!(r.state(), RecvState::Raw);
    assert_eq!(r.position(), Position::new(105));
}
