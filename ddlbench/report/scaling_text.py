"""The scaling-efficiency table as people read it: a few sizes, the fastest algorithm and the MPI library's own."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from ddlbench.report.headline import BASELINE
from ddlbench.report.markup import NOT_APPLICABLE, TextTable
from ddlbench.report.scaling_cells import Subject
from ddlbench.report.scaling_table import INSIDE, Row, Scaling, doubts
from ddlbench.report.units import counted, digits, interval_text, percent_text, ratio_text
from ddlbench.report.workload import BEST

MOST_ROWS = 40
"""Rows of a table that is read at a glance."""
MOST_SIZES = 4
CHOOSE = "ddlbench report DIR --baseline"
"""How a reader of the table has it held against another shape; `sweep`, which prints it, has no such option."""
LEFT = {"Size", "Workload", "Algorithm", "Statistic", "Remark"}
"""Titles of the columns of words."""


def scaling_tables(found: Iterable[Scaling], *, asked: bool = False, every: bool = False) -> Iterator[TextTable]:
    """Yield each scaling table as text: a few sizes, or the workloads, and of each the fastest algorithm and `mpi`.

    With `every` it has all there is. Notes say what N₀ is, which was `asked` for or is the least shape, what is not
    comparable and what was left out.
    """
    for scaling in found:
        yield _table(scaling, dict(_shown(scaling, every)), asked=asked)


def _shown(scaling: Scaling, every: bool) -> Iterator[tuple[Subject, list[str]]]:
    """Yield the subjects of the table, and the algorithms of each."""
    for subject in scaling.subjects if every else _subjects(scaling):
        algorithms = scaling.algorithms(subject)
        fastest = next((name for name in algorithms if name != BEST), None)
        wanted = {BEST, fastest, BASELINE}
        yield subject, [name for name in algorithms if every or name in wanted]


def _subjects(scaling: Scaling) -> list[Subject]:
    """Return the workloads, or sizes at even steps, the smallest and the largest that can be told among them."""
    workloads = [subject for subject in scaling.subjects if subject.is_workload]
    if workloads:
        return workloads
    told = [subject for subject in scaling.subjects if _is_told(scaling, subject)] or scaling.subjects
    most = max(1, min(MOST_SIZES, MOST_ROWS // (2 * len(scaling.shapes))))
    return thinned(told, most)


def _is_told(scaling: Scaling, subject: Subject) -> bool:
    """Say whether any algorithm has an efficiency besides that of N₀, which is 1."""
    rows = (row for name in scaling.algorithms(subject) for row in scaling.rows(subject, name))
    return any(math.isfinite(row.efficiency) and not row.is_base for row in rows)


def thinned(items: Sequence[Subject], most: int) -> list[Subject]:
    """Return at most so many of the items at even steps, the last always among them."""
    if len(items) <= most:
        return list(items)
    places = np.linspace(0, len(items) - 1, most) if most > 1 else [len(items) - 1]
    return [items[round(float(place))] for place in places]


def _table(scaling: Scaling, shown: Mapping[Subject, Sequence[str]], *, asked: bool) -> TextTable:
    rows = [row for subject, names in shown.items() for name in names for row in scaling.rows(subject, name)]
    columns = {title: cells for title, cells in _columns(rows).items() if set(cells) - {"", NOT_APPLICABLE}}
    right = frozenset(at for at, title in enumerate(columns) if title not in LEFT)
    notes = (*_baseline_notes(scaling, asked=asked), *_left_out(scaling, shown))
    cells = list(zip(*columns.values(), strict=True))
    return TextTable(tuple(columns), right, cells, f"Scaling efficiency: {scaling.setting.unlaid}", notes)


def _columns(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the columns of the table; a subject and an algorithm are named in the first of their rows."""
    kind = "Workload" if any(row.subject.is_workload for row in rows) else "Size"
    plain = all(row.cell.statistic in ("median", "") for row in rows)
    return {
        kind: _once([row.subject.title for row in rows], [row.subject for row in rows]),
        "Algorithm": _once([row.algorithm for row in rows], [(row.subject, row.algorithm) for row in rows]),
        "Nodes": [f"{row.shape.nodes:,}" for row in rows],
        "Per node": [row.shape.per_node or "uneven" for row in rows],
        "Ranks": [f"{row.shape.ranks:,}" for row in rows],
        "Time (µs)": [_figure(row.cell.time_us) for row in rows],
        "Statistic": [] if plain else [row.cell.statistic for row in rows],
        "95 % interval (µs)": [_interval(row) for row in rows],
        "busbw (GB/s)": [_figure(row.busbw) for row in rows],
        "Speed-up": [_ratio(row.speedup) for row in rows],
        "Efficiency": [_efficiency(row) for row in rows],
        "Times the bound": [_times(row.times_bound) for row in rows],
        "Remark": [_remark(row) for row in rows],
    }


