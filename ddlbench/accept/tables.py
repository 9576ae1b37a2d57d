"""An acceptance in words, as a table, as CSV, and as a host file."""

import csv
import io
from collections.abc import Iterator
from math import isfinite

from ddlbench.accept.judge import Check
from ddlbench.accept.record import Report
from ddlbench.launch.hostfile import rendered
from ddlbench.launch.hosts import Host
from ddlbench.report.csv import figure as figure_text
from ddlbench.report.markup import TextTable
from ddlbench.report.units import counted, digits, percent_text

COLUMNS = ("scope", "hosts", "what", "measured", "expected", "limit", "unit", "basis", "status", "note")
MOST_ROWS = 40
"""Rows of the table on the screen: those that failed first."""
SHOWN = {"B/s": (1e-9, "GB/s"), "s": (1e3, "ms")}
WHATS = {
    "reduction": "adds vectors",
    "copy": "copies memory",
    "allreduce": "allreduce inside",
    "latency": "latency",
    "bandwidth": "bandwidth",
    "late": "late",
    "stalled": "stalled",
    "bus bandwidth": "bus bandwidth",
}


def value_text(check: Check, value: float) -> str:
    """Return a figure of `check` with its unit; "" where there is none."""
    if not isfinite(value):
        return ""
    if check.unit == "share":
        return percent_text(value)
    scale, unit = SHOWN[check.unit]
    scale, unit = (1e6, "µs") if check.what == "latency" else (scale, unit)
    return f"{digits(value * scale) if value else '0'} {unit}"


def why(check: Check) -> str:
    """Return in words what is wrong in a check that failed."""
    if not isfinite(check.measured):
        return f"{WHATS[check.what]}: {check.note}"
    of = f"expected {value_text(check, check.expected)} ({check.basis})" if isfinite(check.expected) else check.basis
    best = "best pair's " if check.scope == "node" and check.what in ("bandwidth", "latency") else ""
    if check.what == "late":
        return f"its processes do not run for {value_text(check, check.measured)} of the time, {of}"
    if check.what == "stalled":
        return f"all its links stall, for {value_text(check, check.measured)} at least, {of}"
    return f"{best}{WHATS[check.what]} {value_text(check, check.measured)}, {of}"


def verdict(report: Report) -> list[str]:
    """Return the verdict: a line, one for each bad node and link, and one for the good group."""
    outcome = report.outcome
    lines = [f"{'PASS' if report.passed else 'FAIL'}: {_summary(report)}"]
    for node, checks in sorted(outcome.bad.items()):
        lines.append(f"bad node: {report.hosts[node]}: {'; '.join(map(why, checks))}")
    for pair in outcome.links:
        found = [check for check in outcome.checks if check.nodes == pair and check.failed and check.scope == "pair"]
        lines.append(f"bad link: {report.named(pair)}: {'; '.join(_of_link(check) for check in found)}")
    lines += [
        f"spoils the group: {report.hosts[node]}: with it the group is slower than expected, without it not"
        for node in outcome.spoilers
    ]
    if outcome.left_out:
        lines.append(f"left out for a bad link: {report.named(outcome.left_out)}")
    if outcome.stopped:
        lines.append(f"the group did not grow further: {outcome.stopped}")
    group = f"{counted(len(outcome.good), 'node')}: {report.named(outcome.good)}" if outcome.good else "none"
    return [*lines, f"largest good group: {group}"]


def _of_link(check: Check) -> str:
    if check.what == "stalled":
        return f"stalls for {value_text(check, check.measured)}, allowed {value_text(check, check.limit)}"
    return why(check)


def _summary(report: Report) -> str:
    outcome = report.outcome
    failed = sum(check.failed for check in outcome.checks)
    unjudged = sum(check.status == "unjudged" for check in outcome.checks)
    text = f"{counted(len(report.hosts), 'node')}, {counted(len(outcome.checks), 'figure')}, {failed} too slow"
    return f"{text}, {unjudged} without anything to compare with" if unjudged else text


def table(report: Report, most: int | None = MOST_ROWS) -> TextTable:
    """Return the figures, those that failed first, up to `most` (None: all)."""
    order = {"fail": 0, "unjudged": 2, "pass": 1}
    checks = sorted(report.outcome.checks, key=lambda check: order[check.status])
    shown = checks if most is None else checks[:most]
    rows = [
        (
            check.status, check.scope, report.named(check.nodes), WHATS[check.what],
            value_text(check, check.measured), value_text(check, check.expected), value_text(check, check.limit),
            " ".join(filter(None, (check.basis, f"({check.note})" if check.note else ""))),
        )
        for check in shown
    ]  # fmt: skip
    notes = () if len(shown) == len(checks) else (f"{len(checks) - len(shown)} more are in the files.",)
    titles = ("status", "what", "hosts", "figure", "measured", "expected", "limit", "expected from")
    return TextTable(titles, frozenset((4, 5, 6)), rows, "", notes)


def csv_text(report: Report) -> str:
    """Return the figures as CSV below a line of titles; empty cells where there is no figure."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(report))
    return stream.getvalue()


def _rows(report: Report) -> Iterator[tuple[str, ...]]:
    for check in report.outcome.checks:
        hosts = " ".join(report.hosts[node] for node in check.nodes)
        numbers = map(figure_text, (check.measured, check.expected, check.limit))
        yield (check.scope, hosts, check.what, *numbers, check.unit, check.basis, check.status, check.note)


def hostfile(report: Report) -> str:
    """Return the largest good group as a host file, such as launch and mpirun read; "" of no node."""
    hosts = (Host(report.hosts[node].partition("#")[0], report.slots[node]) for node in report.outcome.good)
    return rendered(tuple(hosts), colon=False)
