"""The files made from a stored run: the tables and the page."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddlbench.records import Loaded
    from ddlbench.report.scaling_table import Scaling

CSV_FILE = "results.csv"
SCALING_FILE = "scaling.csv"
HTML_FILE = "report.html"
NAMES = {CSV_FILE: "results", SCALING_FILE: "scaling", HTML_FILE: "report"}
"""What the files are called in a line that says where they are."""


@dataclass(frozen=True)
class Written:
    """What was written: the run as it was read, the files, and the first scaling table as text ("" of one shape)."""

    loaded: "Loaded"
    files: tuple[Path, ...]
    scaling: str

    def comments(self, encoding: str | None) -> list[str]:
        """Return the lines of the scaling table, each a comment to whoever reads the points above it by program."""
        from ddlbench.report.plain import fitting

        lines = fitting(self.scaling, encoding).splitlines()
        return [f"# {line.removeprefix('# ')}".rstrip() for line in lines]

    @property
    def where(self) -> str:
        """Where the files are, in one line."""
        return "   ".join(f"{NAMES[file.name]}: {file}" for file in self.files)


def write(directory: Path, baseline: str | None = None) -> Written:
    """Write the CSV and the page of the run in `directory`, and of several shapes the scaling table.

    `baseline` names the shape that the others are held against. Raises `UsageError` when there is no run, or no such
    shape in it, `DdlbenchError` when a file cannot be written.
    """
    from ddlbench.records import load
    from ddlbench.report import scalings, write_csv, write_html, write_scaling_csv
    from ddlbench.report.runs import Runs

    loaded = load(directory)
    runs = Runs.of(loaded)
    found = scalings(runs, baseline)
    write_csv(runs, directory / CSV_FILE)
    if found:
        write_scaling_csv(found, directory / SCALING_FILE)
    write_html(runs, directory / HTML_FILE, baseline)
    files = (CSV_FILE, *([SCALING_FILE] if found else []), HTML_FILE)
    shown = _on_screen(found, directory, asked=baseline is not None)
    return Written(loaded, tuple(directory / file for file in files), shown)


def _on_screen(found: "list[Scaling]", directory: Path, *, asked: bool) -> str:
    """Return the first scaling table as text, and where the others are; "" where there is none."""
    from ddlbench.report.plain import plain
    from ddlbench.report.scaling_text import scaling_tables

    text = "".join(map(plain, scaling_tables(found[:1], asked=asked)))
    if len(found) < 2:
        return text
    return f"{text}# of {len(found)} settings this is the first: ddlbench report {directory} --scaling has all\n"


def render(directory: str, baseline: str | None = None) -> int:
    """Write the files of the run in `directory`, show how it scales and say where they are.

    Return 1 when parts of the run are lost. The line that a kill cut off is not: its point was not finished.
    """
    from ddlbench.report.plain import fitting

    place = Path(directory)
    written = write(place, baseline)
    for problem in written.loaded.problems:
        sys.stderr.write(f"ddlbench: warning: {place}: {problem}\n")
    sys.stdout.write(fitting(written.scaling, sys.stdout.encoding))
    sys.stdout.write("".join(f"{file}\n" for file in written.files))
    return 1 if written.loaded.damaged else 0
