//! rdma_cm's event channel and identifiers, each given back when its owner drops it, in the order that the library needs.

use super::Result;
use super::provider::{EventChannel, Id, Provider};
use std::sync::Arc;

/// An event channel; stays until the last of its identifiers is gone.
pub(super) struct Channel<P: Provider> {
    pub(super) provider: Arc<P>,
    channel: Option<EventChannel>,
}

impl<P: Provider> Channel<P> {
    pub(super) fn open(provider: Arc<P>) -> Result<Arc<Self>> {
        let channel = provider.create_event_channel()?;
        Ok(Arc::new(Channel {
            provider,
            channel: Some(channel),
        }))
    }

    pub(super) fn handle(&self) -> &EventChannel {
        self.channel.as_ref().expect("taken only by drop")
    }
}

impl<P: Provider> Drop for Channel<P> {
    fn drop(&mut self) {
        if let Some(channel) = self.channel.take() {
            self.provider.destroy_event_channel(channel);
        }
    }
}

/// An identifier and whose event channel it is on. Dropping it ends its connection, and may wait for the kernel to do so.
pub(super) struct Identifier<P: Provider> {
    channel: Arc<Channel<P>>,
    id: Option<Id>,
}

impl<P: Provider> Identifier<P> {
    pub(super) fn new(channel: &Arc<Channel<P>>, token: usize) -> Result<Self> {
        let id = channel.provider.create_id(channel.handle(), token)?;
        Ok(Self::adopt(channel, id))
    }

    /// Takes the identifier that came with an event.
    pub(super) fn adopt(channel: &Arc<Channel<P>>, id: Id) -> Self {
        Identifier {
            channel: channel.clone(),
            id: Some(id),
        }
    }

    #[inline(always)]
    pub(super) fn id(&self) -> &Id {
        self.id.as_ref().expect("taken only by drop")
    }

    #[inline(always)]
    pub(super) fn provider(&self) -> &Arc<P> {
        &self.channel.provider
    }

    pub(super) fn channel(&self) -> &Arc<Channel<P>> {
        &self.channel
    }
}

impl<P: Provider> Drop for Identifier<P> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.channel.provider.destroy_id(id);
        }
    }
}
