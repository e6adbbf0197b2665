//! Connecting and accepting over rdma_cm: from an address to a connected queue pair.
//!
//! Whoever owns a [`Manager`] polls it when its descriptor is readable and is told [`Outcome`]s. Nothing here waits; a connection that
//! takes too long is cancelled by its owner. Events may come in any order (a peer that dies in mid-handshake, a device that is
//! removed): each is looked at in the light of where its connection stands, and one that does not fit changes nothing or ends it.

use super::device::{Devices, NOBODY};
use super::hello::{Hello, MAX_BODY};
use super::identifier::{Channel, Identifier};
use super::provider::*;
use super::queue_pair::{QueuePair, Wanted};
use super::{Error, Result};
use core::net::SocketAddr;
use std::collections::HashMap;
use std::sync::Arc;

/// Milliseconds for resolving an address, and again for the route.
const RESOLVE_MS: u32 = 2000;

/// Names a listener, a connection being made, or a connection; never used again.
pub type Token = usize;

/// What came of it.
pub enum Outcome<P: Provider> {
    /// Somebody wants to connect; [`Manager::accept`] or [`Manager::reject`] it.
    Requested {
        /// Where.
        listener: Token,
        /// The connection to be.
        token: Token,
        /// Our address as the connector used it.
        local: Option<SocketAddr>,
        /// Who it is.
        peer: Option<SocketAddr>,
        /// What it wants.
        body: Vec<u8>,
    },
    /// A connection stands. Its queue pair is armed; poll it once now.
    Connected {
        /// Which.
        token: Token,
        /// It.
        pair: QueuePair<P>,
        /// What the acceptor answered (nothing at the acceptor itself).
        body: Vec<u8>,
    },
    /// The peer refused, and said why (or where to go instead); without a body nobody listens there, or it is not rsock.
    Refused {
        /// Which.
        token: Token,
        /// The peer's word.
        body: Option<Vec<u8>>,
    },
    /// It did not work, or a listener is gone with its device.
    Failed {
        /// Which.
        token: Token,
        /// Why.
        error: Error,
    },
    /// A connection that stood is gone: the peer closed or died, or its device is being removed. Poll its queue pair for what had arrived
    /// before, end it, drop it (on InfiniBand it does not end by itself).
    Ended {
        /// Which.
        token: Token,
        /// The device is being removed.
        removed: bool,
    },
}

/// Where a connection that is being made stands.
enum Stage<P: Provider> {
    /// Listens as long as it is held.
    Listening {
        _identifier: Identifier<P>,
    },
    Resolving {
        identifier: Identifier<P>,
        body: Vec<u8>,
    },
    Connecting(QueuePair<P>),
    Requested {
        identifier: Identifier<P>,
        allotted: u16,
    },
    Accepting(QueuePair<P>, u16),
}

/// All connecting and accepting of this process.
pub struct Manager<P: Provider> {
    channel: Arc<Channel<P>>,
    devices: Devices<P>,
    wanted: Wanted,
    last_token: Token,
    stages: HashMap<Token, Stage<P>>,
}

impl<P: Provider> Manager<P> {
    /// Opens the event channel. Fails where there is no RDMA, or no access to it.
    pub fn new(provider: Arc<P>, wanted: Wanted) -> Result<Self> {
        let channel = Channel::open(provider)?;
        Ok(Manager {
            channel,
            devices: Devices::new(),
            wanted,
            last_token: NOBODY,
            stages: HashMap::new(),
        })
    }

    fn provider(&self) -> &Arc<P> {
        &self.channel.provider
    }

    fn new_token(&mut self) -> Token {
        self.last_token += 1;
        self.last_token
    }

    /// Readable when [`Manager::poll`] has something to tell.
    pub fn fd(&self) -> i32 {
        self.provider().event_channel_fd(self.channel.handle())
    }

