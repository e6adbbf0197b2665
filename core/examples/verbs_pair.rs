//! Two processes move pseudo-random bytes through each other's memory over a queue pair, both ways at once, and check them.
//!
//! `verbs_pair listen ADDRESS:PORT` on one host, `verbs_pair connect ADDRESS:PORT [BYTES]` on another. The listener sends the connector
//! from PORT to PORT + 1 first, as one of several processes behind a listener would. Exit code 0: all arrived; 3: the link was lost.
//! The tests of the fabric run this on RoCE and iWARP, also while devices disappear.

use rsock_core::link::verbs as v;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use v::manager::{Manager, Outcome};
use v::queue_pair::{Happened, NotPosted, QueuePair, Wanted};
use v::rdma_core::RdmaCore;
use v::region::Region;

type Failure = Box<dyn std::error::Error>;

const RING: u64 = 1 << 18;
const PIECE: u64 = 1 << 14;

/// The eight bytes at `position` (a multiple of eight) of the stream.
fn pattern(position: u64) -> u64 {
    position.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn wait(fds: &[i32], milliseconds: i32) {
    let mut polled: Vec<libc::pollfd> = fds
        .iter()
        .map(|&fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        })
        .collect();
    // SAFETY: the array has the length that is given.
    unsafe {
        libc::poll(
            polled.as_mut_ptr(),
            polled.len() as libc::nfds_t,
            milliseconds,
        )
    };
}

fn next(manager: &mut Manager<RdmaCore>) -> Result<Outcome<RdmaCore>, Failure> {
    loop {
        if let Some(outcome) = manager.poll()? {
            return Ok(outcome);
        }
        wait(&[manager.fd()], 1000);
    }
}

fn listen(
    manager: &mut Manager<RdmaCore>,
    address: SocketAddr,
) -> Result<QueuePair<RdmaCore>, Failure> {
    let first = manager.listen(address, 8)?;
    let second = SocketAddr::new(address.ip(), address.port() + 1);
    manager.listen(second, 8)?;
    println!("listening on {address}");
    loop {
        match next(manager)? {
            Outcome::Requested {
                listener, token, ..
            } if listener == first => manager.reject(token, second.to_string().as_bytes())?,
            Outcome::Requested {
                token,
                local,
                peer,
                body,
                ..
            } => {
                println!(
                    "{peer:?} wants {:?} of {local:?}",
                    String::from_utf8_lossy(&body)
                );
                manager.accept(token, b"welcome")?;
            }
            Outcome::Connected { pair, .. } => return Ok(pair),
            Outcome::Failed { error, .. } => return Err(error.into()),
            Outcome::Refused { .. } | Outcome::Ended { .. } => {}
        }
    }
}

fn connect(
    manager: &mut Manager<RdmaCore>,
    mut address: SocketAddr,
) -> Result<QueuePair<RdmaCore>, Failure> {
    let mut tries = 40;
    manager.connect(None, address, &[b'x'; v::hello::MAX_BODY])?;
    loop {
        match next(manager)? {
            Outcome::Connected { pair, body, .. } => {
                println!("connected: {:?}", String::from_utf8_lossy(&body));
                return Ok(pair);
            }
            Outcome::Refused {
                body: Some(body), ..
            } => {
                address = String::from_utf8(body)?.parse()?;
                println!("sent on to {address}");
            }
            Outcome::Refused { body: None, .. } | Outcome::Failed { .. } if tries > 0 => {
                tries -= 1;
                std::thread::sleep(std::time::Duration::from_millis(250));
            }
            Outcome::Failed { error, .. } => return Err(error.into()),
            Outcome::Refused { .. } => return Err("nobody listens there".into()),
            Outcome::Requested { .. } | Outcome::Ended { .. } => continue,
        }
        manager.connect(None, address, b"again")?;
    }
}

/// One process's view of both directions.
#[derive(Default)]
struct Transfer {
    remote: Option<v::provider::Remote>,
    filled: u64,
    sent: u64,
    acknowledged: u64,
    arrived: u64,
    checked: u64,
    said: u64,
}

