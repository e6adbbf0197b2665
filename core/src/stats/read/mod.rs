//! The reader: finds the processes with rsock and takes copies of their segments. For the command line and for tests; not
//! called inside the preloaded library.
//!
//! A segment is read with pread and taken apart by offsets, never mapped: whatever its owner does to it meanwhile, the worst
//! that can come out is a strange number.

use std::fs::{self, File};
use std::io;
use std::mem::offset_of;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

#[cfg(doc)]
use super::Flow;
use super::layout::{NAME, Segment};
use super::{Carrier, LinkKind, Reason, Role};

mod addresses;
mod copy;

/// A process that has rsock in it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number in our pid namespace.
    pub pid: u32,
    /// Its short name (/proc/PID/comm).
    pub program: String,
    /// What it tells about itself.
    pub activity: Activity,
}

/// What a process with rsock tells about itself.
#[derive(Clone, Debug)]
pub enum Activity {
    /// The library is loaded; there was no stream so far.
    Idle,
    /// It has a segment of a layout that this version cannot read.
    OtherVersion,
    /// Its counters and streams.
    Active(Box<Snapshot>),
}

/// A copy of a segment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Version of rsock in the process.
    pub rsock: String,
    /// When its first stream was seen: nanoseconds since 1970.
    pub since: u64,
    /// Streams ever listed.
    pub streams_ever: u64,
    /// Streams that found no free record.
    pub unlisted: u64,
    /// Links opened, and those of them that broke.
    pub links: u64,
    /// Links that ended because something went wrong.
    pub links_lost: u64,
    /// Directions that hopped to a lane.
    pub hops: u64,
    /// Directions that hopped back, by reason; only those above zero.
    pub hops_back: Vec<(Reason, u64)>,
    /// Streams that stayed on TCP, by reason; only those above zero.
    pub fallbacks: Vec<(Reason, u64)>,
    /// Times that the background thread woke up.
    pub wakeups: u64,
    /// Sum over all streams, those that ended included: what was sent.
    pub tx: FlowCounts,
    /// Sum over all streams: what was received. Sleeps, spins and doorbells that belong to no single stream are in
    /// `shared`.
    pub rx: FlowCounts,
    /// Sleeps, spins and doorbells for several streams at once.
    pub shared: FlowCounts,
    /// The streams that are open now, by descriptor.
    pub streams: Vec<Stream>,
}

/// One open stream.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The program's descriptor.
    pub fd: i32,
    /// Which end of the connection this is.
    pub role: Role,
    /// When rsock first saw it: nanoseconds since 1970.
    pub since: u64,
    /// Address of this end, if known.
    pub local: Option<SocketAddr>,
    /// Address of the other end, if known.
    pub peer: Option<SocketAddr>,
    /// What carries what the program sends.
    pub tx_carrier: Carrier,
    /// What carries what the program receives.
    pub rx_carrier: Carrier,
    /// The link, if there is a lane.
    pub link: LinkKind,
    /// The process at the other end of the link, as it knows itself; 0: not known.
    pub peer_pid: i32,
    /// Why it is on TCP; `Err` is the code of a newer version.
    pub reason: Result<Reason, u8>,
    /// What was sent.
    pub tx: FlowCounts,
    /// What was received.
    pub rx: FlowCounts,
}

impl Stream {
    /// Are both directions on a lane?
    pub fn on_lane(&self) -> bool {
        self.tx_carrier == Carrier::Lane && self.rx_carrier == Carrier::Lane
    }
}

/// The values of a [`Flow`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// As [`Flow::bytes`].
    pub bytes: u64,
    /// As [`Flow::messages`].
    pub messages: u64,
    /// As [`Flow::tcp_bytes`].
    pub tcp_bytes: u64,
    /// As [`Flow::hops`].
    pub hops: u64,
    /// As [`Flow::hops_back`].
    pub hops_back: u64,
    /// As [`Flow::sleeps`].
    pub sleeps: u64,
    /// As [`Flow::spins`].
    pub spins: u64,
    /// As [`Flow::doorbells`].
    pub doorbells: u64,
}

