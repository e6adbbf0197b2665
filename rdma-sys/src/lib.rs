//! Bindings to rdma-core: the rdma_cm and the verbs, as `<rdma/rdma_cma.h>` and `<infiniband/verbs.h>` declare them.
//!
//! Nothing links against rdma-core: [`open`] loads librdmacm.so.1 at run time, so one binary serves hosts with and without
//! it. One handle is enough, since symbols are looked up in the library and in what it depends on (libibverbs.so.1).
//! What the headers define as inline functions is in [`inline`].
//!
//! All of these call libc (open, read, write, ioctl, poll, malloc, pthread_mutex_lock): inside a program that runs with
//! librsock.so they come back through the exported symbols, so they are called only from within rsock's own firewall, and
//! with thread cancellation disabled.
//!
//! The declarations are bindgen's. src/bindings.rs was generated on Debian 12 (rdma-core 44); later versions of rdma-core only
//! add to these structures' ends or to their enumerations, which the test `bindings` of feature `bindgen` checks with the headers
//! at hand; `RSOCK_UPDATE_BINDINGS=1 cargo test -p rsock-rdma-sys --features bindgen` writes the file anew.

/// The generated declarations, and `RdmaCore`, the table of functions.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    dead_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
#[rustfmt::skip]
pub mod bindings {
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("bindings.rs");
}
pub mod inline;

pub use bindings::RdmaCore;

/// The file name of the library, as every distribution has it since 2006.
pub const LIBRARY: &str = "librdmacm.so.1";

/// Loads rdma-core. Fails where it is not installed or lacks a function, with the loader's message, and loads nothing then.
///
/// It stays loaded for the life of the process (it has threads' keys and at-exit handlers of its own).
pub fn open() -> Result<RdmaCore, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: the initialisers of librdmacm and libibverbs only set up tables.
    let library =
        unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL | libc::RTLD_NODELETE)? };
    // SAFETY: the functions of this library have the types that its own headers declare.
    unsafe { RdmaCore::from_library(library) }
}

#[cfg(test)]
mod tests {
    /// A host without rdma-core gets an error to report, and one with it a complete table; neither ends the process.
    #[test]
    fn opening_never_panics() {
        match super::open() {
            Ok(rdma) => {
                // SAFETY: the argument is a plain number; the answer is a constant string.
                let text = unsafe { core::ffi::CStr::from_ptr(rdma.ibv_wc_status_str(0)) };
                assert_eq!(text.to_str(), Ok("success"));
            }
            Err(error) => assert!(error.to_string().contains(super::LIBRARY), "{error}"),
        }
    }
}
