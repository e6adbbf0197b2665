//! Why a stream is on TCP: a small code that is counted, stored beside each stream, and explained to people.

/// Declares the enumeration, its names and its explanations in one table, so that they cannot drift apart.
macro_rules! reasons {
    ($($code:literal $variant:ident $name:literal $explanation:literal,)*) => {
        /// Why a stream is on TCP. The numbers are part of the segment's layout: append, never renumber.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $explanation] $variant = $code,)*
        }

        impl Reason {
            /// Every reason, in the order of the codes.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)*];

            /// The stable short name, as scripts see it.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name,)* }
            }

            /// One line for people.
            pub const fn explanation(self) -> &'static str {
                match self { $(Reason::$variant => $explanation,)* }
            }

            /// The reason with this code; `None` for a code of a newer version.
            pub const fn from_code(code: u8) -> Option<Reason> {
                match code { $($code => Some(Reason::$variant),)* _ => None }
            }
        }
    };
}

reasons! {
    0 None "none" "nothing stands in the way",
    1 NotAskedYet "not-asked-yet" "too little was sent so far to be worth a lane",
    2 Asking "asking" "the peer has been asked and has not answered yet",
    3 PeerWithoutRsock "peer-without-rsock" "the peer answered that no rsock serves this connection",
    4 PeerNotReachable "peer-not-reachable" "nobody answered at the peer's rendezvous address",
    5 Refused "refused" "the peer declined to give this stream a lane",
    6 Credentials "credentials" "the process at the other end of the link could not prove that it holds this connection",
    7 Policy "policy" "the configuration keeps this connection on TCP",
    8 Disabled "disabled" "rsock is switched off in this process (RSOCK_ENABLE=0)",
    9 NoMemory "no-memory" "no memory for a ring, or the limit is reached",
    10 TooManyStreams "too-many-streams" "the link has no lane left",
    11 NoDevice "no-device" "no RDMA device reaches the peer",
    12 LinkLost "link-lost" "the link broke; the stream went on over TCP",
    13 HopTimeout "hop-timeout" "the peer did not acknowledge the hop in time",
    14 ReaderBusy "reader-busy" "a reader was inside the kernel each time the hop was tried",
    15 OtherProcess "other-process" "the lane belongs to another process that shares this connection",
    16 PinnedOob "pinned-oob" "the program uses urgent data",
    17 PinnedFork "pinned-fork" "the connection is shared with a forked process",
    18 PinnedExec "pinned-exec" "the connection was handed to another program",
    19 PinnedPassed "pinned-passed" "the descriptor was sent to another process",
    20 PinnedStdio "pinned-stdio" "the C library reads or writes the descriptor without going through rsock",
    21 PinnedOption "pinned-option" "the program set a socket option that only TCP can honour",
    22 PinnedCall "pinned-call" "the program made a call on the connection that only TCP can serve",
    23 Protocol "protocol" "the peer broke the protocol; its link was closed",
    24 Draining "draining" "the stream is closing",
    25 Internal "internal" "rsock met an error of its own (see its log)",
    26 Stalled "stalled" "the peer did not read for a while, and TCP buffers more than a ring",
    27 PeerReturned "peer-returned" "the peer went back to TCP (it closes, or its program made a call that only TCP can serve)",
}

impl Reason {
    /// How many counters an array indexed by reason code has: room for reasons to come.
    pub const SLOTS: usize = 64;
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn codes_are_dense_and_names_are_unique() {
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            assert_eq!(Reason::from_code(index as u8), Some(*reason));
        }
        assert!(Reason::ALL.len() < Reason::SLOTS);
        assert_eq!(Reason::from_code(Reason::ALL.len() as u8), None);
        let names: std::collections::HashSet<_> = Reason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
