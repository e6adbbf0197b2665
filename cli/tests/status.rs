//! `rsock status` about a process with streams: this one, which lists some that do not exist.

use std::process::Command;

use rsock_core::stats::{
    Direction, LinkKind, Reason, Role, hopped, open_stream, record, stays_on_tcp,
};
use serde_json::Value;

fn status(arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_rsock"))
        .arg("status")
        .args(arguments)
        .output()
        .expect("rsock starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (
        text(output.stdout),
        text(output.stderr),
        output.status.code(),
    )
}

/// sockaddr_in of 10.0.0.`host` and port 80.
fn address(host: u8) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    bytes[2..8].copy_from_slice(&[0, 80, 10, 0, 0, host]);
    bytes
}

fn list_two_streams() {
    let lane = open_stream(1001, Role::Connector, &address(1), &address(2)).expect("listed");
    for direction in [Direction::Transmit, Direction::Receive] {
        hopped(lane, direction, LinkKind::Memory, 4711);
    }
    let flows = record(lane).expect("listed");
    flows.tx.message(1_500_000);
    flows.rx.message(64);
    let tcp = open_stream(1002, Role::Acceptor, &address(3), &address(4)).expect("listed");
    stays_on_tcp(tcp, Reason::PeerWithoutRsock);
    record(tcp).expect("listed").tx.tcp_bytes.add(100);
}

#[test]
fn a_process_and_its_streams_are_shown() {
    list_two_streams();
    let pid = std::process::id();

    let (stdout, stderr, code) = status(&["--json", &pid.to_string()]);
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    let json: Value = serde_json::from_str(&stdout).expect("JSON");
    let process = &json["processes"][0];
    assert_eq!(process["pid"], pid);
    assert_eq!(process["state"], "active");
    assert_eq!(process["streams_ever"], 2);
    assert_eq!(process["sent"]["lane_bytes"], 1_500_000);
    assert_eq!(process["fallbacks"]["peer-without-rsock"], 1);
    let lane = &process["streams"][0];
    assert_eq!(lane["fd"], 1001);
    assert_eq!(lane["local"], "10.0.0.1:80");
    assert_eq!(lane["peer"], "10.0.0.2:80");
    assert_eq!(lane["carrier_sent"], "lane");
    assert_eq!(lane["link"], "memory");
    assert_eq!(lane["peer_pid"], 4711);
    assert_eq!(lane["reason"], "none");
    assert_eq!(lane["received"]["lane_messages"], 1);
    let tcp = &process["streams"][1];
    assert_eq!(tcp["role"], "acceptor");
    assert_eq!(tcp["carrier_received"], "tcp");
    assert_eq!(tcp["reason"], "peer-without-rsock");
    assert_eq!(tcp["peer_pid"], Value::Null);
    assert_eq!(tcp["sent"]["tcp_bytes"], 100);

    let (stdout, _, code) = status(&[]);
    assert_eq!(code, Some(0));
    let head = stdout
        .lines()
        .find(|line| line.starts_with(&format!("{pid} ")));
    let head = head.expect("the list of all processes has this one");
    assert!(
        head.contains("2 streams now (1 on lanes), 2 ever"),
        "{head}"
    );
    // Other processes of this host may have such descriptors too.
    let (stdout, _, code) = status(&[&pid.to_string()]);
    assert_eq!(code, Some(0));
    let row = |fd: &str| {
        // Other processes with such descriptors may run on the machine: only what follows our own head line.
        let line = stdout
            .lines()
            .skip_while(|line| !line.starts_with(&format!("{pid} ")))
            .find(|line| line.trim_start().starts_with(fd));
        line.expect("a row")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let lane = "1001 connector 10.0.0.1:80 10.0.0.2:80 lane lane memory 4711 1.50 MB 64 B";
    assert!(row("1001 ").starts_with(lane), "{}", row("1001 "));
    assert!(
        row("1002 ").ends_with("peer-without-rsock"),
        "{}",
        row("1002 ")
    );
    assert!(
        stdout.contains(Reason::PeerWithoutRsock.explanation()),
        "{stdout}"
    );
}

#[test]
fn processes_that_cannot_be_shown_are_an_error() {
    let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
    let pid = child.id().to_string();
    let without = status(&[&pid]);
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    let gone = status(&["--json", &pid]);
    assert_eq!(without.2, Some(1));
    assert!(without.1.contains("runs without rsock"), "{}", without.1);
    assert_eq!(gone.2, Some(1));
    assert!(gone.1.contains("there is no process"), "{}", gone.1);
    let json: Value = serde_json::from_str(&gone.0).expect("JSON all the same");
    assert_eq!(json["processes"], Value::Array(Vec::new()));
}
