//! A device in use: its protection domain, its doorbell, and what it can do.
//!
//! Devices are opened when the first identifier on them is there, by the process and with the identity that uses them (a process
//! that changes its identity afterwards is refused by the kernel). rdma-core keeps a device open as long as an identifier
//! holds it, and closes a removed one with the last; so a [`Device`] has an identifier of its own, which goes last.

use super::identifier::Identifier;
use super::provider::{CompletionChannel, ContextKey, Domain, Limits, Provider};
use super::{Error, Result};
use core::net::SocketAddr;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// The token of identifiers whose events nobody waits for.
pub(super) const NOBODY: usize = 0;

/// A device in use.
pub struct Device<P: Provider> {
    domain: Option<Domain>,
    channel: Option<CompletionChannel>,
    limits: Limits,
    anchor: Identifier<P>,
}

impl<P: Provider> Device<P> {
    /// Opens the device of a resolved identifier.
    fn open(of: &Identifier<P>) -> Result<Self> {
        let provider = of.provider();
        let limits = provider.limits(of.id())?;
        let anchor = Identifier::new(of.channel(), NOBODY)?;
        let address = provider
            .local_address(of.id())
            .ok_or(Error::Unfit("it has no address"))?;
        provider.bind(anchor.id(), SocketAddr::new(address.ip(), 0))?;
        if provider.context(anchor.id()) != provider.context(of.id()) {
            return Err(Error::Unfit("another device has the same address"));
        }
        // From here on `drop` gives back what is there, also when the rest fails.
        let mut device = Device {
            domain: None,
            channel: None,
            limits,
            anchor,
        };
        device.domain = Some(provider.create_domain(of.id())?);
        device.channel = Some(provider.create_completion_channel(of.id())?);
        Ok(device)
    }

    pub(super) fn provider(&self) -> &Arc<P> {
        self.anchor.provider()
    }

    pub(super) fn domain(&self) -> &Domain {
        self.domain
            .as_ref()
            .expect("set by open, taken only by drop")
    }

    pub(super) fn channel(&self) -> &CompletionChannel {
        self.channel
            .as_ref()
            .expect("set by open, taken only by drop")
    }

    /// What it can do.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The doorbell: readable when an armed queue pair has got something.
    pub fn doorbell(&self) -> i32 {
        self.provider().completion_channel_fd(self.channel())
    }

    /// The token of a queue pair for which the doorbell rang, until there is none. It is no longer armed.
    pub fn rung(&self) -> Result<Option<usize>> {
        self.provider().next_completion_event(self.channel())
    }
}

impl<P: Provider> Drop for Device<P> {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            self.provider().destroy_completion_channel(channel);
        }
        if let Some(domain) = self.domain.take() {
            self.provider().destroy_domain(domain);
        }
    }
}

/// The devices that are in use now.
pub(super) struct Devices<P: Provider> {
    known: HashMap<ContextKey, Weak<Device<P>>>,
}

impl<P: Provider> Devices<P> {
    /// None yet.
    pub(super) fn new() -> Self {
        Devices {
            known: HashMap::new(),
        }
    }

    /// The device of an identifier whose address is resolved, opened if it is not in use yet.
    pub(super) fn of(&mut self, id: &Identifier<P>) -> Result<Arc<Device<P>>> {
        let key = id.provider().context(id.id()).ok_or(Error::NoDevice)?;
        if let Some(device) = self.known.get(&key).and_then(Weak::upgrade) {
            return Ok(device);
        }
        self.known.retain(|_, device| device.strong_count() > 0);
        let device = Arc::new(Device::open(id)?);
        self.known.insert(key, Arc::downgrade(&device));
        Ok(device)
    }
}
