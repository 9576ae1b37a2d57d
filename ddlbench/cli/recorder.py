"""What rank 0 does with a sweep: it stores every point, shows it, and makes the report at the end."""

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ddlbench.bench.config import SweepConfig
from ddlbench.bench.environment import late
from ddlbench.bench.progress import Screen, Table, Totals
from ddlbench.bench.sweep import Group, Key, Layout, groups, key_of, key_of_point
from ddlbench.cli import outputs
from ddlbench.cli.resuming import check_same, joined
from ddlbench.errors import DdlbenchError
from ddlbench.records import Point, Run, Store, TrustFlag, load
from ddlbench.report.printed import printed
from ddlbench.report.units import counted
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.watch.fault import Fault


@contextmanager
def _naming_output() -> Iterator[None]:
    """Say of an `OSError` inside that the output could not be written; a pipe that nobody reads is another matter."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DdlbenchError(f"cannot write to standard output: {error.strerror}") from error


@dataclass(frozen=True)
class Opened:
    """An open run directory: the record as it is to be now, the points that are there, and how many are missing."""

    run: Run
    done: frozenset[Key]
    missing: int


class Recorder:
    """The listener of a sweep into the directory `out`; `stack` closes what it opens. Only rank 0 calls its methods.

    `shapes` are the layouts that are measured, in their order, each with the algorithms on it.
    `form` is how the points are printed: "table" as they finish, or one of `printed.FORMS` at the end; then stdout
    holds that and nothing else, and the table goes to stderr.
    """

    def __init__(
        self,
        out: Path,
        config: SweepConfig,
        shapes: Sequence[tuple[Layout, Sequence[BoundAlgorithm]]],
        stack: ExitStack,
        form: str,
    ) -> None:
        self._out = out
        self._form = form
        self._words = sys.stdout if form == "table" else sys.stderr
        self._config = config
        self._shapes = shapes
        self._stack = stack
        self._totals = Totals()
        self._tally: Counter[str] = Counter()
        self._late = self._taken = 0
        self._started = time.monotonic()
        self._earlier: list[Point] = []
        self._waiting: dict[Key, Point] = {}
        every = [group for layout, algorithms in shapes for group in groups(config, tuple(algorithms), layout)]
        keys = [key_of(group, algorithm) for group in every for algorithm in group.algorithms]
        self._total = len(keys)
        self._order = iter(keys)
        self._next = next(self._order, None)

    def create(self, run: Run, *, overwrite: bool) -> Opened:
        """Open the run directory; raises `UsageError` when it holds a run that is not to be replaced."""
        self._store = self._stack.enter_context(Store.create(self._out, run, overwrite=overwrite))
        return Opened(run, frozenset(), self._total)

    def resume(self, run: Run) -> Opened:
        """Open the run directory to go on with what is there, but for points that failed: they are measured again.

        Raises `UsageError` naming what differs between `run`, the one that is wanted now, and the one there.
        """
        self._store, loaded = Store.resume(self._out)
        self._stack.enter_context(self._store)
        check_same(self._out, loaded.run, run)
        for problem in loaded.problems:
            sys.stderr.write(f"ddlbench: warning: {self._out}: {problem}\n")
        self._earlier = [point for point in loaded.points if point.status != "failed"]
        for point in self._earlier:
            self._count(point)
        done = frozenset(map(key_of_point, self._earlier))
        missing = self._total - len(done)
        return Opened(joined(loaded.run, run, len(done)) if missing else loaded.run, done, missing)

    def start(self, run: Run, header: Sequence[str]) -> None:
        """Store what is known of the run by now, write the lines of the header and begin the table."""
        self._store.update(run)
        there = [f"# going on with {self._out}: {len(self._earlier)} of {self._total} points are there"]
        self._write([*header, *(there if self._earlier else [])])
        self._screen = self._stack.enter_context(self._opened())
        for point in self._earlier:
            self._show(point)

    def _opened(self) -> Screen:
        dtypes = [dtype.name for dtype in self._config.dtypes]
        names = [algorithm.name for _, algorithms in self._shapes for algorithm in algorithms]
        places, several = self._config.in_place != (False,), len(self._shapes) > 1
        table = Table(dtypes, self._config.ops, names, places=places, shapes=several)
        return Screen(table, self._total, out=self._words, err=sys.stderr)

    def begin(self, group: Group, pass_: int) -> None:
        """Show what is measured now."""
        self._screen.begin(group, f"pass {pass_ + 1} of {self._config.passes}")

    def point(self, point: Point) -> None:
        """Store a finished point, then show it; raises `DdlbenchError` when there is no room for it."""
        try:
            self._store.append(point)
        except DdlbenchError as error:
            total = self._tally.total()
            are, them = ("is", "it") if total == 1 else ("are", "them")
            kept = f"the {counted(total, 'point')} before it {are} kept, --resume {self._out} goes on with {them}"
            raise DdlbenchError(f"{error}; {kept}") from error
        self._count(point)
        self._show(point)

    def _count(self, point: Point) -> None:
        self._tally[point.status] += 1
        if point.sync == "window":
            self._late += point.late
            self._taken += point.late + len(point.samples_ns)

    def _show(self, point: Point) -> None:
        """Show the rows of the table that have their turn: points finish in any order, rows stand in one."""
        self._screen.advance()
        self._waiting[key_of_point(point)] = point
        self._totals.add(point)
        while self._next in self._waiting:
            with _naming_output():
                self._screen.row(self._waiting.pop(self._next))
            self._next = next(self._order, None)

    def finish(self, run: Run) -> Counter[str]:
        """Mark the run, as it is known at its end, as finished, write its table and page, and say where they are.

        Return how many points of each status it has.
        """
        began = self._store.run
        doubts = tuple(dict.fromkeys((*run.trust, *late(self._late, self._taken))))
        ended = replace(run, trust=doubts, fault=None, finished=True)
        if ended != began:
            self._store.finish(ended)
        try:
            written = outputs.write(self._out)
        except DdlbenchError as error:
            raise DdlbenchError(
                f"{error}; every point is stored: ddlbench report {self._out} writes the rest"
            ) from error
        self._stack.close()
        self._write(written.comments(self._words.encoding))
        self._write(self._closing(ended, [flag for flag in ended.trust if flag not in began.trust], written.where))
        if self._form != "table":
            loaded = load(self._out)
            with _naming_output():
                sys.stdout.write(printed(self._form, loaded.run, loaded.points))
                sys.stdout.flush()
        return self._tally

    def fault(self, fault: Fault) -> None:
        """Store why the run ends now, in a thread beside the sweep; raises `DdlbenchError` when it cannot be."""
        self._store.update(replace(self._store.run, fault=fault.to_json()))

    def _closing(self, run: Run, flags: Sequence[TrustFlag], where: str) -> list[str]:
        counts = ", ".join(f"{number} {status}" for status, number in sorted(self._tally.items()))
        totals = [] if self._config.workload is None else self._totals.lines(self._config.workload.name)
        notes = [f"# to mind: {flag.flag}: {flag.detail}" for flag in flags]
        return [*totals, *self._starts(run), *notes, f"# {self._what_was_done()}: {counts}", f"# {where}"]

    def _starts(self, run: Run) -> list[str]:
        """Return how many samples came late and how far apart the nodes' clocks were at the end, where there is any."""
        clock, lines = run.clock or {}, []
        if self._late:
            lines += [f"# late: {self._late / self._taken:.1%} of the samples, which do not count"]
        if clock.get("method") == "hca":
            lines += [f"# clocks: {clock['error_after_us']:.2f} us apart at the end"]
        return lines

    def _what_was_done(self) -> str:
        total, there = self._tally.total(), len(self._earlier)
        if there == total:
            return f"nothing is missing in {self._out}, its reports are made again; {counted(total, 'point')}"
        seconds = f"{time.monotonic() - self._started:.1f} s"
        measured = f"{counted(total - there, 'point')} in {seconds}"
        return f"{measured}, {counted(there, 'was there', 'were there')}" if there else measured

    def _write(self, lines: Sequence[str]) -> None:
        with _naming_output():
            self._words.write("".join(f"{line}\n" for line in lines))
            self._words.flush()
