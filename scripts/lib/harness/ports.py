"""Free TCP ports on 127.0.0.1, and who listens where, read from the kernel's tables so that no server sees a stray connection."""

import random
import socket
import time

# Below the range from which the kernel picks the ports of outgoing connections, so that nobody takes one by accident.
_RANGE = range(12_000, 32_000)
_LISTEN = "0A"
_given: set[int] = set()


def free_port() -> int:
    """A port on which nothing listens and nothing lingers; never the same twice in one process."""
    for port in random.sample(_RANGE, 500):
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RuntimeError("500 ports tried between 12000 and 32000, all taken")


def listening(port: int) -> bool:
    """Does any process listen on this port, on any address?"""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as lines:
                next(lines)
                for line in lines:
                    fields = line.split()
                    if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                        return True
        except FileNotFoundError:
            continue  # no IPv6 on this host
    return False


def wait_listening(port: int, alive, seconds: float = 20.0) -> None:
    """Returns when somebody listens on the port. `alive()` says whether the server still runs: a dead one ends the wait."""
    deadline = time.monotonic() + seconds
    while not listening(port):
        if not alive():
            raise RuntimeError(f"the server ended before it listened on port {port}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"nobody listens on port {port} after {seconds:.0f} s")
        time.sleep(0.02)
