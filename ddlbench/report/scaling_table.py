"""The scaling-efficiency table: for each vector, or workload, and algorithm a row for each shape it ran on.

A figure that does not apply is NaN and the row says why: a point that is missing, wrong or failed never counts as 0.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ddlbench.errors import UsageError
from ddlbench.records import Loaded
from ddlbench.report.contest import Setting, settings
from ddlbench.report.placement import virtual
from ddlbench.report.runs import Runs
from ddlbench.report.scaling import Family, Layout, efficiency, families
from ddlbench.report.scaling_cells import AND, NOT_MEASURED, Cell, Measured, Subject, cells_of
from ddlbench.report.shapes import Shape, named
from ddlbench.report.tables import NO_BOUND, lacks_bound
from ddlbench.statistics import bus_bandwidth

DTYPES = {
    "workload": "object",
    "vectors": "int64",
    "nbytes": "int64",
    "algorithm": "object",
    "dtype": "object",
    "op": "object",
    "in_place": "bool",
    "device": "object",
    "cache": "object",
    "nodes": "int64",
    "ranks_per_node": "object",
    "ranks": "int64",
    "sync": "object",
    "statistic": "object",
    "time_us": "float64",
    "time_us_low": "float64",
    "time_us_high": "float64",
    "busbw_gb_per_s": "float64",
    "speedup": "float64",
    "efficiency": "float64",
    "efficiency_low": "float64",
    "efficiency_high": "float64",
    "time_over_baseline": "float64",
    "bound_us": "float64",
    "time_over_bound": "float64",
    "baseline": "object",
    "reason": "object",
}
"""The columns of `scaling.csv`, in order, and what they hold."""

ONE_RANK = "one rank uses no link"
SHARED = (
    "Ranks of one node share its link, and efficiency counts by rank: with every node's link full it exceeds 100 % "
    "against fewer ranks on each node, and falls short against fewer nodes. The ratio to the bound counts by node."
)
INSIDE = "inside one node"
EMPTY = "an empty vector has no bandwidth"


@dataclass(frozen=True)
class Row:
    """One row: a subject and an algorithm on one shape, held against the same on the shape `base` (None: on none)."""

    subject: Subject
    algorithm: str
    shape: Shape
    cell: Cell
    base: Shape | None
    base_cell: Cell

    @property
    def busbw(self) -> float:
        """Bus bandwidth in GB/s."""
        return bus_bandwidth(self.subject.nbytes, self.cell.time_us, self.shape.ranks)

    @property
    def efficiency(self) -> float:
        """Bus bandwidth over that of the baseline."""
        return self._efficiency(self.cell.time_us, self.base_cell.time_us)

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the greatest efficiency that the two intervals allow; NaN for the baseline itself."""
        if self.is_base:
            return math.nan, math.nan
        low = self._efficiency(self.cell.high_us, self.base_cell.low_us)
        return low, self._efficiency(self.cell.low_us, self.base_cell.high_us)

    @property
    def speedup(self) -> float:
        """How many times as many bytes all ranks together move in a second as at the baseline."""
        return self.efficiency * self.shape.ranks / self.base.ranks if self.base else math.nan

    @property
    def over_base(self) -> float:
        """The time over that of the baseline."""
        return self.cell.time_us / self.base_cell.time_us

    @property
    def times_bound(self) -> float:
        """The time over its lower bound."""
        return self.cell.time_us / self.cell.bound_us if self.cell.bound_us > 0 else math.nan

    @property
    def is_base(self) -> bool:
        """Whether the row is that of the baseline."""
        return self.shape == self.base

    @property
    def reason(self) -> str:
        """Why figures are lacking; "" where none is, or only an interval or a bound."""
        if self.cell.reason:
            return self.cell.reason
        if self.shape.ranks < 2:
            return ONE_RANK
        if not self.subject.nbytes:
            return EMPTY
        if self.base is None:
            return "the baseline was not measured"
        return f"N₀: {self.base_cell.reason}" if self.base_cell.reason else ""

    def _efficiency(self, time_us: float, base_us: float) -> float:
        if self.base is None or not self.subject.nbytes:
            return math.nan
        return efficiency(time_us, self.shape.ranks, base_us, self.base.ranks)


