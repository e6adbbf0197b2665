"""What is measured. A workload starts a server anew, lets clients load it for some seconds, and returns its figures by name.

Everything here is the same for TCP and rsock: which of the two it is, is a matter of the `Run`'s environment."""

import contextlib
import json
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness import servers
from harness.run import PYTHON, Failed, Run, descendants

# The limits of the machine, as `rsock bench limits` finds them.
Limits = dict[str, float]


@dataclass(frozen=True)
class Metric:
    """One figure of a workload: a row of the table."""

    key: str
    title: str
    unit: str
    higher_is_better: bool
    # The goal as the project has it: a ratio to TCP, or for latencies a multiple of a cache-line round trip.
    ratio: float | None = None
    round_trips: float | None = None
    # Cost per call: rsock may add so much.
    added: float | None = None

    def better(self, tcp: float, rsock: float) -> float | None:
        """How many times better rsock is: above 1 is good, whatever the unit. None where a zero leaves no ratio."""
        over, under = (rsock, tcp) if self.higher_is_better else (tcp, rsock)
        return over / under if over and under else None

    def goal(self, limits: Limits) -> str:
        """The goal in words."""
        if self.ratio is not None:
            return f"≥ {self.ratio:g} ×"
        if self.round_trips is not None:
            return f"≤ {self.round_trips * limits['cache_line_round_trip_us']:.2f} {self.unit}"
        if self.added is not None:
            return f"≤ TCP + {self.added:g} {self.unit}"
        return ""

    def reached(self, tcp: float, rsock: float, limits: Limits) -> bool | None:
        """Is the goal reached? None where there is none."""
        if self.ratio is not None:
            return (self.better(tcp, rsock) or 0) >= self.ratio
        if self.round_trips is not None:
            return rsock <= self.round_trips * limits["cache_line_round_trip_us"]
        if self.added is not None:
            return rsock <= tcp + self.added
        return None


@dataclass(frozen=True)
class Options:
    """What every workload is told."""

    rsock: Path  # the program `rsock`
    seconds: float  # how long the load lasts


@dataclass(frozen=True)
class Workload:
    """Something to measure."""

    name: str
    title: str
    run: Callable[[Run, Options], dict[str, float]]
    metrics: list[Metric]
    needs: list[str] = field(default_factory=list)
    # Do its streams live long enough for a lane?
    lanes: bool = True


def _rsock_bench(run: Run, options: Options, *words) -> dict[str, float]:
    return json.loads(run.call("client", [options.rsock, "bench", *words, "--json"], timeout=60))


def _pingpong(size: int, mode: str) -> Workload:
    def work(run: Run, options: Options) -> dict[str, float]:
        # Enough for p99.9; at about 12 µs and 60 µs of kernel TCP each.
        count = int(options.seconds * (50_000 if size < 65_536 else 8_000))
        return _rsock_bench(run, options, "pingpong", "--size", size, "--mode", mode, "--count", count)

    label = {64: "64 B", 1024: "1 KiB", 65_536: "64 KiB"}[size]
    goal = {"blocking": 3.0, "epoll": 5.0}[mode] if size == 64 else None
    return Workload(f"pingpong-{label.replace(' ', '').lower()}-{mode}", f"ping-pong {label}, {mode}", work, [
        Metric("p50_us", "p50", "µs", False, round_trips=goal), Metric("p99_us", "p99", "µs", False), Metric("p99_9_us", "p99.9", "µs", False)])


def _throughput(streams: int) -> Workload:
    def work(run: Run, options: Options) -> dict[str, float]:
        return _rsock_bench(run, options, "throughput", "--streams", streams, "--seconds", options.seconds)

    words = "one stream" if streams == 1 else f"{streams} streams"
    return Workload(f"throughput-{streams}", f"{words}, 64 KiB writes", work,
                    [Metric("gigabits_per_second", "rate", "Gb/s", True, ratio=4.0 if streams == 1 else None)])


def _connect(run: Run, options: Options) -> dict[str, float]:
    return _rsock_bench(run, options, "connect", "--seconds", options.seconds)


