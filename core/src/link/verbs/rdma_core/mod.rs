//! The real RDMA stack: [`Provider`] over librdmacm and libibverbs.
//!
//! Handles are the library's own pointers. rdma-core closes a removed device when its last identifier goes; that is why identifiers
//! go last (see [`super::device`]).

mod address;
mod connecting;
mod discovery;
mod work;

use super::provider::*;
use super::{Error, Result};
use core::ffi::{c_int, c_void};
use core::net::SocketAddr;
use core::ptr::{null_mut, with_exposed_provenance_mut as pointer};
use rsock_rdma_sys::bindings::*;
use rsock_rdma_sys::inline;

/// rdma-core, loaded.
pub struct RdmaCore {
    lib: rsock_rdma_sys::RdmaCore,
    relocate: fn(c_int) -> c_int,
}

/// The error number that the last failed call left.
fn failed(what: &'static str) -> Error {
    // SAFETY: the location of the calling thread's errno is always valid.
    let errno = unsafe { *libc::__errno_location() };
    match errno {
        libc::ENOSYS | libc::ENODEV => Error::NoDevice,
        errno => Error::System { what, errno },
    }
}

/// For functions of librdmacm: -1 and errno.
fn checked(result: c_int, what: &'static str) -> Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(failed(what))
    }
}

/// For functions of libibverbs: the error number itself, or -1 and errno.
fn code(result: c_int, what: &'static str) -> Result<()> {
    match result {
        0 => Ok(()),
        errno if errno > 0 => Err(Error::System { what, errno }),
        _ => Err(failed(what)),
    }
}

fn non_null<T>(result: *mut T, what: &'static str) -> Result<*mut T> {
    if result.is_null() {
        Err(failed(what))
    } else {
        Ok(result)
    }
}

impl Id {
    fn get(&self) -> *mut rdma_cm_id {
        pointer(self.0)
    }
}

impl RdmaCore {
    /// Loads rdma-core. `relocate` is given each descriptor that the library has made for us and returns the one that
    /// takes its place (the same one, if it need not move or has moved before).
    pub fn open(relocate: fn(c_int) -> c_int) -> Result<Self> {
        let lib = rsock_rdma_sys::open().map_err(|error| Error::Library(error.to_string()))?;
        Ok(RdmaCore { lib, relocate })
    }

    fn make_non_blocking(fd: c_int) -> Result<()> {
        // SAFETY: plain calls with integers.
        let done = unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            flags >= 0 && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) == 0
        };
        if done {
            Ok(())
        } else {
            Err(failed("making a channel non-blocking"))
        }
    }

    fn context_of(&self, id: &Id) -> Result<*mut ibv_context> {
        // SAFETY: the identifier is alive as long as its handle.
        let context = unsafe { (*id.get()).verbs };
        if context.is_null() {
            Err(Error::NoDevice)
        } else {
            Ok(context)
        }
    }
}

