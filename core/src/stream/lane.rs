//! The name of a lane on its link.

/// Names a lane on the link that carries it; chosen by whoever sends OPEN and never used again on that link.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LaneId(pub u32);
