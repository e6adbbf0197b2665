//! Kernel calls on a stream that has not hopped: counted while they are in the kernel, so that nobody opens a lane while
//! its byte count is unknown, and counted for the policy when they return.

use super::stream::{Mode, Stream, StreamId};
use crate::policy;
use crate::process::family::{self, Claim};
use core::sync::atomic::{AtomicU32, Ordering::*};
use libc::ssize_t;

/// A counted call. Dropping it (a cancelled thread unwinds) ends the count without a result.
pub struct InFlight {
    stream: &'static Stream,
    id: StreamId,
    receiving: bool,
}

impl InFlight {
    /// A receive. None: the stream is not `Plain` any more.
    pub fn receive(s: &'static Stream) -> Option<InFlight> {
        Self::begin(s, true)
    }

    /// A send.
    pub fn send(s: &'static Stream) -> Option<InFlight> {
        Self::begin(s, false)
    }

    fn counter(&self) -> &AtomicU32 {
        if self.receiving {
            &self.stream.receiving
        } else {
            &self.stream.sending
        }
    }

    fn begin(s: &'static Stream, receiving: bool) -> Option<InFlight> {
        if s.shared.load(Relaxed) {
            match family::claim(s) {
                Claim::Mine => {}
                Claim::OnTcp => {
                    s.change_mode(Mode::Plain, Mode::Pinned);
                    return None;
                }
                Claim::OnLaneElsewhere => {
                    family::becomes_foreign(s, Mode::Plain);
                    return None;
                }
            }
        }
        let call = InFlight {
            stream: s,
            id: s.id(),
            receiving,
        };
        call.counter().fetch_add(1, SeqCst);
        // Whoever makes the stream careful sets the mode first and looks at the counters then (H11).
        (s.mode() == Mode::Plain).then_some(call)
    }

    /// The real function returned `result` (errno untouched).
    pub fn finish(self, result: ssize_t) {
        if result <= 0 {
            return;
        }
        let s = self.stream;
        let messages = s.messages.load(Relaxed) + 1;
        let bytes = s.bytes.load(Relaxed) + result as u64;
        s.messages.store(messages, Relaxed);
        s.bytes.store(bytes, Relaxed);
        if !s.asked.load(Relaxed) {
            consider(s, messages, bytes);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // If the slot has been reused meanwhile, its counters began anew.
        if self.stream.id() == self.id {
            self.counter().fetch_sub(1, SeqCst);
        }
    }
}

/// Is the stream worth a lane by now? The connector asks; the acceptor sees to it in time that it can be asked.
fn consider(s: &'static Stream, messages: u64, bytes: u64) {
    if policy::ENABLE.get() == 0 {
        return;
    }
    let connector = s.connector.load(Relaxed);
    let share = if connector { 1 } else { 2 };
    if messages >= policy::HOP_MESSAGES.get() / share || bytes >= policy::HOP_BYTES.get() / share {
        s.asked.store(true, Relaxed);
        crate::process::background::ask(s);
    }
}
