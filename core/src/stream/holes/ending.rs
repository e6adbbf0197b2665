//! Ends and deaths.

use super::*;

#[test]
fn h15_a_reset_comes_after_what_the_lane_holds_and_once() {
    let mut pair = Pair::on_lane(10);
    pair.send(5, 5);
    pair.r.tcp_reset();
    assert!(!pair.r.take_reset());
    pair.r.delivered(5);
    assert!(pair.r.take_reset());
    assert!(!pair.r.take_reset() && !pair.r.at_eof());
    pair.s.reset();
    assert_eq!(
        (pair.s.state(), pair.s.room(), pair.s.may_write_tcp()),
        (SendState::Dead, 0, false)
    );
}

#[test]
fn h17_a_close_with_bytes_in_the_ring_brings_them_and_the_end_over_tcp() {
    let mut pair = Pair::on_lane(10);
    pair.send(6, 0);
    pair.s.resume(true);
    let resume = pair.control();
    assert!(!pair.s.owes_fin());
    pair.s.resent(6);
    assert!(pair.s.owes_fin());
    pair.s.fin_done();
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    pair.r.tcp_data(6);
    assert_eq!(pair.r.tcp_eof(PeerFate::Alive, false), EofOutcome::Clean);
}

#[test]
fn h18_a_killed_peer_loses_nothing_on_a_memory_link() {
    let mut pair = Pair::on_lane(10);
    pair.send(6, 2);
    assert_eq!(
        pair.r.tcp_eof(memory_dead(16), false),
        EofOutcome::DeliverFirst
    );
    assert!(pair.r.needs_ring() && !pair.r.at_eof());
    assert_eq!(
        pair.r.lane_available(0, RING),
        Ok(6),
        "the cursor is not read again"
    );
    pair.r.delivered(6);
    assert!(pair.r.at_eof() && !pair.r.take_reset());
}

#[test]
fn h18_a_killed_peer_that_had_not_read_everything_is_a_reset_as_on_tcp() {
    let mut pair = Pair::on_lane(10);
    pair.send(6, 6);
    assert_eq!(
        pair.r.tcp_eof(memory_dead(16), true),
        EofOutcome::DeliverFirst
    );
    assert_eq!(pair.r.lane_available(16, RING), Ok(6));
    pair.r.delivered(6);
    assert!(!pair.r.at_eof() && pair.r.take_reset());
}

#[test]
fn h18_a_killed_peer_on_a_verbs_link_is_a_reset_after_what_arrived() {
    let mut pair = Pair::on_lane(10);
    pair.send(6, 2);
    assert_eq!(pair.r.tcp_eof(VERBS_DEAD, false), EofOutcome::DeliverFirst);
    pair.r.delivered(2);
    assert!(!pair.r.at_eof() && pair.r.take_reset());
}

#[test]
fn h18_an_end_that_was_announced_is_clean_even_if_the_peer_is_gone() {
    let mut pair = Pair::on_lane(10);
    pair.send(6, 6);
    let end = pair.s.shutdown().expect("on the lane");
    assert_eq!(pair.r.lane_fin(end), Ok(()));
    assert_eq!(pair.r.tcp_eof(VERBS_DEAD, false), EofOutcome::DeliverFirst);
    pair.r.delivered(6);
    assert!(pair.r.at_eof() && !pair.r.take_reset());
}

#[test]
fn h24_the_end_is_seen_at_lane_speed_and_what_follows_on_tcp_is_swallowed() {
    let mut pair = Pair::on_lane(10);
    pair.send(4, 4);
    let end = pair.s.shutdown().expect("on the lane");
    assert_eq!(pair.r.lane_fin(end), Ok(()));
    assert!(!pair.r.at_eof());
    pair.r.delivered(4);
    assert!(pair.r.at_eof(), "without TCP");
    pair.s.resume(true);
    let resume = pair.control();
    pair.s.resent(4);
    assert!(pair.s.owes_fin());
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    assert_eq!(pair.r.tcp_read(), TcpRead::Skip { max: 4 });
    pair.r.skipped(4);
    assert_eq!(pair.r.tcp_read(), TcpRead::Skip { max: u64::MAX });
    assert_eq!(pair.r.tcp_eof(PeerFate::Alive, false), EofOutcome::Clean);
    assert!(pair.r.at_eof());
}

#[test]
fn h24_tcp_may_end_the_stream_before_the_program_read_the_lane() {
    let mut pair = Pair::on_lane(10);
    pair.send(4, 4);
    pair.s.resume(true);
    let resume = pair.control();
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    pair.r.skipped(4);
    assert_eq!(
        pair.r.tcp_eof(PeerFate::Alive, false),
        EofOutcome::DeliverFirst
    );
    assert!(!pair.r.at_eof());
    pair.r.delivered(4);
    assert!(pair.r.at_eof());
}

