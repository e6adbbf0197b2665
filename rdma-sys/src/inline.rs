//! What `<infiniband/verbs.h>` and `<rdma/rdma_cma.h>` define inline or without a name of its own: functions, word for word in
//! Rust, and constants.

use crate::bindings::{ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc, rdma_cm_id};
use core::ffi::c_int;

/// The level of the options below.
pub const RDMA_OPTION_ID: c_int = 0;
/// Option of an identifier, an int: as IPV6_V6ONLY.
pub const RDMA_OPTION_ID_AFONLY: c_int = 2;
/// Option of an identifier, a byte n: 4.096 µs · 2^n until a packet counts as unanswered.
pub const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
/// `ibv_port_attr::link_layer` of InfiniBand.
pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;

/// Takes up to `count` completions out of a completion queue; their number, or negative on failure.
///
/// # Safety
/// `cq` is a live completion queue, `wc` has room for `count` completions.
#[inline(always)]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: every provider fills this table when it opens the device.
    unsafe { ((*(*cq).context).ops.poll_cq.unwrap_unchecked())(cq, count, wc) }
}

/// Asks for one event on the completion channel at the next completion (with `solicited_only`: the next solicited one). 0, or an errno.
///
/// # Safety
/// `cq` is a live completion queue.
#[inline(always)]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: every provider fills this table when it opens the device.
    unsafe { ((*(*cq).context).ops.req_notify_cq.unwrap_unchecked())(cq, solicited_only) }
}

/// Posts a list of work requests to the send queue. 0, or an errno with the first request that was not taken in `bad`.
///
/// # Safety
/// `qp` is a live queue pair, `wr` a list whose scatter entries are valid for it, `bad` is writable.
#[inline(always)]
pub unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: every provider fills this table when it opens the device.
    unsafe { ((*(*qp).context).ops.post_send.unwrap_unchecked())(qp, wr, bad) }
}

/// Posts a list of receive requests. 0, or an errno with the first request that was not taken in `bad`.
///
/// # Safety
/// As for [`ibv_post_send`]; the memory stays valid and unused until the request completes.
#[inline(always)]
pub unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: every provider fills this table when it opens the device.
    unsafe { ((*(*qp).context).ops.post_recv.unwrap_unchecked())(qp, wr, bad) }
}

/// The address of this end of a connection.
///
/// # Safety
/// `id` is a live identifier.
pub unsafe fn rdma_get_local_addr(id: *mut rdma_cm_id) -> *mut libc::sockaddr {
    // SAFETY: the union holds an address of any family.
    unsafe { (&raw mut (*id).route.addr.__bindgen_anon_1).cast() }
}

/// The address of the other end of a connection.
///
/// # Safety
/// `id` is a live identifier.
pub unsafe fn rdma_get_peer_addr(id: *mut rdma_cm_id) -> *mut libc::sockaddr {
    // SAFETY: the union holds an address of any family.
    unsafe { (&raw mut (*id).route.addr.__bindgen_anon_2).cast() }
}
