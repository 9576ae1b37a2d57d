"""The algorithms of one setting side by side, and which of them wins at each size."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from ddlbench.report.units import counted

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SETTING = ["dtype", "op", "in_place", "nodes", "ranks_per_node", "ranks", "device", "sync"]
"""The columns of the CSV that two points must share for their times to be compared."""
APART = ["cache", "run"]
"""Columns that a table may have besides, in which such points must not differ either."""

Outcome = Literal["clear", "alike", "unknown", "alone"]


@dataclass(frozen=True)
class Setting:
    """All of a point but its algorithm and size: only points of one setting are compared.

    `run` is the name of the run among several, else "".
    """

    dtype: str
    op: str
    in_place: bool
    nodes: int
    ranks_per_node: str
    ranks: int
    device: str
    sync: str
    cache: str = "warm"
    run: str = ""

    @property
    def label(self) -> str:
        """The setting in words, for a menu and a heading."""
        run = f" ({self.run})" if self.run else ""
        return f"{self.vector}, {self.layout}{self._cold}{run}"

    @property
    def vector(self) -> str:
        """What is reduced, and how: all but the ranks; and whether it is predicted, which nothing else says."""
        predicted = "predicted: " if self.sync == "model" else ""
        return f"{predicted}{self.dtype} {self.op}, {'in place' if self.in_place else 'out of place'}"

    @property
    def unlaid(self) -> str:
        """The setting in words without its ranks and its run: what settings of several shapes have in common."""
        device = "" if self.device == "cpu" else f", {self.device}"
        return f"{self.vector}{device}{self._cold}"

    @property
    def _cold(self) -> str:
        return ", cold caches" if self.cache == "cold" else ""

    @property
    def layout(self) -> str:
        """The ranks, their nodes and the device, in words."""
        per_node = f"{self.ranks_per_node} on each" if self.ranks_per_node else "unevenly"
        where = f" on {counted(self.nodes, 'node')}, {per_node}" if self.nodes > 1 else ""
        device = "" if self.device == "cpu" else f", {self.device}"
        return f"{counted(self.ranks, 'rank')}{where}{device}"


@dataclass(frozen=True)
class Contest:
    """Medians and their intervals in µs, shape (sizes, algorithms); NaN where a point gave no right result.

    `nbytes` are the sizes, ascending; `names` the algorithms that gave a right result at one of them at least;
    `bound_us` are the lower bounds, of the same shape, NaN where there is none.
    """

    nbytes: npt.NDArray[np.int64]
    names: tuple[str, ...]
    median: Floats
    low: Floats
    high: Floats
    bound_us: Floats

    @property
    def best(self) -> npt.NDArray[np.int64]:
        """The column with the lowest median of each size."""
        return np.asarray(np.nanargmin(self.median, axis=1), dtype=np.int64)

    def overlaps(self, columns: npt.NDArray[np.int64]) -> Bools:
        """Return where an algorithm's interval overlaps that of the size's column; False without intervals."""
        rows = np.arange(len(self.nbytes))
        low, high = self.low[rows, columns][:, None], self.high[rows, columns][:, None]
        return np.asarray((self.low <= high) & (low <= self.high))

    def column(self, name: str) -> int | None:
        """Return the column of the algorithm `name`; None when it gave no right result."""
        return self.names.index(name) if name in self.names else None


@dataclass(frozen=True)
class Verdict:
    """Which algorithm wins at one size, as columns of the contest.

    `runner_up` has the next lowest median and `lead` says how many times the winner's that is. `rivals` are the
    algorithms whose intervals overlap the winner's. `outcome`: "clear", "alike" (there are rivals), "unknown" (one has
    no interval: fewer than 6 samples, or imported), "alone" (nothing to compare with).
    """

    nbytes: int
    winner: int
    runner_up: int | None
    lead: float
    rivals: tuple[int, ...]
    outcome: Outcome


def with_series(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a column `series`: the algorithm, and its transport if it ran over several on one shape.

    On other shapes the transport may be another one, as it is between nodes and inside one: that is the same competitor
    still. A point that never had a plan has no transport, which is none of its own.
    """
    known = table["transport"].where(table["transport"] != "")
    shape = [table[name] for name in ("algorithm", "nodes", "ranks_per_node", "ranks", *APART) if name in table]
    several = set(table["algorithm"][known.groupby(shape).transform("nunique") > 1])
    named = table["algorithm"] + " (" + table["transport"] + ")"
    return table.assign(series=table["algorithm"].where(~table["algorithm"].isin(several) | known.isna(), named))


def settings(table: pd.DataFrame) -> Iterator[tuple[Setting, pd.DataFrame]]:
    """Yield each setting of a table of results with its rows, the settings in the order of their first points."""
    names = [*SETTING, *(name for name in APART if name in table)]
    for key, rows in table.groupby(names, sort=False):
        yield Setting(**dict(zip(names, map(_plain, key), strict=True))), rows


def labels(found: Sequence[Setting]) -> list[str]:
    """Return the settings in words; where these are the same, with how starts were aligned."""
    plain = [setting.label for setting in found]
    return [
        label if plain.count(label) == 1 or not setting.sync else f"{label}, by {setting.sync}"
        for setting, label in zip(found, plain, strict=True)
    ]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def contest_of(rows: pd.DataFrame) -> Contest:
    """Return the right results among the rows of one setting side by side; of a point measured twice, the later."""
    right = rows[(rows["status"] == "ok") & (rows["time_us_median"] > 0)]
    right = right.drop_duplicates(["series", "nbytes"], keep="last")
    sizes, names = sorted(right["nbytes"].unique()), sorted(right["series"].unique())

    def spread(column: str) -> Floats:
        wide = right.pivot(index="nbytes", columns="series", values=column).reindex(index=sizes, columns=names)
        return wide.to_numpy(dtype=np.float64)

    return Contest(
        nbytes=np.asarray(sizes, dtype=np.int64),
        names=tuple(names),
        median=spread("time_us_median"),
        low=spread("time_us_ci_low"),
        high=spread("time_us_ci_high"),
        bound_us=spread("bound_us"),
    )


def verdicts(contest: Contest) -> list[Verdict]:
    """Return who wins at each size."""
    if not len(contest.nbytes):
        return []
    best = contest.best
    overlaps = contest.overlaps(best)
    known = ~np.isnan(contest.low)
    return [_verdict(contest, row, int(best[row]), overlaps[row], known[row]) for row in range(len(best))]


def _verdict(contest: Contest, row: int, winner: int, overlaps: Bools, known: Bools) -> Verdict:
    medians = contest.median[row]
    order = [int(column) for column in np.argsort(medians, kind="stable") if not np.isnan(medians[column])]
    others = [column for column in order if column != winner]
    rivals = tuple(column for column in others if overlaps[column])
    lead = float(medians[others[0]] / medians[winner]) if others else np.nan
    outcome = _outcome(bool(others), rivals, bool(known[order].all()))
    return Verdict(int(contest.nbytes[row]), winner, others[0] if others else None, lead, rivals, outcome)


def _outcome(compared: bool, rivals: tuple[int, ...], known: bool) -> Outcome:
    if not compared:
        return "alone"
    if rivals:
        return "alike"
    return "clear" if known else "unknown"
