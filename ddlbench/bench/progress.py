"""What rank 0 shows while a sweep runs: a row per finished point, and how far it is.

Rows go to one stream and progress to another, so that a redirected table is a table.
"""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from math import isfinite, nan
from statistics import median
from types import TracebackType
from typing import Protocol, Self, TextIO

from ddlbench.bench.shapes import shape_text
from ddlbench.bench.sweep import Group
from ddlbench.records import Point

PLAIN_SECONDS = 10.0
"""Between two lines of progress where there is no terminal to draw a bar on."""


def time_us(point: Point) -> float:
    """Return the median time of a point in microseconds; NaN when it has no samples."""
    return median(point.samples_ns) / 1000 if point.samples_ns else nan


def _figure(value: float, decimals: int) -> str:
    return f"{value:.{decimals}f}" if isfinite(value) else "-"


class Table:
    """The lines of the table, as wide as the names that will stand in it.

    `places` shows in or out of place, `shapes` the nodes and the ranks on each.
    """

    def __init__(
        self,
        dtypes: Iterable[str],
        ops: Iterable[str],
        algorithms: Iterable[str],
        *,
        places: bool,
        shapes: bool = False,
    ) -> None:
        named = (("type", dtypes), ("op", ops), ("algorithm", algorithms))
        self._widths = [max(map(len, (title, *names))) for title, names in named]
        self._places, self._shapes = places, shapes

    def _line(
        self,
        shape: tuple[str, str],
        size: str,
        count: str,
        names: tuple[str, str, str],
        place: str,
        figures: Iterable[str],
    ) -> str:
        words = [name.ljust(width) for name, width in zip(names, self._widths, strict=True)]
        if self._places:
            words.append(place.ljust(5))
        if self._shapes:
            words.insert(0, f"{shape[0]:>5} {shape[1]:>5}")
        widths = (12, 9, 9, 7)
        cells = [figure.rjust(width) for figure, width in zip(figures, widths, strict=True)]
        return "  ".join([f"{size:>13} {count:>13}", *words, " ".join(cells)])

    def heading(self) -> list[str]:
        """Return the lines above the rows: names, then units."""
        titles, figures = ("type", "op", "algorithm"), ("time", "algbw", "busbw", "wrong")
        names = self._line(("nodes", "ranks"), f"#{'size':>12}", "count", titles, "place", figures)
        measures = ("(us)", "(GB/s)", "(GB/s)", "")
        units = self._line(("", ""), f"#{'(B)':>12}", "(elements)", ("", "", ""), "", measures)
        return [names, units.rstrip()]

    def row(self, point: Point) -> str:
        """Return the row of a point: what is not ok says why at its end, and an exploring mode what it chose."""
        us = time_us(point)
        algbw = point.nbytes / us / 1e3 if point.nbytes and us > 0 else nan
        busbw = algbw * 2 * (point.ranks - 1) / point.ranks if point.ranks > 1 else nan
        wrong = "-" if point.wrong is None else str(point.wrong)
        figures = (_figure(us, 2), _figure(algbw, 3), _figure(busbw, 3), wrong)
        names, place = (point.dtype, point.op, point.algorithm), "in" if point.in_place else "out"
        shape = (str(point.nodes), str(point.ranks))
        row = self._line(shape, str(point.nbytes), str(point.count), names, place, figures)
        notes = [note for note in (point.status.removeprefix("ok"), point.reason) if note]
        return f"{row}  {': '.join(notes)}".rstrip()


