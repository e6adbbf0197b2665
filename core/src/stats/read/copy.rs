//! A copy of a segment, taken apart by the offsets of the types that the writer uses.

use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileExt;

use super::{FlowCounts, Snapshot, Stream};
use crate::stats::layout::{
    ADDRESS, Carrier, ClosedFlow, Flow, Header, LinkKind, MAGIC, ProcessCounters, Role, STREAMS,
    Segment, StreamRecord, VERSION,
};
use crate::stats::{Direction, Reason};

const RECORD: usize = size_of::<StreamRecord>();
/// How often a record that is just being written is looked at again before it is left out.
const RETRIES: usize = 100;

/// The bytes of a segment, as far as it was used.
pub struct Copy {
    /// Everything before the stream records.
    head: Vec<u8>,
    /// The records that were at rest, one after the other.
    records: Vec<u8>,
}

impl Copy {
    /// `None`: made by a version with another layout, or not finished yet.
    pub fn take(file: &File) -> io::Result<Option<Copy>> {
        if file.metadata()?.len() != size_of::<Segment>() as u64 {
            return Ok(None);
        }
        let mut head = vec![0u8; offset_of!(Segment, streams)];
        file.read_exact_at(&mut head, 0)?;
        if u64_at(&head, offset_of!(Segment, header.magic)) != MAGIC
            || u32_at(&head, offset_of!(Segment, header.version)) != VERSION
        {
            return Ok(None);
        }
        let used = u32_at(&head, offset_of!(Segment, header.high_water)) as usize;
        let mut records = vec![0u8; used.min(STREAMS) * RECORD];
        let mut later = records.clone();
        let start = head.len() as u64;
        file.read_exact_at(&mut records, start)?;
        file.read_exact_at(&mut later, start)?;
        let mut copy = Copy {
            head,
            records: Vec::new(),
        };
        for (index, (first, second)) in records
            .chunks_exact_mut(RECORD)
            .zip(later.chunks_exact_mut(RECORD))
            .enumerate()
        {
            for _ in 0..RETRIES {
                if at_rest(first, second) {
                    copy.records.extend_from_slice(first);
                    break;
                }
                let place = start + (index * RECORD) as u64;
                file.read_exact_at(first, place)?;
                file.read_exact_at(second, place)?;
            }
        }
        Ok(Some(copy))
    }

    /// The copy in words.
    pub fn snapshot(&self) -> Snapshot {
        let header = |offset| offset_of!(Segment, header) + offset;
        let counter = |offset| u64_at(&self.head, offset_of!(Segment, process) + offset);
        let mut streams: Vec<Stream> = self
            .records
            .chunks_exact(RECORD)
            .filter_map(stream)
            .collect();
        streams.sort_by_key(|stream| stream.fd);
        let [mut tx, mut rx] = [0, 1].map(|direction| {
            let place = offset_of!(Segment, process.closed) + direction * size_of::<ClosedFlow>();
            flow(&self.head, place)
        });
        for stream in &streams {
            tx.add(&stream.tx);
            rx.add(&stream.rx);
        }
        let rsock = &self.head[header(offset_of!(Header, rsock))..][..32];
        Snapshot {
            rsock: String::from_utf8_lossy(rsock)
                .trim_end_matches('\0')
                .to_owned(),
            since: u64_at(&self.head, header(offset_of!(Header, since))),
            streams_ever: counter(offset_of!(ProcessCounters, streams)),
            unlisted: counter(offset_of!(ProcessCounters, unlisted)),
            links: counter(offset_of!(ProcessCounters, links)),
            links_lost: counter(offset_of!(ProcessCounters, links_lost)),
            hops: counter(offset_of!(ProcessCounters, hops)),
            hops_back: self.by_reason(offset_of!(ProcessCounters, hops_back)),
            fallbacks: self.by_reason(offset_of!(ProcessCounters, fallbacks)),
            wakeups: counter(offset_of!(ProcessCounters, wakeups)),
            tx,
            rx,
            shared: FlowCounts {
                sleeps: counter(offset_of!(ProcessCounters, sleeps)),
                spins: counter(offset_of!(ProcessCounters, spins)),
                doorbells: counter(offset_of!(ProcessCounters, doorbells)),
                ..FlowCounts::default()
            },
            streams,
        }
    }

