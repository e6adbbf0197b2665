"""The results as one HTML page that needs nothing else: the table, how many times better each workload is, and latency percentiles.

`python3 -m benchmark.report results.json >report.html` (with scripts/lib in PYTHONPATH) makes the page again from the numbers."""

import json
import math
import sys
from html import escape

from .table import number

STYLE = """
:root { color-scheme: light dark; --ink: #1c2230; --soft: #667085; --line: #d5dae3; --page: #ffffff; --better: #2463c4; --worse: #c2410c;
        --tcp: #8a94a6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9f0; --soft: #98a2b3; --line: #343b49; --page: #14171f; --better: #6ea3f2; --worse: #f08a4b; --tcp: #8a94a6; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 1200px; margin: 2.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.15rem; margin: 2.4rem 0 .3rem } p { color: var(--soft); margin: .3rem 0 1rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; white-space: nowrap }
th { text-align: right; font-weight: 600; color: var(--soft) } th, td { padding: .25rem .55rem; border-bottom: 1px solid var(--line); text-align: right }
th.l, td.l { text-align: left } td small { color: var(--soft) } .good { color: var(--better); font-weight: 600 } .bad { color: var(--worse); font-weight: 600 }
svg { width: 100%; height: auto; font: 13px system-ui, sans-serif } svg text { fill: var(--ink) } svg .soft { fill: var(--soft) }
svg .grid { stroke: var(--line) } svg .one { stroke: var(--soft) } svg .better { fill: var(--better) } svg .worse { fill: var(--worse) }
svg .whisker { stroke: var(--ink); stroke-width: 1.5 } svg .goal { stroke: var(--ink); stroke-width: 2; stroke-dasharray: 3 2 }
svg .tcp { fill: var(--tcp); stroke: var(--tcp) } svg .rsock { fill: var(--better); stroke: var(--better) }
"""
WIDTH, LABEL, RIGHT = 1120, 390, 80


def page(results: dict) -> str:
    """The whole page."""
    about, found = results["about"], results["limits"]
    head = (f"{about['processor']}, {about['processors']} processors, Linux {about['kernel']}; rsock {about['rsock']}; {about['time']}. "
            f"{about['runs']} runs of {about['seconds']:g} s on each side, TCP and rsock in turn; unmodified programs, both ends preloaded. "
            f"A cache line to another core and back takes {found['cache_line_round_trip_us']:.2f} µs here; memcpy does "
            f"{found['memcpy_64k_gigabytes_per_second']:.1f} GB/s in the cache and {found['memcpy_64m_gigabytes_per_second']:.1f} GB/s in memory.")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>rsock against kernel TCP</title>
