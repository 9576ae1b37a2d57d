"""The making of tuning tables: which runs, where the tables go, and what is told of them."""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ddlbench.errors import UsageError
from ddlbench.records import Loaded, load
from ddlbench.records.reading import POINTS_FILE, RUN_FILE
from ddlbench.report.units import SPACE, counted, size_text
from ddlbench.tuning import Range, Rule, Table, places, table, tune
from ddlbench.tuning.choice import why_not


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    directories: tuple[str, ...]
    out: str | None = None


def make(wanted: Wanted) -> int:
    """Write the tables that are wanted and say what is in them; return the exit status.

    Raises `UsageError` for directories without a measured run, for runs that do not go together and for a file that is
    something else, `DdlbenchError` when one cannot be written.
    """
    tuned = tune(_runs(wanted.directories), why_not)
    for note in tuned.notes:
        sys.stderr.write(f"ddlbench: warning: {note}\n")
    files = _files(tuned.table, wanted.out)
    for path, part in files.items():
        table.write(part, path)
    lines = [*(line for rule in tuned.table.rules for line in _told(rule)), *_ending(tuned.table, files, wanted.out)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _runs(directories: tuple[str, ...]) -> dict[str, Loaded]:
    """Return the runs in the directories, each once."""
    places = {os.path.realpath(directory): directory for directory in directories}
    return {directory: load(directory) for directory in places.values()}


def _files(whole: Table, out: str | None) -> dict[Path, Table]:
    """Return what goes into which file: all into the one that was given, else a file for each shape."""
    if out is not None:
        if Path(out).name in (RUN_FILE, POINTS_FILE):
            raise UsageError(f"{out} is where a run is stored; give another file")
        return {Path(out): whole}
    found = {}
    for shape in whole.shapes():
        part = whole.only(shape.nodes, shape.ranks_per_node, shape.ranks, virtual=shape.virtual)
        found[places.default(whole.machine, shape)] = part
    return found


def _told(rule: Rule) -> Iterator[str]:
    """Yield the lines of a rule: what it is for, and its ranges."""
    yield f"# {rule.shape}: {rule.what}"
    ends = [*(one.from_nbytes for one in rule.ranges[1:]), None]
    spans = [_span(one, end) for one, end in zip(rule.ranges, ends, strict=True)]
    width = max(map(len, spans))
    name = max(len(one.algorithm) for one in rule.ranges)
    for span, one in zip(spans, rule.ranges, strict=True):
        yield f"{span:<{width}}  {one.algorithm:<{name}}  {_standing(one)}"


def _span(one: Range, end: int | None) -> str:
    begin = size_text(one.from_nbytes).replace(SPACE, " ")
    return f"from {begin}" if end is None else f"from {begin} to {size_text(end - 1).replace(SPACE, ' ')}"


def _standing(one: Range) -> str:
    """Return how surely the algorithm is the best, in words."""
    if len(one.clear) == len(one.measured):
        return f"clearly the best at {counted(len(one.measured), 'size')}"
    return f"clearly the best at {len(one.clear)} of {counted(len(one.measured), 'size')}"


def _ending(whole: Table, files: dict[Path, Table], out: str | None) -> Iterator[str]:
    """Yield what the tables hold for and where they are."""
    runs = ", ".join(f"{run.directory} of {run.day}" for run in whole.runs)
    yield f"# for {whole.machine}, from {runs}"
    used = f"; {places.VARIABLE}={out} has it used" if out is not None else ""
    for path in files:
        yield f"# written: {path}{used}"
