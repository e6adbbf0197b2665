//! Shared helpers of the tests: running programs plain and preloaded.
//!
//! The conformance tests compare a program on kernel TCP with the same program over rsock. A *script* is a text, one
//! socket call a line; [`agent`] is the process that carries the calls out, [`runner`] starts the agents, feeds them
//! the script in the variants that matter, and compares what came back.

pub mod agent;
pub mod fabric;
pub mod runner;
