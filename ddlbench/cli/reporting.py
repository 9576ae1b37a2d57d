"""Reports of stored runs: which files and tables are wanted, and making them."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.cli import outputs
from ddlbench.errors import UsageError, unknown
from ddlbench.records import POINTS_FILE, RUN_FILE, Loaded, load
from ddlbench.report import write_csv, write_html
from ddlbench.report.markup import FORMS, results_tables
from ddlbench.report.plain import plain
from ddlbench.report.runs import run_names

TABLES: Mapping[str, Callable[[Any], str]] = {"plain": plain, **FORMS}


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    directories: tuple[str, ...]
    html: str | None = None
    csv: str | None = None
    table: str | None = None

    @property
    def places(self) -> list[str]:
        """The directories, each once."""
        return list({Path(directory).resolve(): directory for directory in self.directories}.values())


def show(wanted: Wanted) -> int:
    """Make what is wanted; return 1 when parts of a run are lost.

    Raises `UsageError` for options and directories without a run, `DdlbenchError` when a file cannot be written.
    """
    if wanted.html is wanted.csv is wanted.table is None:
        return outputs.render(_only(wanted.places))
    if wanted.table is not None and wanted.table not in TABLES:
        raise unknown("table", wanted.table, TABLES)
    files = [(file, write) for file, write in ((wanted.html, write_html), (wanted.csv, write_csv)) if file is not None]
    for file, _ in files:
        _spare(Path(file))
    runs = {name: load(place) for name, place in zip(run_names(wanted.places), wanted.places, strict=True)}
    for file, write in files:
        write(runs, file)
    sys.stdout.write("".join(f"{file}\n" for file, _ in files) if wanted.table is None else _tables(runs, wanted.table))
    return _complaints(wanted.places, runs)


def _only(places: list[str]) -> str:
    if len(places) > 1:
        raise UsageError("of several runs, say what to make: --html FILE, --csv FILE or --table")
    return places[0]


def _spare(file: Path) -> None:
    if file.name in (RUN_FILE, POINTS_FILE):
        raise UsageError(f"{file} is where a run is stored; give another file")


def _tables(runs: Mapping[str, Loaded], form: str) -> str:
    return "\n".join(TABLES[form](table) for table in results_tables(runs))


def _complaints(places: list[str], runs: Mapping[str, Loaded]) -> int:
    """Say on standard error what of the runs could not be read, and which hold no points; return the exit status."""
    for place, loaded in zip(places, runs.values(), strict=True):
        lacking = [] if loaded.points else ["the run holds no points"]
        for problem in [*loaded.problems, *lacking]:
            sys.stderr.write(f"ddlbench: warning: {place}: {problem}\n")
    return 1 if any(loaded.damaged for loaded in runs.values()) else 0
