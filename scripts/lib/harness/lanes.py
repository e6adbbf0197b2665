"""The proof that streams really were on lanes: the counters of `rsock status --json`, read while a workload runs."""

import json
import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from .run import Failed, descendants


@dataclass(frozen=True)
class Use:
    """What one process did so far."""

    hops: int  # directions that hopped to a lane
    lane: int  # bytes sent and received over lanes
    tcp: int  # bytes sent and received over TCP
    on_lanes: int  # streams on a lane at the moment

    @staticmethod
    def of(process: dict) -> "Use":
        """From an entry of the status; all zero for a process that has had no stream."""
        if process["state"] != "active":
            return Use(0, 0, 0, 0)
        flows = (process["sent"], process["received"])
        return Use(process["hops"], sum(f["lane_bytes"] for f in flows), sum(f["tcp_bytes"] for f in flows),
                   sum("lane" in (s["carrier_sent"], s["carrier_received"]) for s in process["streams"]))


def snapshot(rsock: Path) -> dict[int, dict]:
    """The processes with rsock below this one, by pid, as `rsock status --json` shows them."""
    asked = subprocess.run([rsock, "status", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    if asked.returncode != 0:
        raise Failed(f"rsock status --json ended with status {asked.returncode}: {asked.stderr.strip()}")
    ours = set(descendants(os.getpid()))
    return {process["pid"]: process for process in json.loads(asked.stdout)["processes"] if process["pid"] in ours}


class Watch:
    """Looks at the counters of everything below this process when asked, or every now and then in a thread until `stop`."""

    def __init__(self, rsock: Path, every: float | None = None):
        """`every`: seconds between two looks of the thread; None for no thread."""
        self._rsock, self._every = rsock, every
        self._stop = threading.Event()
        self._seen: dict[int, Use] = {}
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True) if every else None
        if self._thread:
            self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self.look()

    def look(self) -> None:
        """One look, now. What goes wrong is kept in `error`."""
        try:
            for pid, process in snapshot(self._rsock).items():
                use = Use.of(process)
                before = self._seen.get(pid, use)
                self._seen[pid] = Use(use.hops, use.lane, use.tcp, max(use.on_lanes, before.on_lanes))
        except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            self.error = error

    def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._thread:
            self._thread.join()

    @property
    def processes(self) -> int:
        """How many processes with rsock were seen."""
        return len(self._seen)

    def total(self) -> Use:
        """The sum over all processes, each as it was last seen (both ends of a stream count)."""
        uses = self._seen.values()
        return Use(sum(u.hops for u in uses), sum(u.lane for u in uses), sum(u.tcp for u in uses), sum(u.on_lanes for u in uses))
