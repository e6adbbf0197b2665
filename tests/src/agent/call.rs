//! One call to libc: its result, its errno, and whether a success touched errno.

use super::words;
use std::fmt::{self, Display, Formatter};

/// What errno holds before each call; a call that succeeds must leave it there.
const UNTOUCHED: i32 = libc::EBADFD;

/// The outcome of a call.
#[derive(Clone, Copy)]
pub struct Call {
    /// What the function returned.
    pub result: i64,
    /// errno afterwards.
    pub errno: i32,
}

/// Sets errno to a value that no socket call sets.
pub fn begin() {
    // SAFETY: the address of this thread's errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = UNTOUCHED };
}

/// The call has just returned this.
pub fn end(result: i64) -> Call {
    // SAFETY: as above.
    let errno = unsafe { *libc::__errno_location() };
    Call { result, errno }
}

impl Call {
    /// Did it fail?
    pub fn failed(self) -> bool {
        self.result < 0
    }

    /// The name of errno.
    pub fn error(self) -> String {
        words::name(words::ERRNO, self.errno.into())
    }

    /// The result as a length: 0 for a failure.
    pub fn length(self) -> usize {
        usize::try_from(self.result).unwrap_or(0)
    }

    /// As `Display`, with `shown` in the place of a result that is not for the transcript.
    pub fn shown_as(self, shown: &str) -> String {
        if self.failed() {
            format!("= {} {}", self.result, self.error())
        } else if self.errno == UNTOUCHED {
            format!("= {shown}")
        } else {
            format!("= {shown} (errno became {})", self.error())
        }
    }
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown_as(&self.result.to_string()))
    }
}

/// Calls a function of libc; the value is a [`Call`].
macro_rules! sys {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        $crate::agent::call::begin();
        #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
        // SAFETY: every pointer that the agent passes is null on purpose or points to a live buffer of the length passed
        // with it; all else are numbers, and wrong ones are the kernel's to refuse.
        let result = unsafe { libc::$function($($argument),*) as i64 };
        $crate::agent::call::end(result)
    }};
}
pub(crate) use sys;
