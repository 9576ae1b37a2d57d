"""What rank 0 does with a sweep: it stores every point, shows it, and makes the report at the end."""

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddlbench.bench.config import SweepConfig
from ddlbench.bench.progress import Screen, Table, Totals
from ddlbench.bench.sweep import Group, groups
from ddlbench.cli import outputs
from ddlbench.errors import DdlbenchError
from ddlbench.records import Point, Run, Store
from ddlbench.schedule.algorithm import BoundAlgorithm


class Recorder:
    """The listener of a sweep into the directory `out`; `stack` closes what it opens. Only rank 0 calls its methods."""

    def __init__(self, out: Path, config: SweepConfig, algorithms: Sequence[BoundAlgorithm], stack: ExitStack) -> None:
        self._out = out
        self._config = config
        self._algorithms = tuple(algorithms)
        self._stack = stack
        self._totals = Totals()
        self._stored = 0
        self._started = time.monotonic()

    def create(self, run: Run, *, overwrite: bool) -> None:
        """Open the run directory; raises `UsageError` when it holds a run that is not to be replaced."""
        self._store = self._stack.enter_context(Store.create(self._out, run, overwrite=overwrite))

    def start(self, links: Mapping[str, Any], header: Sequence[str]) -> None:
        """Store the probed links, write the lines of the header and begin the table."""
        self._store.update(replace(self._store.run, links=links))
        self._write(header)
        self._screen = self._stack.enter_context(self._opened())

    def _opened(self) -> Screen:
        dtypes = [dtype.name for dtype in self._config.dtypes]
        names = [algorithm.name for algorithm in self._algorithms]
        table = Table(dtypes, self._config.ops, names, places=self._config.in_place != (False,))
        total = sum(len(group.algorithms) for group in groups(self._config, self._algorithms))
        return Screen(table, total, out=sys.stdout, err=sys.stderr)

    def begin(self, group: Group) -> None:
        """Show what is measured now."""
        self._screen.begin(group)

    def point(self, point: Point) -> None:
        """Store a finished point, then show it; raises `DdlbenchError` when there is no room for it."""
        try:
            self._store.append(point)
        except DdlbenchError as error:
            raise DdlbenchError(f"{error}; the {self._stored} points before it are kept") from error
        self._stored += 1
        self._screen.point(point)
        self._totals.add(point)

    def finish(self, tally: Counter[str]) -> None:
        """Mark the run as finished, write its table and page, and say where they are."""
        self._store.finish()
        try:
            outputs.write(self._out)
        except DdlbenchError as error:
            raise DdlbenchError(
                f"{error}; every point is stored: ddlbench report {self._out} writes the rest"
            ) from error
        self._stack.close()
        self._write(self._closing(tally))

    def _closing(self, tally: Counter[str]) -> list[str]:
        counts = ", ".join(f"{number} {status}" for status, number in sorted(tally.items()))
        totals = [] if self._config.workload is None else self._totals.lines(self._config.workload.name)
        where = f"# results: {self._out / outputs.CSV_FILE}   report: {self._out / outputs.HTML_FILE}"
        return [*totals, f"# {tally.total()} points in {time.monotonic() - self._started:.1f} s: {counts}", where]

    def _write(self, lines: Sequence[str]) -> None:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