@dataclass(frozen=True)
class Scaling:
    """The table of one family of settings: `setting` is the first, for what all have in common.

    `cells` are by subject and algorithm, both in the order of the table, one for each layout of the family. `virtual`
    says what the nodes are where they are no machines of their own. `unbound` says that there are points without a
    lower bound because they used no messages.
    """

    setting: Setting
    family: Family
    cells: Mapping[Subject, Mapping[str, Sequence[Cell]]]
    virtual: str = ""
    unbound: bool = False

    @property
    def shapes(self) -> list[Shape]:
        """The shapes, by ranks."""
        return [layout.shape for layout in self.family.layouts]

    @property
    def baseline(self) -> Shape | None:
        """The shape that the others are held against; None where it is not among them."""
        return None if self.family.base is None else self.shapes[self.family.base]

    @property
    def subjects(self) -> list[Subject]:
        """Workloads, then vectors by size."""
        return list(self.cells)

    def algorithms(self, subject: Subject) -> list[str]:
        """Return the algorithms of a subject, the best of each size first, then by the time on the largest shape."""
        return list(self.cells[subject])

    def rows(self, subject: Subject, algorithm: str) -> list[Row]:
        """Return the rows of an algorithm, one for each shape."""
        cells = self.cells[subject][algorithm]
        base = Cell(reason=NOT_MEASURED) if self.family.base is None else cells[self.family.base]
        pairs = zip(self.shapes, cells, strict=True)
        return [Row(subject, algorithm, shape, cell, self.baseline, base) for shape, cell in pairs]


def scalings(runs: Runs, baseline: str | None = None) -> list[Scaling]:
    """Return the tables of a run, or of several: one for each family of settings with more than one shape.

    `baseline` names N₀; None means the least shape of each family. Raises `UsageError` when it is in none of the runs.
    """
    found = list(settings(runs.table))
    right = [len(rows[rows["status"] == "ok"]) for _, rows in found]
    return scalings_of(runs, found, families([setting for setting, _ in found], right, chosen(runs, baseline)))


def scalings_of(runs: Runs, found: Sequence[tuple[Setting, pd.DataFrame]], grown: Iterable[Family]) -> list[Scaling]:
    """Return the tables of families of the settings that were `found` in runs, each with its rows."""
    return [_scaling(runs, found, family) for family in grown if scales(family)]


def scaling_table(runs: Loaded | Mapping[str, Loaded] | Runs, baseline: str | None = None) -> pd.DataFrame:
    """Return the rows of all tables of a run, or of several by name, with exactly the columns of `scaling.csv`.

    Figures are unrounded; one that does not apply is NaN, and `reason` says why. There are no rows where there is one
    shape only. `baseline` names N₀; None means the least shape of each family. Raises `UsageError` when it is in none
    of the runs.
    """
    return table_of(scalings(Runs.of(runs), baseline))


def table_of(found: Iterable[Scaling]) -> pd.DataFrame:
    """Return the rows of some tables, as `scaling_table` does for those of a run."""
    rows = [
        _csv_row(scaling.setting, row)
        for scaling in found
        for subject in scaling.subjects
        for algorithm in scaling.algorithms(subject)
        for row in scaling.rows(subject, algorithm)
    ]
    return pd.DataFrame(rows, columns=list(DTYPES)).astype(DTYPES)


def _csv_row(setting: Setting, row: Row) -> tuple[Any, ...]:
    """Return the values of one row, in the order of `DTYPES`."""
    subject, shape, cell = row.subject, row.shape, row.cell
    return (
        *(subject.title if subject.is_workload else "", subject.parts, subject.nbytes, row.algorithm),
        *(setting.dtype, setting.op, setting.in_place, setting.device, setting.cache),
        *(shape.nodes, shape.per_node, shape.ranks, cell.sync, cell.statistic),
        *(cell.time_us, cell.low_us, cell.high_us, row.busbw, row.speedup, row.efficiency, *row.interval),
        *(row.over_base, cell.bound_us, row.times_bound, row.base.name if row.base else "", row.reason),
    )


