"""What the application tests and the benchmark share: starting real programs with or without rsock, on free ports, in a directory of
their own, and ending everything they started. Needs nothing but the standard library."""
