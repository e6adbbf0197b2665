//! Asynchronous I/O: libc's own threads do it, past our symbols, so the stream goes to TCP for good first.

use libc::{aiocb, c_int, sigevent};
use rsock_core::calls::{Reason, tracked};

use crate::drive::pin;

hook_cancel! {
    unsafe fn aio_read(request: *mut aiocb) -> c_int {
        if !on_tcp(request) {
            return -1;
        }
        real::aio_read(request)
    }
    unsafe fn aio_write(request: *mut aiocb) -> c_int {
        if !on_tcp(request) {
            return -1;
        }
        real::aio_write(request)
    }
    unsafe fn lio_listio(mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int {
        if !list.is_null() {
            for at in 0..count.max(0) as usize {
                if !on_tcp(*list.add(at)) {
                    return -1;
                }
            }
        }
        real::lio_listio(mode, list, count, event)
    }
}

// One structure on every platform we build for.
alias! {
    unsafe fn aio_read64(request: *mut aiocb) -> c_int = aio_read;
    unsafe fn aio_write64(request: *mut aiocb) -> c_int = aio_write;
    unsafe fn lio_listio64(
        mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut sigevent
    ) -> c_int = lio_listio;
}

/// Is what the request (null in lists: none) is for on TCP now?
///
/// # Safety
/// Null or a request.
unsafe fn on_tcp(request: *const aiocb) -> bool {
    // SAFETY: the caller's.
    match unsafe { request.as_ref() } {
        Some(request) if tracked(request.aio_fildes) => pin(request.aio_fildes, Reason::PinnedCall),
        _ => true,
    }
}
