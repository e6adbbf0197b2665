//! A direction's carrier as readers without its lock see it: one place tells the epoll instances, the statistics and the background
//! thread that it changed.

use super::stream::{Stream, flag};
use crate::link::Lane;
use crate::readiness;
use crate::stats::{self, Direction, LinkKind, Reason};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Sets a direction's flags in the stream's view, except that nobody's reason to look is lost, and tells whoever has to know of a
/// change. The direction's lock is held.
pub fn mirror(s: &Stream, flags: &AtomicU32, new: u32, direction: Direction, lane: Option<&Lane>) {
    let mut old = flags.load(Acquire);
    while let Err(now) = flags.compare_exchange_weak(old, new | old & flag::LOOK, AcqRel, Acquire) {
        old = now;
    }
    if old & !flag::LOOK == new {
        return;
    }
    s.view.change.fetch_add(1, AcqRel);
    match (old & flag::LANE, new & flag::LANE) {
        (0, 1) => s.with_record(|slot| {
            let pid = lane.map_or(0, |l| l.link.peer_pid());
            stats::hopped(slot, direction, LinkKind::Memory, pid);
        }),
        (1, 0) => {
            let reason = Reason::from_code(s.reason.load(Relaxed)).unwrap_or(Reason::Internal);
            s.with_record(|slot| stats::hopped_back(slot, direction, reason));
        }
        _ => {}
    }
    readiness::registration::carrier_changed(s);
    super::watch::update(s);
}