/// All processes with rsock that we may look into, by number.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The processes with rsock.
    pub processes: Vec<Process>,
    /// How many processes we were not allowed to look into.
    pub unreadable: usize,
}

/// Looks into every process of this host.
pub fn host() -> io::Result<Host> {
    let mut host = Host::default();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        match process(pid) {
            Ok(found) => host.processes.extend(found),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !ended(pid) => {
                host.unreadable += 1;
            }
            // It ended before or while we looked.
            Err(_) => {}
        }
    }
    host.processes.sort_by_key(|process| process.pid);
    Ok(host)
}

/// Is the process gone, or a zombie, whose descriptors nobody may see?
fn ended(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).map_or(true, |status| {
        status
            .lines()
            .any(|line| line.starts_with("State:\tZ") || line.starts_with("State:\tX"))
    })
}

/// Looks into one process; `None`: there is no rsock in it. Fails if there is no such process or we may not look.
pub fn process(pid: u32) -> io::Result<Option<Process>> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let activity = match find_segment(&directory)? {
        Some(file) => match copy::Copy::take(&file)? {
            Some(copy) => {
                let mut snapshot = copy.snapshot();
                addresses::look_up(&directory, &mut snapshot.streams);
                Activity::Active(Box::new(snapshot))
            }
            None => Activity::OtherVersion,
        },
        None if library_loaded(&directory)? => Activity::Idle,
        None => return Ok(None),
    };
    let program = fs::read_to_string(directory.join("comm"))?;
    Ok(Some(Process {
        pid,
        program: program.trim_end().to_owned(),
        activity,
    }))
}

/// This process.
pub fn own() -> io::Result<Option<Process>> {
    process(std::process::id())
}

/// Opens the segment that the process itself made; a child that was just forked still holds its parent's. A program may
/// have closed the descriptor behind our back; the mapping is then still there for those who may open it.
fn find_segment(directory: &Path) -> io::Result<Option<File>> {
    let own_pid = innermost_pid(directory)?;
    let mut candidates = Vec::new();
    for entry in fs::read_dir(directory.join("fd"))? {
        let path = entry?.path();
        if fs::read_link(&path).is_ok_and(|target| is_segment(&target)) {
            candidates.push(path);
        }
    }
    if candidates.is_empty() {
        let maps = fs::read_to_string(directory.join("maps"))?;
        let wanted = format!("/memfd:{} ", NAME.to_string_lossy());
        for line in maps.lines().filter(|line| line.contains(&wanted)) {
            let range = line.split(' ').next().unwrap_or_default();
            candidates.push(directory.join("map_files").join(range));
        }
    }
    for path in candidates {
        // Fails if it was closed since, or for map_files without the privilege.
        let Ok(file) = File::open(path) else { continue };
        let mut pid = [0u8; 4];
        if file.metadata()?.len() == size_of::<Segment>() as u64 {
            file.read_exact_at(&mut pid, offset_of!(Segment, header.pid) as u64)?;
        }
        if i32::from_ne_bytes(pid) == own_pid {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn is_segment(target: &Path) -> bool {
    let name = target.as_os_str().as_bytes();
    name.strip_prefix(b"/memfd:")
        .and_then(|name| name.strip_prefix(NAME.to_bytes()))
        .is_some_and(|rest| rest.is_empty() || rest == b" (deleted)")
}

/// The process's number in its own pid namespace: the last one of the line NSpid.
fn innermost_pid(directory: &Path) -> io::Result<i32> {
    let status = fs::read_to_string(directory.join("status"))?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))
        .or_else(|| status.lines().find_map(|line| line.strip_prefix("Pid:")))
        .and_then(|numbers| numbers.split_whitespace().next_back()?.parse().ok())
        .ok_or_else(|| io::Error::other(format!("{}: no pid in status", directory.display())))
}

fn library_loaded(directory: &Path) -> io::Result<bool> {
    let maps = fs::read(directory.join("maps"))?;
    Ok(maps
        .split(|byte| *byte == b'\n')
        .any(|line| line.ends_with(b"/librsock.so")))
}