<style>{STYLE}</style></head><body>
<h1>rsock against kernel TCP</h1><p>{escape(head)}</p>
<h2>How many times better</h2><p>Ratio of the medians: right of 1 rsock is better, whatever the unit. The thin line reaches from the least to the most
of the paired runs; the dashed mark is the goal.</p>{ratios(results)}
<h2>Latency</h2><p>Round trips of one message at a time: median, 99 and 99.9 percent, on a logarithmic scale.</p>{latencies(results)}
<h2>All numbers</h2><p>Medians, in brackets the least and the most.</p>{table(results)}
</body></html>
"""


def _rows(results: dict):
    for workload in results["workloads"]:
        for row in workload["rows"]:
            yield workload, row


def _ticks(low: float, high: float) -> list[float]:
    return [digit * 10.0**power for power in range(-4, 7) for digit in (1, 2, 5) if low <= digit * 10.0**power <= high]


def _plain(value: float) -> str:
    return f"{value:g}"


def ratios(results: dict) -> str:
    """Horizontal bars that begin at 1."""
    rows = [(w, r) for w, r in _rows(results) if r["ratio"] is not None]
    if not rows:
        return "<p>No workload came to its end.</p>"
    values = [v for _, r in rows for v in (*r["ratios"], r["ratio"], r["goal_ratio"] or 1.0)]
    low, high = min(0.8, min(values) * 0.95), max(1.6, max(values) * 1.1)

    def x(value: float) -> float:
        return LABEL + (WIDTH - LABEL - RIGHT) * math.log(value / low) / math.log(high / low)

    step, top = 24, 26
    height = top + step * len(rows) + 8
    parts = []
    for tick in _ticks(low, high):
        parts.append(f'<line class="{"one" if tick == 1 else "grid"}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top - 6}" y2="{height - 6}"/>'
                     f'<text class="soft" text-anchor="middle" x="{x(tick):.1f}" y="{top - 12}">{_plain(tick)}</text>')
    before = None
    for n, (workload, row) in enumerate(rows):
        y = top + step * n + step / 2
        ratio, spread = row["ratio"], row["ratios"] or [row["ratio"]]
        label = f"{workload['title']} — {row['title']}" if workload["title"] != before else row["title"]
        before = workload["title"]
        left, right = sorted((x(1), x(ratio)))
        parts.append(f'<g><title>{escape(label)}: {ratio:.2f} ×</title>'
                     f'<text text-anchor="end" x="{LABEL - 10}" y="{y + 4:.1f}">{escape(label)}</text>'
                     f'<rect class="{"better" if ratio >= 1 else "worse"}" x="{left:.1f}" width="{max(1.0, right - left):.1f}" y="{y - 7:.1f}" height="14" rx="2"/>'
                     f'<line class="whisker" x1="{x(min(spread)):.1f}" x2="{x(max(spread)):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if row["goal_ratio"]:
            goal = x(row["goal_ratio"])
            parts.append(f'<line class="goal" x1="{goal:.1f}" x2="{goal:.1f}" y1="{y - 10:.1f}" y2="{y + 10:.1f}"/>')
            right = max(right, goal) if goal - right < 60 else right  # the number goes behind a mark that is near
        end = max(x(max(spread)), right, x(1))
        parts.append(f'<text x="{end + 8:.1f}" y="{y + 4:.1f}">{ratio:.2f} ×</text></g>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="ratios">{"".join(parts)}</svg>'


PERCENTILES = [("p50_us", "50 %"), ("p99_us", "99 %"), ("p99_9_us", "99.9 %")]


def latencies(results: dict) -> str:
    """For each ping-pong a line for TCP and one for rsock, with a mark for each percentile."""
    chosen = []
    for workload in results["workloads"]:
        rows = {row["key"]: row for row in workload["rows"]}
        if all(key in rows for key, _ in PERCENTILES):
            chosen.append((workload["title"], rows))
    if not chosen:
        return "<p>No ping-pong among these workloads.</p>"
    values = [rows[key][side] for _, rows in chosen for key, _ in PERCENTILES for side in ("tcp_median", "rsock_median")]
    low, high = min(values) * 0.8, max(values) * 1.25

    def x(value: float) -> float:
        return LABEL + (WIDTH - LABEL - RIGHT) * math.log(value / low) / math.log(high / low)

    step, top = 46, 30
    height = top + step * len(chosen) + 26
    parts = [f'<text class="soft" x="{WIDTH - RIGHT + 12}" y="{top - 14}">µs</text>']
    for tick in _ticks(low, high):
        parts.append(f'<line class="grid" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top - 8}" y2="{height - 28}"/>'
                     f'<text class="soft" text-anchor="middle" x="{x(tick):.1f}" y="{top - 14}">{_plain(tick)}</text>')
    for n, (title, rows) in enumerate(chosen):
        y = top + step * n + step / 2
        parts.append(f'<text text-anchor="end" x="{LABEL - 10}" y="{y + 4:.1f}">{escape(title)}</text>')
        for side, offset in (("tcp", -8), ("rsock", 8)):
            points = [(label, rows[key][f"{side}_median"]) for key, label in PERCENTILES]
            line = y + offset
            parts.append(f'<line class="{side}" stroke-width="2" x1="{x(points[0][1]):.1f}" x2="{x(points[-1][1]):.1f}" y1="{line}" y2="{line}"/>')
            for size, (label, value) in zip((6, 4.5, 3.5), points):
                parts.append(f'<circle class="{side}" cx="{x(value):.1f}" cy="{line}" r="{size}"><title>{escape(title)}, {side}, {label}: '
                             f"{number(value)} µs</title></circle>")
    legend = height - 8
    parts.append(f'<circle class="tcp" cx="{LABEL}" cy="{legend - 4}" r="5"/><text x="{LABEL + 12}" y="{legend}">kernel TCP</text>'
                 f'<circle class="rsock" cx="{LABEL + 120}" cy="{legend - 4}" r="5"/><text x="{LABEL + 132}" y="{legend}">rsock</text>'
                 f'<text class="soft" x="{LABEL + 200}" y="{legend}">large mark: median; then 99 %; smallest: 99.9 %</text>')
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="latency percentiles">{"".join(parts)}</svg>'


def _spread(values: list[float], median: float) -> str:
    if len(values) < 2:
        return number(median)
    return f"{number(median)} <small>({number(min(values))}..{number(max(values))})</small>"


def table(results: dict) -> str:
    """Every number."""
    lines = []
    before = None
    for workload, row in _rows(results):
        first = workload["title"] != before
        before = workload["title"]
        mark = {True: ' class="good"', False: ' class="bad"', None: ""}[row["goal_reached"]]
        share = workload["proof"]["share_on_lanes"]
        shown = "" if not first or not workload["lanes_expected"] else "?" if share is None else f"{share:.1%}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f} ×"
        if row["ratio"] is not None and len(row["ratios"]) > 1:
            ratio += f" <small>({min(row['ratios']):.2f}..{max(row['ratios']):.2f})</small>"
        lines.append(f'<tr><td class="l">{escape(workload["title"]) if first else ""}</td><td class="l">{escape(row["title"])}</td>'
                     f'<td>{_spread(row["tcp"], row["tcp_median"])}</td><td>{_spread(row["rsock"], row["rsock_median"])}</td>'
                     f'<td class="l">{escape(row["unit"])}</td><td{mark}>{ratio}</td><td>{escape(row["goal"])}</td><td>{shown}</td></tr>')
    failures = "".join(f"<p>{escape(w['name'])}: {escape(failure)}</p>" for w in results["workloads"] for failure in w["failures"])
    return (f'<div class="scroll"><table><tr><th class="l">workload</th><th class="l"></th><th>kernel TCP</th><th>rsock</th><th class="l">unit</th>'
            f'<th>ratio</th><th>goal</th><th>on lanes</th></tr>{"".join(lines)}</table></div>{failures}')


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(page(json.load(file)), end="")
