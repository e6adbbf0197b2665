"""socat that forks for each connection: a child program on the socket, half-close, a relay between two TCP connections."""

import concurrent.futures
import hashlib
import os

from harness import ports, servers
from harness.run import equal

NEEDS = ["socat=socat"]


def run(t):
    def listen(what, log):
        port = ports.free_port()
        t.start("server", ["socat", f"TCP-LISTEN:{port},bind={servers.HOST},reuseaddr,fork", what], port=port, log=log)
        return port

    def through(port, data):
        # -t: how long to wait for the answer after our end is closed
        return t.call_bytes("client", ["socat", "-t", "30", "-", f"TCP:{servers.HOST}:{port}"], stdin=data)

    with t.case("EXEC:cat echoes 5 MB, 8 connections at a time"):
        port = listen("EXEC:cat", "cat.log")
        data = [os.urandom(5_000_000 // (n + 1)) for n in range(16)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for got, wanted in zip(pool.map(lambda d: through(port, d), data), data):
                equal(got, wanted, "what came back")
    with t.case("SYSTEM:sha256sum answers after the half-close"):
        port = listen("SYSTEM:sha256sum", "sum.log")
        for size in (0, 1, 100_000, 4_000_000):
            data = os.urandom(size)
            equal(through(port, data).split()[:1], [hashlib.sha256(data).hexdigest().encode()], f"checksum of {size} bytes")
    with t.case("EXEC with the socket itself as the child's standard input and output (nofork)"):
        port = ports.free_port()
        for _ in range(3):
            t.start("server", ["socat", f"TCP-LISTEN:{port},bind={servers.HOST},reuseaddr", "EXEC:cat,nofork"], port=port, log="nofork.log")
            data = os.urandom(2_000_000)
            equal(through(port, data), data, "what came back")
    with t.case("a relay between two TCP connections"):
        port = listen("EXEC:cat", "cat-2.log")
        relay = listen(f"TCP:{servers.HOST}:{port}", "relay.log")
        data = os.urandom(6_000_000)
        equal(through(relay, data), data, "what came back")
