//! The next function of the same name: what the program would have called without us.
//!
//! A [`Slot`] is filled by the library's constructor, or by the first call where another constructor ran before ours.
//! No lock, no allocation of ours, and never null afterwards: a function that this libc lacks becomes one that answers
//! ENOSYS, because exporting a name makes a program's test for the (weak) function succeed.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use libc::{c_long, c_void};

use crate::guard::set_errno;

/// The address of a libc function, null until resolved.
pub struct Slot(AtomicPtr<c_void>);

impl Slot {
    /// An empty slot.
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The function's address; `name` is looked up the first time.
    #[inline(always)]
    pub fn get(&self, name: &CStr) -> *mut c_void {
        // Relaxed: the address is all that is published, what it points at was there before us.
        let address = self.0.load(Relaxed);
        if address.is_null() {
            self.resolve(name)
        } else {
            address
        }
    }

    #[cold]
    #[inline(never)]
    fn resolve(&self, name: &CStr) -> *mut c_void {
        // SAFETY: `name` is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let address = if found.is_null() {
            missing as *const () as *mut c_void
        } else {
            found
        };
        self.0.store(address, Relaxed);
        address
    }
}

/// Stands for every function that this libc does not have.
unsafe extern "C" fn missing() -> c_long {
    set_errno(libc::ENOSYS);
    -1
}