    fn by_reason(&self, offset: usize) -> Vec<(Reason, u64)> {
        let start = offset_of!(Segment, process) + offset;
        Reason::ALL
            .iter()
            .map(|reason| (*reason, u64_at(&self.head, start + *reason as usize * 8)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

impl FlowCounts {
    fn add(&mut self, other: &FlowCounts) {
        self.bytes = self.bytes.wrapping_add(other.bytes);
        self.messages = self.messages.wrapping_add(other.messages);
        self.tcp_bytes = self.tcp_bytes.wrapping_add(other.tcp_bytes);
        self.hops = self.hops.wrapping_add(other.hops);
        self.hops_back = self.hops_back.wrapping_add(other.hops_back);
        self.sleeps = self.sleeps.wrapping_add(other.sleeps);
        self.spins = self.spins.wrapping_add(other.spins);
        self.doorbells = self.doorbells.wrapping_add(other.doorbells);
    }
}

/// Nobody wrote the record's identity between two copies of it.
fn at_rest(first: &[u8], second: &[u8]) -> bool {
    let generation = |record| u32_at(record, offset_of!(StreamRecord, generation));
    generation(first) & 1 == 0 && generation(first) == generation(second)
}

/// A record in words; `None` if no stream uses it, or a newer version says what we do not know.
fn stream(record: &[u8]) -> Option<Stream> {
    if u32_at(record, offset_of!(StreamRecord, open)) != 1 {
        return None;
    }
    let carrier = |direction: Direction| {
        Carrier::from_code(record[offset_of!(StreamRecord, carriers) + direction as usize])
    };
    let reason = record[offset_of!(StreamRecord, reason)];
    Some(Stream {
        fd: i32_at(record, offset_of!(StreamRecord, fd)),
        role: Role::from_code(record[offset_of!(StreamRecord, role)])?,
        since: u64_at(record, offset_of!(StreamRecord, since)),
        local: address(&record[offset_of!(StreamRecord, local)..][..ADDRESS]),
        peer: address(&record[offset_of!(StreamRecord, peer)..][..ADDRESS]),
        tx_carrier: carrier(Direction::Transmit)?,
        rx_carrier: carrier(Direction::Receive)?,
        link: LinkKind::from_code(record[offset_of!(StreamRecord, link)])?,
        peer_pid: i32_at(record, offset_of!(StreamRecord, peer_pid)),
        reason: Reason::from_code(reason).ok_or(reason),
        tx: flow(record, offset_of!(StreamRecord, tx)),
        rx: flow(record, offset_of!(StreamRecord, rx)),
    })
}

fn flow(bytes: &[u8], start: usize) -> FlowCounts {
    let word = |index: usize| u64_at(bytes, start + index * 8);
    // The order of the fields of Flow, which ClosedFlow repeats.
    const { assert!(offset_of!(Flow, doorbells) == 7 * 8) };
    FlowCounts {
        bytes: word(0),
        messages: word(1),
        tcp_bytes: word(2),
        hops: word(3),
        hops_back: word(4),
        sleeps: word(5),
        spins: word(6),
        doorbells: word(7),
    }
}

/// sockaddr_in or sockaddr_in6; `None` for anything else, so also for "not known" (all zero).
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    let ip = match family {
        libc::AF_INET => {
            let mut octets = [0u8; 4];
            octets.copy_from_slice(&bytes[4..8]);
            IpAddr::V4(Ipv4Addr::from(octets))
        }
        libc::AF_INET6 => {
            let mut octets = [0u8; 16];
            octets.copy_from_slice(&bytes[8..24]);
            IpAddr::V6(Ipv6Addr::from(octets))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0u8; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_ne_bytes(word)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0u8; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_ne_bytes(word)
}

fn i32_at(bytes: &[u8], offset: usize) -> i32 {
    u32_at(bytes, offset) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment as somebody else might present it: sparse, with these words in it.
    fn file(words: &[(usize, &[u8])]) -> File {
        use std::os::unix::fs::OpenOptionsExt;
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .open(std::env::temp_dir())
            .expect("a temporary file");
        file.set_len(size_of::<Segment>() as u64).expect("sparse");
        for (offset, bytes) in words {
            file.write_all_at(bytes, *offset as u64).expect("written");
        }
        file
    }

    const MAGIC_WORD: (usize, &[u8]) = (offset_of!(Segment, header.magic), b"rsockst\0");
    const VERSION_WORD: (usize, &[u8]) =
        (offset_of!(Segment, header.version), &VERSION.to_ne_bytes());
    const USED: usize = offset_of!(Segment, header.high_water);
    const OPEN: usize = offset_of!(Segment, streams) + offset_of!(StreamRecord, open);

    #[test]
    fn only_finished_segments_of_this_layout_are_read() {
        let take = |words: &[(usize, &[u8])]| Copy::take(&file(words)).expect("readable");
        assert!(take(&[VERSION_WORD]).is_none(), "no magic");
        let other = (VERSION + 1).to_ne_bytes();
        assert!(take(&[MAGIC_WORD, (VERSION_WORD.0, &other)]).is_none());
        assert!(take(&[MAGIC_WORD, VERSION_WORD]).is_some());
        let short = file(&[MAGIC_WORD, VERSION_WORD]);
        short.set_len(4096).expect("cut");
        assert!(Copy::take(&short).expect("readable").is_none());
    }

    #[test]
    fn strange_contents_do_no_harm() {
        let one = 1u32.to_ne_bytes();
        let used = u32::MAX.to_ne_bytes();
        let at = |offset| offset_of!(Segment, streams) + RECORD + offset;
        let words: [(usize, &[u8]); 8] = [
            MAGIC_WORD,
            VERSION_WORD,
            (USED, &used),
            (OPEN, &one),
            // The second is just being written, for ever.
            (at(offset_of!(StreamRecord, generation)), &one),
            (at(offset_of!(StreamRecord, open)), &one),
            // The third has a role that we do not know, the fourth a reason.
            (at(RECORD + offset_of!(StreamRecord, open)), &one),
            (at(RECORD + offset_of!(StreamRecord, role)), &[99]),
        ];
        let file = file(&words);
        let fourth = at(2 * RECORD);
        for (offset, bytes) in [
            (offset_of!(StreamRecord, open), &one[..]),
            (offset_of!(StreamRecord, reason), &[200]),
        ] {
            let place = (fourth + offset) as u64;
            file.write_all_at(bytes, place).expect("written");
        }
        let copy = Copy::take(&file).expect("readable").expect("a segment");
        assert_eq!(copy.records.len(), (STREAMS - 1) * RECORD);
        let reasons: Vec<_> = copy.snapshot().streams.iter().map(|s| s.reason).collect();
        assert_eq!(reasons, [Ok(Reason::None), Err(200)]);
    }
}
