//! The names of the script language: errno, flags and events by the names of their manual pages.
//!
//! Both directions, so that a transcript reads like a trace: `IN|RDHUP`, `ECONNRESET`.

use libc::c_int;

/// A name and its value.
type Names = &'static [(&'static str, i64)];

/// Defines a table whose names are those of libc without a common prefix.
macro_rules! table {
    ($(#[$doc:meta])* $table:ident: $($name:literal $value:expr),* $(,)?) => {
        $(#[$doc])*
        pub const $table: Names = &[$(($name, $value as i64)),*];
    };
}

table! {
    /// Flags of send and recv.
    MSG: "OOB" libc::MSG_OOB, "PEEK" libc::MSG_PEEK, "TRUNC" libc::MSG_TRUNC, "CTRUNC" libc::MSG_CTRUNC,
    "WAITALL" libc::MSG_WAITALL, "DONTWAIT" libc::MSG_DONTWAIT, "EOR" libc::MSG_EOR, "MORE" libc::MSG_MORE,
    "NOSIGNAL" libc::MSG_NOSIGNAL, "ERRQUEUE" libc::MSG_ERRQUEUE, "WAITFORONE" libc::MSG_WAITFORONE,
    "CMSG_CLOEXEC" libc::MSG_CMSG_CLOEXEC, "FASTOPEN" libc::MSG_FASTOPEN, "DONTROUTE" libc::MSG_DONTROUTE,
}
table! {
    /// Events of poll.
    POLL: "IN" libc::POLLIN, "OUT" libc::POLLOUT, "PRI" libc::POLLPRI, "ERR" libc::POLLERR, "HUP" libc::POLLHUP,
    "NVAL" libc::POLLNVAL, "RDHUP" libc::POLLRDHUP, "RDNORM" libc::POLLRDNORM, "RDBAND" libc::POLLRDBAND,
    "WRNORM" libc::POLLWRNORM, "WRBAND" libc::POLLWRBAND,
}
table! {
    /// Events and modes of epoll.
    EPOLL: "IN" libc::EPOLLIN, "OUT" libc::EPOLLOUT, "PRI" libc::EPOLLPRI, "ERR" libc::EPOLLERR, "HUP" libc::EPOLLHUP,
    "RDHUP" libc::EPOLLRDHUP, "RDNORM" libc::EPOLLRDNORM, "WRNORM" libc::EPOLLWRNORM, "RDBAND" libc::EPOLLRDBAND,
    "WRBAND" libc::EPOLLWRBAND, "ET" libc::EPOLLET as u32, "ONESHOT" libc::EPOLLONESHOT,
    "EXCLUSIVE" libc::EPOLLEXCLUSIVE, "WAKEUP" libc::EPOLLWAKEUP,
}
table! {
    /// Type flags of socket and accept4, and what F_GETFL may show.
    SOCK: "NONBLOCK" libc::O_NONBLOCK, "CLOEXEC" libc::O_CLOEXEC, "APPEND" libc::O_APPEND, "ASYNC" libc::O_ASYNC,
}
table! {
    /// Signals.
    SIGNAL: "USR1" libc::SIGUSR1, "USR2" libc::SIGUSR2, "PIPE" libc::SIGPIPE, "ALRM" libc::SIGALRM, "TERM" libc::SIGTERM,
    "KILL" libc::SIGKILL, "STOP" libc::SIGSTOP, "CONT" libc::SIGCONT, "CHLD" libc::SIGCHLD, "ABRT" libc::SIGABRT,
    "IO" libc::SIGIO, "URG" libc::SIGURG,
}
table! {
    /// Failures.
    ERRNO: "EPERM" libc::EPERM, "ENOENT" libc::ENOENT, "ESRCH" libc::ESRCH, "EINTR" libc::EINTR, "EIO" libc::EIO,
    "EBADF" libc::EBADF, "ECHILD" libc::ECHILD, "EAGAIN" libc::EAGAIN, "ENOMEM" libc::ENOMEM, "EACCES" libc::EACCES,
    "EFAULT" libc::EFAULT, "EBUSY" libc::EBUSY, "EEXIST" libc::EEXIST, "EINVAL" libc::EINVAL, "EMFILE" libc::EMFILE,
    "ENOTTY" libc::ENOTTY, "ESPIPE" libc::ESPIPE, "EPIPE" libc::EPIPE, "ELOOP" libc::ELOOP, "ENODATA" libc::ENODATA,
    "ENOTSOCK" libc::ENOTSOCK, "EDESTADDRREQ" libc::EDESTADDRREQ, "EMSGSIZE" libc::EMSGSIZE,
    "ENOPROTOOPT" libc::ENOPROTOOPT, "EPROTONOSUPPORT" libc::EPROTONOSUPPORT, "EOPNOTSUPP" libc::EOPNOTSUPP,
    "EAFNOSUPPORT" libc::EAFNOSUPPORT, "EADDRINUSE" libc::EADDRINUSE, "EADDRNOTAVAIL" libc::EADDRNOTAVAIL,
    "ENETUNREACH" libc::ENETUNREACH, "ECONNABORTED" libc::ECONNABORTED, "ECONNRESET" libc::ECONNRESET,
    "ENOBUFS" libc::ENOBUFS, "EISCONN" libc::EISCONN, "ENOTCONN" libc::ENOTCONN, "ESHUTDOWN" libc::ESHUTDOWN,
    "ETIMEDOUT" libc::ETIMEDOUT, "ECONNREFUSED" libc::ECONNREFUSED, "EHOSTUNREACH" libc::EHOSTUNREACH,
    "EALREADY" libc::EALREADY, "EINPROGRESS" libc::EINPROGRESS, "ENOSYS" libc::ENOSYS, "ERANGE" libc::ERANGE,
    "EDOM" libc::EDOM, "ENFILE" libc::ENFILE, "EFBIG" libc::EFBIG, "ENXIO" libc::ENXIO,
}
table! {
    /// Socket options by level and name (`level << 32 | name`).
    OPTION: "SO_ERROR" so(libc::SO_ERROR), "SO_TYPE" so(libc::SO_TYPE), "SO_DOMAIN" so(libc::SO_DOMAIN),
    "SO_PROTOCOL" so(libc::SO_PROTOCOL), "SO_ACCEPTCONN" so(libc::SO_ACCEPTCONN), "SO_RCVLOWAT" so(libc::SO_RCVLOWAT),
    "SO_SNDLOWAT" so(libc::SO_SNDLOWAT), "SO_SNDBUF" so(libc::SO_SNDBUF), "SO_RCVBUF" so(libc::SO_RCVBUF),
    "SO_KEEPALIVE" so(libc::SO_KEEPALIVE), "SO_REUSEADDR" so(libc::SO_REUSEADDR), "SO_REUSEPORT" so(libc::SO_REUSEPORT),
    "SO_OOBINLINE" so(libc::SO_OOBINLINE), "SO_BROADCAST" so(libc::SO_BROADCAST), "SO_PRIORITY" so(libc::SO_PRIORITY),
    "SO_LINGER" so(libc::SO_LINGER), "SO_RCVTIMEO" so(libc::SO_RCVTIMEO), "SO_SNDTIMEO" so(libc::SO_SNDTIMEO),
    "SO_ZEROCOPY" so(libc::SO_ZEROCOPY), "SO_BUSY_POLL" so(libc::SO_BUSY_POLL), "SO_INCOMING_CPU" so(libc::SO_INCOMING_CPU),
    "TCP_NODELAY" tcp(libc::TCP_NODELAY), "TCP_CORK" tcp(libc::TCP_CORK), "TCP_KEEPIDLE" tcp(libc::TCP_KEEPIDLE),
    "TCP_KEEPINTVL" tcp(libc::TCP_KEEPINTVL), "TCP_KEEPCNT" tcp(libc::TCP_KEEPCNT), "TCP_QUICKACK" tcp(libc::TCP_QUICKACK),
    "TCP_DEFER_ACCEPT" tcp(libc::TCP_DEFER_ACCEPT), "TCP_USER_TIMEOUT" tcp(libc::TCP_USER_TIMEOUT),
    "TCP_FASTOPEN" tcp(libc::TCP_FASTOPEN), "TCP_LINGER2" tcp(libc::TCP_LINGER2), "TCP_SYNCNT" tcp(libc::TCP_SYNCNT),
    "TCP_NOTSENT_LOWAT" tcp(libc::TCP_NOTSENT_LOWAT), "TCP_FASTOPEN_CONNECT" tcp(libc::TCP_FASTOPEN_CONNECT),
    "IPV6_V6ONLY" level(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), "IP_TOS" level(libc::IPPROTO_IP, libc::IP_TOS),
    "IP_TTL" level(libc::IPPROTO_IP, libc::IP_TTL), "UNKNOWN" level(libc::SOL_SOCKET, 9999),
    "TCP_UNKNOWN" tcp(9999),
}

const fn level(level: c_int, name: c_int) -> i64 {
    (level as i64) << 32 | name as i64
}
const fn so(name: c_int) -> i64 {
    level(libc::SOL_SOCKET, name)
}
const fn tcp(name: c_int) -> i64 {
    level(libc::IPPROTO_TCP, name)
}

/// The value of one name, or of several joined by `|`; `-` and `0` are none; a number stands for itself.
pub fn value(names: Names, text: &str) -> Result<i64, String> {
    if text == "-" {
        return Ok(0);
    }
    text.split('|').try_fold(0, |sum, word| {
        names
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, value)| *value)
            .or_else(|| word.parse().ok())
            .map(|value| sum | value)
            .ok_or_else(|| format!("unknown name {word}"))
    })
}

/// As [`value`], for the many places that want a C int.
pub fn int(names: Names, text: &str) -> Result<c_int, String> {
    value(names, text).map(|value| value as c_int)
}

/// The names of all bits of `value`, joined by `|`; `-` when there is none.
pub fn bits(names: Names, value: i64) -> String {
    let mut rest = value;
    let mut words = Vec::new();
    for (name, bit) in names {
        if *bit != 0 && rest & bit == *bit {
            words.push((*name).to_owned());
            rest &= !bit;
        }
    }
    if rest != 0 {
        words.push(format!("{rest:#x}"));
    }
    if words.is_empty() {
        "-".to_owned()
    } else {
        words.join("|")
    }
}

/// The name of one value, or the number.
pub fn name(names: Names, value: i64) -> String {
    names
        .iter()
        .find(|(_, each)| *each == value)
        .map_or_else(|| value.to_string(), |(name, _)| (*name).to_owned())
}
