//! The status as JSON. Names are stable: fields may be added, none is renamed.

use rsock_core::stats::Reason;
use rsock_core::stats::read::{Activity, FlowCounts, Host, Process, Snapshot, Stream};
use serde_json::{Map, Value, json};

/// Everything.
pub fn host(host: &Host) -> Value {
    json!({
        "processes": host.processes.iter().map(process).collect::<Vec<_>>(),
        "unreadable_processes": host.unreadable,
    })
}

fn process(process: &Process) -> Value {
    let mut object = Map::new();
    object.insert("pid".into(), process.pid.into());
    object.insert("program".into(), process.program.clone().into());
    let state = match &process.activity {
        Activity::Idle => "idle",
        Activity::OtherVersion => "other-version",
        Activity::Active(_) => "active",
    };
    object.insert("state".into(), state.into());
    if let Activity::Active(snapshot) = &process.activity
        && let Value::Object(fields) = counters(snapshot)
    {
        object.extend(fields);
    }
    Value::Object(object)
}

fn counters(snapshot: &Snapshot) -> Value {
    let total =
        |of: fn(&FlowCounts) -> u64| of(&snapshot.tx) + of(&snapshot.rx) + of(&snapshot.shared);
    json!({
        "rsock": snapshot.rsock,
        "since_ns": snapshot.since,
        "streams_ever": snapshot.streams_ever,
        "streams_unlisted": snapshot.unlisted,
        "links": snapshot.links,
        "links_lost": snapshot.links_lost,
        "hops": snapshot.hops,
        "hops_back": reasons(&snapshot.hops_back),
        "fallbacks": reasons(&snapshot.fallbacks),
        "wakeups": snapshot.wakeups,
        "sleeps": total(|flow| flow.sleeps),
        "spins": total(|flow| flow.spins),
        "doorbells": total(|flow| flow.doorbells),
        "sent": flow(&snapshot.tx),
        "received": flow(&snapshot.rx),
        "streams": snapshot.streams.iter().map(stream).collect::<Vec<_>>(),
    })
}

fn reasons(counts: &[(Reason, u64)]) -> Value {
    counts
        .iter()
        .map(|(reason, count)| (reason.name().to_owned(), Value::from(*count)))
        .collect::<Map<_, _>>()
        .into()
}

fn stream(stream: &Stream) -> Value {
    let (reason, explanation) = match stream.reason {
        Ok(reason) => (reason.name().to_owned(), reason.explanation().to_owned()),
        Err(code) => (format!("code-{code}"), String::new()),
    };
    json!({
        "fd": stream.fd,
        "role": stream.role.name(),
        "since_ns": stream.since,
        "local": stream.local.map(|address| address.to_string()),
        "peer": stream.peer.map(|address| address.to_string()),
        "carrier_sent": stream.tx_carrier.name(),
        "carrier_received": stream.rx_carrier.name(),
        "link": stream.link.name(),
        "peer_pid": (stream.peer_pid != 0).then_some(stream.peer_pid),
        "reason": reason,
        "explanation": explanation,
        "sent": flow(&stream.tx),
        "received": flow(&stream.rx),
    })
}

fn flow(flow: &FlowCounts) -> Value {
    json!({
        "lane_bytes": flow.bytes,
        "lane_messages": flow.messages,
        "tcp_bytes": flow.tcp_bytes,
        "hops": flow.hops,
        "hops_back": flow.hops_back,
        "sleeps": flow.sleeps,
        "spins": flow.spins,
        "doorbells": flow.doorbells,
    })
}
