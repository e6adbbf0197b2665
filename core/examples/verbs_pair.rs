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
/// Bytes of a ping; no other message is that long.
const PING: usize = 64;

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

/// Sends `total` bytes and receives as many. How many pings of the peer, which may be
/// done before us, have come already; None if the link was lost.
fn transfer(
    manager: &mut Manager<RdmaCore>,
    pair: &mut QueuePair<RdmaCore>,
    total: u64,
) -> Result<Option<u32>, Failure> {
    let mirror = Region::allocate(pair.device(), RING as usize, false)?;
    let ring = Region::allocate(pair.device(), RING as usize, true)?;
    let mut t = Transfer::default();
    let mut pings = 0;
    let mut introduced = false;
    let mut idle = None;
    let (mut asked, mut armed, mut over) = (false, false, false);
    let start = Instant::now();
    loop {
        let mut lost = None;
        let mut progress = false;
        let more = pair.poll(64, |happened| match happened {
            Happened::Message(m) if m.len() == PING => pings += 1,
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
        if over && !progress && !more && lost.is_none() {
            // All that had arrived before is taken.
            pair.end(v::Error::Lost("the connection ended".into()));
            continue;
        }
        if let Some(why) = lost {
            println!(
                "lost after {} sent, {} received: {why}",
                t.acknowledged, t.checked
            );
            return Ok(None);
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
            return Ok(Some(pings));
        }
        if progress || more {
            (idle, asked, armed) = (None, false, false);
            continue;
        }
        if !armed {
            // One more look: what came before the arming does not ring.
            pair.arm();
            armed = true;
            continue;
        }
        armed = false;
        wait(&[pair.device().doorbell(), manager.fd()], 200);
        while pair.device().rung()?.is_some() {}
        if let Some(Outcome::Ended { removed, .. }) = manager.poll()? {
            println!(
                "the connection ended{}",
                if removed { ": the device is gone" } else { "" }
            );
            over = true;
        }
        // Silence: ask after a second, and give up after five.
        let silent = idle.get_or_insert_with(Instant::now).elapsed().as_secs();
        if silent >= 1 && !asked {
            pair.probe();
            asked = true;
        } else if asked && !pair.unanswered() {
            (idle, asked) = (None, false);
        } else if silent >= 5 && asked {
            pair.end(v::Error::Lost("the peer does not answer".into()));
        }
    }
}

/// Waits for the next message of 64 bytes, asleep or (not for hosts with one processor) spinning. False: the link is lost.
fn hear(pair: &mut QueuePair<RdmaCore>, pings: &mut u32, spin: bool) -> Result<bool, Failure> {
    let (mut lost, mut asleep) = (false, false);
    while *pings == 0 && !lost {
        let more = pair.poll(16, |happened| match happened {
            Happened::Message(m) => *pings += u32::from(m.len() == PING),
            Happened::Lost(_) => lost = true,
            _ => {}
        });
        if *pings > 0 || more || spin {
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
    *pings = pings.saturating_sub(1);
    Ok(!lost)
}

/// Round trips of a 64-byte message.
fn ping_pong(
    pair: &mut QueuePair<RdmaCore>,
    pings: &mut u32,
    first: bool,
    spin: bool,
    count: u32,
) -> Result<bool, Failure> {
    let mut times = Vec::new();
    for round in 0..count {
        let start = Instant::now();
        if !first && !hear(pair, pings, spin)? {
            return Ok(false);
        }
        while let Err(refused) = pair.send(&[round as u8; PING]) {
            if refused == NotPosted::Lost {
                return Ok(false);
            }
            pair.poll(0, |_| {});
        }
        if first && !hear(pair, pings, spin)? {
            return Ok(false);
        }
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let how = if spin { "spinning" } else { "asleep between" };
    println!(
        "round trip of 64 bytes, {how}: median {:?}, longest {:?}",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    Ok(true)
}

/// Moves a descriptor up, as librsock.so does so that the program finds the numbers it expects.
fn out_of_the_way(fd: i32) -> i32 {
    const HIGH: i32 = 900;
    if fd >= HIGH {
        return fd;
    }
    // SAFETY: plain calls with integers.
    unsafe {
        let moved = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH);
        if moved < 0 {
            return fd;
        }
        libc::close(fd);
        moved
    }
}

/// True if the lowest free descriptor is what it would be without us.
fn lowest_is_free() -> bool {
    // SAFETY: plain calls with integers.
    unsafe {
        let lowest = libc::dup(0);
        libc::close(lowest);
        lowest == 3
    }
}

fn run() -> Result<bool, Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, role, address, rest @ ..] = &arguments[..] else {
        return Err("usage: verbs_pair listen|connect ADDRESS:PORT [BYTES]".into());
    };
    let total = rest.first().map_or(Ok(16 << 20), |n| n.parse::<u64>())? & !7;
    let provider = Arc::new(RdmaCore::open(out_of_the_way)?);
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
    if !lowest_is_free() {
        return Err("a descriptor of the library is in the way".into());
    }
    let Some(mut pings) = transfer(&mut manager, &mut pair, total)? else {
        return Ok(false);
    };
    let done = ping_pong(&mut pair, &mut pings, connector, false, 2000)?
        && ping_pong(&mut pair, &mut pings, connector, true, 200)?;
    // Our last ping may still be on its way, and would be lost with the queue pair: the connector closes first.
    let start = Instant::now();
    while done && !connector && start.elapsed().as_secs() < 10 {
        if let Some(Outcome::Ended { .. }) = manager.poll()? {
            break;
        }
        wait(&[manager.fd()], 200);
    }
    Ok(done)
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
