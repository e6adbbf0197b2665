"""The benchmark: workloads, runs of TCP and rsock in turn, the table. Its command is scripts/bench."""
