//! The program under test: carries out socket calls that it is told on its standard input, one a line, and answers each
//! with one line. It uses libc directly, as a C program would, and knows nothing of rsock but one symbol that tells
//! whether a stream is on a lane.
//!
//! A line is `END[.CHILD…] OPERATION ARGUMENTS…`. An agent plays one end of a connection, or both (`agent a b`): then
//! both ends live in one thread. `&NAME` before the operation runs it in a thread of its own, whose result `join NAME`
//! fetches. Descriptors have names (*slots*). An answer is what belongs into the transcript, then, after a tab, facts
//! that only the runner wants (ports, process ids, carriers).

mod bytes;
mod call;
mod many;
mod open;
mod options;
mod process;
mod readiness;
mod streams;
mod threads;
mod transfer;
pub mod words;

use call::Call;
use libc::c_int;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What an operation answers.
#[derive(Default, Clone)]
pub struct Reply {
    /// For the transcript.
    text: String,
    /// `key=value` facts for the runner.
    hidden: String,
    /// After answering, end like this.
    end: Option<process::Ending>,
}

impl Reply {
    fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    fn with(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.hidden.push_str(&format!(" {key}={value}"));
        self
    }
}

impl From<Call> for Reply {
    fn from(call: Call) -> Self {
        Self::text(call.to_string())
    }
}

/// What operations return: nothing if the operation is another module's, an error if the script is wrong.
type Done = Result<Option<Reply>, String>;

/// A descriptor and how far its stream got. Descriptors that share a stream share the counts.
#[derive(Clone)]
struct Slot {
    fd: c_int,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

/// One end of a connection, with all that its program has open.
struct End {
    name: String,
    slots: Mutex<BTreeMap<String, Slot>>,
    /// Names by number, for the user data of epoll.
    labels: Mutex<Vec<String>>,
    threads: Mutex<BTreeMap<String, threads::Worker>>,
    children: Mutex<BTreeMap<String, process::Child>>,
}

/// A lock without poison: an operation that panics has ended the test already.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl End {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            slots: Mutex::default(),
            labels: Mutex::default(),
            threads: Mutex::default(),
            children: Mutex::default(),
        }
    }

    /// Which pattern this end sends: its first letter, or that of the child.
    fn tag(&self) -> u64 {
        tag(&self.name)
    }

    fn slot(&self, name: &str) -> Result<Slot, String> {
        if let Some(number) = name.strip_prefix('#') {
            let fd = number
                .parse()
                .map_err(|_| format!("{name} is not a number"))?;
            return Ok(Slot {
                fd,
                sent: Arc::default(),
                received: Arc::default(),
            });
        }
        lock(&self.slots)
            .get(name)
            .cloned()
            .ok_or_else(|| format!("{} has no {name}", self.name))
    }

    fn fd(&self, name: &str) -> Result<c_int, String> {
        self.slot(name).map(|slot| slot.fd)
    }

    fn keep(&self, name: &str, fd: c_int) {
        let slot = Slot {
            fd,
            sent: Arc::default(),
            received: Arc::default(),
        };
        lock(&self.slots).insert(name.to_owned(), slot);
    }

    /// The number that stands for this name in epoll's user data.
    fn label(&self, name: &str) -> u64 {
        let mut labels = lock(&self.labels);
        let at = labels
            .iter()
            .position(|each| each == name)
            .unwrap_or_else(|| {
                labels.push(name.to_owned());
                labels.len() - 1
            });
        at as u64
    }
}

/// The pattern of an end, by name.
fn tag(name: &str) -> u64 {
    u64::from(name.bytes().last().unwrap_or(0))
}

