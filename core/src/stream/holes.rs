//! The promises of the hop protocol, each named after the hole (protocol section 4) that a simpler protocol has there.
//! Holes that only a driver can show (blocked readers, epoll, fork) are not here.

use super::*;

mod ending;
mod hopping;
mod hostile;
mod returning;

const LANE: LaneId = LaneId(1);
const RING: u64 = 64;

fn token() -> Token {
    Token::from_bytes(*b"The token itself")
}

fn at(n: u64) -> Position {
    Position::new(n)
}

/// Both ends of one direction, and the TCP bytes between them that are control.
struct Pair {
    s: Sender,
    r: Receiver,
}

impl Pair {
    /// `n` bytes went over TCP, and a lane is open.
    fn opened(n: u64) -> Self {
        let mut s = Sender::new(Position::ZERO);
        s.wrote_tcp(n);
        let mut r = Receiver::new(Position::ZERO);
        r.tcp_data(n);
        s.open_lane(LANE, token(), RING).expect("both are on TCP");
        assert!(r.open_lane(LANE, token()));
        Pair { s, r }
    }

    fn ask(&mut self, first: u8) -> Hop {
        self.s.request_hop(first).expect("may hop")
    }

    /// The receiver agrees and the sender hears it.
    fn agree(&mut self, hop: Hop) {
        assert_eq!(self.r.hop(hop, false), HopAnswer::Ack { seq: hop.seq });
        assert!(self.s.hop_acked(hop.seq));
    }

    /// Control bytes go into TCP, and are not read yet.
    fn control(&mut self) -> Vec<u8> {
        let bytes = self.s.control().to_vec();
        self.s.control_written(bytes.len());
        bytes
    }

    fn on_lane(n: u64) -> Self {
        let mut pair = Pair::opened(n);
        let hop = pair.ask(b'x');
        pair.agree(hop);
        let bytes = pair.control();
        assert_eq!(pair.r.tcp_control(&bytes), Ok(ControlSeen::Hopped));
        pair
    }

    /// `n` bytes go into the ring and `seen` of them are noticed at the other end.
    fn send(&mut self, n: u64, seen: u64) {
        self.s.accepted(n);
        let published = self.r.position().get() + seen;
        assert_eq!(self.r.lane_available(published, RING), Ok(seen));
    }
}

const VERBS_DEAD: PeerFate = PeerFate::Dead { published: None };

fn memory_dead(published: u64) -> PeerFate {
    PeerFate::Dead {
        published: Some(published),
    }
}
