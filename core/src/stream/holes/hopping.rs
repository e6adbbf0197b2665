//! Leaving TCP.

use super::*;

#[test]
fn h01_nothing_is_accepted_onto_the_lane_before_the_whole_token_is_in_the_kernel() {
    let mut pair = Pair::opened(10);
    let hop = pair.ask(b'x');
    assert_eq!(
        (pair.s.room(), pair.s.may_write_tcp()),
        (0, false),
        "asked only"
    );
    pair.agree(hop);
    for _ in 0..TOKEN_LEN {
        assert_eq!((pair.s.state(), pair.s.room()), (SendState::TokenOut, 0));
        assert!(!pair.s.may_write_tcp());
        pair.s.control_written(1);
    }
    assert_eq!(pair.s.room(), RING);
}

#[test]
fn h01_a_kill_between_hop_and_token_is_a_clean_end_at_the_hop() {
    for written in 0..TOKEN_LEN {
        let mut pair = Pair::opened(10);
        let hop = pair.ask(b'x');
        pair.agree(hop);
        let bytes = pair.s.control()[..written].to_vec();
        assert_eq!(pair.r.tcp_control(&bytes), Ok(ControlSeen::More));
        assert_eq!(pair.r.tcp_eof(VERBS_DEAD, false), EofOutcome::Clean);
        assert!(pair.r.at_eof());
        assert_eq!(
            pair.r.position(),
            pair.s.position(),
            "all that was accepted"
        );
    }
}

#[test]
fn h02_data_after_a_hop_given_up_never_looks_like_a_token() {
    for first in 0..=u8::MAX {
        let mut pair = Pair::opened(10);
        let hop = pair.ask(first);
        assert_eq!(pair.r.hop(hop, false), HopAnswer::Ack { seq: hop.seq });
        pair.s.abandon_hop();
        pair.s.wrote_tcp(1);
        assert_eq!(
            pair.r.tcp_control(&[first]),
            Ok(ControlSeen::Data),
            "one byte decides"
        );
        assert_eq!(pair.r.pushback(), [first]);
        pair.r.take_pushback(1);
        assert_eq!(pair.r.state(), RecvState::Raw);
        assert!(!pair.s.hop_acked(hop.seq), "the answer comes too late");
    }
}

#[test]
fn h04_a_direction_that_never_hopped_reads_no_control() {
    let mut never = Receiver::new(at(10));
    assert!(never.open_lane(LANE, token()));
    never.freeze();
    assert_eq!(never.tcp_read(), TcpRead::Data { max: u64::MAX });
    let mut s = Sender::new(at(10));
    s.open_lane(LANE, token(), RING).expect("on TCP");
    s.resume(false);
    assert!(s.control().is_empty(), "and writes none");
    assert_eq!(s.state(), SendState::Tcp);
}

#[test]
fn h08_a_half_written_token_is_finished_before_the_resume() {
    for written in 0..TOKEN_LEN {
        let mut pair = Pair::opened(10);
        let hop = pair.ask(b'x');
        pair.agree(hop);
        let mut wire = pair.s.control()[..written].to_vec();
        pair.s.control_written(written);
        pair.s.resume(false);
        assert_eq!(pair.s.state(), SendState::Resuming);
        wire.extend(pair.control());
        assert_eq!(wire.len(), TOKEN_LEN + RESUME_LEN);
        assert_eq!(pair.s.state(), SendState::Tcp);
        assert_eq!(
            pair.r.tcp_control(&wire[..TOKEN_LEN]),
            Ok(ControlSeen::Hopped)
        );
        assert_eq!(
            pair.r.tcp_control(&wire[TOKEN_LEN..]),
            Ok(ControlSeen::Resumed)
        );
        assert!(pair.r.hopped_back());
    }
}

#[test]
fn h11_a_reader_that_got_only_a_token_got_nothing() {
    let mut pair = Pair::opened(10);
    let hop = pair.ask(b'x');
    pair.agree(hop);
    let mut buffer = pair.control();
    let stripped = pair.r.strip(&mut buffer);
    assert_eq!(
        stripped,
        Stripped {
            data: 0,
            seen: Ok(ControlSeen::Hopped)
        }
    );
    assert_eq!(
        buffer, [0; TOKEN_LEN],
        "nor does it see it behind the returned length"
    );
}

#[test]
fn h11_a_reader_in_the_kernel_gets_the_data_around_control() {
    let mut pair = Pair::opened(10);
    pair.s.wrote_tcp(3);
    let mut buffer = b"abc".to_vec();
    let hop = pair.ask(b'x');
    pair.agree(hop);
    buffer.extend(pair.control());
    assert!(pair.s.nop());
    buffer.extend(pair.control());
    pair.s.accepted(4);
    pair.s.resume(false);
    buffer.extend(pair.control());
    buffer.extend(b"defg");
    pair.s.resent(4);
    pair.s.wrote_tcp(2);
    buffer.extend(b"hi");
    for size in 1..=buffer.len() {
        let mut r = pair.r.clone();
        let mut first = buffer[..size].to_vec();
        let stripped = r.strip(&mut first);
        let mut got = first[..stripped.data].to_vec();
        assert!(first[stripped.data..].iter().all(|byte| *byte == 0));
        let mut rest = &buffer[size..];
        while !rest.is_empty() {
            let n = match r.tcp_read() {
                TcpRead::Control { max } => {
                    let n = rest.len().min(max);
                    r.tcp_control(&rest[..n]).expect("an honest peer");
                    n
                }
                TcpRead::Data { max } => {
                    let n = rest.len().min(max as usize);
                    got.extend(&rest[..n]);
                    r.tcp_data(n as u64);
                    n
                }
                other => panic!("{other:?} with everything delivered"),
            };
            rest = &rest[n..];
        }
        assert_eq!(got, b"abcdefghi", "a buffer of {size}");
        assert_eq!(r.position(), pair.s.position());
    }
}

