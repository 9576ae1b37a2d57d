"""The time of a whole workload: every tensor of a model, each size as often as the model has it."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ddlbench.records import Loaded
from ddlbench.report.contest import Contest, Floats

BEST = "best of each size"
"""What stands in the place of an algorithm where each size has the fastest."""


@dataclass(frozen=True)
class Total:
    """Summed medians of one algorithm over the tensors of a workload, in µs; `missing` sizes gave no right result.

    `low_us` and `high_us` are the sums of the ends of the medians' intervals, `bound_us` that of the lower bounds; NaN
    where one has none.
    """

    name: str
    time_us: float
    missing: int
    low_us: float = np.nan
    high_us: float = np.nan
    bound_us: float = np.nan


@dataclass(frozen=True)
class Workload:
    """What a workload of so many `parts` (tensors, buffers) and `nbytes` bytes costs by algorithm, fastest first.

    `best` is the time with the best algorithm of each size, which lacks the sizes that nobody managed, and then is NaN.
    """

    parts: int
    nbytes: int
    totals: tuple[Total, ...]
    best: Total

    @property
    def best_us(self) -> float:
        """The time with the best algorithm of each size, in µs."""
        return self.best.time_us


def workload_of(contest: Contest, multiplicity: Mapping[int, int]) -> Workload:
    """Return the totals of a contest, `multiplicity` saying how many parts there are of each size in bytes.

    A total is NaN when the algorithm lacks a size.
    """
    measured = {int(nbytes): row for row, nbytes in enumerate(contest.nbytes)}
    lacking = sum(nbytes not in measured for nbytes in multiplicity)
    weights = np.array([multiplicity[int(nbytes)] for nbytes in contest.nbytes], dtype=np.float64)
    add = _Sums(weights, np.nan if lacking else 0.0)
    median, low, high, bound = map(add, (contest.median, contest.low, contest.high, contest.bound_us))
    missing = np.isnan(contest.median).sum(axis=0) + lacking
    totals = [
        Total(name, float(median[at]), int(missing[at]), float(low[at]), float(high[at]), float(bound[at]))
        for at, name in enumerate(contest.names)
    ]
    nbytes = sum(size * times for size, times in multiplicity.items())
    best = _best(contest, add, lacking)
    return Workload(sum(multiplicity.values()), nbytes, tuple(sorted(totals, key=_rank)), best)


@dataclass(frozen=True)
class _Sums:
    """Sums over sizes, each times its weight, and `besides`: NaN where a size is lacking altogether."""

    weights: Floats
    besides: float

    def __call__(self, figures: Floats) -> Floats:
        return np.asarray(self.weights @ figures + self.besides, dtype=np.float64)


def _best(contest: Contest, add: _Sums, lacking: int) -> Total:
    """Return the time with the fastest algorithm of each size."""
    if not len(contest.nbytes):
        return Total(BEST, np.nan, lacking)
    rows = np.arange(len(contest.nbytes))
    figures = (contest.median, contest.low, contest.high, contest.bound_us)
    time, low, high, bound = (float(add(of[rows, contest.best])) for of in figures)
    return Total(BEST, time, lacking, low, high, bound)


def _rank(total: Total) -> tuple[bool, float]:
    return np.isnan(total.time_us), total.time_us


def workload_name(loaded: Loaded) -> str:
    """Return what a run calls its workload; "" where it has none."""
    workload = loaded.run.config.get("workload")
    return str(workload.get("name", "")) if isinstance(workload, Mapping) else str(workload or "")


def parts_of(loaded: Loaded) -> str:
    """Return what the vectors of a run's workload are: tensors, or buffers that they were gathered into."""
    return "buffer" if loaded.run.config.get("fuse") else "tensor"


def multiplicity_of(rows: pd.DataFrame) -> dict[int, int]:
    """Return how many vectors there are of each size in the rows of some points."""
    return dict(zip(rows["nbytes"].tolist(), rows["multiplicity"].tolist(), strict=True))


def identity(loaded: Loaded, rows: pd.DataFrame) -> Hashable | None:
    """Return what tells the workload that points of a run are of from others; None where they are single vectors."""
    name = workload_name(loaded)
    if not name and (rows["multiplicity"] == 1).all():
        return None
    return name, str(loaded.run.config.get("fuse")), tuple(_numels(loaded))


def is_whole(loaded: Loaded, rows: pd.DataFrame) -> bool:
    """Say whether points have every element of the run's workload, as far as the run says what that is.

    A run that ended early lacks vectors, and the sum over the others is no time of the workload.
    """
    of_sizes = rows.drop_duplicates("nbytes")
    return int((of_sizes["count"] * of_sizes["multiplicity"]).sum()) >= sum(_numels(loaded))


def _numels(loaded: Loaded) -> list[int]:
    """Return the elements of each tensor of the workload, where the run has them."""
    workload = loaded.run.config.get("workload")
    numels = workload.get("numels") if isinstance(workload, Mapping) else None
    return [numel for numel in numels if isinstance(numel, int)] if isinstance(numels, list | tuple) else []
