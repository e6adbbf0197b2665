//! fork, exec, exit, namespaces: where a process begins, changes or ends.

use libc::{c_char, c_int, c_void, pid_t};
use rsock_core::calls::{self, BeforeExec, Reason, tracked};
use syscalls::{Sysno, syscall};

use crate::drive::{Sleep, drive, pin};
use crate::guard::{note, note_in_child};
use crate::signals;

type Strings = *const *const c_char;

hook_plain! {
    // fork and what is built on it run the handlers of `start`; this one runs none.
    unsafe fn _Fork() -> pid_t => my__Fork {
        let pid = plain::_Fork();
        if pid == 0 {
            in_child();
        }
        pid
    }
    unsafe fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int => my_execve {
        exec(|| plain::execve(path, argv, envp))
    }
    unsafe fn execv(path: *const c_char, argv: Strings) -> c_int => my_execv {
        exec(|| plain::execv(path, argv))
    }
    unsafe fn execvp(file: *const c_char, argv: Strings) -> c_int => my_execvp {
        exec(|| plain::execvp(file, argv))
    }
    unsafe fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int => my_fexecve {
        exec(|| plain::fexecve(fd, argv, envp))
    }
    // What posix_spawn does in the child cannot be seen. A stream that it puts in another place is for the new program.
    unsafe fn posix_spawn_file_actions_adddup2(
        actions: *mut libc::posix_spawn_file_actions_t, fd: c_int, new: c_int
    ) -> c_int => my_posix_spawn_file_actions_adddup2 {
        if tracked(fd) && !pin(fd, Reason::PinnedExec) {
            return crate::guard::errno();
        }
        plain::posix_spawn_file_actions_adddup2(actions, fd, new)
    }
    // libc's own fork, whose parent ends by an _exit that nobody sees: streams must not be the parent's by then.
    unsafe fn daemon(no_chdir: c_int, no_close: c_int) -> c_int => my_daemon {
        drive(-1, Sleep::Through, BeforeExec::daemon, || plain::daemon(no_chdir, no_close))
    }
    unsafe fn unshare(flags: c_int) -> c_int => my_unshare {
        note(calls::quiet);
        plain::unshare(flags)
    }
    unsafe fn setns(fd: c_int, kind: c_int) -> c_int => my_setns {
        note(calls::quiet);
        plain::setns(fd, kind)
    }
}

hook_cancel! {
    unsafe fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
        exec(|| real::execvpe(file, argv, envp))
    }
    unsafe fn execveat(fd: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int) -> c_int {
        exec(|| real::execveat(fd, path, argv, envp, flags))
    }
    unsafe fn _exit(status: c_int) -> ! {
        note(calls::at_exit);
        real::_exit(status)
    }
    unsafe fn _Exit(status: c_int) -> ! {
        note(calls::at_exit);
        real::_Exit(status)
    }
    unsafe fn quick_exit(status: c_int) -> ! {
        note(calls::at_exit);
        real::quick_exit(status)
    }
    // The process ends with its last thread, which ours must not be. The unwinding passes through here.
    unsafe fn pthread_exit(value: *mut c_void) -> ! {
        if is_initial_thread() {
            note(calls::main_leaves);
        }
        real::pthread_exit(value)
    }
}

/// What pthread_atfork and _Fork run in the child.
pub fn in_child() {
    signals::own();
    note_in_child(calls::after_fork_child);
}

/// Streams that survive the exec go to TCP first; then `real`, which returns only if it fails.
fn exec(real: impl FnMut() -> c_int) -> c_int {
    // SAFETY: nothing is pointed to.
    unsafe { drive(-1, Sleep::Through, BeforeExec::new, real) }
}

fn is_initial_thread() -> bool {
    // SAFETY: neither call takes an argument or fails.
    unsafe { syscall!(Sysno::gettid).ok() == syscall!(Sysno::getpid).ok() }
}
