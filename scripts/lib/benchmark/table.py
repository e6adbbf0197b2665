"""The results as a table in the terminal."""

from .measure import Outcome, Row
from .workloads import Limits

HEAD = ("workload", "", "kernel TCP", "rsock", "unit", "ratio", "goal", "on lanes")
LEFT = {0, 1, 4}


def number(value: float) -> str:
    """Three significant digits, thousands apart."""
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _with_spread(values: list[float], median: float) -> str:
    if len(values) == 1:
        return number(median)
    return f"{number(median)} ({number(min(values))}..{number(max(values))})"


def _cells(row: Row, outcome: Outcome, first: bool, limits: Limits) -> tuple[str, ...]:
    tcp, rsock = row.median
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} ×"
    if row.ratio is not None and len(row.ratios) > 1:
        ratio += f" ({min(row.ratios):.2f}..{max(row.ratios):.2f})"
    reached = row.metric.reached(tcp, rsock, limits)
    goal = f"{row.metric.goal(limits)} {'' if reached is None else 'yes' if reached else 'no'}".strip()
    share = "" if not first or not outcome.workload.lanes else "?" if outcome.on_lanes is None else f"{outcome.on_lanes:.1%}"
    return (outcome.workload.title if first else "", row.metric.title, _with_spread(row.tcp, tcp), _with_spread(row.rsock, rsock), row.metric.unit,
            ratio, goal, share)


def render(outcomes: list[Outcome], limits: Limits, bold: str = "", plain: str = "") -> str:
    """The whole table. Ratios say how many times better rsock is; in brackets: the smallest and the largest of all runs."""
    rows = [HEAD]
    notes = []
    for outcome in outcomes:
        rows += [_cells(row, outcome, n == 0, limits) for n, row in enumerate(outcome.rows())]
        notes += [f"{outcome.workload.name}: {failure}" for failure in outcome.failures]
    unproven = [outcome.workload.name for outcome in outcomes if outcome.workload.lanes and outcome.rows() and not outcome.on_lanes]
    if unproven:
        notes.append(f"no byte went over a lane, so this compares TCP with TCP: {' '.join(unproven)}")
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = []
    for n, row in enumerate(rows):
        line = "  ".join(cell.ljust(width) if c in LEFT else cell.rjust(width) for c, (cell, width) in enumerate(zip(row, widths))).rstrip()
        lines.append(f"{bold}{line}{plain}" if n == 0 else line)
    return "\n".join([*lines, *(["", *notes] if notes else [])])
