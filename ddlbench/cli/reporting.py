"""Reports of stored runs: which files and tables are wanted, and making them."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.cli import outputs
from ddlbench.errors import UsageError, unknown
from ddlbench.records import POINTS_FILE, RUN_FILE, Loaded, load
from ddlbench.report import scalings, write_csv, write_html
from ddlbench.report.csv import scaling_csv
from ddlbench.report.markup import FORMS, results_tables
from ddlbench.report.plain import fitting, plain
from ddlbench.report.runs import Runs, run_names
from ddlbench.report.scaling_table import chosen
from ddlbench.report.scaling_text import scaling_tables

TABLES: Mapping[str, Callable[[Any], str]] = {"plain": plain, **FORMS}


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    directories: tuple[str, ...]
    html: str | None = None
    csv: str | None = None
    table: str | None = None
    scaling: str | None = None
    baseline: str | None = None
    every: bool = False

    @property
    def places(self) -> list[str]:
        """The directories, each once.

        Nothing is read here: a directory that is none, or a link to itself, is named where it is opened.
        """
        return list({os.path.realpath(directory): directory for directory in self.directories}.values())


def show(wanted: Wanted) -> int:
    """Make what is wanted; return 1 when parts of a run are lost.

    Raises `UsageError` for options and directories without a run, `DdlbenchError` when a file cannot be written.
    """
    if wanted.html is wanted.csv is wanted.table is wanted.scaling is None and not wanted.every:
        return outputs.render(_only(wanted.places), wanted.baseline)
    _check(wanted)
    runs = {name: load(place) for name, place in zip(run_names(wanted.places), wanted.places, strict=True)}
    several = Runs.of(runs)
    chosen(several, wanted.baseline)  # before any file is written
    if wanted.html is not None:
        write_html(several, wanted.html, wanted.baseline)
    if wanted.csv is not None:
        write_csv(several, wanted.csv)
    sys.stdout.write(fitting(_told(wanted, several), sys.stdout.encoding))
    return _complaints(wanted.places, runs)


def _check(wanted: Wanted) -> None:
    """Refuse forms that there are not, and files in which a run is stored; raises `UsageError`."""
    if wanted.table is not None and wanted.table not in TABLES:
        raise unknown("table", wanted.table, TABLES)
    if wanted.scaling is not None and wanted.scaling not in (*TABLES, "csv"):
        raise unknown("scaling", wanted.scaling, (*TABLES, "csv"))
    if wanted.every and wanted.scaling is None:
        raise UsageError("--all is of the scaling table: give it with --scaling")
    if wanted.baseline is not None and wanted.html is wanted.scaling is None:
        raise UsageError("--baseline is of the scaling table: give it with --scaling or --html FILE")
    for file in filter(None, (wanted.html, wanted.csv)):
        _spare(Path(file))


def _told(wanted: Wanted, runs: Runs) -> str:
    """Return what standard output gets: the tables that are wanted, or else where the files are."""
    if wanted.table is None and wanted.scaling is None:
        return "".join(f"{file}\n" for file in (wanted.html, wanted.csv) if file is not None)
    parts = [] if wanted.table is None else list(map(TABLES[wanted.table], results_tables(runs)))
    if wanted.scaling is not None:
        parts += _scaling(wanted, wanted.scaling, runs)
    return "\n".join(parts)


def _scaling(wanted: Wanted, form: str, runs: Runs) -> list[str]:
    """Return the scaling tables in a form; raises `UsageError` where there is one shape only."""
    found = scalings(runs, wanted.baseline)
    if not found:
        raise UsageError("there is one shape of nodes and ranks only: a scaling table takes two (sweep --nodes 1,2,4)")
    if form == "csv":
        return [scaling_csv(found)]
    return list(map(TABLES[form], scaling_tables(found, asked=wanted.baseline is not None, every=wanted.every)))


def _only(places: list[str]) -> str:
    if len(places) > 1:
        raise UsageError("of several runs, say what to make: --html FILE, --csv FILE, --table or --scaling")
    return places[0]


def _spare(file: Path) -> None:
    if file.name in (RUN_FILE, POINTS_FILE):
        raise UsageError(f"{file} is where a run is stored; give another file")


def _complaints(places: list[str], runs: Mapping[str, Loaded]) -> int:
    """Say on standard error what of the runs could not be read, and which hold no points; return the exit status."""
    for place, loaded in zip(places, runs.values(), strict=True):
        lacking = [] if loaded.points else ["the run holds no points"]
        for problem in [*loaded.problems, *lacking]:
            sys.stderr.write(f"ddlbench: warning: {place}: {problem}\n")
    return 1 if any(loaded.damaged for loaded in runs.values()) else 0