class Totals:
    """The time each algorithm takes for a whole workload, tensor after tensor: the sum of multiplicity × median.

    Shapes have totals of their own.
    """

    def __init__(self) -> None:
        self._total_us: dict[tuple[str, str, str, bool, str], float] = {}

    def add(self, point: Point) -> None:
        """Take in a point; a total with a point that has no time is NaN."""
        shape = shape_text(point.nodes, point.ranks_per_node, point.ranks)
        key = (point.algorithm, point.dtype, point.op, point.in_place, shape)
        self._total_us[key] = self._total_us.get(key, 0.0) + point.multiplicity * time_us(point)

    def lines(self, what: str) -> list[str]:
        """Return the closing table, shape by shape where there are several, and fastest first."""
        shapes = list(dict.fromkeys(key[-1] for key in self._total_us))
        ordered = sorted(
            self._total_us.items(), key=lambda item: (shapes.index(item[0][-1]), not isfinite(item[1]), item[1])
        )
        width = max((len(key[0]) for key in self._total_us), default=0)
        rows = [
            f"  {name:<{width}}  {dtype} {op}{' in place' if in_place else ''}  {_figure(total / 1000, 3):>12} ms"
            f"{f'  on {shape}' if len(shapes) > 1 else ''}"
            for (name, dtype, op, in_place, shape), total in ordered
        ]
        return [f"# {what}: all of it, one buffer after the other: the sum of multiplicity x median", *rows]


class Bar(Protocol):
    """How far a sweep is, and the way to write above it."""

    def working_on(self, text: str) -> None:
        """Show what is measured now."""

    def advance(self) -> None:
        """Count one point."""

    def write(self, line: str) -> None:
        """Write a line of the table."""


class PlainBar:
    """Progress as lines on `err`, no more often than every `PLAIN_SECONDS`."""

    def __init__(self, total: int, *, out: TextIO, err: TextIO, noun: str = "points") -> None:
        self._out, self._err = out, err
        self._total, self._noun = total, noun
        self._done = 0
        self._start = self._last = time.monotonic()

    def working_on(self, text: str) -> None:
        """Say how far the sweep is, when it was last said long ago."""
        now = time.monotonic()
        if now - self._last < PLAIN_SECONDS:
            return
        self._last = now
        self._err.write(f"# {self._done} of {self._total} {self._noun} after {now - self._start:.0f} s, next {text}\n")
        self._err.flush()

    def advance(self) -> None:
        """Count one point."""
        self._done += 1

    def write(self, line: str) -> None:
        """Write a line to `out`, at once: a row that waits in a buffer is no progress."""
        self._out.write(line + "\n")
        self._out.flush()


class RichBar(PlainBar):
    """Progress as a bar at the foot of the terminal `err`, which rows are written above of when `out` is it too."""

    def __init__(self, total: int, *, out: TextIO, err: TextIO, stack: ExitStack) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        super().__init__(total, out=out, err=err)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(file=err)
        self._progress = Progress(
            *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        stack.enter_context(self._progress)
        self._task = self._progress.add_task("", total=total)

    def working_on(self, text: str) -> None:
        """Show what is measured now."""
        self._progress.update(self._task, description=text)

    def advance(self) -> None:
        """Count one point."""
        self._progress.advance(self._task)

    def write(self, line: str) -> None:
        """Write a line above the bar, or to `out` when that is no terminal."""
        if self._out.isatty():
            self._progress.console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
        else:
            super().write(line)


class Screen:
    """The table and the bar of a sweep of `total` points; a context manager, so that the bar is gone at the end."""

    def __init__(self, table: Table, total: int, *, out: TextIO, err: TextIO) -> None:
        self._table = table
        self._streams = {"out": out, "err": err}
        self._stack = ExitStack()
        self._total = total
        self._bar: Bar = PlainBar(total, out=out, err=err)

    def __enter__(self) -> Self:
        if self._streams["err"].isatty():
            self._bar = RichBar(self._total, **self._streams, stack=self._stack)
        for line in self._table.heading():
            self._bar.write(line)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def begin(self, group: Group, when: str) -> None:
        """Show what is measured now, in which part of the sweep."""
        self._bar.working_on(f"{group}, {when}")

    def advance(self) -> None:
        """Count a finished point."""
        self._bar.advance()

    def row(self, point: Point) -> None:
        """Show the row of a finished point."""
        self._bar.write(self._table.row(point))