def scales(family: Family) -> bool:
    """Say whether there is something to hold against something else."""
    return len(family.layouts) > 1 and any(layout.shape.ranks > 1 for layout in family.layouts)


def chosen(runs: Runs, baseline: str | None) -> Shape | None:
    """Return the shape that `baseline` names; None for None. Raises `UsageError` when it is in none of the runs."""
    if baseline is None:
        return None
    shapes = {Shape(setting.ranks, setting.nodes, setting.ranks_per_node) for setting, _ in settings(runs.table)}
    found = named(baseline, shapes)
    if len(shapes) == 1:
        raise UsageError(f"baseline {baseline!r} is the only shape there is: nothing can be held against it")
    return found


def _scaling(runs: Runs, found: Sequence[tuple[Setting, pd.DataFrame]], family: Family) -> Scaling:
    cells = dict(cells_of([_measured(runs, found, layout) for layout in family.layouts]))
    runs_of = dict.fromkeys(found[layout.places[0]][0].run for layout in family.layouts)
    kinds = dict.fromkeys(virtual(runs.named[name].run) for name in runs_of)
    rows = (found[place][1] for layout in family.layouts for place in layout.places)
    unbound = any(bool(lacks_bound(of).any()) for of in rows)
    return Scaling(found[family.members[0]][0], family, cells, "; ".join(filter(None, kinds)), unbound)


def _measured(runs: Runs, found: Sequence[tuple[Setting, pd.DataFrame]], layout: Layout) -> Measured:
    """Return what a layout has, the setting with the most right results last, for that is the one that counts."""
    every = pd.concat([found[place][1] for place in reversed(layout.places)])
    return Measured.of(runs.named[found[layout.places[0]][0].run], every)


def doubts(scaling: Scaling, base: Shape, choose: str) -> Iterator[str]:
    """Say what is not comparable when shapes are held against `base`; `choose` is how a reader takes another."""
    shapes = [shape for shape in scaling.shapes if shape.ranks > 1]
    if scaling.virtual:
        yield f"Not a cluster: the nodes are {scaling.virtual}."
    yield from _links_differ(base, shapes, choose)
    if any(shape.over_network and shape.ranks > shape.nodes for shape in shapes):
        yield SHARED
    if scaling.unbound:
        yield f"Not all times have a bound: {NO_BOUND}."
    every = [cell for by_name in scaling.cells.values() for cells in by_name.values() for cell in cells]
    syncs, statistics = (_different(getattr(cell, name) for cell in every) for name in ("sync", "statistic"))
    if len(statistics) > 1:
        yield f"Not all times are of one kind: {' and '.join(statistics)}."
    elif len(syncs) > 1:
        yield f"Starts were not aligned alike at all points: by {' and by '.join(syncs)}."


def _different(texts: Iterable[str]) -> list[str]:
    """Return what is named in the texts, each of which may join several by "and"."""
    return sorted({part for text in texts for part in text.split(AND)} - {""})


def _links_differ(base: Shape, shapes: Sequence[Shape], choose: str) -> Iterator[str]:
    """Say that shapes inside one node and shapes over several work over other links."""
    over = [shape for shape in shapes if shape.over_network]
    if over and not base.over_network:
        way_out = f" {choose}{over[0].name} compares networks alone." if len(over) > 1 else ""
        yield (
            "N₀ is inside one node, where nothing crosses the network: the efficiency of several nodes compares the "
            f"network with the links inside a node, not one cluster size with another.{way_out}"
        )
    inside = ", ".join(shape.name for shape in shapes if not shape.over_network)
    if inside and base.over_network:
        yield f"{inside}: {INSIDE}, where nothing crosses the network; not comparable with N₀."
