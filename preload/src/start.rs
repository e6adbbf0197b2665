//! The constructor: resolves every real function, registers what libc is to tell us, and opens the gate.

use core::fmt::{self, Write};
use core::ptr::null_mut;
use libc::{c_char, c_int, c_void};
use rsock_core::calls;
use std::panic;
use syscalls::{Sysno, syscall};

use crate::guard::{note, open};
use crate::{
    aio, batch, copy, data, descriptors, epoll, files, options, process, raw, readiness, signals,
    sockets, stdio,
};

type Strings = *const *const c_char;

unsafe extern "C" {
    /// The environment, as libc and rsock-core read it.
    static mut environ: Strings;

    /// What atexit(3) is made of. Without a library handle: handlers with one run when that library ends, and others' last
    /// destructors still use sockets then.
    fn __cxa_atexit(
        handler: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
}

/// Not the ctor crate's: a constructor that runs first (-z initfirst) runs before glibc has set `environ`, and must take it
/// from the loader's arguments.
#[used]
// SAFETY: the section holds pointers to functions of this type. (musl passes no arguments, but has set `environ`.)
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn(c_int, Strings, Strings) = start;

unsafe extern "C" fn start(_: c_int, _: Strings, environment: Strings) {
    resolve();
    signals::own();
    panic::set_hook(Box::new(report));
    // SAFETY: no other thread exists. The handlers stay loaded (-z nodelete) and unwind nowhere. If libc has no memory to
    // note them, a child is told by its process id, and what an exit would have flushed is lost as with kill -9.
    unsafe {
        if environ.is_null() {
            environ = environment;
        }
        libc::pthread_atfork(Some(before_fork), None, Some(in_child));
        __cxa_atexit(at_exit, null_mut(), null_mut());
    }
    if panic::catch_unwind(calls::start).is_ok() {
        open();
    }
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
    signals::plain::warm();
    aio::real::warm();
    raw::real::warm();
}

extern "C" fn before_fork() {
    note(calls::before_fork);
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
