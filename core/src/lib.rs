//! rsock-core: everything of rsock that is not an exported symbol.
//!
//! Modules in order of dependency: [`sys`] (raw system calls), [`table`] and [`slab`] (what a descriptor is, where objects
//! live), [`log`], [`policy`], [`stats`], [`stream`] (the hop protocol, sans-IO), [`link`], [`rendezvous`], [`socket`] (the
//! socket calls on a stream), [`readiness`], [`process`], and [`calls`], the door through which the preload library comes in.

// The operations of `calls` take the program's pointers as libc's functions do, and the preload library, the one caller, hands
// on what the program vouched for. Marking each `unsafe` would only move the word, not the reason.
#![allow(clippy::not_unsafe_ptr_arg_deref)]

pub mod calls;
pub mod link;
pub mod log;
pub mod policy;
pub mod process;
pub mod readiness;
pub mod rendezvous;
pub mod slab;
pub mod socket;
pub mod stats;
pub mod stream;
pub mod sys;
pub mod table;