#[test]
fn h11_readers_that_cannot_be_stripped_keep_the_stream_on_tcp() {
    let mut pair = Pair::opened(10);
    let hop = pair.ask(b'x');
    let nak = HopAnswer::Nak {
        seq: hop.seq,
        reason: NakReason::Readers,
    };
    assert_eq!(pair.r.hop(hop, true), nak);
    assert!(pair.s.hop_pending(hop.seq));
    pair.s.abandon_hop();
    assert!(pair.s.may_write_tcp());
}

#[test]
fn h13_a_census_that_does_not_fit_keeps_the_stream_on_tcp() {
    let mut pair = Pair::opened(10);
    let hop = pair.ask(b'x');
    let nak = HopAnswer::Nak {
        seq: hop.seq,
        reason: NakReason::Census,
    };
    assert_eq!(pair.r.refuse_hop(hop, NakReason::Census), nak);
    assert_eq!(
        pair.r.hop(hop, false),
        HopAnswer::Ignore,
        "and is not asked twice"
    );
    assert_eq!(pair.r.tcp_read(), TcpRead::Data { max: u64::MAX });
}

#[test]
fn h14_a_token_of_somebody_else_is_data_and_costs_the_lane() {
    let mut pair = Pair::opened(10);
    let hop = pair.ask(b'x');
    pair.agree(hop);
    let mut bytes = pair.control();
    bytes[16] ^= 1;
    assert_eq!(pair.r.tcp_control(&bytes), Ok(ControlSeen::WrongToken));
    assert_eq!(pair.r.pushback(), bytes);
    assert!(!pair.r.lane_open());
    assert_eq!(
        pair.r.lane_available(20, RING),
        Ok(0),
        "nothing of that lane is believed"
    );
    let later = Hop {
        seq: hop.seq + 1,
        at: at(27),
        ..hop
    };
    assert!(matches!(
        pair.r.hop(later, false),
        HopAnswer::Nak {
            reason: NakReason::Closed,
            ..
        }
    ));
}

#[test]
fn h32_an_agreement_is_not_passed_on_once_the_lane_is_frozen_and_not_followed_once_closed() {
    let mut pair = Pair::opened(10);
    let hop = pair.ask(b'x');
    assert_eq!(pair.r.hop(hop, false), HopAnswer::Ack { seq: hop.seq });
    assert!(pair.r.ack_stands(hop.seq));
    pair.r.freeze();
    assert!(!pair.r.ack_stands(hop.seq));
    pair.s.resume(false);
    assert!(!pair.s.hop_acked(hop.seq));
    assert_eq!(pair.s.state(), SendState::Tcp);
}

#[test]
fn h33_a_hop_overtaken_by_its_own_abandonment_is_no_offence() {
    let mut pair = Pair::opened(10);
    let hop = pair.ask(b'x');
    pair.s.abandon_hop();
    pair.s.wrote_tcp(5);
    pair.r.tcp_data(1);
    let nak = HopAnswer::Nak {
        seq: hop.seq,
        reason: NakReason::Overtaken,
    };
    assert_eq!(pair.r.hop(hop, false), nak);
    assert_eq!(pair.r.state(), RecvState::Raw);
    assert!(pair.r.lane_open());
}

#[test]
fn h33_bytes_read_as_control_and_not_delivered_yet_count_as_read() {
    let mut pair = Pair::opened(10);
    let first = pair.ask(b'x');
    assert_eq!(pair.r.hop(first, false), HopAnswer::Ack { seq: first.seq });
    pair.s.abandon_hop();
    pair.s.wrote_tcp(6);
    assert_eq!(pair.r.tcp_control(b"xyzxyz"), Ok(ControlSeen::Data));
    let inside = Hop {
        seq: first.seq + 1,
        at: at(13),
        ..first
    };
    assert!(matches!(pair.r.hop(inside, false), HopAnswer::Nak { .. }));
    let behind = Hop {
        seq: first.seq + 2,
        at: at(16),
        ..first
    };
    assert_eq!(
        pair.r.hop(behind, false),
        HopAnswer::Ack { seq: behind.seq }
    );
    assert_eq!(pair.r.tcp_read(), TcpRead::Nothing, "pushback first");
    pair.r.take_pushback(6);
    assert_eq!(pair.r.tcp_read(), TcpRead::Control { max: TOKEN_LEN });
}

#[test]
fn h37_a_hop_given_up_with_nothing_written_is_settled_by_its_first_byte() {
    let mut pair = Pair::opened(10);
    let hop = pair.ask(b'x');
    assert_eq!(pair.r.hop(hop, false), HopAnswer::Ack { seq: hop.seq });
    pair.s.abandon_hop();
    assert_eq!(pair.s.forbidden_next(), Some(hop.guard));
    assert_eq!(pair.s.request_hop(b'y'), None, "not before it is settled");
    pair.s.abandon_with(b'x');
    assert_eq!((pair.s.forbidden_next(), pair.s.position()), (None, at(11)));
    assert!(!pair.s.may_write_tcp(), "that byte comes first");
    let bytes = pair.control();
    assert_eq!(pair.r.tcp_control(&bytes), Ok(ControlSeen::Data));
    assert_eq!(pair.r.pushback(), b"x");
    assert!(pair.s.may_write_tcp());
}
