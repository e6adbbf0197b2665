//! librsock.so: the exported symbols, each a few lines that hand over to rsock-core.
