//! Shared helpers of the tests: running programs plain and preloaded.
