//! The constructor: resolves every real function, registers what libc is to tell us, and opens the gate.

use core::fmt::{self, Write};
use core::ptr::null_mut;
use libc::{c_int, c_void};
use rsock_core::calls;
use std::panic;
use syscalls::{Sysno, syscall};

use crate::guard::{note, open};
use crate::{
    aio, batch, copy, data, descriptors, epoll, files, options, process, raw, readiness, sockets,
    stdio,
};

unsafe extern "C" {
    /// What atexit(3) is made of. Without a library handle: handlers with one run when that library ends, and others' last
    /// destructors still use sockets then.
    fn __cxa_atexit(
        handler: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
}

// SAFETY: calls nothing that needs another library's constructor (the linker was told to run this one first).
#[ctor::ctor(unsafe)]
fn start() {
    resolve();
    panic::set_hook(Box::new(report));
    // SAFETY: the handlers stay loaded (-z nodelete) and unwind nowhere. Failure (no memory) leaves a child or an exit that
    // rsock learns of from the process id, or not at all: nothing is lost but what was on lanes.
    unsafe {
        libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child));
        __cxa_atexit(at_exit, null_mut(), null_mut());
    }
    calls::start();
    open();
}

/// So that no call has to, in a signal handler or a forked child.
fn resolve() {
    sockets::plain::warm();
    sockets::real::warm();
    descriptors::plain::warm();
    descriptors::real::warm();
    options::plain::warm();
    options::real::warm();
    data::real::warm();
    batch::real::warm();
    files::real::warm();
    copy::plain::warm();
    copy::real::warm();
    readiness::real::warm();
    epoll::plain::warm();
    epoll::real::warm();
    stdio::plain::warm();
    stdio::real::warm();
    process::plain::warm();
    process::real::warm();
    aio::real::warm();
    raw::real::warm();
}

extern "C" fn before_fork() {
    note(calls::before_fork);
}

extern "C" fn in_parent() {
    note(calls::after_fork_parent);
}

extern "C" fn in_child() {
    process::in_child();
}

extern "C" fn at_exit(_: *mut c_void) {
    note(calls::at_exit);
}

/// Tells of a panic of ours without std's standard error, which is our own `write`, and without memory of its own.
fn report(info: &panic::PanicHookInfo<'_>) {
    struct Line {
        bytes: [u8; 256],
        used: usize,
    }
    impl Write for Line {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let room = &mut self.bytes[self.used..];
            let fits = text.len().min(room.len());
            room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
            self.used += fits;
            Ok(())
        }
    }
    let mut line = Line {
        bytes: [0; 256],
        used: 0,
    };
    // Neither can fail in a way that anybody could be told of.
    let _cut_short = writeln!(
        line,
        "rsock: internal error, this call goes on without it: {info}"
    );
    // SAFETY: the bytes are there.
    let _closed = unsafe { syscall!(Sysno::write, 2, line.bytes.as_ptr(), line.used) };
}
