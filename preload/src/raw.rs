//! syscall(2): programs that call the kernel by number find their streams too.
//!
//! Only through the libc function; an instruction of the program's own is out of reach, as is io_uring, which rsock sees
//! nothing of (docs/compatibility.md).

use libc::{c_int, c_long, c_uint, c_void, iovec, sigset_t, sockaddr, socklen_t, timespec};
use rsock_core::calls::tracked;

use crate::{
    batch, copy, data, descriptors, epoll, files, options, process, readiness, sockets, time,
};

hook_cancel! {
    // Variadic with six at most; the platforms we build for pass them like fixed ones.
    unsafe fn syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long {
        match routed(number, [a, b, c, d, e, f]) {
            Some(result) => result,
            None => real::syscall(number, a, b, c, d, e, f),
        }
    }
}

/// The same call through our own export. None: not one of those, or not on a descriptor of ours.
///
/// # Safety
/// The arguments are those of that system call.
#[inline]
unsafe fn routed(number: c_long, args: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = args;
    let fd = a as c_int;
    // SAFETY: each arm hands the program's arguments to the function of the same name.
    unsafe {
        let result: c_long = match number {
            // Those that make or copy descriptors, or start a program, whatever they are on.
            libc::SYS_socket => sockets::my_socket(fd, b as c_int, c as c_int).into(),
            libc::SYS_accept => sockets::accept(fd, pointer(b), pointer(c)).into(),
            libc::SYS_accept4 => sockets::accept4(fd, pointer(b), pointer(c), d as c_int).into(),
            libc::SYS_dup => descriptors::my_dup(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptors::my_dup2(fd, b as c_int).into(),
            libc::SYS_dup3 => descriptors::my_dup3(fd, b as c_int, c as c_int).into(),
            libc::SYS_fcntl => options::fcntl(fd, b as c_int, c as _).into(),
            libc::SYS_close_range => {
                descriptors::close_range(a as c_uint, b as c_uint, c as c_int).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => epoll::my_epoll_create(fd).into(),
            libc::SYS_epoll_create1 => epoll::my_epoll_create1(fd).into(),
            libc::SYS_epoll_ctl => {
                epoll::my_epoll_ctl(fd, b as c_int, c as c_int, pointer(d)).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => readiness::poll(pointer(a), b as _, c as c_int).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                readiness::select(fd, pointer(b), pointer(c), pointer(d), pointer(e)).into()
            }
            libc::SYS_ppoll => {
                // The kernel writes back what is left of the time-out; the libc function has a copy of it.
                let timeout: *mut timespec = pointer(c);
                let end = left_of(timeout);
                let result = readiness::ppoll(pointer(a), b as _, timeout, pointer(d));
                write_back(timeout, end);
                result.into()
            }
            libc::SYS_pselect6 => {
                let timeout: *mut timespec = pointer(e);
                let end = left_of(timeout);
                // The sixth argument leads to the mask and its size (select(2)).
                let mask = pointer::<*const sigset_t>(f);
                let mask = mask.as_ref().map_or(core::ptr::null(), |mask| *mask);
                let result =
                    readiness::pselect(fd, pointer(b), pointer(c), pointer(d), timeout, mask);
                write_back(timeout, end);
                result.into()
            }
            libc::SYS_splice => copy::splice(
                fd,
                pointer(b),
                c as c_int,
                pointer(d),
                e as usize,
                f as c_uint,
            ) as c_long,
            libc::SYS_execve => process::my_execve(pointer(a), pointer(b), pointer(c)).into(),
            libc::SYS_execveat => {
                process::execveat(fd, pointer(b), pointer(c), pointer(d), e as c_int).into()
            }
            libc::SYS_exit_group => process::_exit(fd),
            _ if tracked(fd) => return on_tracked(number, args),
            _ => return None,
        };
        Some(result)
    }
}

/// When a time-out of the program's is over; None where there is none, or none to be written back.
///
/// # Safety
/// Null, or a time-out.
unsafe fn left_of(timeout: *const timespec) -> Option<timespec> {
    // SAFETY: the caller's.
    let given = unsafe { timeout.as_ref() }?;
    (time::valid(given) && !time::is_zero(given)).then(|| time::after(given))
}

/// What is left until then (fs/select.c, `poll_select_finish`).
///
/// # Safety
/// As for [`left_of`], which gave `end`.
unsafe fn write_back(timeout: *mut timespec, end: Option<timespec>) {
    if let Some(end) = end {
        // SAFETY: there is an end, so the pointer is not null.
        unsafe { *timeout = time::until(&end) };
    }
}

/// [`routed`], those with a tracked descriptor first.
#[inline(never)]
unsafe fn on_tracked(number: c_long, args: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = args;
    let fd = a as c_int;
    let (buffer, size) = (b as *mut c_void, c as usize);
    let iov = b as *const iovec;
    // SAFETY: as in `routed`.
    unsafe {
        Some(match number {
            libc::SYS_read => files::read(fd, buffer, size) as c_long,
            libc::SYS_write => files::write(fd, buffer, size) as c_long,
            libc::SYS_readv => files::readv(fd, iov, c as c_int) as c_long,
            libc::SYS_writev => files::writev(fd, iov, c as c_int) as c_long,
            // The offset comes in two halves, of which a 64-bit kernel reads the first.
            libc::SYS_preadv2 => files::preadv2(fd, iov, c as c_int, d, f as c_int) as c_long,
            libc::SYS_pwritev2 => files::pwritev2(fd, iov, c as c_int, d, f as c_int) as c_long,
            libc::SYS_recvfrom => {
                data::recvfrom(fd, buffer, size, d as c_int, pointer(e), pointer(f)) as c_long
            }
            libc::SYS_recvmsg => data::recvmsg(fd, pointer(b), c as c_int) as c_long,
            libc::SYS_recvmmsg => {
                batch::recvmmsg(fd, pointer(b), c as c_uint, d as c_int, pointer(e)).into()
            }
            libc::SYS_sendto => data::sendto(
                fd,
                buffer,
                size,
                d as c_int,
                e as *const sockaddr,
                f as socklen_t,
            ) as c_long,
            libc::SYS_sendmsg => data::sendmsg(fd, pointer(b), c as c_int) as c_long,
            libc::SYS_sendmmsg => batch::sendmmsg(fd, pointer(b), c as c_uint, d as c_int).into(),
            libc::SYS_sendfile => {
                copy::my_sendfile(fd, b as c_int, pointer(c), d as usize) as c_long
            }
            libc::SYS_connect => sockets::connect(fd, pointer(b), c as socklen_t).into(),
            libc::SYS_listen => sockets::my_listen(fd, b as c_int).into(),
            libc::SYS_shutdown => sockets::my_shutdown(fd, b as c_int).into(),
            libc::SYS_close => descriptors::close(fd).into(),
            libc::SYS_ioctl => options::my_ioctl(fd, b as _, pointer(c)).into(),
            libc::SYS_getsockopt => {
                options::my_getsockopt(fd, b as c_int, c as c_int, pointer(d), pointer(e)).into()
            }
            libc::SYS_setsockopt => {
                options::my_setsockopt(fd, b as c_int, c as c_int, pointer(d), e as socklen_t)
                    .into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => {
                epoll::epoll_wait(fd, pointer(b), c as c_int, d as c_int).into()
            }
            libc::SYS_epoll_pwait => {
                epoll::epoll_pwait(fd, pointer(b), c as c_int, d as c_int, pointer(e)).into()
            }
            libc::SYS_epoll_pwait2 => {
                epoll::epoll_pwait2(fd, pointer(b), c as c_int, pointer(d), pointer(e)).into()
            }
            _ => return None,
        })
    }
}

#[inline(always)]
fn pointer<T>(value: c_long) -> *mut T {
    value as usize as *mut T
}