/// The arguments of an operation.
struct Args<'a>(&'a [&'a str]);

impl<'a> Args<'a> {
    fn get(&self, at: usize) -> Result<&'a str, String> {
        self.0
            .get(at)
            .copied()
            .ok_or_else(|| format!("argument {} is missing", at + 1))
    }

    fn or(&self, at: usize, default: &'a str) -> &'a str {
        self.0.get(at).copied().unwrap_or(default)
    }

    fn number<T: std::str::FromStr>(&self, at: usize) -> Result<T, String> {
        number(self.get(at)?)
    }

    fn number_or<T: std::str::FromStr>(&self, at: usize, default: T) -> Result<T, String> {
        self.0.get(at).map_or(Ok(default), |text| number(text))
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is not a number"))
}

/// Carries out one operation of this end.
fn perform(end: &Arc<End>, words: &[&str]) -> Result<Reply, String> {
    let (operation, arguments) = words.split_first().ok_or("an empty line")?;
    if *operation == "timed" {
        return threads::timed(end, &Args(arguments));
    }
    let modules = [
        open::perform,
        transfer::perform,
        streams::perform,
        many::perform,
        readiness::perform,
        options::perform,
        process::perform,
    ];
    for module in modules {
        if let Some(reply) = module(end, operation, &Args(arguments))? {
            return Ok(reply);
        }
    }
    threads::perform(end, operation, &Args(arguments))?
        .ok_or_else(|| format!("unknown operation {operation}"))
}

/// Reads lines from standard input without a buffer of the standard library, which fork would double.
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    fn next(&mut self, fd: c_int) -> Option<String> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.drain(..=end).collect::<Vec<u8>>();
                return Some(String::from_utf8_lossy(&line).trim().to_owned());
            }
            let mut piece = [0u8; 4096];
            let got = call::sys!(read(fd, piece.as_mut_ptr().cast(), piece.len()));
            if got.errno == libc::EINTR && got.failed() {
                continue;
            }
            if got.result <= 0 {
                return None;
            }
            self.rest.extend_from_slice(&piece[..got.length()]);
        }
    }
}

/// Writes all of a line to a control descriptor.
fn write_line(fd: c_int, line: &str) {
    let line = format!("{line}\n");
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        let put = call::sys!(write(fd, rest.as_ptr().cast(), rest.len()));
        if put.failed() && put.errno != libc::EINTR {
            // The runner has gone; nobody is left to tell.
            return;
        }
        rest = &rest[put.length()..];
    }
}

/// Runs an agent until its standard input ends. `arguments` are the ends it plays, then, after an exec, the slots that
/// the program before it left open (`s=5:SENT:RECEIVED`).
pub fn main(arguments: &[&str]) -> ExitCode {
    let mut ends: Vec<Arc<End>> = Vec::new();
    for argument in arguments {
        match (argument.split_once('='), ends.last()) {
            (Some((name, inherited)), Some(end)) => process::inherit(end, name, inherited),
            _ => ends.push(Arc::new(End::new(argument))),
        }
    }
    write_line(1, &process::alive(&ends));
    let mut lines = Lines { rest: Vec::new() };
    while let Some(line) = lines.next(0) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let reply = one_line(&mut ends, &words);
        match &reply {
            Ok(reply) => write_line(1, &format!("{}\t{}", reply.text, reply.hidden.trim())),
            Err(problem) => write_line(1, &format!("?{problem}")),
        }
        if let Some(code) = reply
            .ok()
            .and_then(|reply| reply.end)
            .and_then(process::Ending::happen)
        {
            return code;
        }
    }
    ExitCode::SUCCESS
}

/// Finds the end and does what the line says.
fn one_line(ends: &mut Vec<Arc<End>>, words: &[&str]) -> Result<Reply, String> {
    let (path, words) = words.split_first().ok_or("an empty line")?;
    let (name, child) = path
        .split_once('.')
        .map_or((*path, None), |(name, child)| (name, Some(child)));
    let end = ends
        .iter()
        .find(|end| end.name == name)
        .cloned()
        .ok_or_else(|| format!("no end {name}"))?;
    if let Some(child) = child {
        return process::relay(&end, child, words);
    }
    match words {
        ["fork", child] => process::fork(ends, &end, child),
        [first, rest @ ..] if first.starts_with('&') => threads::start(&end, &first[1..], rest),
        _ => perform(&end, words),
    }
}

/// Adds to a count of a slot and returns what it was.
fn advance(count: &AtomicU64, by: usize) -> u64 {
    count.fetch_add(by as u64, Ordering::Relaxed)
}