    /// Listens on an address (unspecified: of every device, also later ones).
    pub fn listen(&mut self, address: SocketAddr, backlog: u32) -> Result<Token> {
        let token = self.new_token();
        let identifier = Identifier::new(&self.channel, token)?;
        self.provider().bind(identifier.id(), address)?;
        self.provider().listen(identifier.id(), backlog)?;
        self.stages.insert(
            token,
            Stage::Listening {
                _identifier: identifier,
            },
        );
        Ok(token)
    }

    /// Starts to connect, from the device with the address `source` if one is given. `body`: at most [`MAX_BODY`] bytes for the peer.
    pub fn connect(
        &mut self,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        body: &[u8],
    ) -> Result<Token> {
        assert!(body.len() <= MAX_BODY, "a body of {} bytes", body.len());
        let token = self.new_token();
        let identifier = Identifier::new(&self.channel, token)?;
        self.provider()
            .resolve_address(identifier.id(), source, peer, RESOLVE_MS)?;
        self.stages.insert(
            token,
            Stage::Resolving {
                identifier,
                body: body.to_vec(),
            },
        );
        Ok(token)
    }

    /// Accepts a request; the queue pair comes when the connection stands. `body`: at most [`MAX_BODY`] bytes for the peer.
    pub fn accept(&mut self, token: Token, body: &[u8]) -> Result<()> {
        assert!(body.len() <= MAX_BODY, "a body of {} bytes", body.len());
        let (identifier, allotted) = self.take_request(token)?;
        let pair = match self.devices.of(&identifier) {
            // On failure the identifier is dropped, which refuses the request without a word.
            Ok(device) => QueuePair::build(identifier, device, token, self.wanted)?,
            Err(error) => return Err(error),
        };
        let (data, length) = Hello {
            granted: pair.granted(),
            body,
        }
        .encode();
        pair.accept(&data[..length])?;
        self.stages.insert(token, Stage::Accepting(pair, allotted));
        Ok(())
    }

    /// Refuses a request and says why (or where to go instead) in at most [`MAX_BODY`] bytes.
    pub fn reject(&mut self, token: Token, body: &[u8]) -> Result<()> {
        assert!(body.len() <= MAX_BODY, "a body of {} bytes", body.len());
        let (identifier, _) = self.take_request(token)?;
        let (data, length) = Hello { granted: 0, body }.encode();
        self.provider().reject(identifier.id(), &data[..length])
    }

    fn take_request(&mut self, token: Token) -> Result<(Identifier<P>, u16)> {
        match self.stages.remove(&token) {
            Some(Stage::Requested {
                identifier,
                allotted,
            }) => Ok((identifier, allotted)),
            Some(other) => {
                self.stages.insert(token, other);
                Err(Error::Lost("it is no open request".into()))
            }
            None => Err(Error::Lost("the connector went away".into())),
        }
    }

    /// Forgets a listener or a connection being made. A connection that stands is not the manager's any more: drop its queue pair.
    pub fn cancel(&mut self, token: Token) {
        self.stages.remove(&token);
    }

