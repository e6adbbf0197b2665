//! What can go wrong below the link, said so that a person can act on it.

use core::fmt;

/// Why something on the RDMA side failed. None of these ends a stream: it stays on TCP, or goes back to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// rdma-core is not installed or not complete; the loader's own words.
    Library(String),
    /// The kernel offers no RDMA device (ENOSYS, ENODEV: no driver is loaded).
    NoDevice,
    /// Something was refused: what was tried, and the error number.
    System {
        /// The function and on what.
        what: &'static str,
        /// As errno(3) has it.
        errno: i32,
    },
    /// The queue pair is finished; why.
    Lost(String),
    /// The device does not offer what is needed; what.
    Unfit(&'static str),
}

/// A result with our [`Error`].
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// The error number, if the kernel or the library gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::System { errno, .. } => Some(*errno),
            Error::NoDevice => Some(libc::ENODEV),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Library(text) => write!(f, "cannot load rdma-core (package librdmacm1): {text}"),
            Error::NoDevice => f.write_str("the kernel offers no RDMA device (no driver loaded?)"),
            Error::System { what, errno } => {
                write!(f, "{what}: {}", std::io::Error::from_raw_os_error(*errno))?;
                match (*errno, *what) {
                    (libc::ENOMEM, "registering memory") => {
                        f.write_str(" (the limit on locked memory is too low: ulimit -l, or LimitMEMLOCK= of a service)")
                    }
                    (libc::EACCES | libc::EPERM, _) => f.write_str(" (no access to /dev/infiniband, or the process changed its identity after opening it)"),
                    _ => Ok(()),
                }
            }
            Error::Lost(why) => write!(f, "the queue pair is lost: {why}"),
            Error::Unfit(what) => write!(f, "the device is unfit: {what}"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_memory_limit_is_named_with_its_cure() {
        let text = Error::System {
            what: "registering memory",
            errno: libc::ENOMEM,
        }
        .to_string();
        assert!(text.contains("ulimit -l"), "{text}");
        let other = Error::System {
            what: "creating a completion queue",
            errno: libc::ENOMEM,
        }
        .to_string();
        assert!(!other.contains("ulimit"), "{other}");
    }
}
