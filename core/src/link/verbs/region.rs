//! Registered memory: what a device may read from and write to.

use super::Result;
use super::device::Device;
use super::provider::{Local, Provider, Registration, Remote};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

const PAGE: usize = 4096;

/// Zeroed, page-aligned memory of our own.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length.next_multiple_of(PAGE).max(PAGE), PAGE)
            .expect("a length that fits memory");
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })
            .unwrap_or_else(|| handle_alloc_error(layout));
        Pages { start, layout }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Memory that is registered with a device until this goes.
pub struct Region<P: Provider> {
    registration: Option<Registration>,
    start: NonNull<u8>,
    length: usize,
    // After the registration (see `drop`): the memory, if it is ours, and the domain it is registered in.
    _pages: Option<Pages>,
    device: Arc<Device<P>>,
}

// SAFETY: the memory is only handed out as raw pointers or under `&mut`; the provider's handles are plain numbers.
unsafe impl<P: Provider + Send + Sync> Send for Region<P> {}
// SAFETY: as above.
unsafe impl<P: Provider + Send + Sync> Sync for Region<P> {}

impl<P: Provider> Region<P> {
    /// Zeroed memory of our own, page-aligned. `remote`: the peer may write to it.
    pub fn allocate(device: &Arc<Device<P>>, length: usize, remote: bool) -> Result<Self> {
        let pages = Pages::new(length);
        // SAFETY: the region keeps the pages until after the registration.
        let mut region = unsafe { Self::adopt(device, pages.start, length, remote) }?;
        region._pages = Some(pages);
        Ok(region)
    }

    /// Registers memory that somebody else keeps (an arena).
    ///
    /// # Safety
    /// It stays mapped for `length` bytes until the region is dropped.
    pub unsafe fn adopt(
        device: &Arc<Device<P>>,
        start: NonNull<u8>,
        length: usize,
        remote: bool,
    ) -> Result<Self> {
        // SAFETY: the caller says so.
        let registration = unsafe {
            device
                .provider()
                .register(device.domain(), start.as_ptr(), length, remote)
        }?;
        Ok(Region {
            registration: Some(registration),
            start,
            length,
            _pages: None,
            device: device.clone(),
        })
    }

    fn registration(&self) -> &Registration {
        self.registration.as_ref().expect("taken only by drop")
    }

    /// `length` bytes at `offset`, for a work request of ours.
    ///
    /// # Panics
    /// If they are not within the region: a fault of the caller, never of the peer.
    pub fn local(&self, offset: usize, length: usize) -> Local {
        assert!(
            offset
                .checked_add(length)
                .is_some_and(|end| end <= self.length),
            "{offset} + {length} is beyond a region of {}",
            self.length
        );
        Local {
            address: (self.start.addr().get() + offset) as u64,
            length: length as u32,
            key: self.registration().local_key,
        }
    }

    /// What the peer has to know to write at `offset`.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote {
            address: (self.start.addr().get() + offset) as u64,
            key: self.registration().remote_key,
        }
    }

    /// Where the memory is. The device (for a region with `remote`: the peer) may write to it at any time.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

impl<P: Provider> Drop for Region<P> {
    fn drop(&mut self) {
        if let Some(registration) = self.registration.take() {
            self.device.provider().deregister(registration);
        }
    }
}
