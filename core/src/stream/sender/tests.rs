use super::*;
use crate::stream::record::{RESUME_LEN, TOKEN_LEN};

const LANE: LaneId = LaneId(3);
const RING: u64 = 16;

fn token() -> Token {
    Token::from_bytes([7; 16])
}

/// A sender of which 100 bytes are on TCP, with a lane.
fn opened() -> Sender {
    let mut s = Sender::new(Position::ZERO);
    s.wrote_tcp(100);
    s.open_lane(LANE, token(), RING)
        .expect("a fresh direction may have a lane");
    s
}

fn on_lane() -> Sender {
    let mut s = opened();
    let hop = s.request_hop(b'x').expect("may hop");
    assert!(s.hop_acked(hop.seq));
    s.control_written(TOKEN_LEN);
    assert_eq!(s.state(), SendState::Lane);
    s
}

#[test]
fn a_hop_goes_through_its_states() {
    let mut s = opened();
    let hop = s.request_hop(b'x').expect("may hop");
    assert_eq!(
        (hop.lane, hop.at, hop.guard),
        (LANE, Position::new(100), !b'x')
    );
    assert_eq!(s.state(), SendState::HopSent);
    assert!(s.hop_pending(hop.seq));
    assert!(s.hop_acked(hop.seq));
    assert_eq!(s.state(), SendState::TokenOut);
    assert_eq!(s.control().len(), TOKEN_LEN);
    assert_eq!(s.room(), 0);
    s.control_written(TOKEN_LEN);
    assert_eq!((s.state(), s.room()), (SendState::Lane, RING));
    s.accepted(10);
    assert_eq!((s.position(), s.room()), (Position::new(110), 6));
    assert_eq!(s.consumed_to(Position::new(104)), Ok(4));
    assert_eq!(s.room(), 10);
}

#[test]
fn without_a_lane_there_is_no_hop() {
    let mut s = Sender::new(Position::ZERO);
    assert_eq!(s.request_hop(1), None);
    assert_eq!(s.open_lane(LANE, token(), 12), Err(OpenError::Ring(12)));
    assert_eq!(s.open_lane(LANE, token(), 0), Err(OpenError::Ring(0)));
    s.open_lane(LANE, token(), 8).expect("may have a lane");
    s.resume(false);
    assert!(!s.lane_open());
    assert_eq!(s.request_hop(1), None, "the lane was closed before the hop");
    assert_eq!(s.state(), SendState::Tcp);
}

#[test]
fn an_answer_to_another_question_changes_nothing() {
    let mut s = opened();
    let first = s.request_hop(1).expect("may hop");
    s.abandon_hop();
    s.wrote_tcp(1);
    assert!(!s.hop_acked(first.seq), "given up already");
    let second = s.request_hop(1).expect("may hop again");
    assert!(!s.hop_acked(first.seq));
    assert!(!s.hop_pending(first.seq));
    assert!(s.hop_acked(second.seq));
}

#[test]
fn a_resume_from_the_lane_fixes_what_comes_again() {
    let mut s = on_lane();
    s.accepted(12);
    assert_eq!(s.consumed_to(Position::new(105)), Ok(5));
    s.resume(false);
    assert_eq!(s.state(), SendState::Resuming);
    assert_eq!(s.control().len(), RESUME_LEN);
    assert_eq!(s.resend(), 105..112);
    s.control_written(RESUME_LEN);
    s.resent(3);
    assert_eq!((s.resend(), s.state()), (108..112, SendState::Resuming));
    s.resent(4);
    assert_eq!(s.state(), SendState::Tcp);
    assert!(s.may_write_tcp() && s.on_tcp() && !s.owes_fin());
}

#[test]
fn resuming_again_changes_nothing_but_may_add_the_end() {
    let mut s = on_lane();
    s.accepted(2);
    s.resume(false);
    let control = s.control().to_vec();
    s.resume(false);
    s.resume(true);
    assert_eq!(s.control(), control);
    s.control_written(RESUME_LEN);
    s.resent(2);
    assert!(s.owes_fin());
    assert!(!s.may_write_tcp());
    s.fin_done();
    assert!(!s.owes_fin());
    assert!(s.on_tcp(), "the other direction may still get a lane");
    s.open_lane(LaneId(4), token(), RING)
        .expect("for the other direction's sake");
    assert_eq!(s.request_hop(1), None, "this direction has ended");
}

#[test]
fn the_end_on_the_lane_lets_nothing_more_in() {
    let mut s = on_lane();
    s.accepted(5);
    assert_eq!(s.shutdown(), Some(Position::new(105)));
    assert_eq!(s.shutdown(), None, "said once");
    assert_eq!(s.room(), 0);
    assert!(!s.drained() && !s.owes_fin());
    assert_eq!(s.consumed_to(Position::new(105)), Ok(5));
    assert!(s.drained());
    s.resume(false);
    s.control_written(RESUME_LEN);
    assert!(
        s.owes_fin(),
        "the end is not forgotten by a resume for another reason"
    );
}

#[test]
fn the_end_on_tcp_is_due_at_once() {
    let mut s = opened();
    assert_eq!(s.shutdown(), None);
    assert!(
        s.owes_fin() && s.lane_open(),
        "the other direction may use the lane"
    );
    let mut s = opened();
    s.request_hop(1).expect("may hop");
    assert_eq!(s.shutdown(), None);
    assert!(s.owes_fin(), "a hop that waits for its answer is given up");
    let mut s = opened();
    let hop = s.request_hop(1).expect("may hop");
    assert!(s.hop_acked(hop.seq));
    s.control_written(3);
    assert_eq!(s.shutdown(), None);
    assert_eq!(s.control().len(), TOKEN_LEN - 3 + RESUME_LEN);
    s.control_written(TOKEN_LEN - 3 + RESUME_LEN);
    assert!(s.owes_fin() && !s.lane_open());
}

#[test]
fn a_nop_is_only_for_a_lane() {
    let mut s = opened();
    assert!(!s.nop());
    let mut s2 = on_lane();
    assert!(s2.nop());
    assert!(!s2.nop(), "one at a time");
    s2.accepted(1);
    s2.resume(false);
    assert_eq!(s2.control().len(), 1 + RESUME_LEN, "behind the NOP");
    s2.control_written(1 + RESUME_LEN);
    s2.resent(1);
    assert_eq!(s2.state(), SendState::Tcp);
    s.reset();
    assert_eq!(
        (s.state(), s.control().len(), s.lane_open()),
        (SendState::Dead, 0, false)
    );
}

#[test]
fn a_reset_owes_nothing() {
    let mut s = on_lane();
    s.accepted(3);
    s.resume(true);
    s.reset();
    assert!(s.control().is_empty() && s.resend().is_empty() && !s.owes_fin());
    s.resume(true);
    assert_eq!((s.state(), s.request_hop(1)), (SendState::Dead, None));
}