    /// What has happened since, at most one event's worth; None when there is nothing more.
    pub fn poll(&mut self) -> Result<Option<Outcome<P>>> {
        while let Some(event) = self.provider().next_event(self.channel.handle())? {
            if let Some(outcome) = self.event(event) {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }

    fn event(&mut self, mut event: Event) -> Option<Outcome<P>> {
        if let Some(id) = event.request.take() {
            return self.requested(&event, id);
        }
        let token = event.token;
        if token == NOBODY {
            return None;
        }
        let Some(stage) = self.stages.remove(&token) else {
            return match event.kind {
                EventKind::Disconnected => Some(Outcome::Ended {
                    token,
                    removed: false,
                }),
                EventKind::DeviceRemoved => Some(Outcome::Ended {
                    token,
                    removed: true,
                }),
                _ => None,
            };
        };
        let ended = |what: &str| {
            Some(Outcome::Failed {
                token,
                error: Error::Lost(what.into()),
            })
        };
        match (event.kind, stage) {
            (EventKind::Other, stage) => {
                self.stages.insert(token, stage);
                None
            }
            (EventKind::AddressResolved, Stage::Resolving { identifier, body }) => {
                let started = self.provider().resolve_route(identifier.id(), RESOLVE_MS);
                self.go_on(
                    token,
                    started.map(|()| Stage::Resolving { identifier, body }),
                )
            }
            (EventKind::RouteResolved, Stage::Resolving { identifier, body }) => {
                let started = self.start_connecting(identifier, token, &body);
                self.go_on(token, started)
            }
            (EventKind::Established, Stage::Connecting(pair)) => {
                Some(Self::established(token, pair, &event.data))
            }
            (EventKind::Established, Stage::Accepting(mut pair, allotted)) => {
                pair.connected(allotted, false);
                Some(Outcome::Connected {
                    token,
                    pair,
                    body: Vec::new(),
                })
            }
            (EventKind::Rejected, Stage::Connecting(_)) => {
                let body = Hello::decode(event.data.bytes())
                    .ok()
                    .map(|hello| hello.body.to_vec());
                Some(Outcome::Refused { token, body })
            }
            (EventKind::DeviceRemoved, _) => ended("its device was removed"),
            (EventKind::Disconnected, stage) if !matches!(stage, Stage::Listening { .. }) => {
                ended("the peer went away")
            }
            (EventKind::Failed | EventKind::Rejected, stage)
                if !matches!(stage, Stage::Listening { .. }) =>
            {
                let error = match -event.status {
                    errno if errno > 0 => Error::System {
                        what: "connecting with rdma_cm",
                        errno,
                    },
                    _ => Error::Lost(format!("no connection (reason {})", event.status)),
                };
                Some(Outcome::Failed { token, error })
            }
            // An event that means nothing here: from before a step that was already taken.
            (_, stage) => {
                self.stages.insert(token, stage);
                None
            }
        }
    }

    fn go_on(&mut self, token: Token, stage: Result<Stage<P>>) -> Option<Outcome<P>> {
        match stage {
            Ok(stage) => {
                self.stages.insert(token, stage);
                None
            }
            Err(error) => Some(Outcome::Failed { token, error }),
        }
    }

    fn start_connecting(
        &mut self,
        identifier: Identifier<P>,
        token: Token,
        body: &[u8],
    ) -> Result<Stage<P>> {
        let device = self.devices.of(&identifier)?;
        let pair = QueuePair::build(identifier, device, token, self.wanted)?;
        let (data, length) = Hello {
            granted: pair.granted(),
            body,
        }
        .encode();
        pair.connect(&data[..length])?;
        Ok(Stage::Connecting(pair))
    }

    /// At the connector: the acceptor's answer has to be one of ours.
    fn established(token: Token, mut pair: QueuePair<P>, data: &PrivateData) -> Outcome<P> {
        match Hello::decode(data.bytes()) {
            Ok(hello) if hello.granted > 0 => {
                pair.connected(hello.granted, true);
                Outcome::Connected {
                    token,
                    pair,
                    body: hello.body.to_vec(),
                }
            }
            _ => Outcome::Refused { token, body: None },
        }
    }

    fn requested(&mut self, event: &Event, id: Id) -> Option<Outcome<P>> {
        let identifier = Identifier::adopt(&self.channel, id);
        let listens = matches!(self.stages.get(&event.token), Some(Stage::Listening { .. }));
        let (hello, true) = (Hello::decode(event.data.bytes()), listens) else {
            return None;
        };
        let Ok(Hello {
            granted: granted @ 1..,
            body,
        }) = hello
        else {
            // Not rsock, or nothing could ever be said to it: refused without a word of ours. If even that fails, dropping the identifier does it.
            let _ = self.provider().reject(identifier.id(), &[]);
            return None;
        };
        let body = body.to_vec();
        let token = self.new_token();
        self.provider().set_token(identifier.id(), token);
        let (local, peer) = (
            self.provider().local_address(identifier.id()),
            self.provider().peer_address(identifier.id()),
        );
        self.stages.insert(
            token,
            Stage::Requested {
                identifier,
                allotted: granted,
            },
        );
        Some(Outcome::Requested {
            listener: event.token,
            token,
            local,
            peer,
            body,
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
