//! The fake's rdma_cm: who listens where, who connects to whom, and what both are told.

use super::super::provider::*;
use super::super::{Error, Result};
use super::{Fake, FakeId, World};
use core::net::SocketAddr;

impl World {
    pub(super) fn event(&mut self, id: usize, kind: EventKind, status: i32, data: &[u8]) {
        let (channel, token) = (self.ids[&id].channel, self.ids[&id].token);
        let event = Event {
            kind,
            token,
            status,
            data: PrivateData::new(data),
            request: None,
        };
        self.events
            .get_mut(&channel)
            .expect("a live channel")
            .push_back((id, event));
    }
}

impl Fake {
    pub(super) fn event(&self, id: usize, kind: EventKind, status: i32, data: &[u8]) {
        self.world().event(id, kind, status, data);
    }

    /// Tells every channel that something happened to a token, whether it did or not.
    pub fn inject(&self, kind: EventKind, token: usize, status: i32) {
        for events in self.world().events.values_mut() {
            events.push_back((
                0,
                Event {
                    kind,
                    token,
                    status,
                    data: PrivateData::new(&[]),
                    request: None,
                },
            ));
        }
    }

    /// The device goes: everything on it is told, and refuses from now on.
    pub fn remove_device(&self) {
        let mut w = self.world();
        w.removed = true;
        let ids: Vec<usize> = w
            .ids
            .iter()
            .filter(|(_, id)| id.on_device)
            .map(|(id, _)| *id)
            .collect();
        for id in ids {
            w.event(id, EventKind::DeviceRemoved, 0, &[]);
        }
    }

    pub(super) fn new_id(&self, channel: usize, token: usize) -> Id {
        let mut w = self.world();
        let handle = w.handle();
        let id = FakeId {
            channel,
            token,
            local: None,
            peer: None,
            on_device: false,
            listening: false,
            other: None,
            connected: false,
            acceptor: false,
            heard: false,
            pair: None,
        };
        w.ids.insert(handle, id);
        Id(handle)
    }

    pub(super) fn start_resolving(&self, id: &Id, source: Option<SocketAddr>, peer: SocketAddr) {
        let mut w = self.world();
        if w.removed {
            return w.event(id.0, EventKind::Failed, -libc::ENODEV, &[]);
        }
        let fake = w.id(id);
        fake.local = Some(source.unwrap_or_else(|| "192.0.2.1:50000".parse().expect("an address")));
        fake.peer = Some(peer);
        fake.on_device = true;
        w.event(id.0, EventKind::AddressResolved, 0, &[]);
    }

    /// Private data as InfiniBand brings it: filled up with zeros.
    fn padded(&self, data: &[u8], room: usize) -> Vec<u8> {
        assert!(data.len() <= room, "{} bytes of private data", data.len());
        let mut data = data.to_vec();
        if self.abilities.borrow().limits.transport == Transport::InfiniBand {
            data.resize(room, 0);
        }
        data
    }

    pub(super) fn start_connecting(&self, id: &Id, data: &[u8]) {
        let data = self.padded(data, 56);
        let mut w = self.world();
        assert!(
            w.id(id).pair.is_some(),
            "a queue pair is there before connecting"
        );
        let (local, peer) = (w.id(id).local, w.id(id).peer.expect("resolved"));
        let listens = |l: &FakeId| {
            l.listening
                && l.local.is_some_and(|a| {
                    a.port() == peer.port() && (a.ip().is_unspecified() || a.ip() == peer.ip())
                })
        };
        let Some((channel, token)) = w
            .ids
            .values()
            .find(|l| listens(l))
            .map(|l| (l.channel, l.token))
        else {
            return w.event(id.0, EventKind::Rejected, 8, &[]);
        };
        drop(w);
        let request = self.new_id(channel, token);
        let mut w = self.world();
        let fake = w.id(&request);
        (
            fake.local,
            fake.peer,
            fake.on_device,
            fake.acceptor,
            fake.other,
        ) = (Some(peer), local, true, true, Some(id.0));
        let event = Event {
            kind: EventKind::ConnectRequest,
            token,
            status: 0,
            data: PrivateData::new(&data),
            request: Some(Id(request.0)),
        };
        w.events
            .get_mut(&channel)
            .expect("a live channel")
            .push_back((request.0, event));
    }

    pub(super) fn establish(&self, id: &Id, data: &[u8]) -> Result<()> {
        let data = self.padded(data, MAX_PRIVATE_DATA);
        let mut w = self.world();
        let pair = w
            .id(id)
            .pair
            .as_ref()
            .expect("a queue pair is there before accepting");
        assert_eq!(
            pair.receive.len(),
            pair.sizes.receive as usize,
            "receive requests are posted before accepting"
        );
        let other = w.id(id).other.filter(|other| w.ids.contains_key(other));
        let Some(other) = other else {
            return Err(Error::System {
                what: "accepting with rdma_cm",
                errno: libc::EINVAL,
            });
        };
        w.id(id).connected = true;
        let connector = w.ids.get_mut(&other).expect("looked up above");
        connector.connected = true;
        connector.other = Some(id.0);
        w.event(other, EventKind::Established, 0, &data);
        w.event(id.0, EventKind::Established, 0, &[]);
        Ok(())
    }

    pub(super) fn refuse(&self, id: usize, status: i32, data: &[u8]) {
        let data = self.padded(data, MAX_PRIVATE_DATA);
        let mut w = self.world();
        let other = w.ids.get_mut(&id).expect("a live identifier").other.take();
        if let Some(other) = other.filter(|other| w.ids.contains_key(other)) {
            w.event(other, EventKind::Rejected, status, &data);
        }
    }

    pub(super) fn hang_up(&self, id: usize) {
        let mut w = self.world();
        let fake = w.ids.get_mut(&id).expect("a live identifier");
        if !core::mem::take(&mut fake.connected) {
            return;
        }
        let other = fake.other.take();
        let other = other.filter(|other| {
            w.ids
                .get_mut(other)
                .is_some_and(|o| core::mem::take(&mut o.connected))
        });
        for end in [Some(id), other].into_iter().flatten() {
            w.event(end, EventKind::Disconnected, 0, &[]);
            w.flush(end);
        }
    }

    pub(super) fn forget(&self, id: Id) {
        let requested = {
            let mut w = self.world();
            let fake = w.id(&id);
            assert!(
                fake.pair.is_none(),
                "the queue pair goes before its identifier"
            );
            fake.acceptor && !fake.connected && fake.other.is_some()
        };
        if requested {
            self.refuse(id.0, 28, &[]);
        }
        self.hang_up(id.0);
        let mut w = self.world();
        w.ids.remove(&id.0);
        for events in w.events.values_mut() {
            events.retain(|(about, _)| *about != id.0);
        }
    }
}
