"""The figures of a comparison: medians against the fastest library, and means against other programs' means."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ddlbench.records import Point
from ddlbench.statistics import summarise

Passes = Sequence[Point]
"""The points that the passes gave of one cell."""
Cells = Mapping[tuple[str, int], Passes]
"""The passes by algorithm and bytes."""


@dataclass(frozen=True)
class Figure:
    """What is known of one algorithm at one size: the median of all samples and its interval, in microseconds.

    Each pass is a start of its own, and the interval holds the median of every one.
    """

    algorithm: str
    nbytes: int
    median_us: float
    low_us: float
    high_us: float
    samples: int
    passes: int

    @property
    def spread(self) -> float:
        """Half the width of the interval as a share of the median; NaN where there are too few samples for one."""
        return (self.high_us - self.low_us) / 2 / self.median_us if self.median_us else 0.0


def figure(points: Passes) -> Figure | None:
    """Return the figure of one cell; None where any of its passes was not right, or nothing was timed."""
    if not points or any(point.status != "ok" or not point.samples_ns for point in points):
        return None
    samples = [sample for point in points for sample in point.samples_ns]
    whole = summarise(samples, [len(point.samples_ns) for point in points])
    return Figure(
        algorithm=points[0].algorithm,
        nbytes=points[0].nbytes,
        median_us=whole.median_us,
        low_us=whole.ci_low_us,
        high_us=whole.ci_high_us,
        samples=whole.samples,
        passes=len(points),
    )


@dataclass(frozen=True)
class Column:
    """A column of the table: its title, whether it is an MPI library's own allreduce, and its figures by bytes."""

    title: str
    vendor: bool
    figures: Mapping[int, Figure]


def column(title: str, cells: Iterable[Passes], *, vendor: bool) -> Column:
    """Return the column of `cells`, at most one of each size."""
    found = (figure(points) for points in cells)
    return Column(title, vendor, {one.nbytes: one for one in found if one is not None})


def fastest_vendor(columns: Iterable[Column], nbytes: int) -> float | None:
    """Return the least median of the MPI libraries at a size, in microseconds; None where no library has one."""
    medians = [one.figures[nbytes].median_us for one in columns if one.vendor and nbytes in one.figures]
    return min(medians, default=None)


def sizes(columns: Iterable[Column]) -> list[int]:
    """Return all sizes that a column has a figure of, ascending."""
    return sorted({nbytes for one in columns for nbytes in one.figures})


@dataclass(frozen=True)
class Agreement:
    """Two means of one allreduce in microseconds, over repetitions and ranks: ddlbench's and another program's.

    Each is the median of the passes' means: a mean is at the mercy of one interruption, and so is one of all passes.
    """

    program: str
    partner: str
    nbytes: int
    ours_us: float
    theirs_us: float

    @property
    def ratio(self) -> float:
        """Ours over theirs."""
        return self.ours_us / self.theirs_us


def mean_us(point: Point) -> float | None:
    """Return the mean of a point over repetitions and ranks; None where it was not right, or nothing was timed.

    It is one over repetitions of the slowest rank where each rank's own times are not stored.
    """
    if point.status != "ok":
        return None
    if point.stated is not None:
        return point.stated.mean_us or None
    times = point.per_rank_ns or (point.samples_ns,)
    return float(np.mean(np.asarray(times, np.float64))) / 1e3 if times[0] else None


def _usual_mean(points: Passes) -> float | None:
    """Return the median of the passes' means; None where one of them has none."""
    means = [mean for point in points if (mean := mean_us(point)) is not None]
    return float(np.median(means)) if means and len(means) == len(points) else None


def agreements(theirs: Cells, ours: Cells, partner: str) -> list[Agreement]:
    """Return the sizes at which a program's cells stand beside ours of the series `partner`.

    Only the same work is compared: type, reduction and place must be equal.
    """
    found = []
    for (program, nbytes), points in sorted(theirs.items()):
        beside = ours.get((partner, nbytes), ())
        their_mean, our_mean = _usual_mean(points), _usual_mean(beside)
        if their_mean is not None and our_mean is not None and _work(points[0]) == _work(beside[0]):
            found.append(Agreement(program, partner, nbytes, our_mean, their_mean))
    return found


def _work(point: Point) -> tuple[str, str, bool]:
    return point.dtype, point.op, point.in_place
