//! Work requests and completions between our plain values and the library's structures: the data path's last step.

use super::super::provider::*;
use super::super::{Error, Result};
use super::code;
use core::ptr::{from_mut, null_mut};
use rsock_rdma_sys::bindings::*;
use rsock_rdma_sys::inline;

fn entry(local: &Local) -> ibv_sge {
    ibv_sge {
        addr: local.address,
        length: local.length,
        lkey: local.key,
    }
}

/// Fills and links a chain of structures; its head, null if there is nothing.
macro_rules! chain {
    ($work:expr, $type:ty, |$each:ident, $list:ident| $fill:expr) => {{
        let work = $work;
        debug_assert!(work.len() <= MAX_CHAIN);
        let mut entries: [ibv_sge; MAX_CHAIN] = [ibv_sge::default(); MAX_CHAIN];
        let mut requests: [core::mem::MaybeUninit<$type>; MAX_CHAIN] =
            [const { core::mem::MaybeUninit::uninit() }; MAX_CHAIN];
        let mut next: *mut $type = null_mut();
        // From the last to the first, so that each knows its successor.
        for (index, $each) in work.iter().take(MAX_CHAIN).enumerate().rev() {
            entries[index] = entry(&$each.local);
            let $list: *mut ibv_sge = if $each.local.length == 0 {
                null_mut()
            } else {
                &raw mut entries[index]
            };
            let mut request: $type = $fill;
            request.next = next;
            next = from_mut(requests[index].write(request));
        }
        next
    }};
}

pub(super) fn post_send(queue_pair: *mut ibv_qp, work: &[SendWork]) -> Result<()> {
    let mut bad = null_mut();
    let head = chain!(work, ibv_send_wr, |each, list| {
        let mut request = ibv_send_wr {
            wr_id: each.id,
            sg_list: list,
            num_sge: i32::from(!list.is_null()),
            ..Default::default()
        };
        request.opcode = match each.operation {
            Operation::Send => ibv_wr_opcode::IBV_WR_SEND,
            Operation::Write(remote) => {
                request.wr.rdma = target(remote);
                ibv_wr_opcode::IBV_WR_RDMA_WRITE
            }
            Operation::WriteImmediate(remote, number) => {
                request.wr.rdma = target(remote);
                request.__bindgen_anon_1.imm_data = number.to_be();
                ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
            }
        };
        if each.signalled {
            request.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        if each.inline {
            request.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
        }
        request
    });
    if head.is_null() {
        return Ok(());
    }
    // SAFETY: the chain lives until the call returns; the queue pair is the caller's.
    code(
        unsafe { inline::ibv_post_send(queue_pair, head, &raw mut bad) },
        "posting to the send queue",
    )
}

fn target(remote: Remote) -> ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
    ibv_send_wr__bindgen_ty_2__bindgen_ty_1 {
        remote_addr: remote.address,
        rkey: remote.key,
    }
}

pub(super) fn post_receive(queue_pair: *mut ibv_qp, work: &[ReceiveWork]) -> Result<()> {
    let mut bad = null_mut();
    let head = chain!(work, ibv_recv_wr, |each, list| ibv_recv_wr {
        wr_id: each.id,
        next: null_mut(),
        sg_list: list,
        num_sge: i32::from(!list.is_null())
    });
    if head.is_null() {
        return Ok(());
    }
    // SAFETY: the chain lives until the call returns; the queue pair is the caller's.
    code(
        unsafe { inline::ibv_post_recv(queue_pair, head, &raw mut bad) },
        "posting receive requests",
    )
}

pub(super) fn poll(queue: *mut ibv_cq, into: &mut [Completion]) -> Result<usize> {
    const AT_ONCE: usize = 16;
    let mut raw: [core::mem::MaybeUninit<ibv_wc>; AT_ONCE] =
        [const { core::mem::MaybeUninit::uninit() }; AT_ONCE];
    let wanted = into.len().min(AT_ONCE);
    // SAFETY: there is room for `wanted`; the queue is the caller's.
    let count = unsafe { inline::ibv_poll_cq(queue, wanted as i32, raw.as_mut_ptr().cast()) };
    let count = usize::try_from(count).map_err(|_| Error::System {
        what: "polling a completion queue",
        errno: libc::EIO,
    })?;
    for (to, from) in into.iter_mut().zip(&raw[..count.min(wanted)]) {
        // SAFETY: the first `count` were filled. The immediate is valid where the flag says so.
        *to = unsafe {
            let from = from.assume_init_ref();
            let immediate = from.status == ibv_wc_status::IBV_WC_SUCCESS
                && from.wc_flags & ibv_wc_flags::IBV_WC_WITH_IMM != 0;
            Completion {
                id: from.wr_id,
                status: from.status,
                length: from.byte_len,
                immediate: immediate.then(|| u32::from_be(from.__bindgen_anon_1.imm_data)),
            }
        };
    }
    Ok(count)
}
