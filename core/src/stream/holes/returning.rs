//! Coming back to TCP.

use super::*;

#[test]
fn h03_raw_data_that_looks_like_a_resume_is_data() {
    let mut pair = Pair::on_lane(10);
    pair.send(4, 4);
    pair.r.delivered(4);
    pair.s.resume(false);
    let resume = pair.control();
    pair.s.resent(4);
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    pair.r.skipped(4);
    // The program now sends the very same bytes.
    pair.s.wrote_tcp(resume.len() as u64);
    assert_eq!(pair.r.tcp_read(), TcpRead::Data { max: u64::MAX });
    pair.r.tcp_data(resume.len() as u64);
    assert_eq!(pair.r.position(), pair.s.position());
}

#[test]
fn h05_a_sender_resumes_without_hearing_from_its_receiver() {
    let mut pair = Pair::on_lane(10);
    pair.send(8, 3);
    pair.s.resume(false);
    let resume = pair.control();
    assert_eq!(pair.s.resend(), 10..18);
    pair.s.resent(8);
    assert_eq!(pair.s.state(), SendState::Tcp);
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    assert_eq!(pair.r.tcp_read(), TcpRead::Skip { max: 3 });
}

#[test]
fn h06_a_consumed_that_comes_after_resume_changes_nothing() {
    let mut pair = Pair::on_lane(10);
    pair.send(8, 8);
    pair.r.delivered(8);
    pair.s.resume(false);
    assert_eq!(pair.s.consumed_to(at(18)), Ok(0));
    assert_eq!(pair.s.resend(), 10..18);
    let resume = pair.control();
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    assert_eq!(
        pair.r.tcp_read(),
        TcpRead::Skip { max: 8 },
        "just what comes again"
    );
}

#[test]
fn h07_an_end_within_the_resent_bytes_is_a_reset() {
    for got in 0..8 {
        let mut pair = Pair::on_lane(10);
        pair.send(8, 0);
        pair.s.resume(false);
        let resume = pair.control();
        assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
        assert_eq!(pair.r.state(), RecvState::Raw);
        pair.r.tcp_data(got);
        assert_eq!(pair.r.tcp_eof(VERBS_DEAD, false), EofOutcome::Reset);
        assert!(!pair.r.at_eof());
        assert!(pair.r.take_reset());
    }
}

#[test]
fn h07_nothing_is_accepted_while_resuming() {
    let mut pair = Pair::on_lane(10);
    pair.send(8, 0);
    pair.s.resume(false);
    assert!(!pair.s.may_write_tcp() && pair.s.room() == 0);
    pair.control();
    pair.s.resent(7);
    assert!(!pair.s.may_write_tcp() && pair.s.room() == 0);
    pair.s.resent(1);
    assert!(pair.s.may_write_tcp());
}

#[test]
fn h09_control_can_be_finished_by_anybody_while_the_program_does_nothing() {
    let mut pair = Pair::on_lane(10);
    pair.send(2, 0);
    pair.s.resume(true);
    for _ in 0..RESUME_LEN {
        assert!(!pair.s.owes_fin());
        pair.s.control_written(1);
    }
    pair.s.resent(1);
    assert!(!pair.s.owes_fin());
    pair.s.resent(1);
    assert!(pair.s.owes_fin());
}

#[test]
fn h19_ring_space_does_not_hold_up_a_resume() {
    let mut pair = Pair::on_lane(10);
    pair.send(RING, 0);
    assert_eq!(pair.s.room(), 0);
    pair.s.resume(false);
    pair.control();
    assert_eq!(pair.s.resend(), 10..10 + RING);
    pair.s.resent(RING);
    assert!(pair.s.may_write_tcp());
}

