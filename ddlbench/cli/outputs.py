"""The files made from a stored run: the table and the page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddlbench.records import Loaded

CSV_FILE = "results.csv"
HTML_FILE = "report.html"


def write(directory: Path) -> "Loaded":
    """Write the CSV and the page of the run in `directory`; return it as it was read.

    Raises `UsageError` when there is no run, `DdlbenchError` when a file cannot be written.
    """
    from ddlbench.records import load
    from ddlbench.report import write_csv, write_html

    loaded = load(directory)
    write_csv(loaded, directory / CSV_FILE)
    write_html(loaded, directory / HTML_FILE)
    return loaded


def render(directory: str) -> int:
    """Write the files of the run in `directory` and say where they are; return 1 when parts of it are lost.

    The line that a kill cut off is not: its point was not finished.
    """
    place = Path(directory)
    loaded = write(place)
    for problem in loaded.problems:
        sys.stderr.write(f"ddlbench: warning: {place}: {problem}\n")
    sys.stdout.write(f"{place / CSV_FILE}\n{place / HTML_FILE}\n")
    return 1 if loaded.damaged else 0
