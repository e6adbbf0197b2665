//! librsock.so: the exported symbols, each a few lines that hand over to rsock-core ([`rsock_core::calls`]).
//!
//! The way of a call: the exported function (in the file of its kind) looks whether the descriptor is tracked; if not, it
//! jumps to the real function ([`real`]). If it is, [`drive`] runs the operation of rsock-core inside of [`guard`] and does
//! outside what it says. [`macros`] is how a function is exported, [`start`] what happens first.
#![allow(non_snake_case, reason = "the names are libc's")]

#[macro_use]
mod macros;

mod aio;
mod batch;
mod copy;
mod data;
mod descriptors;
mod drive;
mod epoll;
mod files;
mod guard;
mod options;
mod passing;
mod process;
mod raw;
mod readiness;
mod real;
mod signals;
mod sockets;
mod start;
mod stdio;
mod time;
mod variadic;

/// What carries the stream behind `fd`: bit 0 the sending direction on a lane, bit 1 the receiving one; -1: not a stream.
/// For tests and for programs that want to know; found by dlsym(3).
#[unsafe(no_mangle)]
pub extern "C" fn rsock_stream_carrier(fd: libc::c_int) -> libc::c_int {
    guard::ours(|| rsock_core::calls::carrier(fd)).unwrap_or(-1)
}
