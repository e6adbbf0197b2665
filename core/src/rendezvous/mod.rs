//! Rendezvous: how two processes find out that both ends of a TCP connection are rsock, and get a link.

pub mod cache;
pub mod diag;
pub mod local;
pub mod packet;
