//! Drivers that break the protocol in ways that have been thought of: the simulator has to notice each.

/// What the simulator's driver does wrong. The engine itself is always the product's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    None,
    /// Takes program bytes while the token is still on its way into the kernel (H1).
    AcceptBeforeToken,
    /// Takes program bytes while resuming (rule 0.7).
    AcceptWhileResuming,
    /// A CONSUMED that comes after RESUME shortens what is sent again (H6).
    LateConsumedTrims,
    /// Takes an end of TCP before RESUME's position for a clean one (H7).
    NoFloor,
    /// Passes an acknowledgement on after the lane is frozen, and hops on one after CLOSE (H32).
    AckAfterClose,
    /// Does not look at a dead peer's ring (H34).
    ForgetsRing,
    /// Looks at a dead peer's ring, but not at what it published last (H18).
    StalePublished,
    /// A RESUME closes the lane for the receiving half only (H38).
    NoPropagation,
    /// Control bytes are written only when the program sends (H9).
    NoBackgroundFlush,
    /// The guard of a hop has nothing to do with the data (H2).
    AnyGuard,
    /// A hop is given up with nothing written, and other data comes later (H37).
    OtherByteAfterAbandon,
    /// The consumed cursor says what was received, not what was delivered.
    EarlyConsumed,
    /// What came on the lane is not skipped when it comes again on TCP.
    NoSkip,
    /// A lost link is not noticed by an end that waits for nothing (H5).
    NeverNoticesLoss,
    /// Closes the kernel socket while the peer may still send a token or a RESUME (H40).
    ClosesEarly,
    /// A reader that was in the kernel during the hop hands its buffer to the program as it is (H11).
    NoStrip,
}