def _sleepers(run: Run, options: Options) -> dict[str, float]:
    return _rsock_bench(run, options, "sleepers", "--count", int(options.seconds * 900), "--gap-us", 1000)


def _files(run: Run, options: Options) -> dict[str, float]:
    return _rsock_bench(run, options, "files", "--count", int(options.seconds * 150_000))


def _redis(clients: int, pipeline: int, goal: float) -> Workload:
    def work(run: Run, options: Options) -> dict[str, float]:
        port = servers.redis(run)

        def bench(requests: int) -> dict[str, float]:
            out = run.call("client", ["redis-benchmark", "-h", servers.HOST, "-p", port, "-c", clients, "-P", pipeline, "-n", requests,
                                      "-t", "set,get", "--csv"], timeout=60)
            rows = [[cell.strip('"') for cell in line.split(",")] for line in out.splitlines()]
            rate = {row[0].lower(): float(row[1]) for row in rows[1:]}
            p99 = {row[0].lower(): float(row[rows[0].index("p99_latency_ms")]) for row in rows[1:]}
            return {**rate, **{f"{name}_p99_ms": value for name, value in p99.items()}}

        # A short run warms the server up and tells how many requests fill the time.
        rate = bench(5_000 * pipeline)["get"]
        return bench(max(5_000, int(rate * options.seconds / 2)))

    return Workload(f"redis-c{clients}-p{pipeline}", f"redis, {clients} client{'s'[:clients > 1]}, pipeline {pipeline}", work,
                    [Metric("get", "GET", "requests/s", True, ratio=goal), Metric("set", "SET", "requests/s", True, ratio=goal)],
                    ["redis-server=redis-server", "redis-benchmark=redis-tools"])


def _nginx(close: bool) -> Workload:
    def work(run: Run, options: Options) -> dict[str, float]:
        nginx = servers.nginx(run)
        (nginx.www / "small").write_bytes(b"x" * 600)
        header = ["-H", "Connection: close"] if close else []
        out = run.call("client", ["wrk", "-t", "2", "-c", "64", "-d", f"{max(1, round(options.seconds))}", "--latency", *header,
                                  f"http://{servers.HOST}:{nginx.port}/small"], timeout=60)
        if "Socket errors" in out or "Non-2xx" in out:
            raise Failed(f"wrk had errors: {out}")
        found = re.search(r"Requests/sec:\s+([\d.]+)", out)
        p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", out)
        if not found or not p99:
            raise Failed(f"wrk printed no rate: {out}")
        return {"rate": float(found[1]), "p99_ms": float(p99[1]) * {"us": 0.001, "ms": 1, "s": 1000}[p99[2]]}

    name, title, goal = ("close", "Connection: close", 0.98) if close else ("keepalive", "keep-alive", 1.7)
    return Workload(f"nginx-{name}", f"nginx, {title}, 64 connections", work, [Metric("rate", "600 B file", "requests/s", True, ratio=goal)],
                    ["nginx=nginx-light", "wrk=wrk"], lanes=not close)


def _memcached(run: Run, options: Options) -> dict[str, float]:
    port = servers.memcached(run)

    def slap(seconds: int) -> float:
        out = run.call("client", ["memcaslap", "-s", f"{servers.HOST}:{port}", "-T", "2", "-c", "50", "-X", "100", "-t", f"{seconds}s"], timeout=60)
        found = re.search(r"TPS: (\d+)", out)
        if not found:
            raise Failed(f"memcaslap printed no rate: {out[-300:]}")
        return float(found[1])

    slap(1)
    return {"rate": slap(max(1, round(options.seconds)))}


