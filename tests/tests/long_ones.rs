//! What takes long: many bytes, many streams at once, many short connections.
//!
//! `RSOCK_TEST_MEGABYTES` through one stream (default 200), `RSOCK_TEST_STREAMS` at once (default 1000),
//! `RSOCK_TEST_CONNECTIONS` one after the other (default 20000).

use rsock_tests::runner::check;

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}

/// As many descriptors as the kernel lets us have, for the agents that we start.
fn more_descriptors() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a pointer to a live rlimit.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

#[test]
fn many_bytes_through_one_stream() {
    let mut script = "!both\n!apart\nconnect\nwarm\n".to_owned();
    let mut left = setting("RSOCK_TEST_MEGABYTES", 200);
    let mut chunk = 0;
    while left > 0 {
        // In pieces, so that the runner's patience is for a piece and not for all; of many sizes.
        let piece = left.min(50);
        let sizes = [65536, 1_000_000, 5000, 131_072];
        let (out, into) = (sizes[chunk % 4], sizes[(chunk + 1) % 4]);
        let (sender, receiver) = if chunk % 3 == 2 {
            ("b", "a")
        } else {
            ("a", "b")
        };
        let bytes = piece << 20;
        script.push_str(&format!("{sender} &w sendall s {bytes} {out}\n"));
        script.push_str(&format!(
            "{receiver} recvall s {bytes} {sender} {into}\n{sender} join w\n"
        ));
        left -= piece;
        chunk += 1;
    }
    script.push_str("a shutdown s WR\nb recvall s end\nb close s\na recv s 10\n");
    check("many_bytes", &script);
}

#[test]
fn many_streams_at_once() {
    more_descriptors();
    let count = setting("RSOCK_TEST_STREAMS", 1000);
    let script = format!(
        "!both
        b socket l
        b bind l 127.0.0.1:0
        b listen l 4096
        b &v multiplex l {count}
        a crowd 127.0.0.1:$l {count} 700 3
        b join v
        b &v multiplex l {count}
        a crowd 127.0.0.1:$l {count} 100 5
        b join v
        connect
        warm
        a send s 10
        b recv s 10"
    );
    check("many_streams", &script);
}

/// Connections one after the other; neither memory nor descriptors grow.
fn short_connections(name: &str, marks: &str, count: u64) {
    more_descriptors();
    let piece = 1000.min(count);
    let some = format!(
        "b &v serve l {piece}
        a dial 127.0.0.1:$l {piece} blocking 100 1
        b join v\n"
    );
    let look = "a grown 500 3\nb grown 500 3\n";
    let mut script = format!("{marks}\nb socket l\nb bind l 127.0.0.1:0\nb listen l 128\n");
    // The first thousand may set things up.
    script.push_str(&some);
    script.push_str(look);
    for _ in 0..count / piece {
        script.push_str(&some);
    }
    script.push_str(look);
    check(name, &script);
}

#[test]
fn many_short_connections() {
    short_connections(
        "short_connections",
        "!policy",
        setting("RSOCK_TEST_CONNECTIONS", 20_000),
    );
}

#[test]
fn many_short_connections_that_ask_to_hop() {
    short_connections(
        "short_hopping_connections",
        "!both\n!warm",
        setting("RSOCK_TEST_CONNECTIONS", 20_000) / 10,
    );
}