// In all of these: SAFETY of passing a handle on is that it is what the library gave us and, since handles are given back by value,
// that it is not freed yet.
impl Provider for RdmaCore {
    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        discovery::devices(&self.lib)
    }

    fn create_event_channel(&self) -> Result<EventChannel> {
        // SAFETY: takes nothing.
        let answer = unsafe { self.lib.rdma_create_event_channel() };
        let channel = non_null(answer, "opening /dev/infiniband/rdma_cm")?;
        // SAFETY: just made; only this field of it is used to reach the kernel.
        let fd = unsafe {
            (*channel).fd = (self.relocate)((*channel).fd);
            (*channel).fd
        };
        let handle = EventChannel(channel.expose_provenance());
        match Self::make_non_blocking(fd) {
            Ok(()) => Ok(handle),
            Err(error) => {
                self.destroy_event_channel(handle);
                Err(error)
            }
        }
    }

    fn event_channel_fd(&self, channel: &EventChannel) -> i32 {
        // SAFETY: see the note above.
        unsafe { (*pointer::<rdma_event_channel>(channel.0)).fd }
    }

    fn next_event(&self, channel: &EventChannel) -> Result<Option<Event>> {
        self.read_event(pointer(channel.0))
    }

    fn destroy_event_channel(&self, channel: EventChannel) {
        // SAFETY: see the note above.
        unsafe { self.lib.rdma_destroy_event_channel(pointer(channel.0)) }
    }

    fn create_id(&self, channel: &EventChannel, token: usize) -> Result<Id> {
        let mut id = null_mut();
        let context = core::ptr::without_provenance_mut::<c_void>(token);
        // SAFETY: see the note above; the context is only a number to the library.
        let answer = unsafe {
            self.lib.rdma_create_id(
                pointer(channel.0),
                &raw mut id,
                context,
                rdma_port_space::RDMA_PS_TCP,
            )
        };
        checked(answer, "creating an rdma_cm identifier")?;
        Ok(Id(id.expose_provenance()))
    }

    fn set_token(&self, id: &Id, token: usize) {
        // SAFETY: see the note above; the library does not use this field.
        unsafe { (*id.get()).context = core::ptr::without_provenance_mut(token) }
    }

    fn bind(&self, id: &Id, address: SocketAddr) -> Result<()> {
        let mut address = address::Raw::new(address);
        if address.is_v6() {
            let mut only: c_int = 1;
            // SAFETY: the option is an int. A kernel without it lets :: take IPv4 as well; nothing depends on it.
            unsafe {
                self.lib.rdma_set_option(
                    id.get(),
                    inline::RDMA_OPTION_ID,
                    inline::RDMA_OPTION_ID_AFONLY,
                    (&raw mut only).cast(),
                    size_of::<c_int>(),
                )
            };
        }
        // SAFETY: a complete socket address.
        let answer = unsafe { self.lib.rdma_bind_addr(id.get(), address.as_ptr()) };
        checked(answer, "binding an rdma_cm address")
    }

    fn listen(&self, id: &Id, backlog: u32) -> Result<()> {
        // SAFETY: see the note above.
        let answer = unsafe { self.lib.rdma_listen(id.get(), backlog as c_int) };
        checked(answer, "listening with rdma_cm")
    }

    fn resolve_address(
        &self,
        id: &Id,
        source: Option<SocketAddr>,
        peer: SocketAddr,
        timeout_ms: u32,
    ) -> Result<()> {
        let mut source = source.map(address::Raw::new);
        let source = source.as_mut().map_or(null_mut(), address::Raw::as_ptr);
        // SAFETY: complete socket addresses, or none.
        let answer = unsafe {
            self.lib.rdma_resolve_addr(
                id.get(),
                source,
                address::Raw::new(peer).as_ptr(),
                timeout_ms as c_int,
            )
        };
        checked(answer, "resolving an rdma_cm address")
    }

    fn resolve_route(&self, id: &Id, timeout_ms: u32) -> Result<()> {
        // 2^16 * 4.096 us = 0.27 s until a packet counts as unanswered: with 7 retries the link is lost after some 2 s.
        let mut timeout: u8 = 16;
        // SAFETY: the option is one byte. Where it is unknown (iWARP, where TCP decides) the default stays.
        unsafe {
            self.lib.rdma_set_option(
                id.get(),
                inline::RDMA_OPTION_ID,
                inline::RDMA_OPTION_ID_ACK_TIMEOUT,
                (&raw mut timeout).cast(),
                1,
            )
        };
        // SAFETY: see the note above.
        let answer = unsafe { self.lib.rdma_resolve_route(id.get(), timeout_ms as c_int) };
        checked(answer, "resolving an rdma_cm route")
    }

    fn connect(&self, id: &Id, parameters: Parameters<'_>) -> Result<()> {
        // SAFETY: the private data is copied before the call returns.
        let answer = unsafe {
            self.lib.rdma_connect(
                id.get(),
                &mut connecting::connection_parameters(&parameters),
            )
        };
        checked(answer, "connecting with rdma_cm")
    }

    fn accept(&self, id: &Id, parameters: Parameters<'_>) -> Result<()> {
        // SAFETY: the private data is copied before the call returns.
        let answer = unsafe {
            self.lib.rdma_accept(
                id.get(),
                &mut connecting::connection_parameters(&parameters),
            )
        };
        checked(answer, "accepting with rdma_cm")
    }

    fn reject(&self, id: &Id, data: &[u8]) -> Result<()> {
        let length = data.len().min(MAX_PRIVATE_DATA) as u8;
        // SAFETY: `data` has at least `length` bytes, copied before the call returns.
        let answer = unsafe { self.lib.rdma_reject(id.get(), data.as_ptr().cast(), length) };
        checked(answer, "rejecting with rdma_cm")
    }

    fn disconnect(&self, id: &Id) {
        // SAFETY: see the note above. Fails only when there is nothing to disconnect any more.
        unsafe { self.lib.rdma_disconnect(id.get()) };
    }

    fn local_address(&self, id: &Id) -> Option<SocketAddr> {
        // SAFETY: the identifier holds an address (or zeros) of any family.
        unsafe { address::read(inline::rdma_get_local_addr(id.get())) }
    }

    fn peer_address(&self, id: &Id) -> Option<SocketAddr> {
        // SAFETY: the identifier holds an address (or zeros) of any family.
        unsafe { address::read(inline::rdma_get_peer_addr(id.get())) }
    }

    fn context(&self, id: &Id) -> Option<ContextKey> {
        self.context_of(id)
            .ok()
            .map(|context| ContextKey(context.addr()))
    }

    fn destroy_id(&self, id: Id) {
        // SAFETY: see the note above. It fails only if the kernel does not know it any more.
        unsafe { self.lib.rdma_destroy_id(id.get()) };
    }

    fn limits(&self, id: &Id) -> Result<Limits> {
        discovery::limits(&self.lib, self.context_of(id)?)
    }

    fn create_domain(&self, id: &Id) -> Result<Domain> {
        let context = self.context_of(id)?;
        // SAFETY: the identifier holds the context; rdma-core reaches the kernel through these two fields only, and nobody else uses
        // this context yet or its descriptors were moved before, which `relocate` sees.
        unsafe {
            (*context).cmd_fd = (self.relocate)((*context).cmd_fd);
            (*context).async_fd = (self.relocate)((*context).async_fd);
        }
        // SAFETY: see the note above.
        let answer = unsafe { self.lib.ibv_alloc_pd(context) };
        non_null(answer, "allocating a protection domain").map(|p| Domain(p.expose_provenance()))
    }

    fn destroy_domain(&self, domain: Domain) {
        // SAFETY: see the note above.
        unsafe { self.lib.ibv_dealloc_pd(pointer(domain.0)) };
    }

    fn create_completion_channel(&self, id: &Id) -> Result<CompletionChannel> {
        // SAFETY: see the note above.
        let answer = unsafe { self.lib.ibv_create_comp_channel(self.context_of(id)?) };
        let channel = non_null(answer, "creating a completion channel")?;
        // SAFETY: just made; only this field of it is used to reach the kernel.
        let fd = unsafe {
            (*channel).fd = (self.relocate)((*channel).fd);
            (*channel).fd
        };
        let handle = CompletionChannel(channel.expose_provenance());
        match Self::make_non_blocking(fd) {
            Ok(()) => Ok(handle),
            Err(error) => {
                self.destroy_completion_channel(handle);
                Err(error)
            }
        }
    }

    fn completion_channel_fd(&self, channel: &CompletionChannel) -> i32 {
        // SAFETY: see the note above.
        unsafe { (*pointer::<ibv_comp_channel>(channel.0)).fd }
    }

    fn next_completion_event(&self, channel: &CompletionChannel) -> Result<Option<usize>> {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: see the note above.
        if unsafe {
            self.lib
                .ibv_get_cq_event(pointer(channel.0), &raw mut queue, &raw mut context)
        } != 0
        {
            return match failed("reading a completion event") {
                Error::System {
                    errno: libc::EAGAIN | libc::EINTR,
                    ..
                } => Ok(None),
                error => Err(error),
            };
        }
        // SAFETY: the queue of this event cannot be gone, since giving it back waits for this acknowledgement.
        unsafe { self.lib.ibv_ack_cq_events(queue, 1) };
        Ok(Some(context.addr()))
    }

    fn destroy_completion_channel(&self, channel: CompletionChannel) {
        // SAFETY: see the note above.
        unsafe { self.lib.ibv_destroy_comp_channel(pointer(channel.0)) };
    }

    unsafe fn register(
        &self,
        domain: &Domain,
        address: *mut u8,
        length: usize,
        remote: bool,
    ) -> Result<Registration> {
        let mut access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
        if remote {
            access |= ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
        }
        // SAFETY: the caller keeps the memory mapped.
        let answer = unsafe {
            self.lib
                .ibv_reg_mr(pointer(domain.0), address.cast(), length, access.0 as c_int)
        };
        let region = non_null(answer, "registering memory")?;
        // SAFETY: just made.
        let (local_key, remote_key) = unsafe { ((*region).lkey, (*region).rkey) };
        Ok(Registration {
            handle: region.expose_provenance(),
            local_key,
            remote_key,
        })
    }

    fn deregister(&self, registration: Registration) {
        // SAFETY: see the note above.
        unsafe { self.lib.ibv_dereg_mr(pointer(registration.handle)) };
    }

    fn create_completion_queue(
        &self,
        id: &Id,
        channel: &CompletionChannel,
        entries: u32,
        token: usize,
    ) -> Result<CompletionQueue> {
        let context = core::ptr::without_provenance_mut(token);
        // SAFETY: see the note above; the context is only a number to the library.
        let queue = unsafe {
            self.lib.ibv_create_cq(
                self.context_of(id)?,
                entries as c_int,
                context,
                pointer(channel.0),
                0,
            )
        };
        non_null(queue, "creating a completion queue")
            .map(|p| CompletionQueue(p.expose_provenance()))
    }

    fn arm(&self, queue: &CompletionQueue) -> Result<()> {
        // SAFETY: see the note above.
        let answer = unsafe { inline::ibv_req_notify_cq(pointer(queue.0), 0) };
        code(answer, "arming a completion queue")
    }

    #[inline]
    fn poll(&self, queue: &CompletionQueue, into: &mut [Completion]) -> Result<usize> {
        work::poll(pointer(queue.0), into)
    }

    fn destroy_completion_queue(&self, queue: CompletionQueue) {
        // SAFETY: see the note above.
        unsafe { self.lib.ibv_destroy_cq(pointer(queue.0)) };
    }

    fn create_queue_pair(
        &self,
        id: &Id,
        domain: &Domain,
        queue: &CompletionQueue,
        sizes: QueueSizes,
    ) -> Result<QueueSizes> {
        let queue: *mut ibv_cq = pointer(queue.0);
        let mut attributes = ibv_qp_init_attr {
            send_cq: queue,
            recv_cq: queue,
            cap: ibv_qp_cap {
                max_send_wr: sizes.send,
                max_recv_wr: sizes.receive,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: sizes.inline,
            },
            qp_type: ibv_qp_type::IBV_QPT_RC,
            ..Default::default()
        };
        // SAFETY: see the note above.
        let answer = unsafe {
            self.lib
                .rdma_create_qp(id.get(), pointer(domain.0), &raw mut attributes)
        };
        checked(answer, "creating a queue pair")?;
        // Some drivers grant what was asked for without saying so.
        Ok(QueueSizes {
            send: attributes.cap.max_send_wr.max(sizes.send),
            receive: attributes.cap.max_recv_wr.max(sizes.receive),
            inline: attributes.cap.max_inline_data,
        })
    }

    fn destroy_queue_pair(&self, id: &Id) {
        // SAFETY: see the note above; the library looks whether there is one.
        unsafe {
            if !(*id.get()).qp.is_null() {
                self.lib.rdma_destroy_qp(id.get());
            }
        }
    }

    #[inline]
    fn post_send(&self, id: &Id, work: &[SendWork]) -> Result<()> {
        // SAFETY: see the note above; callers have made the queue pair.
        work::post_send(unsafe { (*id.get()).qp }, work)
    }

    #[inline]
    fn post_receive(&self, id: &Id, work: &[ReceiveWork]) -> Result<()> {
        // SAFETY: see the note above; callers have made the queue pair.
        work::post_receive(unsafe { (*id.get()).qp }, work)
    }

    fn status_text(&self, status: u32) -> String {
        // SAFETY: takes any number, gives a constant string.
        unsafe { core::ffi::CStr::from_ptr(self.lib.ibv_wc_status_str(status)) }
            .to_string_lossy()
            .into_owned()
    }
}
