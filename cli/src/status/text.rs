//! The status as tables for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use rsock_core::stats::read::{Activity, Host, Process, Snapshot, Stream};
use rsock_core::stats::{Carrier, LinkKind, Reason};

use crate::table::{Table, bytes};

/// Everything; `now` in nanoseconds since 1970.
pub fn host(host: &Host, now: u64) -> String {
    let mut text = String::new();
    if host.processes.is_empty() {
        text.push_str("No process with rsock.\n");
    }
    let parts: Vec<String> = host.processes.iter().map(|p| process(p, now)).collect();
    text.push_str(&parts.join("\n"));
    if host.unreadable > 0 {
        let plural = if host.unreadable == 1 { "" } else { "es" };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\n{} process{plural} could not be examined (permission denied).",
            host.unreadable
        );
    }
    text
}

fn process(process: &Process, now: u64) -> String {
    let head = format!("{} {}", process.pid, process.program);
    match &process.activity {
        Activity::Idle => format!("{head}: rsock is loaded, no stream so far\n"),
        Activity::OtherVersion => {
            format!(
                "{head}: has an rsock of another version, whose counters this one cannot read\n"
            )
        }
        Activity::Active(snapshot) => format!("{head}: {}", active(snapshot, now)),
    }
}

fn active(snapshot: &Snapshot, now: u64) -> String {
    let on_lanes = snapshot.streams.iter().filter(|s| s.on_lane()).count();
    let mut text = format!(
        "rsock {} for {}, {} now ({on_lanes} on lanes), {} ever, {}; sent {}, received {} over lanes\n",
        snapshot.rsock,
        age(now.saturating_sub(snapshot.since)),
        count(snapshot.streams.len() as u64, "stream"),
        snapshot.streams_ever,
        count(snapshot.links, "link"),
        bytes(snapshot.tx.bytes),
        bytes(snapshot.rx.bytes),
    );
    for (title, reasons) in [
        ("hopped back to TCP", &snapshot.hops_back),
        ("stayed on TCP", &snapshot.fallbacks),
    ] {
        if !reasons.is_empty() {
            let words: Vec<_> = reasons
                .iter()
                .map(|(reason, count)| format!("{} {count}", reason.name()))
                .collect();
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {title}: {}", words.join(", "));
        }
    }
    if snapshot.streams.is_empty() {
        return text;
    }
    let mut table = Table::new(&[
        ">FD",
        "ROLE",
        "LOCAL",
        "PEER",
        "OUT",
        "IN",
        "LINK",
        ">PEER PID",
        ">SENT",
        ">RECEIVED",
        ">OPEN FOR",
        "ON TCP BECAUSE",
    ]);
    let mut seen = BTreeMap::new();
    for stream in &snapshot.streams {
        table.row(row(stream, now));
        if let (false, Ok(reason)) = (stream.on_lane(), stream.reason) {
            seen.insert(reason.name(), reason.explanation());
        }
    }
    text.push_str(&table.render("  "));
    for (name, explanation) in seen {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name}: {explanation}");
    }
    text
}

fn row(stream: &Stream, now: u64) -> Vec<String> {
    let unknown = || "?".to_owned();
    let address = |address: Option<std::net::SocketAddr>| {
        address.map_or_else(unknown, |address| address.to_string())
    };
    let carrier = |carrier: Carrier| carrier.name().to_owned();
    vec![
        stream.fd.to_string(),
        stream.role.name().to_owned(),
        address(stream.local),
        address(stream.peer),
        carrier(stream.tx_carrier),
        carrier(stream.rx_carrier),
        match stream.link {
            LinkKind::None => "-".to_owned(),
            link => link.name().to_owned(),
        },
        match stream.peer_pid {
            0 => "-".to_owned(),
            pid => pid.to_string(),
        },
        bytes(stream.tx.bytes + stream.tx.tcp_bytes),
        bytes(stream.rx.bytes + stream.rx.tcp_bytes),
        age(now.saturating_sub(stream.since)),
        match stream.reason {
            _ if stream.on_lane() => String::new(),
            Ok(Reason::None) => String::new(),
            Ok(reason) => reason.name().to_owned(),
            Err(code) => format!("code {code} of a newer version"),
        },
    ]
}

fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// "8 s", "3 min 20 s", "5 h 12 min", "9 d 4 h".
fn age(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_have_two_units_at_most() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (200, "3 min 20 s"),
            (18_720, "5 h 12 min"),
            (792_000, "9 d 4 h"),
        ] {
            assert_eq!(age(seconds * 1_000_000_000), text);
        }
    }
}
