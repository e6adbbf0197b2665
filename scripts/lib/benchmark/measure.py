"""Running the workloads: TCP and rsock in turn, so that whatever the machine does meanwhile meets both, and what the counters say."""

import json
import os
import platform
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import lanes
from harness.run import Failed, Run

from .workloads import Limits, Metric, Options, Workload

# The two sides of every comparison, and which ends are preloaded for each.
VARIANTS = {"tcp": "none", "rsock": "both"}
PER_RUN = 240  # seconds before a run counts as hanging


@dataclass
class Row:
    """One line of the table: a metric of a workload over all its runs."""

    workload: Workload
    metric: Metric
    tcp: list[float]
    rsock: list[float]

    @property
    def median(self) -> tuple[float, float]:
        """(TCP, rsock)."""
        return statistics.median(self.tcp), statistics.median(self.rsock)

    @property
    def ratio(self) -> float | None:
        """How many times better rsock is, by the medians; None where there is no ratio."""
        return self.metric.better(*self.median)

    def words(self) -> str:
        """The result in a few words."""
        return f"{self.metric.title} {'%.2f and %.2f' % self.median if self.ratio is None else f'{self.ratio:.2f} ×'}"

    @property
    def ratios(self) -> list[float]:
        """The same for each pair of neighbouring runs: how sure the ratio is."""
        pairs = [self.metric.better(tcp, rsock) for tcp, rsock in zip(self.tcp, self.rsock)]
        return [ratio for ratio in pairs if ratio is not None]


@dataclass
class Outcome:
    """All runs of one workload."""

    workload: Workload
    figures: dict[str, list[dict[str, float]]]
    proof: dict[str, float]  # of the runs with rsock: hops, bytes on lanes and on TCP
    failures: list[str]

    def rows(self) -> list[Row]:
        """Its lines of the table: none when either side has no run that worked."""
        if not all(self.figures.values()):
            return []
        return [Row(self.workload, m, *[[run[m.key] for run in self.figures[v]] for v in VARIANTS]) for m in self.workload.metrics
                if all(m.key in run for v in VARIANTS for run in self.figures[v])]

    @property
    def on_lanes(self) -> float | None:
        """The part of the bytes that went over lanes; None when none were counted at all."""
        total = self.proof["lane"] + self.proof["tcp"]
        return self.proof["lane"] / total if total else None


def measure(workload: Workload, runs: int, library: Path, options: Options, progress: Callable[[str], None]) -> Outcome:
    """All runs of a workload: TCP, rsock, TCP, rsock, …"""
    outcome = Outcome(workload, {v: [] for v in VARIANTS}, {"hops": 0, "lane": 0, "tcp": 0}, [])
    for number in range(runs):
        for variant in VARIANTS:
            progress(f"{workload.name}: {variant} {number + 1}/{runs}")
            try:
                outcome.figures[variant].append(_once(workload, variant, library, options, outcome.proof))
            except (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                outcome.failures.append(f"{variant} {number + 1}: {error}")
    return outcome


def _once(workload: Workload, variant: str, library: Path, options: Options, proof: dict[str, float]) -> dict[str, float]:
    with Run(f"bench-{workload.name}", VARIANTS[variant], library, {}) as run:
        # TCP is watched just the same, so that looking costs both alike.
        watch = lanes.Watch(options.rsock, every=max(0.4, options.seconds * 0.45))
        signal.alarm(PER_RUN)
        try:
            figures = workload.run(run, options)
            watch.look()
        finally:
            signal.alarm(0)
            watch.stop()
        if variant == "rsock":
            if watch.error:
                raise Failed(f"the counters could not be read: {watch.error}")
            _prove(proof, figures, watch.total())
    run.remove()
    return {key: value for key, value in figures.items() if isinstance(value, (int, float))}


def _prove(proof: dict[str, float], figures: dict[str, float], seen: lanes.Use) -> None:
    """Adds what went over lanes and over TCP in one run."""
    if "lane_bytes" in figures:
        # `rsock bench` reads the counters of its own streams over exactly the measured time.
        share = figures["lane_share"]
        proof["lane"] += figures["lane_bytes"]
        proof["tcp"] += max(0.0, figures["lane_bytes"] / share - figures["lane_bytes"]) if share else 1
    else:
        proof["lane"] += seen.lane
        proof["tcp"] += seen.tcp
    proof["hops"] += seen.hops


def limits(options: Options) -> Limits:
    """What the machine allows, in the same run."""
    asked = subprocess.run([options.rsock, "bench", "limits", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    if asked.returncode != 0:
        raise Failed(f"rsock bench limits: {asked.stderr.strip()}")
    return {key: value for key, value in json.loads(asked.stdout).items() if isinstance(value, float)}


def host() -> dict[str, str | int]:
    """What it ran on."""
    model = "unknown"
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {"processor": model, "processors": len(os.sched_getaffinity(0)), "kernel": platform.release(), "machine": platform.machine(),
            "time": time.strftime("%Y-%m-%d %H:%M:%S %Z"), "load_before": round(os.getloadavg()[0], 2)}


def record(outcome: Outcome, found: Limits) -> dict:
    """An outcome as it goes into the JSON file."""
    return {
        "name": outcome.workload.name,
        "title": outcome.workload.title,
        "runs": outcome.figures,
        "proof": outcome.proof | {"share_on_lanes": outcome.on_lanes},
        "lanes_expected": outcome.workload.lanes,
        "failures": outcome.failures,
        "rows": [{
            "key": row.metric.key, "title": row.metric.title, "unit": row.metric.unit, "higher_is_better": row.metric.higher_is_better,
            "tcp": row.tcp, "rsock": row.rsock, "tcp_median": row.median[0], "rsock_median": row.median[1],
            "ratio": row.ratio, "ratios": row.ratios, "goal": row.metric.goal(found), "goal_ratio": row.metric.ratio,
            "goal_reached": row.metric.reached(*row.median, found),
        } for row in outcome.rows()],
    }
