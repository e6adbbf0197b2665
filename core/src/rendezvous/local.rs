//! The rendezvous on one host.
//!
//! Each process that takes part listens on a name of its own (`p/…`), where links begin. For each port whose accepted
//! connections a process serves it also tries to listen on `t/PORT`; the first one is the port's *owner*, the others are
//! its *members*, connected to it. A connector asks the owner who holds the other end of its connection; the owner looks at
//! its own streams, then asks its members (pre-fork servers, SO_REUSEPORT), and answers with a redirect. When the owner is
//! gone its members see the end of their connections and one of them takes over.
//!
//! Names are by port only: a listener may be bound to any address or to all of them, and the answer is by the exact pair of
//! addresses anyway. Nothing secret passes here; who is trusted with a descriptor is decided when the link is made.
//!
//! Single-threaded: only the background thread comes here.

use super::cache::NegativeCache;
use super::packet::Packet;
use crate::link::memory::wire::{self, Name};
use crate::log::{debug, trace};
use crate::policy;
use crate::stats::Reason;
use crate::stream::Addresses;
use crate::sys::{self, Errno};
use core::net::{IpAddr, SocketAddr};
use std::collections::HashMap;

/// How often a connector asks again before it gives up for good.
const TRIES: u32 = 12;
/// The first pause between two questions, doubled each time.
const FIRST_PAUSE_NS: u64 = 500_000;
/// The longest one.
const LONGEST_PAUSE_NS: u64 = 100_000_000;

/// The most connections that others may have to us; what comes beyond that is refused.
const MAX_GUESTS: usize = 256;
/// How long one that is no member may be silent, in nanoseconds.
const GUEST_PATIENCE_NS: u64 = 10_000_000_000;

/// What a connection to or from another process is for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Role {
    /// Somebody connected to a port that we own; the name after JOIN; when it was heard of last.
    Guest {
        port: u16,
        member: Option<Vec<u8>>,
        heard: u64,
    },
    /// We are a member of this port.
    Member { port: u16 },
    /// We ask this port's owner.
    Asking { port: u16 },
}

#[derive(Default)]
struct Port {
    listener: Option<i32>,
    owner: Option<i32>,
}

struct Query {
    asker: i32,
    id: u32,
    waiting: Vec<i32>,
}

struct Ask {
    names: Addresses,
    tries: u32,
    /// When to ask (again); None while an answer is awaited.
    due: Option<u64>,
}

/// What came out of a question.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The process of that name holds the other end.
    Found(u64, Vec<u8>),
    /// The stream stays on TCP.
    Failed(u64, Reason),
}

/// Whom the rendezvous needs.
pub struct Callbacks {
    /// Watch a descriptor for input (true) or forget it (false).
    pub watch: fn(i32, bool),
    /// Do we hold a connection with these addresses (as its own end sees them)?
    pub hold: fn(Addresses) -> bool,
    /// Is this stream still there?
    pub alive: fn(u64) -> bool,
}

/// The rendezvous of this process.
pub struct Local {
    name: Vec<u8>,
    call: Callbacks,
    ports: HashMap<u16, Port>,
    connections: HashMap<i32, Role>,
    asking: HashMap<u16, i32>,
    queries: HashMap<u32, Query>,
    asks: HashMap<u64, Ask>,
    ids: HashMap<u32, u64>,
    next: u32,
    refused: NegativeCache<SocketAddr, Reason>,
    outcomes: Vec<Outcome>,
}

/// Whether an address is one of this host's.
fn ours(ip: IpAddr, local: IpAddr) -> bool {
    ip.is_loopback() || ip == local
}

impl Local {
    /// For a process that is reached by `name`.
    pub fn new(name: Vec<u8>, call: Callbacks) -> Local {
        Local {
            name,
            call,
            ports: HashMap::new(),
            connections: HashMap::new(),
            asking: HashMap::new(),
            queries: HashMap::new(),
            asks: HashMap::new(),
            ids: HashMap::new(),
            next: 1,
            refused: NegativeCache::new(4096),
            outcomes: Vec::new(),
        }
    }

    fn port_name(port: u16) -> Name {
        Name::new(format!("t/{port}").as_bytes())
    }