def _postgres(clients: int, goal: float) -> Workload:
    def work(run: Run, options: Options) -> dict[str, float]:
        port = servers.postgres(run)
        bench = [servers.postgres_programs() / "pgbench", "-h", servers.HOST, "-p", port, "-U", "postgres"]
        run.call("none", [*bench, "-i", "-q", "-s", "10", "postgres"], timeout=60)
        load = [*bench, "-n", "-S", "-M", "prepared", "-c", clients, "-j", min(clients, 2)]
        run.call("client", [*load, "-T", "1", "postgres"])
        out = run.call("client", [*load, "-T", max(1, round(options.seconds)), "postgres"], timeout=60)
        found = re.search(r"tps = ([\d.]+) \(without initial", out)
        if not found:
            raise Failed(f"pgbench printed no rate: {out}")
        return {"rate": float(found[1])}

    return Workload(f"pgbench-{clients}", f"PostgreSQL, pgbench -S, {clients} client{'s'[:clients > 1]}", work,
                    [Metric("rate", "prepared", "transactions/s", True, ratio=goal)], ["/usr/lib/postgresql/*/bin/postgres=postgresql"])


def _iperf3(run: Run, options: Options) -> dict[str, float]:
    port = servers.iperf3(run)
    out = json.loads(run.call("client", ["iperf3", "-c", servers.HOST, "-p", port, "-J", "-i", "0", "-t", max(1, round(options.seconds))], timeout=60))
    return {"rate": out["end"]["sum_received"]["bits_per_second"] / 1e9}


def _idle(run: Run, options: Options) -> dict[str, float]:
    nginx = servers.nginx(run)
    (nginx.www / "small").write_bytes(b"x" * 600)
    client = run.begin("client", [PYTHON, Path(__file__).with_name("idle_client.py"), nginx.port], stdin=subprocess.PIPE)
    if client.stdout.readline() != b"ready\n":
        raise Failed(f"the idle client ended: {client.communicate()[1].decode()[-300:]}")
    time.sleep(1)  # whatever still settles after the last message
    before = _work()
    time.sleep(options.seconds)
    return {key: (after - first) / options.seconds for (key, after), first in zip(_work().items(), before.values())}


def _work() -> dict[str, float]:
    """Time on a processor (ms) and times put to sleep of all threads of all programs of this run."""
    found = {"cpu_ms_per_second": 0.0, "wakeups_per_second": 0.0}
    for task in (task for pid in descendants() for task in Path(f"/proc/{pid}/task").glob("*")):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if (task / "comm").read_text() == "rsock\n":
                continue  # it reads the counters meanwhile
            found["cpu_ms_per_second"] += int((task / "schedstat").read_text().split()[0]) / 1e6
            found["wakeups_per_second"] += int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text())[1])
    return found


def all_workloads() -> list[Workload]:
    """Every workload, in the order of the report."""
    return [
        *[_pingpong(size, mode) for mode in ("blocking", "epoll") for size in (64, 1024, 65_536)],
        _throughput(1),
        _throughput(4),
        Workload("sleepers", "64 B ping-pong with 1 ms pauses", _sleepers, [
            Metric("p50_us", "p50", "µs", False, ratio=1.0), Metric("client_cpu_us_per_message", "client CPU", "µs/message", False),
            Metric("server_cpu_us_per_message", "server CPU", "µs/message", False)]),
        Workload("connect", "short connections", _connect, [Metric("connections_per_second", "rate", "connections/s", True, ratio=0.98)], lanes=False),
        _redis(1, 1, 10.0),
        _redis(50, 1, 3.0),
        _redis(50, 16, 1.2),
        Workload("memcached", "memcached, 50 connections", _memcached, [Metric("rate", "memaslap 9:1", "requests/s", True, ratio=2.5)],
                 ["memcached=memcached", "memcaslap=libmemcached-tools"]),
        _nginx(False),
        _nginx(True),
        _postgres(1, 1.5),
        _postgres(8, 1.1),
        Workload("iperf3", "iperf3, one stream", _iperf3, [Metric("rate", "rate", "Gb/s", True, ratio=3.0)], ["iperf3=iperf3"]),
        Workload("idle", "20 idle connections to nginx", _idle, [
            Metric("wakeups_per_second", "wake-ups", "per second", False, added=0.0), Metric("cpu_ms_per_second", "CPU", "ms per second", False, added=0.1)],
            ["nginx=nginx-light"]),
        Workload("files", "calls on files and pipes", _files, [
            Metric(f"{kind}_{call}_ns", f"{kind} {call}", "ns", False, added=10.0) for kind in ("file", "pipe") for call in ("read", "write", "close")],
            lanes=False),
    ]
