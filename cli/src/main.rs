//! rsock: run, watch and measure programs over rsock.
fn main() {}
