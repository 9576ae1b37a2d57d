"""The runs that one report is made of: one, or several side by side, each under a name."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from ddlbench.records import Loaded, Point
from ddlbench.report.contest import with_series
from ddlbench.report.tables import points_table


@dataclass(frozen=True)
class Part:
    """One run of a report: its name, what was read, and its rows of the table of all."""

    name: str
    loaded: Loaded
    rows: pd.DataFrame


@dataclass(frozen=True)
class Runs:
    """Runs by name, in the order given; a run that stands alone has the name ""."""

    named: Mapping[str, Loaded]

    @classmethod
    def of(cls, runs: "Loaded | Mapping[str, Loaded] | Runs") -> "Runs":
        """Return one run, or several by name, as the runs of a report; one of a mapping needs no name."""
        if isinstance(runs, Runs):
            return runs
        if isinstance(runs, Loaded):
            return cls({"": runs})
        return cls(dict(runs) if len(runs) > 1 else dict(zip([""], runs.values(), strict=True)))

    def __iter__(self) -> Iterator[tuple[str, Loaded]]:
        """Yield the name and the run of each."""
        return iter(self.named.items())

    @property
    def several(self) -> bool:
        """Whether there is more than one, so that they must be told apart."""
        return len(self.named) > 1

    @property
    def latest(self) -> Loaded:
        """The run that was started last."""
        return max(self.named.values(), key=lambda loaded: loaded.run.created)

    @cached_property
    def points(self) -> list[Point]:
        """The points of all runs, one run after the other."""
        return [point for _, loaded in self for point in loaded.points]

    @cached_property
    def results(self) -> pd.DataFrame:
        """The columns of the CSV for all points, and the name of the run behind them where there are several."""
        table = points_table(self.points)
        return table.assign(run=self._origins) if self.several else table

    @cached_property
    def table(self) -> pd.DataFrame:
        """The results with what else of a point is shown: series, run, cache, multiplicity, late, stopped, longest."""
        points = self.points
        return with_series(self.results).assign(
            run=self._origins,
            cache=[point.cache for point in points],
            multiplicity=[point.multiplicity for point in points],
            late=[point.late for point in points],
            stopped=[point.stopped for point in points],
            time_us_max=[max(point.samples_ns, default=float("nan")) / 1e3 for point in points],
        )

    def parts(self) -> list[Part]:
        """Return each run with its rows of the table."""
        return [Part(name, loaded, self.table[self.table["run"] == name]) for name, loaded in self]

    @property
    def _origins(self) -> pd.Series:
        return pd.Series([name for name, loaded in self for _ in loaded.points], dtype="object")


def run_names(directories: list[str]) -> list[str]:
    """Return a name for the run in each directory: the folder's, or as much of its path as tells it from the others."""
    parts = [Path(os.path.realpath(directory)).parts for directory in directories]
    depth = 1
    while len({names[-depth:] for names in parts}) < len(set(parts)):
        depth += 1
    return [str(Path(*names[-depth:])) for names in parts]
