"""What rank 0 does with a sweep: it stores every point, shows it, and makes the report at the end."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from ddlbench.bench.config import SweepConfig
from ddlbench.bench.progress import Screen, Table, Totals
from ddlbench.bench.sweep import Group, Key, groups, key_of, key_of_point
from ddlbench.cli import outputs
from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.records import Point, Run, Store, load
from ddlbench.report.printed import printed
from ddlbench.schedule.algorithm import BoundAlgorithm


def differing(there: Run, here: Run) -> Iterator[str]:
    """Yield what keeps two parts of a run from being one: configuration, ranks, hosts, the MPI library."""
    pairs = [(f"config.{name}", there.config.get(name), value) for name, value in here.config.items()]
    pairs += [(name, there.topology.get(name), here.topology[name]) for name in ("ranks", "ranks_per_node", "hosts")]
    pairs += [(f"MPI {name}", there.mpi.get(name), value) for name, value in here.mpi.items()]
    return (f"{name} is {old!r} there and {new!r} here" for name, old, new in pairs if old != new)


class Recorder:
    """The listener of a sweep into the directory `out`; `stack` closes what it opens. Only rank 0 calls its methods.

    `form` is how the points are printed: "table" as they finish, or one of `printed.FORMS` at the end; then stdout
    holds that and nothing else, and the table goes to stderr.
    """

    def __init__(
        self, out: Path, config: SweepConfig, algorithms: Sequence[BoundAlgorithm], stack: ExitStack, form: str
    ) -> None:
        self._out = out
        self._form = form
        self._words = sys.stdout if form == "table" else sys.stderr
        self._config = config
        self._algorithms = tuple(algorithms)
        self._stack = stack
        self._totals = Totals()
        self._stored = 0
        self._started = time.monotonic()
        self._earlier: tuple[Point, ...] = ()
        self._waiting: dict[Key, Point] = {}
        self._order = iter([key_of(group, a) for group in groups(config, self._algorithms) for a in group.algorithms])
        self._next = next(self._order, None)

    def create(self, run: Run, *, overwrite: bool) -> None:
        """Open the run directory; raises `UsageError` when it holds a run that is not to be replaced."""
        self._store = self._stack.enter_context(Store.create(self._out, run, overwrite=overwrite))

    def resume(self, run: Run) -> frozenset[Key]:
        """Open the run directory to go on, and return the points that are there.

        Raises `UsageError` naming what differs between `run`, the one that is wanted now, and the one there.
        """
        store, loaded = Store.resume(self._out)
        self._stack.enter_context(store)
        differences = list(differing(loaded.run, run))
        if differences:
            raise UsageError(f"{self._out} cannot be gone on with: {'; '.join(differences)}")
        self._store, self._earlier = store, loaded.points
        return frozenset(map(key_of_point, loaded.points))

    def start(self, run: Run, header: Sequence[str]) -> None:
        """Store what is known of the run by now, write the lines of the header and begin the table."""
        self._store.update(run)
        self._write(header)
        self._screen = self._stack.enter_context(self._opened())
        for point in self._earlier:
            self._show(point)

    def _opened(self) -> Screen:
        dtypes = [dtype.name for dtype in self._config.dtypes]
        names = [algorithm.name for algorithm in self._algorithms]
        table = Table(dtypes, self._config.ops, names, places=self._config.in_place != (False,))
        total = sum(len(group.algorithms) for group in groups(self._config, self._algorithms))
        return Screen(table, total, out=self._words, err=sys.stderr)

    def begin(self, group: Group, pass_: int) -> None:
        """Show what is measured now."""
        self._screen.begin(group, f"pass {pass_ + 1} of {self._config.passes}")

    def point(self, point: Point) -> None:
        """Store a finished point, then show it; raises `DdlbenchError` when there is no room for it."""
        try:
            self._store.append(point)
        except DdlbenchError as error:
            raise DdlbenchError(f"{error}; the {self._stored} points before it are kept") from error
        self._stored += 1
        self._show(point)

    def _show(self, point: Point) -> None:
        """Show the rows of the table that have their turn: points finish in any order, rows stand in one."""
        self._screen.advance()
        self._waiting[key_of_point(point)] = point
        self._totals.add(point)
        while self._next in self._waiting:
            self._screen.row(self._waiting.pop(self._next))
            self._next = next(self._order, None)

    def finish(self, run: Run, tally: Counter[str]) -> None:
        """Mark the run, as it is known at its end, as finished, write its table and page, and say where they are."""
        self._store.update(run)
        self._store.finish()
        try:
            outputs.write(self._out)
        except DdlbenchError as error:
            raise DdlbenchError(
                f"{error}; every point is stored: ddlbench report {self._out} writes the rest"
            ) from error
        self._stack.close()
        self._write(self._closing(tally))
        if self._form != "table":
            loaded = load(self._out)
            sys.stdout.write(printed(self._form, loaded.run, loaded.points))
            sys.stdout.flush()

    def _closing(self, tally: Counter[str]) -> list[str]:
        counts = ", ".join(f"{number} {status}" for status, number in sorted(tally.items()))
        totals = [] if self._config.workload is None else self._totals.lines(self._config.workload.name)
        where = f"# results: {self._out / outputs.CSV_FILE}   report: {self._out / outputs.HTML_FILE}"
        return [*totals, f"# {tally.total()} points in {time.monotonic() - self._started:.1f} s: {counts}", where]

    def _write(self, lines: Sequence[str]) -> None:
        self._words.write("".join(f"{line}\n" for line in lines))
        self._words.flush()