def _once(texts: Sequence[str], of: Sequence[object]) -> list[str]:
    """Return the texts, each that is of the same as the one above left out."""
    return [text if at == 0 or of[at] != of[at - 1] else "" for at, text in enumerate(texts)]


def _figure(value: float) -> str:
    return digits(value) if math.isfinite(value) else NOT_APPLICABLE


def _interval(row: Row) -> str:
    low, high = row.cell.low_us, row.cell.high_us
    return interval_text(low, high) if math.isfinite(low) else NOT_APPLICABLE


def _ratio(value: float) -> str:
    if not math.isfinite(value):
        return NOT_APPLICABLE
    return f"{value:.2f}" if value < 10 else digits(value)


def _times(value: float) -> str:
    return ratio_text(value) if math.isfinite(value) else NOT_APPLICABLE


def _efficiency(row: Row) -> str:
    """Return the efficiency; that of the baseline is 1 by definition, and its cell says that it is the baseline."""
    if not math.isfinite(row.efficiency):
        return NOT_APPLICABLE
    return "N₀" if row.is_base else percent_text(row.efficiency)


def _remark(row: Row) -> str:
    """Return why figures are lacking, or that they are not comparable with the baseline's."""
    inside = row.base is not None and row.base.over_network and not row.shape.over_network
    return row.reason or (INSIDE if inside else "")


def _baseline_notes(scaling: Scaling, *, asked: bool) -> Iterator[str]:
    """Say what N₀ is, what the figures are, and what of them is not comparable; `asked` when N₀ was chosen."""
    base = scaling.baseline
    if base is None:
        yield "The baseline that was asked for was not measured here, so there is no efficiency."
        return
    why = "as asked for" if asked else f"the fewest ranks above one; {CHOOSE} takes another"
    yield f"N₀ is {base.name} ({base.words}): {why}."
    yield "Efficiency: busbw over that of N₀, same algorithm and vector; speed-up: ranks over those of N₀ times that."
    yield from doubts(scaling, base, f"{CHOOSE} ")


def _left_out(scaling: Scaling, shown: Mapping[Subject, Sequence[str]]) -> Iterator[str]:
    """Say what stands in scaling.csv only."""
    if list(shown) == scaling.subjects and all(list(shown[one]) == scaling.algorithms(one) for one in shown):
        return
    names = {name for subject in scaling.subjects for name in scaling.algorithms(subject)} - {BEST}
    sizes = [subject for subject in scaling.subjects if not subject.is_workload]
    vendor = f", and {BASELINE}" if BASELINE in names else ""
    fastest = f"the fastest on {scaling.shapes[-1].name}{vendor}"
    if len(sizes) < len(scaling.subjects):
        what = f"the whole workload with the best of each size, {fastest}"
    else:
        some = f"{len(shown)} of {counted(len(sizes), 'size')}" if len(shown) < len(sizes) else "each size"
        what = f"of {some} {fastest}"
    every = f"{counted(len(names), 'algorithm')} and {counted(len(sizes), 'size')}"
    yield f"Shown is {what}; scaling.csv has all of {every}."