    /// We serve connections accepted on `port`: own it, or join its owner.
    pub fn join(&mut self, port: u16) {
        let entry = self.ports.entry(port).or_default();
        if entry.listener.is_some() || entry.owner.is_some() {
            return;
        }
        for _ in 0..8 {
            match Self::port_name(port).listen() {
                Ok(fd) => {
                    debug!("rendezvous: owner of port {port}");
                    entry.listener = Some(fd);
                    crate::table::set_internal(fd);
                    (self.call.watch)(fd, true);
                    return;
                }
                Err(Errno(libc::EADDRINUSE)) => {}
                Err(_) => return,
            }
            if let Ok(fd) = Self::port_name(port).connect() {
                if wire::send(fd, &Packet::Join(self.name.clone()).encode(), &[]).is_ok() {
                    debug!("rendezvous: member of port {port}");
                    entry.owner = Some(fd);
                    crate::table::set_internal(fd);
                    self.connections.insert(fd, Role::Member { port });
                    (self.call.watch)(fd, true);
                    return;
                }
                sys::close(fd);
            }
        }
    }

    /// Starts the search for the process at the other end of a stream of ours that called connect.
    pub fn ask(&mut self, stream: u64, names: Addresses, now: u64) {
        if !ours(names.peer.ip(), names.local.ip()) {
            self.outcomes
                .push(Outcome::Failed(stream, Reason::PeerNotReachable));
        } else if let Some(why) = self.refused.says_no(&names.peer, now) {
            self.outcomes.push(Outcome::Failed(stream, why));
        } else {
            self.asks.insert(
                stream,
                Ask {
                    names,
                    tries: 0,
                    due: Some(now),
                },
            );
            self.tick(now);
        }
    }

    /// The stream was not ready after all: ask again, a little later.
    pub fn again(&mut self, stream: u64, names: Addresses, tries: u32, now: u64) {
        if tries >= TRIES {
            self.outcomes.push(Outcome::Failed(stream, Reason::Refused));
            return;
        }
        self.asks.insert(
            stream,
            Ask {
                names,
                tries,
                due: Some(now + pause(tries)),
            },
        );
    }

    /// A descriptor of ours is readable.
    pub fn readable(&mut self, fd: i32, now: u64) {
        if let Some(port) = self
            .ports
            .iter()
            .find(|(_, p)| p.listener == Some(fd))
            .map(|(port, _)| *port)
        {
            let guests = |role: &&Role| matches!(role, Role::Guest { .. });
            while let Ok(guest) = sys::accept(fd) {
                if self.connections.values().filter(guests).count() >= MAX_GUESTS {
                    sys::close(guest);
                    continue;
                }
                let Ok(guest) = sys::move_high(guest) else {
                    continue;
                };
                crate::table::set_internal(guest);
                let role = Role::Guest {
                    port,
                    member: None,
                    heard: now,
                };
                self.connections.insert(guest, role);
                (self.call.watch)(guest, true);
            }
            return;
        }
        while let Some(role) = self.connections.get(&fd).cloned() {
            match wire::receive(fd).map(|p| Packet::decode(p.bytes())) {
                Ok(Some(packet)) => {
                    if let Some(Role::Guest { heard, .. }) = self.connections.get_mut(&fd) {
                        *heard = now;
                    }
                    self.packet(fd, &role, packet, now);
                }
                Err(Errno(libc::EAGAIN)) => return,
                Err(Errno(libc::EINTR)) => {}
                Ok(None) | Err(_) => self.drop_connection(fd, now),
            }
        }
    }

    fn packet(&mut self, fd: i32, role: &Role, packet: Packet, now: u64) {
        trace!("rendezvous: {packet:?} from {role:?}");
        match (role, packet) {
            (
                Role::Guest {
                    port, member: None, ..
                },
                Packet::Join(name),
            ) => {
                let role = Role::Guest {
                    port: *port,
                    member: Some(name),
                    heard: now,
                };
                self.connections.insert(fd, role);
            }
            (Role::Guest { port, .. }, Packet::Who(id, theirs)) => self.who(fd, *port, id, theirs),
            (
                Role::Guest {
                    member: Some(name), ..
                },
                Packet::Answer(query, yes),
            ) => {
                let name = if yes { name.clone() } else { Vec::new() };
                self.answered(fd, query, name);
            }
            (Role::Member { .. }, Packet::Query(id, theirs)) => {
                let yes = (self.call.hold)(theirs.mirrored());
                self.say(fd, &Packet::Answer(id, yes), now);
            }
            (Role::Asking { .. }, Packet::There(id, name)) => self.there(id, name, now),
            _ => self.drop_connection(fd, now),
        }
    }

