//! Any bytes from TCP, any cursor, any HOP and FIN, at a receiver whose driver keeps to the rules: the program gets every byte
//! of TCP that is not control, bytes of the ring only where they can be, and an end that is clean or not, but not both.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rsock_core::stream::{Hop, LaneId, PeerFate, Position, Receiver, TcpRead, Token};

const RING: u64 = 16;

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number near `base`, or anything at all.
    fn number(&mut self, base: u64) -> u64 {
        match self.byte() {
            255 => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
            n => base.wrapping_add(u64::from(n)).wrapping_sub(8),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let token = Token::from_bytes([b't'; 16]);
    let mut r = Receiver::new(Position::new(8));
    let mut lane = 0;
    let (mut clean, mut reset, mut shut) = (false, false, false);
    while !input.0.is_empty() {
        let x = r.position();
        match input.byte() % 10 {
            0 => {
                lane += 1;
                r.open_lane(LaneId(lane), token);
            }
            1 => {
                let seq = u32::from(input.byte());
                let at = Position::new(input.number(x.get()));
                let _ = r.hop(Hop { lane: LaneId(lane), seq, at, guard: b'g' }, input.byte() == 0);
            }
            2 => {
                // The bytes of a whole token, to get further than chance does.
                for byte in *b"gtttttttttttttttt" {
                    if let TcpRead::Control { .. } = r.tcp_read() {
                        let _ = r.tcp_control(&[byte]);
                    }
                }
            }
            3 => {
                let (c, p) = (input.number(x.get()), input.number(x.get()));
                let mut resume = b"Rtttttttttttttttt".to_vec();
                resume.extend(c.to_le_bytes());
                resume.extend(p.to_le_bytes());
                if matches!(r.tcp_read(), TcpRead::Control { max: 33 }) {
                    let _ = r.tcp_control(&resume);
                }
            }
            4 => match r.tcp_read() {
                TcpRead::Control { max } => {
                    let n = usize::from(input.byte()).min(max).min(input.0.len());
                    let (now, rest) = input.0.split_at(n);
                    input.0 = rest;
                    let _ = r.tcp_control(now);
                }
                TcpRead::Data { max } => r.tcp_data(u64::from(input.byte()).min(max)),
                TcpRead::Skip { max } => r.skipped(u64::from(input.byte()).min(max)),
                TcpRead::Nothing => r.take_pushback(r.pushback().len()),
            },
            5 | 6 => {
                if let Ok(n) = r.lane_available(input.number(x.get()), RING) {
                    assert!(n <= RING);
                    r.delivered(n.min(u64::from(input.byte())));
                }
            }
            7 => {
                let _ = r.lane_fin(Position::new(input.number(x.get())));
            }
            8 => match input.byte() % 4 {
                0 => r.freeze(),
                1 => drop(r.freeze_at_delivered()),
                2 => r.tcp_reset(),
                _ => {
                    shut = true;
                    r.shut();
                }
            },
            _ => {
                let published = Some(input.number(x.get()));
                let fate = match input.byte() % 3 {
                    0 => PeerFate::Alive,
                    1 => PeerFate::Dead { published: None },
                    _ => PeerFate::Dead { published },
                };
                r.tcp_eof(fate, input.byte() & 1 == 0);
            }
        }
        assert!(r.position() >= x);
        // After SHUT_RD an end is only that nothing is there now, as on Linux.
        clean |= r.at_eof() && !shut;
        reset |= r.take_reset();
        assert!(!(clean && reset));
    }
});
