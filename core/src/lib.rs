//! rsock-core: everything of rsock that is not an exported symbol.
//!
//! Modules in order of dependency: [`sys`] (raw system calls), [`stats`] (what `rsock status` shows), `stream` (the hop protocol, sans-IO), `link`, `rendezvous`,
//! `process`, `socket`, `readiness`, and [`calls`], the door through which the preload library comes in.

pub mod calls;
pub mod stats;
pub mod sys;