    fn say(&mut self, fd: i32, packet: &Packet, now: u64) {
        if wire::send(fd, &packet.encode(), &[]).is_err() {
            self.drop_connection(fd, now);
        }
    }

    /// A connector asks us, the owner.
    fn who(&mut self, asker: i32, port: u16, id: u32, theirs: Addresses) {
        if (self.call.hold)(theirs.mirrored()) {
            let reply = Packet::There(id, self.name.clone());
            // An asker that does not read finds out by itself.
            let _ = wire::send(asker, &reply.encode(), &[]);
            return;
        }
        let query = self.next;
        self.next = self.next.wrapping_add(1);
        let members = self.connections.iter().filter_map(|(fd, role)| match role {
            Role::Guest {
                port: p,
                member: Some(_),
                ..
            } if *p == port => Some(*fd),
            _ => None,
        });
        let question = Packet::Query(query, theirs).encode();
        let waiting: Vec<i32> = members
            .filter(|fd| wire::send(*fd, &question, &[]).is_ok())
            .collect();
        if waiting.is_empty() {
            let _ = wire::send(asker, &Packet::There(id, Vec::new()).encode(), &[]);
            return;
        }
        self.queries.insert(query, Query { asker, id, waiting });
    }

    fn answered(&mut self, member: i32, query: u32, name: Vec<u8>) {
        let Some(q) = self.queries.get_mut(&query) else {
            return;
        };
        q.waiting.retain(|fd| *fd != member);
        if name.is_empty() && !q.waiting.is_empty() {
            return;
        }
        let (asker, id) = (q.asker, q.id);
        self.queries.remove(&query);
        let _ = wire::send(asker, &Packet::There(id, name).encode(), &[]);
    }

    fn there(&mut self, id: u32, name: Vec<u8>, now: u64) {
        let Some(stream) = self.ids.remove(&id) else {
            return;
        };
        if name.is_empty() {
            self.retry(stream, now, Reason::PeerWithoutRsock);
        } else if self.asks.remove(&stream).is_some() {
            self.outcomes.push(Outcome::Found(stream, name));
        }
    }

    fn retry(&mut self, stream: u64, now: u64, reason: Reason) {
        if !(self.call.alive)(stream) {
            // That nobody holds the other end of a connection that is over says nothing.
            self.asks.remove(&stream);
            return;
        }
        let Some(ask) = self.asks.get_mut(&stream) else {
            return;
        };
        ask.tries += 1;
        if ask.tries < TRIES {
            ask.due = Some(now + pause(ask.tries));
            return;
        }
        let peer = ask.names.peer;
        self.asks.remove(&stream);
        if reason == Reason::PeerNotReachable {
            // An owner that answers, if only that it does not hold this connection, takes part.
            let until = now + policy::NEGATIVE_CACHE_MS.get() * 1_000_000;
            self.refused.remember(peer, reason, until, now);
        }
        self.outcomes.push(Outcome::Failed(stream, reason));
    }

    fn drop_connection(&mut self, fd: i32, now: u64) {
        let Some(role) = self.connections.remove(&fd) else {
            return;
        };
        (self.call.watch)(fd, false);
        crate::table::clear(fd);
        sys::close(fd);
        match role {
            Role::Guest { .. } => {
                let open: Vec<u32> = self
                    .queries
                    .iter()
                    .filter(|(_, q)| q.waiting.contains(&fd))
                    .map(|(id, _)| *id)
                    .collect();
                for query in open {
                    self.answered(fd, query, Vec::new());
                }
                self.queries.retain(|_, q| q.asker != fd);
            }
            Role::Member { port } => {
                if let Some(p) = self.ports.get_mut(&port) {
                    p.owner = None;
                }
                self.join(port);
            }
            Role::Asking { port } => {
                self.asking.remove(&port);
                let waiting: Vec<u64> = self
                    .asks
                    .iter()
                    .filter(|(_, a)| a.due.is_none() && a.names.peer.port() == port)
                    .map(|(s, _)| *s)
                    .collect();
                for stream in waiting {
                    self.ids.retain(|_, s| *s != stream);
                    self.retry(stream, now, Reason::PeerNotReachable);
                }
            }
        }
    }

