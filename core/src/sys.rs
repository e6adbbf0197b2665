//! Raw system calls: they reach the kernel without passing our own exported symbols, touch no errno, allocate nothing and
//! are no cancellation points. Used for everything that rsock does for itself.
