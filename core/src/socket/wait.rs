//! How a blocked call sleeps: with a bell of its own, armed on the lane's link, in the real `ppoll`.

use super::stream::Stream;
use crate::calls::Wait;
use crate::link::Lane;
use crate::link::bell::Bell;
use crate::{stats, sys};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};
use libc::{c_int, pollfd};

/// The two directions of a stream, for a waiter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// Until something can be received.
    Receive,
    /// Until something can be sent.
    Send,
}

/// A sleep of one blocked call.
pub struct Sleep {
    what: For,
    stream: &'static Stream,
    bell: Option<(Bell, Option<Lane>)>,
    /// CLOCK_MONOTONIC in ns; None until the first sleep, or without a time-out.
    deadline: Option<u64>,
    asked_timeout: bool,
    interrupted: bool,
}

impl Sleep {
    /// For a call on `stream`.
    pub fn new(stream: &'static Stream, what: For) -> Sleep {
        Sleep {
            what,
            stream,
            bell: None,
            deadline: None,
            asked_timeout: false,
            interrupted: false,
        }
    }

    fn bells(&self) -> (&'static AtomicU64, &'static AtomicU8) {
        let s: &'static Stream = self.stream;
        match self.what {
            For::Receive => (&s.rx_bells, &s.rx_hint),
            For::Send => (&s.tx_bells, &s.tx_hint),
        }
    }

    /// Whether a signal ended the sleep; asked once.
    pub fn interrupted(&mut self) -> bool {
        core::mem::replace(&mut self.interrupted, false)
    }

    /// Whether the call's time-out (SO_RCVTIMEO, SO_SNDTIMEO) is over.
    pub fn timed_out(&self) -> bool {
        self.deadline.is_some_and(|d| sys::now() >= d)
    }

    /// Whether a bell is held: then everything has been looked at since it was taken, and the sleep may begin.
    pub fn armed(&self) -> bool {
        self.bell.is_some()
    }

    /// Takes a bell, shows it to whoever may have news, and arms it on the lane's link if there is one. The caller looks once
    /// more after it, then sleeps. False: no bell is to be had.
    pub fn arm(&mut self, lane: Option<Lane>) -> bool {
        let (bells, hint) = self.bells();
        let Some(bell) = self.stream.take_bell(hint) else {
            return false;
        };
        bells.fetch_or(bell.bit(), SeqCst);
        self.stream.view.show_bell(self.stream, bell);
        self.bell = Some((bell, lane));
        lane.is_none_or(|lane| lane.link.arm(bell))
    }

    /// As [`Sleep::wait`], for at most `ns`.
    pub fn wait_at_most(&mut self, tcp: i16, ns: u64) -> Wait {
        let mut wait = self.wait(tcp);
        if wait.timeout.is_none_or(|t| sys::nanoseconds(t) > ns) {
            wait.timeout = Some(sys::span(ns));
        }
        wait
    }

    /// What to sleep on: the armed bell, and the TCP socket for `tcp` events.
    pub fn wait(&mut self, tcp: i16) -> Wait {
        if !self.asked_timeout {
            self.asked_timeout = true;
            let name = if self.what == For::Receive {
                libc::SO_RCVTIMEO
            } else {
                libc::SO_SNDTIMEO
            };
            let none = libc::timeval {
                tv_sec: 0,
                tv_usec: 0,
            };
            if let Ok((t, _)) = sys::getsockopt(self.stream.fd(), libc::SOL_SOCKET, name, none)
                && (t.tv_sec, t.tv_usec) != (0, 0)
            {
                let ns = (t.tv_sec as u64).saturating_mul(1_000_000_000) + t.tv_usec as u64 * 1000;
                self.deadline = Some(sys::now().saturating_add(ns));
            }
        }
        const UNUSED: pollfd = pollfd {
            fd: -1,
            events: 0,
            revents: 0,
        };
        let mut fds = [UNUSED; 3];
        let mut count = 0;
        if let Some((bell, _)) = self.bell {
            fds[count] = pollfd {
                fd: bell.fd().unwrap_or(-1),
                events: libc::POLLIN,
                revents: 0,
            };
            count += 1;
        }
        fds[count] = pollfd {
            fd: self.stream.fd(),
            events: tcp,
            revents: 0,
        };
        count += 1;
        let timeout = self
            .deadline
            .map(|d| sys::span(d.saturating_sub(sys::now())));
        Wait {
            fds,
            count: count as libc::nfds_t,
            timeout,
        }
    }

    /// The sleep ended. ERESTART: by a signal after which the call goes on, if it has no time-out (signal(7)).
    pub fn woke(&mut self, result: c_int, errno: c_int) {
        let ends = errno == libc::EINTR || errno == libc::ERESTART && self.deadline.is_some();
        self.interrupted = result < 0 && ends;
        self.stream.with_record(|slot| {
            if let Some(record) = stats::record(slot) {
                let flow = if self.what == For::Receive {
                    &record.rx
                } else {
                    &record.tx
                };
                flow.sleeps.add(1);
            }
        });
        self.stop();
    }

    /// Gives the bell back.
    pub fn stop(&mut self) {
        if let Some((bell, lane)) = self.bell.take()
            && bell.is_mine()
        {
            self.bells().0.fetch_and(!bell.bit(), SeqCst);
            self.stream.view.show_bell(self.stream, bell);
            if let Some(lane) = lane {
                lane.link.disarm(bell);
            }
            bell.woken();
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.stop();
    }
}
