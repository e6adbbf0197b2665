//! Making a queue pair on a device that may not give all we would like.

use super::super::credits::Credits;
use super::super::device::Device;
use super::super::identifier::Identifier;
use super::super::provider::*;
use super::super::region::Region;
use super::super::{Error, Result};
use super::{QueuePair, SLOT, Slots};
use std::sync::Arc;

/// What we would like; less is taken.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Requests on their way in either direction.
    pub depth: u32,
    /// Bytes sent without a read by the device.
    pub inline: u32,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted {
            depth: 256,
            inline: 256,
        }
    }
}

/// With fewer requests than this there is no sensible queue pair.
const LEAST_DEPTH: u32 = 8;

impl<P: Provider> QueuePair<P> {
    /// A queue pair on a resolved (or requesting) identifier, its receive requests posted.
    pub(in super::super) fn build(
        identifier: Identifier<P>,
        device: Arc<Device<P>>,
        token: usize,
        wanted: Wanted,
    ) -> Result<Self> {
        let limits = device.limits();
        let depth = wanted
            .depth
            .min(limits.work_requests)
            .min(limits.completions / 2);
        if depth < LEAST_DEPTH {
            return Err(Error::Unfit("it has room for too few work requests"));
        }
        let provider = identifier.provider().clone();
        let (queue, sizes) =
            Self::create(&provider, &identifier, &device, token, depth, wanted.inline)?;
        // From here on `drop` gives back what is there, also when the rest fails.
        let mut pair = QueuePair {
            token,
            queue: Some(queue),
            buffers: None,
            sizes,
            immediate: limits.transport == Transport::InfiniBand,
            open: false,
            slots: Slots::new(sizes.send),
            credits: Credits::new(0, 0),
            consumed: (0..sizes.receive).collect(),
            waiting: false,
            probe: None,
            owes_pong: false,
            lost: None,
            lost_was_said: false,
            device,
            identifier,
        };
        pair.buffers = Some(Region::allocate(
            &pair.device,
            SLOT * (sizes.receive + sizes.send) as usize,
            false,
        )?);
        pair.post_consumed(0)?;
        pair.arm();
        match pair.lost.take() {
            None => Ok(pair),
            Some(error) => Err(error),
        }
    }

    /// A completion queue and a queue pair of up to `depth` requests each way and `inline` bytes; less where the device refuses. Devices
    /// do not say beforehand how much inline data they take, nor which combinations.
    fn create(
        provider: &Arc<P>,
        identifier: &Identifier<P>,
        device: &Arc<Device<P>>,
        token: usize,
        mut depth: u32,
        inline: u32,
    ) -> Result<(CompletionQueue, QueueSizes)> {
        loop {
            let refused = match provider.create_completion_queue(
                identifier.id(),
                device.channel(),
                2 * depth,
                token,
            ) {
                Err(error) => error,
                Ok(queue) => {
                    let mut bytes = inline;
                    loop {
                        let sizes = QueueSizes {
                            send: depth,
                            receive: depth,
                            inline: bytes,
                        };
                        match provider.create_queue_pair(
                            identifier.id(),
                            device.domain(),
                            &queue,
                            sizes,
                        ) {
                            // More than asked for would not fit the completion queue.
                            Ok(granted) => {
                                return Ok((
                                    queue,
                                    QueueSizes {
                                        send: depth,
                                        receive: depth,
                                        inline: granted.inline,
                                    },
                                ));
                            }
                            Err(_) if bytes > 0 => bytes = if bytes > 16 { bytes / 2 } else { 0 },
                            Err(error) => {
                                provider.destroy_completion_queue(queue);
                                break error;
                            }
                        }
                    }
                }
            };
            depth /= 2;
            if depth < LEAST_DEPTH {
                return Err(refused);
            }
        }
    }
}
