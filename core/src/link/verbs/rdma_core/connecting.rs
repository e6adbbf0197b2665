//! rdma_cm's events and connection parameters between our plain values and the library's structures.

use super::super::Result;
use super::super::provider::*;
use super::{RdmaCore, checked, failed};
use core::ptr::null_mut;
use rsock_rdma_sys::bindings::*;

fn event_kind(event: rdma_cm_event_type::Type) -> EventKind {
    use rdma_cm_event_type::*;
    match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => EventKind::AddressResolved,
        RDMA_CM_EVENT_ROUTE_RESOLVED => EventKind::RouteResolved,
        RDMA_CM_EVENT_CONNECT_REQUEST => EventKind::ConnectRequest,
        RDMA_CM_EVENT_ESTABLISHED => EventKind::Established,
        RDMA_CM_EVENT_REJECTED => EventKind::Rejected,
        RDMA_CM_EVENT_ADDR_ERROR | RDMA_CM_EVENT_ROUTE_ERROR => EventKind::Failed,
        RDMA_CM_EVENT_CONNECT_ERROR | RDMA_CM_EVENT_UNREACHABLE => EventKind::Failed,
        RDMA_CM_EVENT_DISCONNECTED => EventKind::Disconnected,
        RDMA_CM_EVENT_DEVICE_REMOVAL => EventKind::DeviceRemoved,
        _ => EventKind::Other,
    }
}

pub(super) fn connection_parameters(parameters: &Parameters<'_>) -> rdma_conn_param {
    rdma_conn_param {
        private_data: parameters.data.as_ptr().cast(),
        private_data_len: parameters.data.len().min(MAX_PRIVATE_DATA) as u8,
        retry_count: parameters.retries,
        rnr_retry_count: parameters.receiver_retries,
        ..Default::default()
    }
}

/// # Safety
/// The library gave us the event, and it is not acknowledged yet.
unsafe fn copy(event: *const rdma_cm_event) -> Event {
    // SAFETY: the caller's event, its identifiers and its private data are there. All kinds that carry private data for us carry
    // it in `conn`.
    unsafe {
        let e = &*event;
        let kind = event_kind(e.event);
        let request = kind == EventKind::ConnectRequest;
        let carries = matches!(
            kind,
            EventKind::ConnectRequest | EventKind::Established | EventKind::Rejected
        );
        let data = if carries && !e.param.conn.private_data.is_null() {
            let length = usize::from(e.param.conn.private_data_len);
            PrivateData::new(core::slice::from_raw_parts(
                e.param.conn.private_data.cast(),
                length,
            ))
        } else {
            PrivateData::new(&[])
        };
        Event {
            kind,
            token: (*if request { e.listen_id } else { e.id }).context.addr(),
            status: e.status,
            data,
            request: request.then(|| Id(e.id.expose_provenance())),
        }
    }
}

impl RdmaCore {
    pub(super) fn read_event(&self, channel: *mut rdma_event_channel) -> Result<Option<Event>> {
        let mut event: *mut rdma_cm_event = null_mut();
        // SAFETY: the channel is the caller's handle.
        if unsafe { self.lib.rdma_get_cm_event(channel, &raw mut event) } != 0 {
            let error = failed("reading an rdma_cm event");
            return match error.errno() {
                Some(libc::EAGAIN | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: read just now.
        let copied = unsafe { copy(event) };
        // Acknowledged at once, since giving back an identifier waits for that.
        // SAFETY: once per event.
        let acknowledged = unsafe { self.lib.rdma_ack_cm_event(event) };
        checked(acknowledged, "acknowledging an rdma_cm event").map(|()| Some(copied))
    }
}