    /// Asks whatever is due. Returns when to come again, if at all.
    pub fn tick(&mut self, now: u64) -> Option<u64> {
        let silent = |role: &Role| match role {
            Role::Guest {
                member: None,
                heard,
                ..
            } => Some(heard + GUEST_PATIENCE_NS),
            _ => None,
        };
        let late: Vec<i32> = self
            .connections
            .iter()
            .filter(|(_, role)| silent(role).is_some_and(|until| until <= now))
            .map(|(fd, _)| *fd)
            .collect();
        for fd in late {
            self.drop_connection(fd, now);
        }
        let due: Vec<u64> = self
            .asks
            .iter()
            .filter(|(_, a)| a.due.is_some_and(|d| d <= now))
            .map(|(s, _)| *s)
            .collect();
        for stream in due {
            self.put(stream, now);
        }
        let asks = self.asks.values().filter_map(|a| a.due);
        asks.chain(self.connections.values().filter_map(silent))
            .min()
    }

    /// Puts the question to the owner of the port.
    fn put(&mut self, stream: u64, now: u64) {
        if !(self.call.alive)(stream) {
            self.asks.remove(&stream);
            return;
        }
        let Some(ask) = self.asks.get_mut(&stream) else {
            return;
        };
        let (names, port) = (ask.names, ask.names.peer.port());
        ask.due = None;
        if (self.call.hold)(names.mirrored()) {
            self.asks.remove(&stream);
            self.outcomes
                .push(Outcome::Found(stream, self.name.clone()));
            return;
        }
        let fd = match self.asking.get(&port) {
            Some(fd) => *fd,
            None => match Self::port_name(port).connect() {
                Ok(fd) => {
                    crate::table::set_internal(fd);
                    self.connections.insert(fd, Role::Asking { port });
                    self.asking.insert(port, fd);
                    (self.call.watch)(fd, true);
                    fd
                }
                Err(_) => return self.retry(stream, now, Reason::PeerNotReachable),
            },
        };
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.ids.insert(id, stream);
        self.say(fd, &Packet::Who(id, names), now);
    }

    /// What came out since the last call.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        core::mem::take(&mut self.outcomes)
    }

    /// One of our descriptors has another number.
    pub fn moved(&mut self, fd: i32, new: i32) {
        if !self.descriptors().any(|own| own == fd) {
            return;
        }
        (self.call.watch)(fd, false);
        (self.call.watch)(new, true);
        if let Some(role) = self.connections.remove(&fd) {
            self.connections.insert(new, role);
        }
        let ports = self
            .ports
            .values_mut()
            .flat_map(|p| [&mut p.listener, &mut p.owner]);
        let queries = self
            .queries
            .values_mut()
            .flat_map(|q| q.waiting.iter_mut().chain([&mut q.asker]));
        ports
            .flatten()
            .chain(queries)
            .chain(self.asking.values_mut())
            .filter(|number| **number == fd)
            .for_each(|number| *number = new);
    }

    /// All its descriptors.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> {
        self.connections
            .keys()
            .copied()
            .chain(self.ports.values().filter_map(|p| p.listener))
    }

    /// Closes connections to owners that nobody waits for, so that an idle process holds nothing it does not need.
    pub fn tidy(&mut self) {
        let idle: Vec<i32> = self
            .asking
            .iter()
            .filter(|(port, _)| !self.asks.values().any(|a| a.names.peer.port() == **port))
            .map(|(_, fd)| *fd)
            .collect();
        for fd in idle {
            self.drop_connection(fd, 0);
        }
    }
}