#[test]
fn h34_a_dead_peers_ring_completes_what_it_could_not_resend() {
    for (skipped, raw) in [(0, 0), (2, 0), (2, 3)] {
        let mut pair = Pair::on_lane(10);
        pair.send(8, 2);
        pair.s.resume(false);
        let resume = pair.control();
        assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
        pair.r.skipped(skipped);
        pair.r.delivered(2);
        pair.r.tcp_data(raw);
        assert!(pair.r.needs_ring());
        assert_eq!(
            pair.r.tcp_eof(memory_dead(18), false),
            EofOutcome::DeliverFirst
        );
        let left = 6 - raw;
        assert_eq!(pair.r.lane_available(18, RING), Ok(left));
        pair.r.delivered(left);
        assert!(pair.r.at_eof());
        assert_eq!(pair.r.position(), pair.s.position());
    }
}

#[test]
fn h34_a_dead_peers_cursor_that_does_not_fit_is_a_reset() {
    let mut pair = Pair::on_lane(10);
    pair.send(8, 2);
    let mut r = pair.r.clone();
    assert_eq!(
        r.tcp_eof(memory_dead(11), false),
        EofOutcome::DeliverFirst,
        "before what is there"
    );
    r.delivered(2);
    assert!(r.take_reset());
    let mut r = pair.r.clone();
    assert_eq!(
        r.tcp_eof(memory_dead(u64::MAX), false),
        EofOutcome::DeliverFirst
    );
    assert!(matches!(
        r.lane_available(0, RING),
        Err(Violation::Published { .. })
    ));
    r.delivered(2);
    assert!(r.take_reset() && !r.at_eof());
}

#[test]
fn h40_a_socket_is_not_closed_while_control_may_come() {
    let mut pair = Pair::opened(10);
    assert!(pair.r.awaits_control(), "the peer may hop any time");
    let hop = pair.ask(b'x');
    pair.agree(hop);
    pair.r.freeze();
    assert!(pair.r.awaits_control(), "a token may be under way");
    pair.s.resume(true);
    let bytes = pair.control();
    assert_eq!(
        pair.r.tcp_control(&bytes[..TOKEN_LEN]),
        Ok(ControlSeen::Hopped)
    );
    assert!(pair.r.awaits_control(), "its RESUME will come");
    assert_eq!(
        pair.r.tcp_control(&bytes[TOKEN_LEN..]),
        Ok(ControlSeen::Resumed)
    );
    assert!(!pair.r.awaits_control());
    let mut never = Pair::opened(10).r;
    never.freeze();
    assert!(!never.awaits_control());
}

#[test]
fn h40_a_program_that_reads_no_more_still_lets_the_control_in() {
    let mut pair = Pair::on_lane(10);
    pair.send(6, 4);
    pair.r.shut();
    assert!(!pair.r.at_eof());
    pair.r.delivered(4);
    assert!(pair.r.at_eof() && pair.r.awaits_control());
    pair.s.resume(false);
    let resume = pair.control();
    assert_eq!(pair.r.tcp_control(&resume), Ok(ControlSeen::Resumed));
    pair.r.skipped(4);
    assert!(!pair.r.awaits_control());
    assert_eq!(pair.r.tcp_read(), TcpRead::Data { max: u64::MAX });
    assert_eq!(
        pair.r.tcp_eof(PeerFate::Alive, false),
        EofOutcome::Clean,
        "the kernel was told too"
    );
    assert!(pair.r.at_eof());
}

#[test]
fn h18_no_death_turns_an_end_that_was_seen_into_a_reset() {
    let mut pair = Pair::on_lane(10);
    pair.send(4, 4);
    pair.r.delivered(4);
    let end = pair.s.shutdown().expect("on the lane");
    assert_eq!(pair.r.lane_fin(end), Ok(()));
    assert!(pair.r.at_eof());
    pair.s.resume(true);
    let resume = pair.control();
    for seen in [0, RESUME_LEN] {
        let mut r = pair.r.clone();
        assert!(r.tcp_control(&resume[..seen]).is_ok());
        let mut reset = r.clone();
        assert_eq!(r.tcp_eof(memory_dead(14), true), EofOutcome::Clean);
        reset.tcp_reset();
        assert!(r.at_eof() && !r.take_reset() && reset.at_eof() && !reset.take_reset());
    }
}