/// Sends `total` bytes and receives as many. True if all of it arrived, false if the link was lost.
fn transfer(
    manager: &mut Manager<RdmaCore>,
    pair: &mut QueuePair<RdmaCore>,
    total: u64,
) -> Result<bool, Failure> {
    let mirror = Region::allocate(pair.device(), RING as usize, false)?;
    let ring = Region::allocate(pair.device(), RING as usize, true)?;
    let mut t = Transfer::default();
    let mut introduced = false;
    let start = Instant::now();
    loop {
        let mut lost = None;
        let mut progress = false;
        let more = pair.poll(64, |happened| match happened {
            Happened::Message(m) => {
                progress = true;
                let word =
                    |at: usize| u64::from_le_bytes(m[at..at + 8].try_into().expect("eight bytes"));
                match m[0] {
                    0 => {
                        t.remote = Some(v::provider::Remote {
                            address: word(8),
                            key: word(16) as u32,
                        })
                    }
                    _ => t.acknowledged = word(8),
                }
            }
            Happened::Notified(count) => {
                progress = true;
                t.arrived += u64::from(count);
            }
            Happened::Room => progress = true,
            Happened::Lost(error) => lost = Some(error.to_string()),
        });
        if let Some(why) = lost {
            println!(
                "lost after {} sent, {} received: {why}",
                t.acknowledged, t.checked
            );
            return Ok(false);
        }
        if !introduced {
            let mut m = [0; 24];
            let here = ring.remote(0);
            m[8..16].copy_from_slice(&here.address.to_le_bytes());
            m[16..24].copy_from_slice(&u64::from(here.key).to_le_bytes());
            introduced = pair.send(&m).is_ok();
        }
        while t.checked < t.arrived {
            // SAFETY: within the ring, and everything in it is sent in multiples of eight bytes.
            let word = unsafe {
                ring.as_ptr()
                    .add((t.checked % RING) as usize)
                    .cast::<u64>()
                    .read_volatile()
            };
            if word != pattern(t.checked) {
                return Err(format!("the bytes at {} are wrong", t.checked).into());
            }
            t.checked += 8;
        }
        if t.checked - t.said >= RING / 4 || (t.checked == total && t.said < total) {
            let mut m = [1; 16];
            m[8..16].copy_from_slice(&t.checked.to_le_bytes());
            if pair.send(&m).is_ok() {
                t.said = t.checked;
                progress = true;
            }
        }
        while let Some(remote) = t.remote
            && t.sent < total
            && t.sent - t.acknowledged < RING
        {
            let at = t.sent % RING;
            let length = PIECE
                .min(total - t.sent)
                .min(RING - at)
                .min(RING - (t.sent - t.acknowledged));
            while t.filled < t.sent + length {
                // SAFETY: within the mirror; the peer has acknowledged what was there.
                unsafe {
                    mirror
                        .as_ptr()
                        .add((t.filled % RING) as usize)
                        .cast::<u64>()
                        .write(pattern(t.filled))
                };
                t.filled += 8;
            }
            let to = v::provider::Remote {
                address: remote.address + at,
                ..remote
            };
            // Busy until there is room, or lost, as the next poll says.
            if pair
                .write_and_notify(
                    mirror.local(at as usize, length as usize),
                    to,
                    length as u32,
                )
                .is_err()
            {
                break;
            }
            t.sent += length;
            progress = true;
        }
        if t.acknowledged == total && t.checked == total && t.said == total {
            let seconds = start.elapsed().as_secs_f64();
            println!(
                "{total} bytes each way in {seconds:.2} s, {:.0} Mb/s each way",
                total as f64 * 8.0 / seconds / 1e6
            );
            return Ok(true);
        }
        if !progress && !more {
            pair.arm();
            if !pair.poll(0, |_| {}) {
                wait(&[pair.device().doorbell(), manager.fd()], 200);
            }
            while pair.device().rung()?.is_some() {}
            if let Some(Outcome::Ended { removed, .. }) = manager.poll()? {
                println!(
                    "the connection ended{}",
                    if removed { ": the device is gone" } else { "" }
                );
                if removed {
                    return Ok(false);
                }
            }
        }
    }
}

/// Waits for the next message of 64 bytes, asleep or (not for hosts with one processor) spinning. False: the link is lost.
fn hear(pair: &mut QueuePair<RdmaCore>, spin: bool) -> Result<bool, Failure> {
    let (mut heard, mut lost) = (false, false);
    let mut asleep = false;
    while !heard && !lost {
        let more = pair.poll(16, |happened| match happened {
            Happened::Message(m) => heard |= m.len() == 64,
            Happened::Lost(_) => lost = true,
            _ => {}
        });
        if heard || more || spin {
            continue;
        }
        if asleep {
            wait(&[pair.device().doorbell()], 200);
            while pair.device().rung()?.is_some() {}
        } else {
            pair.arm();
        }
        asleep = !asleep;
    }
    Ok(!lost)
}

/// Round trips of a 64-byte message.
fn ping_pong(
    pair: &mut QueuePair<RdmaCore>,
    first: bool,
    spin: bool,
    count: u32,
) -> Result<bool, Failure> {
    let start = Instant::now();
    for round in 0..count {
        if !first && !hear(pair, spin)? {
            return Ok(false);
        }
        while let Err(refused) = pair.send(&[round as u8; 64]) {
            if refused == NotPosted::Lost {
                return Ok(false);
            }
            pair.poll(0, |_| {});
        }
        if first && !hear(pair, spin)? {
            return Ok(false);
        }
    }
    let how = if spin { "spinning" } else { "asleep between" };
    println!(
        "{:.1} us per round trip of 64 bytes, {how}",
        start.elapsed().as_secs_f64() * 1e6 / f64::from(count)
    );
    Ok(true)
}

fn run() -> Result<bool, Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, role, address, rest @ ..] = &arguments[..] else {
        return Err("usage: verbs_pair listen|connect ADDRESS:PORT [BYTES]".into());
    };
    let total = rest.first().map_or(Ok(16 << 20), |n| n.parse::<u64>())? & !7;
    let provider = Arc::new(RdmaCore::open(|fd| fd)?);
    let mut manager = Manager::new(provider, Wanted::default())?;
    let connector = role == "connect";
    let mut pair = if connector {
        connect(&mut manager, address.parse()?)?
    } else {
        listen(&mut manager, address.parse()?)?
    };
    println!(
        "{:?}, {:?}, {:?}",
        pair.sizes(),
        pair.device().limits(),
        pair.addresses()
    );
    if !transfer(&mut manager, &mut pair, total)? {
        return Ok(false);
    }
    Ok(
        ping_pong(&mut pair, connector, false, 2000)?
            && ping_pong(&mut pair, connector, true, 200)?,
    )
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("verbs_pair: {error}");
            ExitCode::FAILURE
        }
    }
}