fn pause(tries: u32) -> u64 {
    (FIRST_PAUSE_NS << tries.min(20)).min(LONGEST_PAUSE_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(port: u16) -> Addresses {
        let local = "127.0.0.1:50000".parse().expect("address");
        Addresses::new(local, std::net::SocketAddr::new(local.ip(), port))
    }

    fn pair(
        port: u16,
        hold_first: fn(Addresses) -> bool,
        hold_second: fn(Addresses) -> bool,
    ) -> (Local, Local) {
        let call = |hold| Callbacks {
            watch: |_, _| {},
            hold,
            alive: |_| true,
        };
        let mut a = Local::new(b"p/a".to_vec(), call(hold_first));
        let mut b = Local::new(b"p/b".to_vec(), call(hold_second));
        a.join(port);
        b.join(port);
        (a, b)
    }

    fn run(all: &mut [&mut Local]) {
        for _ in 0..20 {
            for l in all.iter_mut() {
                let listeners = l.ports.values().filter_map(|p| p.listener);
                let fds: Vec<i32> = listeners.chain(l.connections.keys().copied()).collect();
                for fd in fds {
                    l.readable(fd, 0);
                }
            }
        }
    }

    #[test]
    fn the_owner_redirects_to_the_member_that_holds_the_connection() {
        let (mut a, mut b) = pair(60_001, |_| false, |_| true);
        let mut c = Local::new(
            b"p/c".to_vec(),
            Callbacks {
                watch: |_, _| {},
                hold: |_| false,
                alive: |_| true,
            },
        );
        run(&mut [&mut a, &mut b]);
        c.ask(5, names(60_001), 0);
        run(&mut [&mut c, &mut a, &mut b]);
        assert_eq!(c.outcomes(), [Outcome::Found(5, b"p/b".to_vec())]);
    }

    #[test]
    fn when_the_owner_is_gone_a_member_takes_over() {
        let (mut a, mut b) = pair(60_002, |_| true, |_| true);
        run(&mut [&mut a, &mut b]);
        let fds: Vec<i32> = a
            .connections
            .keys()
            .copied()
            .chain(a.ports.values().filter_map(|p| p.listener))
            .collect();
        fds.into_iter().for_each(sys::close);
        run(&mut [&mut b]);
        let mut c = Local::new(
            b"p/c".to_vec(),
            Callbacks {
                watch: |_, _| {},
                hold: |_| false,
                alive: |_| true,
            },
        );
        c.ask(6, names(60_002), 0);
        run(&mut [&mut c, &mut b]);
        assert_eq!(c.outcomes(), [Outcome::Found(6, b"p/b".to_vec())]);
    }

    #[test]
    fn nobody_there_is_remembered_after_some_tries() {
        let mut c = Local::new(
            b"p/c".to_vec(),
            Callbacks {
                watch: |_, _| {},
                hold: |_| false,
                alive: |_| true,
            },
        );
        c.ask(7, names(60_003), 0);
        let mut now = 0;
        while let Some(due) = c.tick(now) {
            now = due;
        }
        assert_eq!(c.outcomes(), [Outcome::Failed(7, Reason::PeerNotReachable)]);
        c.ask(8, names(60_003), now);
        assert_eq!(c.outcomes(), [Outcome::Failed(8, Reason::PeerNotReachable)]);
    }

    #[test]
    fn an_address_of_another_host_is_not_asked_here() {
        let mut c = Local::new(
            b"p/c".to_vec(),
            Callbacks {
                watch: |_, _| {},
                hold: |_| false,
                alive: |_| true,
            },
        );
        let far = Addresses::new(
            "10.0.0.1:5".parse().expect("address"),
            "10.0.0.2:80".parse().expect("address"),
        );
        c.ask(9, far, 0);
        assert_eq!(c.outcomes(), [Outcome::Failed(9, Reason::PeerNotReachable)]);
    }

    #[test]
    fn guests_are_few_and_must_say_what_they_want() {
        let (mut owner, _member) = pair(60_010, |_| false, |_| false);
        let listener = owner.ports[&60_010].listener.expect("the owner listens");
        owner.readable(listener, 0);
        let member = owner.descriptors().find(|fd| *fd != listener);
        owner.readable(member.expect("the member is there"), 0);
        let mut guests = Vec::new();
        for _ in 0..4 {
            for _ in 0..100 {
                guests.push(Local::port_name(60_010).connect().expect("connect"));
            }
            owner.readable(listener, 1);
        }
        assert_eq!(owner.descriptors().count(), 1 + MAX_GUESTS);
        assert!(owner.tick(GUEST_PATIENCE_NS).is_some());
        assert_eq!(owner.descriptors().count(), 1 + MAX_GUESTS);
        assert_eq!(owner.tick(1 + GUEST_PATIENCE_NS), None);
        let mut left: Vec<i32> = owner.descriptors().collect();
        left.retain(|fd| Some(*fd) != member);
        assert_eq!(left, [listener], "members stay");
        guests.into_iter().for_each(sys::close);
    }
}
