"""What each shape measured, for a scaling table: a time for each vector or workload and algorithm, or why none."""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from ddlbench.records import Loaded
from ddlbench.report.contest import Contest, contest_of
from ddlbench.report.units import counted, size_text
from ddlbench.report.workload import (
    BEST,
    Total,
    identity,
    is_whole,
    multiplicity_of,
    parts_of,
    workload_name,
    workload_of,
)

AND = " and "
"""Between texts of which a cell has several."""
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Subject:
    """What is reduced: one vector of `nbytes`, or the `parts` of a workload that come to so many bytes in all.

    `name` is that of the workload, and `kind` what its parts are: tensors, or buffers they were gathered into. Both are
    "" of a vector.
    """

    nbytes: int
    name: str = ""
    parts: int = 1
    kind: str = ""

    @property
    def is_workload(self) -> bool:
        """Whether it is no single vector."""
        return bool(self.kind)

    @property
    def title(self) -> str:
        """What the subject is called: the workload, or the size of the vector."""
        return (self.name or "workload") if self.is_workload else size_text(self.nbytes)


@dataclass(frozen=True)
class Cell:
    """What one algorithm took for a subject on one shape, in µs; where it has no time, `reason` says why."""

    time_us: float = math.nan
    low_us: float = math.nan
    high_us: float = math.nan
    bound_us: float = math.nan
    sync: str = ""
    statistic: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Measured:
    """The points of one layout, each once: of those measured twice, the last that is right.

    `workload` tells the workload that they are of from others; None where they are single vectors.
    """

    loaded: Loaded
    rows: pd.DataFrame
    workload: Hashable | None

    @classmethod
    def of(cls, loaded: Loaded, rows: pd.DataFrame) -> "Measured":
        """Return the points of a layout of a run; of `rows` for one point, the last that is right counts."""
        right = (rows["status"] == "ok") & (rows["time_us_median"] > 0)
        ordered = rows.assign(right=right).sort_values("right", kind="stable")
        once = ordered.drop_duplicates(["series", "nbytes"], keep="last")
        return cls(loaded, once, identity(loaded, once))

    @cached_property
    def cells(self) -> dict[tuple[int, str], Cell]:
        """What each algorithm took for each size."""
        names = ["nbytes", "series", "time_us_median", "time_us_ci_low", "time_us_ci_high", "bound_us", "sync"]
        columns = (self.rows[name].tolist() for name in [*names, "statistic", "status", "reason"])
        return {(nbytes, series): _cell(*rest) for nbytes, series, *rest in zip(*columns, strict=True)}

    @cached_property
    def contest(self) -> Contest:
        """The right results by size and algorithm."""
        return contest_of(self.rows)


def _cell(
    time_us: float, low: float, high: float, bound: float, sync: str, statistic: str, status: str, reason: str
) -> Cell:
    if status != "ok" or not time_us > 0:
        what = status if status != "ok" else "no time"
        return Cell(sync=sync, statistic=statistic, reason=f"{what}: {reason}" if reason else what)
    return Cell(time_us, low, high, bound, sync, statistic)


def cells_of(measured: Sequence[Measured]) -> Iterator[tuple[Subject, Mapping[str, Sequence[Cell]]]]:
    """Yield the workloads and vectors that more than one layout has; of each algorithm, a cell for each layout."""
    workloads = [one.workload for one in measured if one.workload is not None]
    for workload in dict.fromkeys(workloads):
        if workloads.count(workload) > 1:
            yield _of_workload(workload, measured)
    sizes = [nbytes for one in measured for nbytes in {nbytes for nbytes, _ in one.cells}]
    for nbytes in sorted(set(sizes)):
        if sizes.count(nbytes) > 1:
            yield Subject(nbytes), _ordered(_of_vector(nbytes, measured))


def _of_vector(nbytes: int, measured: Sequence[Measured]) -> dict[str, list[Cell]]:
    names = dict.fromkeys(name for one in measured for size, name in one.cells if size == nbytes)
    missing = Cell(reason=NOT_MEASURED)
    return {name: [one.cells.get((nbytes, name), missing) for one in measured] for name in names}


def _of_workload(workload: Hashable, measured: Sequence[Measured]) -> tuple[Subject, Mapping[str, Sequence[Cell]]]:
    """Return a workload and its cells. Its vectors are those of all layouts: one that ended early lacks some."""
    having = [one for one in measured if one.workload == workload]
    multiplicity = {size: often for one in having for size, often in multiplicity_of(one.rows).items()}
    whole = is_whole(having[0].loaded, pd.concat([one.rows for one in having]))
    found = [_by_name(one, multiplicity, whole=whole) if one.workload == workload else {} for one in measured]
    names = dict.fromkeys(name for cells in found for name in cells)
    missing = Cell(reason=NOT_MEASURED)
    nbytes, parts = sum(size * often for size, often in multiplicity.items()), sum(multiplicity.values())
    subject = Subject(nbytes, workload_name(having[0].loaded), parts, parts_of(having[0].loaded))
    return subject, _ordered({name: [cells.get(name, missing) for cells in found] for name in names})


def _by_name(one: Measured, multiplicity: Mapping[int, int], *, whole: bool) -> dict[str, Cell]:
    """Return what the workload takes with the best algorithm of each size, and with each algorithm."""
    names = [BEST, *map(str, one.rows["series"].unique())]
    if not whole:
        return dict.fromkeys(names, Cell(reason="the run lacks vectors of it"))
    found = workload_of(one.contest, multiplicity)
    sizes = counted(len(multiplicity), "size")
    sync, statistic = (AND.join(sorted(set(one.rows[name]) - {""})) for name in ("sync", "statistic"))

    def cell(total: Total) -> Cell:
        if math.isnan(total.time_us):
            return Cell(reason=f"lacks {total.missing} of {sizes}")
        return Cell(total.time_us, total.low_us, total.high_us, total.bound_us, sync, statistic)

    cells = {total.name: cell(total) for total in (found.best, *found.totals)}
    return {name: cells.get(name, Cell(reason=f"lacks all of {sizes}")) for name in names}


def _ordered(by_name: Mapping[str, Sequence[Cell]]) -> dict[str, Sequence[Cell]]:
    """Return the algorithms, the best of each size first, then by the time on the largest shape that they have."""

    def rank(name: str) -> tuple[Any, ...]:
        times = [cell.time_us for cell in reversed(by_name[name])]
        return (name != BEST, *((math.isnan(time), 0 if math.isnan(time) else time) for time in times), name)

    return {name: by_name[name] for name in sorted(by_name, key=rank)}
