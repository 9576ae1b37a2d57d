"""Points priced by as many processes as there are processors: an irregular schedule takes seconds, of many sizes."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import click

from ddlbench.records import Point

FEW = 250
"""Fewer points than this are priced here: to start others takes longer."""
Part = Callable[[], Iterable[Point]]
"""Prices a part of the points: those of one placement."""
_parts: list[Part] = []
"""What the processes that were forked find here."""


def priced(parts: Sequence[Part], count: int) -> tuple[Point, ...]:
    """Return the points of all parts, in order, telling a user at a terminal how far it is; `count` is about how many.

    Each part is priced by one process, where there are many points and several processors.
    """
    processes = min(len(parts), len(os.sched_getaffinity(0))) if count >= FEW else 1
    if processes < 2:
        return _shown((tuple(part()) for part in parts), len(parts))
    _parts[:] = parts
    try:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            return _shown(pool.imap(_one, range(len(parts))), len(parts))
    finally:
        _parts.clear()


def _one(at: int) -> tuple[Point, ...]:
    return tuple(_parts[at]())


def _shown(parts: Iterator[tuple[Point, ...]], count: int) -> tuple[Point, ...]:
    if not sys.stderr.isatty():
        return tuple(point for points in parts for point in points)
    with click.progressbar(parts, length=count, label="pricing", file=sys.stderr) as bar:
        return tuple(point for points in bar for point in points)
