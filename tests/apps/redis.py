"""redis: its own benchmark, values of all sizes, pipelines, publish/subscribe, a fork for BGSAVE under load, a replica."""

import time

from harness import servers
from harness.run import PYTHON, check, equal

NEEDS = ["redis-server=redis-server", "redis-benchmark=redis-tools", "redis-cli=redis-tools"]

# DEBUG DIGEST is allowed, and a replica does not wait for company before it is served.
DIGEST = ["--enable-debug-command", "local", "--repl-diskless-sync-delay", "0"]


def cli(t, port, *words, side="client"):
    return t.call(side, ["redis-cli", "-h", servers.HOST, "-p", port, *words]).strip()


def run(t):
    port = servers.redis(t, *DIGEST)
    client = [PYTHON, t.programs / "redis_client.py", port]

    with t.case("redis-benchmark with and without pipeline"):
        for pipeline, requests in ((1, 5_000), (16, 50_000)):
            out = t.call("client", ["redis-benchmark", "-h", servers.HOST, "-p", port, "-c", "50", "-P", pipeline, "-n", requests,
                                    "-t", "set,get,incr,lpush,lrange_100", "--csv"])
            rates = [float(line.split(",")[1].strip('"')) for line in out.splitlines()[1:]]
            equal(len(rates), 6, "lines of the benchmark")
            check(min(rates) > 0, f"a rate of zero in {out}")
    with t.case("values from 1 byte to 8 MiB come back unchanged"):
        equal(t.call("client", [*client, "values"]), "ok\n", "redis_client values")
    with t.case("a pipeline of 20000 commands is answered in order"):
        equal(t.call("client", [*client, "pipeline"]), "ok\n", "redis_client pipeline")
    with t.case("published messages arrive complete and in order"):
        equal(t.call("client", [*client, "publish"]), "ok\n", "redis_client publish")
    with t.case("BLPOP sleeps until something is pushed"):
        equal(t.call("client", [*client, "block"]), "ok\n", "redis_client block")
    with t.case("BGSAVE (a fork) while clients write"):
        load = t.begin("client", ["redis-benchmark", "-h", servers.HOST, "-p", port, "-c", "10", "-n", "30000", "-t", "set", "-d", "200", "-q"])
        for _ in range(3):
            cli(t, port, "BGSAVE")
            wait_until(lambda: "rdb_bgsave_in_progress:0" in cli(t, port, "INFO", "persistence"))
        _, err = load.communicate(timeout=60)
        equal(load.returncode, 0, f"status of redis-benchmark ({err.decode().strip()})")
        check("rdb_last_bgsave_status:ok" in cli(t, port, "INFO", "persistence"), "the last BGSAVE failed")
    with t.case("a replica gets everything"):
        copy = servers.redis(t, *DIGEST, "--replicaof", f"{servers.HOST} {port}")
        cli(t, port, "SET", "last", "word")
        wait_until(lambda: cli(t, copy, "GET", "last") == "word")
        digest = cli(t, port, "DEBUG", "DIGEST")
        check(len(digest) == 40, f"no digest: {digest}")
        equal(cli(t, copy, "DEBUG", "DIGEST"), digest, "digest of the replica")


def wait_until(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds():
        check(time.monotonic() < deadline, f"still not so after {seconds} s")
        time.sleep(0.05)
