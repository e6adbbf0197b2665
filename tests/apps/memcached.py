"""memcached: values of all sizes over many connections at once, a load that verifies what it reads, its own protocol checks."""

from harness import servers
from harness.run import PYTHON, check, equal

NEEDS = ["memcached=memcached", "memcaslap=libmemcached-tools", "memccapable=libmemcached-tools"]


def run(t):
    port = servers.memcached(t, "-I", "4m")
    with t.case("20 connections store and read values up to 1 MiB"):
        equal(t.call("client", [PYTHON, t.programs / "memcached_client.py", port, 20]), "ok\n", "memcached_client")
    with t.case("memaslap verifies what it gets"):
        out = t.call("client", ["memcaslap", "-s", f"{servers.HOST}:{port}", "-T", "2", "-c", "16", "-x", "20000", "-v", "1.0"])
        counted = {key.strip(): int(value) for key, _, value in (line.partition(":") for line in out.splitlines()) if value.strip().isdigit()}
        check(counted.get("cmd_get", 0) > 1_000, f"few gets in {out}")
        for wrong in ("verify_failed", "packet_disorder", "packet_drop"):
            equal(counted.get(wrong, 0), 0, wrong)
    with t.case("the protocol checks of libmemcached, ascii and binary"):
        out = t.call("client", ["memccapable", "-h", servers.HOST, "-p", port], status=None)
        failed = [line for line in out.splitlines() if "[FAIL]" in line or "[failed]" in line.lower()]
        check("pass" in out.lower() and not failed, f"failed: {failed or out[-300:]}")
