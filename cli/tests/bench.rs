//! `rsock bench`: each benchmark in small, as plain TCP; its JSON has what scripts look for.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

fn rsock(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rsock"));
    command
        .arg("bench")
        .args(arguments)
        .env_remove("LD_PRELOAD");
    command
}

fn json(arguments: &[&str]) -> Value {
    let output = rsock(arguments)
        .arg("--json")
        .output()
        .expect("rsock starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    assert_eq!(stderr, "", "{arguments:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn positive(value: &Value, keys: &[&str]) {
    for key in keys {
        let number = value[key].as_f64();
        assert!(number.is_some_and(|n| n > 0.0), "{key} in {value}");
    }
}

const PERCENTILES: [&str; 4] = ["p50_us", "p99_us", "p99_9_us", "mean_us"];

#[test]
fn ping_pong_and_sleepers_give_percentiles() {
    for mode in ["blocking", "epoll"] {
        // Larger than what a socket takes at once, so that the epoll side has to wait for room.
        for size in ["1", "3000000"] {
            let value = json(&["pingpong", "--mode", mode, "--size", size, "--count", "30"]);
            positive(&value, &PERCENTILES);
            assert_eq!(value["mode"], mode);
            assert_eq!(value["carrier"], "tcp");
        }
        let value = json(&[
            "sleepers", "--mode", mode, "--count", "20", "--gap-us", "100",
        ]);
        positive(&value, &PERCENTILES);
        positive(
            &value,
            &["client_cpu_us_per_message", "server_cpu_us_per_message"],
        );
    }
}

#[test]
fn throughput_counts_what_the_other_side_received() {
    let value = json(&[
        "throughput",
        "--streams",
        "4",
        "--bytes",
        "1000001",
        "--size",
        "4096",
    ]);
    positive(&value, &["gigabits_per_second", "seconds"]);
    assert_eq!(value["bytes"], 4_000_004);
    let value = json(&["throughput", "--seconds", "0.05"]);
    positive(&value, &["bytes", "gigabits_per_second"]);
}

#[test]
fn the_others_give_their_figures() {
    let value = json(&["connect", "--seconds", "0.1", "--threads", "2"]);
    positive(&value, &["connections_per_second", "count"]);
    positive(&value, &PERCENTILES);
    let value = json(&["files", "--count", "512"]);
    for what in ["file", "pipe"] {
        for call in ["read", "write", "close"] {
            positive(&value, &[&format!("{what}_{call}_ns")]);
        }
    }
    let value = json(&["limits", "--count", "2000"]);
    positive(
        &value,
        &[
            "cache_line_round_trip_us",
            "memcpy_64k_gigabytes_per_second",
        ],
    );
}

/// Ends the server also where the test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_client_measures_against_a_server_elsewhere() {
    let mut server = Server(
        rsock(&["server", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("rsock starts"),
    );
    let output = server.0.stdout.take().expect("a pipe");
    let mut address = String::new();
    BufReader::new(output)
        .read_line(&mut address)
        .expect("an address");
    let address = address.trim();
    let value = json(&["pingpong", "--host", address, "--count", "10"]);
    positive(&value, &PERCENTILES);
    let table = json(&["client", address, "--quick"]);
    let rows = table.as_array().expect("a row for each measurement");
    assert_eq!(rows.len(), 9);
    let output = rsock(&["client", address, "--quick"])
        .output()
        .expect("rsock starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches("pingpong").count(), 6, "{text}");
}

#[test]
fn expected_lanes_that_are_not_there_are_a_failure() {
    let arguments = ["pingpong", "--count", "10", "--expect-lane", "--json"];
    let output = rsock(&arguments).output().expect("rsock starts");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("0 of 1 streams"), "{stderr}");
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON all the same");
    positive(&value, &PERCENTILES);
}
