"""The proof that streams really were on lanes: what `rsock status --json` says while a workload runs."""

import json
import os
import subprocess
import threading
from pathlib import Path

from .run import Failed, descendants


def snapshot(rsock: Path) -> list[dict]:
    """The processes with rsock on this host, as `rsock status --json` lists them."""
    asked = subprocess.run([rsock, "status", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
    if asked.returncode != 0:
        raise Failed(f"rsock status --json ended with status {asked.returncode}: {asked.stderr.strip()}")
    return json.loads(asked.stdout)["processes"]


class Watch:
    """Looks at the counters of everything below this process every now and then, in a thread, until `stop`."""

    def __init__(self, rsock: Path, every: float):
        """`every`: seconds between two looks."""
        self._rsock, self._every = rsock, every
        self._stop = threading.Event()
        # Largest counts seen of each process: (streams that ever hopped, bytes on lanes).
        self.seen: dict[int, tuple[int, int]] = {}
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self.look()

    def look(self) -> None:
        """One look, now."""
        try:
            ours = set(descendants(os.getpid()))
            for process in snapshot(self._rsock):
                if process["pid"] in ours:
                    before = self.seen.get(process["pid"], (0, 0))
                    self.seen[process["pid"]] = tuple(map(max, before, lane_use(process)))
        except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
            self.error = error

    def stop(self) -> None:
        """Ends the watch."""
        self._stop.set()
        self._thread.join()

    def hopped(self) -> int:
        """How many streams were seen on a lane, counted at each of their ends."""
        return sum(streams for streams, _ in self.seen.values())

    def bytes_on_lanes(self) -> int:
        """How many bytes were seen on lanes, counted at each of their ends."""
        return sum(amount for _, amount in self.seen.values())


def lane_use(process: dict) -> tuple[int, int]:
    """(streams on a lane, bytes sent and received on lanes) of one process of the status."""
    streams = [s for s in process["streams"] if "lane" in (s["carrier_tx"], s["carrier_rx"])]
    return len(streams), sum(s["lane_bytes_tx"] + s["lane_bytes_rx"] for s in streams)
