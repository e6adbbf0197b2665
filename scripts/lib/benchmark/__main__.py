"""Measures what rsock changes: every workload over kernel TCP and over rsock in turn, medians, spread and ratios.

Prints a table and writes results.json, table.txt and report.html."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.run import Failed, adopt_daemons

from . import report
from .measure import Outcome, host, limits, measure, record
from .table import render
from .workloads import Options, all_workloads

ROOT = Path(__file__).resolve().parents[3]


def arguments():
    release = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    known = {workload.name: workload for workload in all_workloads()}
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.splitlines()[0], epilog=f"workloads: {' '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="one run of one second each: to see that all works, not to compare")
    parser.add_argument("--only", metavar="NAME,…", help="these workloads, or all whose name begins so (redis, nginx, pingpong-64b)")
    parser.add_argument("--runs", type=int, metavar="N", help="runs of each side (5; 1 with --quick)")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long each run loads the server (2; 1 with --quick)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the results go (results/TIME)")
    parser.add_argument("--preload", type=Path, default=release / "librsock.so", metavar="LIB", help="measure this librsock.so (the one just built)")
    parser.add_argument("--rsock", type=Path, default=release / "rsock", metavar="FILE", help="with this rsock program (the one just built)")
    parser.add_argument("--needs", action="store_true", help="print the command=package pairs that the workloads need, and end")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else [""]
    options.workloads = [w for name, w in known.items() if any(name.startswith(prefix) for prefix in wanted)]
    for prefix in wanted:
        if not any(name.startswith(prefix) for name in known):
            parser.error(f"no workload is called {prefix}; there are {' '.join(known)}")
    options.runs = options.runs or (1 if options.quick else 5)
    options.seconds = options.seconds or (1.0 if options.quick else 2.0)
    options.out = options.out or ROOT / "results" / time.strftime("%Y%m%d-%H%M%S")
    return options


def version() -> str:
    """What is measured, as git has it."""
    asked = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"


def _time_is_up(_signal, _frame) -> None:
    raise Failed("the run hangs and was ended")


def main() -> int:
    options = arguments()
    if options.needs:
        print("\n".join(sorted({need for workload in options.workloads for need in workload.needs})))
        return 0
    adopt_daemons()
    signal.signal(signal.SIGALRM, _time_is_up)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    screen = sys.stderr.isatty()

    def progress(words: str) -> None:
        if screen:
            print(f"\r\033[K{words}", end="", file=sys.stderr, flush=True)

    settings = Options(options.rsock.resolve(), options.seconds)
    library = options.preload.resolve()
    about, found = host() | {"rsock": version(), "runs": options.runs, "seconds": options.seconds}, limits(settings)
    outcomes: list[Outcome] = []
    for workload in options.workloads:
        outcomes.append(measure(workload, options.runs, library, settings, progress))
        progress("")
        if not screen:
            rows = outcomes[-1].rows()
            print(f"{workload.name}: {', '.join(row.words() for row in rows) or 'failed'}", file=sys.stderr, flush=True)

    results = {"about": about, "limits": found, "workloads": [record(outcome, found) for outcome in outcomes]}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    (options.out / "report.html").write_text(report.page(results))
    busy = f"the machine was busy before (load {about['load_before']}): do not trust these numbers\n" if about["load_before"] > 0.5 else ""
    head = (f"{about['processor']}, {about['processors']} processors, Linux {about['kernel']}; rsock {about['rsock']}; "
            f"{options.runs} × {options.seconds:g} s each, TCP and rsock in turn\n"
            f"limits: cache line to another core and back {found['cache_line_round_trip_us']:.2f} µs, "
            f"memcpy {found['memcpy_64k_gigabytes_per_second']:.1f} GB/s in the cache, {found['memcpy_64m_gigabytes_per_second']:.1f} GB/s in memory\n"
            f"{busy}"
            f"ratio: how many times better rsock is; in brackets the least and the most of the runs\n")
    (options.out / "table.txt").write_text(f"{head}\n{render(outcomes, found)}\n")
    bold, plain = ("\033[1m", "\033[0m") if sys.stdout.isatty() and "NO_COLOR" not in os.environ else ("", "")
    print(f"{head}\n{render(outcomes, found, bold, plain)}\n\nreport: {options.out / 'report.html'}")
    # A run that failed, or that compared TCP with TCP, is no result; the table says which.
    return 1 if any(o.failures or (o.workload.lanes and not o.on_lanes) for o in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
