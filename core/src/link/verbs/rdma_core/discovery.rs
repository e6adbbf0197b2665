//! What devices this host has, what they can do and how their ports stand.

use super::super::provider::*;
use super::super::{Error, Result};
use super::{code, failed, non_null};
use core::ffi::CStr;
use rsock_rdma_sys::RdmaCore;
use rsock_rdma_sys::bindings::*;
use rsock_rdma_sys::inline;

/// The limits of an open device.
pub(super) fn limits(lib: &RdmaCore, context: *mut ibv_context) -> Result<Limits> {
    let mut attributes = ibv_device_attr::default();
    // SAFETY: the context is open while the caller's identifier holds it.
    let transport = unsafe {
        code(
            lib.ibv_query_device(context, &raw mut attributes),
            "querying a device",
        )?;
        (*(*context).device).transport_type
    };
    Ok(Limits {
        work_requests: attributes.max_qp_wr.max(0) as u32,
        completions: attributes.max_cqe.max(0) as u32,
        region: attributes.max_mr_size,
        transport: match transport {
            ibv_transport_type::IBV_TRANSPORT_IB => Transport::InfiniBand,
            ibv_transport_type::IBV_TRANSPORT_IWARP => Transport::Iwarp,
            _ => return Err(Error::Unfit("neither InfiniBand, RoCE nor iWARP")),
        },
    })
}

fn port(lib: &RdmaCore, context: *mut ibv_context, number: u8) -> Result<PortInfo> {
    // The library fills the first part only; the rest has to be zero before.
    let mut attributes = ibv_port_attr::default();
    // SAFETY: the full structure begins with the one that the function's old type names.
    let answer = unsafe { lib.ibv_query_port(context, number, (&raw mut attributes).cast()) };
    code(answer, "querying a port")?;
    let mut gids = Vec::new();
    for index in 0..attributes.gid_tbl_len.clamp(0, 256) {
        let mut gid = ibv_gid::default();
        // SAFETY: an open context, room for a GID.
        if unsafe { lib.ibv_query_gid(context, number, index, &raw mut gid) } == 0 {
            // SAFETY: a GID is 16 bytes however one looks at it.
            let raw = unsafe { gid.raw };
            if raw != [0; 16] {
                gids.push((index as u32, raw));
            }
        }
    }
    Ok(PortInfo {
        number,
        state: attributes.state,
        mtu: 128 << attributes.active_mtu.clamp(1, 5),
        infiniband: attributes.link_layer == inline::IBV_LINK_LAYER_INFINIBAND,
        gids,
    })
}

fn open(lib: &RdmaCore, device: *mut ibv_device) -> Result<(Limits, Vec<PortInfo>)> {
    // SAFETY: the device is in a list that is not freed yet.
    let context = non_null(unsafe { lib.ibv_open_device(device) }, "opening the device")?;
    let answer = (|| {
        let limits = limits(lib, context)?;
        let mut attributes = ibv_device_attr::default();
        // SAFETY: just opened.
        let answer = unsafe { lib.ibv_query_device(context, &raw mut attributes) };
        code(answer, "querying a device")?;
        let ports = (1..=attributes.phys_port_cnt)
            .map(|number| port(lib, context, number))
            .collect::<Result<_>>()?;
        Ok((limits, ports))
    })();
    // SAFETY: opened above, nothing on it is left.
    unsafe { lib.ibv_close_device(context) };
    answer
}

pub(super) fn devices(lib: &RdmaCore) -> Result<Vec<DeviceInfo>> {
    let mut count = 0;
    // SAFETY: room for the count.
    let list = unsafe { lib.ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return match failed("listing RDMA devices") {
            Error::NoDevice => Ok(Vec::new()),
            error => Err(error),
        };
    }
    let infos = (0..count.max(0) as usize)
        .map(|index| {
            // SAFETY: the list has `count` devices; their names are strings within them.
            let (device, name) = unsafe {
                let device = *list.add(index);
                (
                    device,
                    CStr::from_ptr(lib.ibv_get_device_name(device))
                        .to_string_lossy()
                        .into_owned(),
                )
            };
            DeviceInfo {
                name,
                opened: open(lib, device),
            }
        })
        .collect();
    // SAFETY: made above; no device of it is open.
    unsafe { lib.ibv_free_device_list(list) };
    Ok(infos)
}
