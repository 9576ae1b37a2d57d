"""The time of a whole workload: every tensor of a model, each size as often as the model has it."""

from dataclasses import dataclass

import numpy as np

from ddlbench.report.contest import Contest


@dataclass(frozen=True)
class Total:
    """Summed medians of one algorithm over the tensors of a workload, in µs; `missing` sizes gave no right result."""

    name: str
    time_us: float
    missing: int


@dataclass(frozen=True)
class Workload:
    """What a workload of so many `parts` (tensors, buffers) and `nbytes` bytes costs by algorithm, fastest first.

    `best_us` is the time with the best algorithm of each size.
    """

    parts: int
    nbytes: int
    totals: tuple[Total, ...]
    best_us: float


def workload_of(contest: Contest, multiplicity: dict[int, int]) -> Workload:
    """Return the totals of a contest, `multiplicity` saying how many parts there are of each size in bytes.

    A total is NaN when the algorithm lacks a size.
    """
    measured = {int(nbytes): row for row, nbytes in enumerate(contest.nbytes)}
    lacking = sum(nbytes not in measured for nbytes in multiplicity)
    weights = np.array([multiplicity[int(nbytes)] for nbytes in contest.nbytes], dtype=np.float64)
    sums = weights @ contest.median + (np.nan if lacking else 0)
    missing = np.isnan(contest.median).sum(axis=0) + lacking
    totals = [Total(name, float(sums[j]), int(missing[j])) for j, name in enumerate(contest.names)]
    best = float(weights @ np.nanmin(contest.median, axis=1)) if measured and not lacking else np.nan
    nbytes = sum(size * times for size, times in multiplicity.items())
    return Workload(sum(multiplicity.values()), nbytes, tuple(sorted(totals, key=_rank)), best)


def _rank(total: Total) -> tuple[bool, float]:
    return np.isnan(total.time_us), total.time_us