#[test]
fn h20_a_new_lane_needs_both_halves_back_on_tcp() {
    let mut pair = Pair::on_lane(10);
    let other = Token::from_bytes([2; 16]);
    pair.send(4, 4);
    assert!(!pair.r.open_lane(LaneId(2), other));
    assert_eq!(
        pair.s.open_lane(LaneId(2), other, RING),
        Err(OpenError::Busy)
    );
    pair.s.resume(false);
    assert_eq!(
        pair.s.open_lane(LaneId(2), other, RING),
        Err(OpenError::Busy)
    );
    let resume = pair.control();
    pair.s.resent(4);
    pair.s.open_lane(LaneId(2), other, RING).expect("drained");
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    pair.r.skipped(4);
    assert!(
        !pair.r.open_lane(LaneId(2), other),
        "the ring is not delivered yet"
    );
    pair.r.delivered(4);
    assert!(pair.r.open_lane(LaneId(2), other));
    let stale = Hop {
        lane: LANE,
        seq: 99,
        at: at(14),
        guard: 0,
    };
    assert_eq!(pair.r.hop(stale, false), HopAnswer::Ignore);
    let again = pair.s.request_hop(b'y').expect("may hop again");
    assert_eq!(again.lane, LaneId(2));
    pair.agree(again);
}

#[test]
fn h20_a_hop_that_was_given_up_keeps_a_new_lane_away_until_its_byte_is_read() {
    let mut pair = Pair::opened(10);
    let hop = pair.ask(b'x');
    assert_eq!(pair.r.hop(hop, false), HopAnswer::Ack { seq: hop.seq });
    pair.s.abandon_hop();
    pair.r.freeze();
    assert!(!pair.r.hopped_back());
    assert_eq!(pair.r.tcp_control(b"x"), Ok(ControlSeen::Data));
    assert!(!pair.r.hopped_back(), "nor before the program has it");
    pair.r.take_pushback(1);
    assert!(pair.r.hopped_back());
}

#[test]
fn h21_keep_warm_bytes_are_nobodys_data() {
    let mut pair = Pair::on_lane(10);
    pair.send(4, 4);
    assert!(pair.s.nop());
    let nop = pair.control();
    assert_eq!(pair.r.tcp_control(&nop), Ok(ControlSeen::More));
    assert_eq!(
        (pair.r.state(), pair.r.position()),
        (RecvState::Lane, at(10))
    );
}

#[test]
fn h25_unread_ring_bytes_can_be_given_up_and_come_again() {
    let mut pair = Pair::on_lane(10);
    pair.send(8, 8);
    pair.r.delivered(3);
    assert!(pair.r.freeze_at_delivered());
    assert!(!pair.r.needs_ring() || pair.r.lane_ready() == 0);
    assert_eq!(pair.s.consumed_to(at(13)), Ok(3));
    pair.s.resume(false);
    let resume = pair.control();
    assert_eq!(pair.s.resend(), 13..18);
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    assert_eq!(
        (pair.r.state(), pair.r.position()),
        (RecvState::Raw, at(13))
    );
}

#[test]
fn h38_a_resume_closes_the_lane_for_the_other_direction_too() {
    let mut there = Pair::on_lane(10);
    let mut back = Pair::on_lane(20);
    there.s.resume(false);
    let resume = there.control();
    assert_eq!(there.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    assert!(!there.r.lane_open(), "which tells the driver");
    back.s.resume(false);
    let resume = back.control();
    assert_eq!(back.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    assert!(there.s.on_tcp() && there.r.hopped_back() && back.s.on_tcp() && back.r.hopped_back());
}

#[test]
fn h39_a_consumed_before_a_planned_return_leaves_nothing_to_skip() {
    let mut pair = Pair::on_lane(10);
    pair.send(8, 8);
    pair.r.delivered(8);
    assert_eq!(pair.s.consumed_to(pair.r.position()), Ok(8));
    pair.s.resume(false);
    let resume = pair.control();
    assert_eq!(pair.s.state(), SendState::Tcp);
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    assert!(pair.r.hopped_back());
}
