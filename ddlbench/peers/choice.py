"""Which of ddlbench's algorithms takes part at which size: decided by a short sweep of its own, before the passes.

Were it decided by the samples that are shown, the fastest of many would owe a part of its lead to luck.
"""

from collections.abc import Sequence

import numpy as np

from ddlbench.algorithms import available, resolve
from ddlbench.errors import UsageError
from ddlbench.records import Loaded, Point, Run
from ddlbench.report.contest import contest_of, settings
from ddlbench.report.headline import choice
from ddlbench.report.tables import results_table
from ddlbench.schedule.grid import Grid


def candidates(ranks: int) -> tuple[str, ...]:
    """Return the names of the algorithms that `ranks` ranks can run."""
    return tuple(algorithm.name for algorithm in available() if _possible(algorithm.name, Grid((ranks,))))


def _possible(name: str, grid: Grid) -> bool:
    try:
        resolve(name, grid)
    except UsageError:
        return False
    return True


def chosen(run: Run, points: Sequence[Point]) -> dict[int, str]:
    """Return the algorithm to use at each size in bytes, as few changes as pay; points of a vendor are left aside."""
    own = tuple(point for point in points if point.transport != "vendor")
    table = results_table(Loaded(run, own, []))
    found: dict[int, str] = {}
    for _, rows in settings(table.assign(series=table["algorithm"])):
        contest = contest_of(rows)
        if contest.names:
            names = [contest.names[column] for column in choice(contest)]
            found |= dict(zip(map(int, contest.nbytes), names, strict=True))
    return found


def fastest(points: Sequence[Point]) -> dict[int, str]:
    """Return the algorithm with the least median at each size in bytes; points of a vendor are left aside."""
    least: dict[int, tuple[float, str]] = {}
    for point in points:
        if point.transport != "vendor" and point.status == "ok" and point.samples_ns:
            found = (float(np.median(point.samples_ns)), point.algorithm)
            least[point.nbytes] = min(found, least.get(point.nbytes, found))
    return {nbytes: name for nbytes, (_, name) in sorted(least.items())}
