//! The writer and the reader against each other, in this process and in a forked one. One test body: the segment belongs
//! to the whole process.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rsock_core::stats::read::{self, Activity, Snapshot};
use rsock_core::stats::*;

fn own() -> Snapshot {
    match read::own().expect("readable").expect("a segment").activity {
        Activity::Active(snapshot) => *snapshot,
        other => panic!("not active: {other:?}"),
    }
}

#[test]
fn what_is_written_is_what_others_read() {
    assert!(
        read::own().expect("readable").is_none(),
        "nothing before the first stream"
    );

    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
    let fd = client.as_raw_fd();
    let slot = open_stream(fd, Role::Connector, &[], &[]).expect("a free record");
    let number = descriptor().expect("a segment");
    assert!(number > 900, "out of the way of the program: {number}");

    let snapshot = own();
    assert_eq!(snapshot.rsock, env!("CARGO_PKG_VERSION"));
    assert_eq!(snapshot.streams.len(), 1);
    let stream = &snapshot.streams[0];
    assert_eq!((stream.fd, stream.role), (fd, Role::Connector));
    assert_eq!(stream.reason, Ok(Reason::NotAskedYet));
    assert_eq!(stream.local, client.local_addr().ok(), "found in /proc");
    assert_eq!(stream.peer, client.peer_addr().ok(), "found in /proc");

    let record = record(slot).expect("listed");
    let mut address = [0u8; 16];
    address[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    address[2..8].copy_from_slice(&[0x1f, 0x90, 10, 1, 2, 3]);
    record.set_addresses(&[], &address);
    hopped(slot, Direction::Transmit, LinkKind::Memory, 42);
    hopped(slot, Direction::Receive, LinkKind::Memory, 42);
    record.tx.message(100);
    record.tx.message(50);
    record.rx.message(7);
    record.rx.spins.add(1);
    let snapshot = own();
    let stream = &snapshot.streams[0];
    assert_eq!(stream.peer, "10.1.2.3:8080".parse().ok(), "as stored");
    assert!(stream.on_lane());
    assert_eq!((stream.link, stream.peer_pid), (LinkKind::Memory, 42));
    assert_eq!((stream.tx.bytes, stream.tx.messages), (150, 2));
    assert_eq!((stream.rx.bytes, stream.rx.spins), (7, 1));
    assert_eq!((snapshot.hops, stream.tx.hops, stream.rx.hops), (2, 1, 1));

    hopped_back(slot, Direction::Transmit, Reason::PinnedOob);
    assert_eq!(
        own().streams[0].link,
        LinkKind::Memory,
        "one direction is still there"
    );
    hopped_back(slot, Direction::Receive, Reason::PinnedOob);
    let snapshot = own();
    assert_eq!(snapshot.streams[0].link, LinkKind::None);
    assert_eq!(snapshot.streams[0].reason, Ok(Reason::PinnedOob));
    assert_eq!(snapshot.hops_back, [(Reason::PinnedOob, 2)]);

    close_stream(slot);
    close_stream(slot);
    let snapshot = own();
    assert!(snapshot.streams.is_empty());
    assert_eq!(
        (snapshot.tx.bytes, snapshot.rx.bytes),
        (150, 7),
        "the sums stay"
    );

    records_are_used_again_and_run_out();
    a_child_has_counters_of_its_own();
    a_limit_on_file_sizes_costs_only_the_counters();
}

fn records_are_used_again_and_run_out() {
    let open = || open_stream(3, Role::Acceptor, &[], &[]);
    let slots: Vec<Slot> = std::iter::from_fn(open).collect();
    assert_eq!(slots.len(), CAPACITY, "the closed one is used again");
    assert_eq!(own().streams.len(), CAPACITY);
    assert_eq!(own().unlisted, 1);
    let fresh = record(slots[0]).expect("listed");
    assert_eq!(
        fresh.tx.bytes.get(),
        0,
        "nothing is left of the stream before"
    );
    std::thread::scope(|scope| {
        for part in slots.chunks(CAPACITY / 4) {
            scope.spawn(move || part.iter().copied().for_each(close_stream));
        }
    });
    let again: Vec<Slot> = std::iter::from_fn(open).collect();
    assert_eq!(again.len(), CAPACITY, "every record came back once");
    again[1..].iter().copied().for_each(close_stream);
}

/// The child reports through a pipe: which promises it saw broken.
fn a_child_has_counters_of_its_own() {
    let parent = own();
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the child only uses what this test is about and _exit; the test has no other thread that holds a lock.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        forked();
        let before = read::own().is_ok_and(|own| own.is_none());
        let slot = open_stream(5, Role::Acceptor, &[], &[]);
        let after = read::own().is_ok_and(|own| {
            own.is_some_and(|own| match own.activity {
                Activity::Active(snapshot) => {
                    snapshot.streams.len() == 1 && snapshot.streams_ever == 1
                }
                _ => false,
            })
        });
        let report = [before, slot.is_some(), after].map(u8::from);
        let written = writer.write_all(&report);
        // SAFETY: ends the child without running the test harness's exit code.
        unsafe { libc::_exit(i32::from(written.is_err())) };
    }
    drop(writer);
    let mut report = Vec::new();
    reader.read_to_end(&mut report).expect("the child's report");
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(
        report,
        [1, 1, 1],
        "no segment before a stream, a slot, one stream of its own"
    );
    assert_eq!(
        own().streams_ever,
        parent.streams_ever,
        "the parent's are untouched"
    );
}

/// The kernel answers a file that is too large with SIGXFSZ, which would kill the program.
fn a_limit_on_file_sizes_costs_only_the_counters() {
    // SAFETY: as above.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        forked();
        let limit = libc::rlimit {
            rlim_cur: 4096,
            rlim_max: 4096,
        };
        // SAFETY: lowers a limit of this child.
        let limited = unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } == 0;
        let unlisted = open_stream(5, Role::Acceptor, &[], &[]).is_none();
        counters().hops.add(1);
        // SAFETY: ends the child without running the test harness's exit code.
        unsafe { libc::_exit(if limited && unlisted { 7 } else { 8 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(
        libc::WIFEXITED(status),
        "killed by signal {}",
        libc::WTERMSIG(status)
    );
    assert_eq!(libc::WEXITSTATUS(status), 7);
}
