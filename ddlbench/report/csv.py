"""The CSV of runs: one line per point, cells that do not apply empty, figures rounded here and nowhere before."""

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from ddlbench.records import Loaded
from ddlbench.records.disk import write_atomically
from ddlbench.report.runs import Runs
from ddlbench.report.scaling_table import Scaling, table_of

SIGNIFICANT = 6


def figure(value: float) -> str:
    """Return a figure to six significant digits, without an exponent; empty when it does not apply."""
    if not math.isfinite(value):
        return ""
    return np.format_float_positional(value, precision=SIGNIFICANT, fractional=False, trim="-")


def _time(value: float) -> str:
    """Return a measured time in microseconds to the nanosecond it was taken with; empty when it does not apply."""
    return f"{value:.3f}" if math.isfinite(value) else ""


def _line(text: str) -> str:
    """Return `text` without line breaks: a row of the CSV is one line."""
    return " ".join(text.split())


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of results with each cell as the CSV spells it."""
    text = table.copy()
    for name in table.columns:
        if table[name].dtype == "float64":
            text[name] = table[name].map(_time if name.startswith("time_us") else figure)
        elif table[name].dtype == "bool":
            text[name] = table[name].map({True: "true", False: "false"})
        elif table[name].dtype == "object":
            text[name] = table[name].map(_line)
    return text


def scaling_csv(found: Iterable[Scaling]) -> str:
    """Return the rows of scaling tables as CSV, below a line of titles."""
    return as_text(table_of(found)).to_csv(index=False, lineterminator="\n")


def write_scaling_csv(found: Iterable[Scaling], path: str | os.PathLike[str]) -> None:
    """Write the rows of scaling tables to `path` as CSV, in one step; raises `DdlbenchError` naming path and errno."""
    write_atomically(Path(path), scaling_csv(found))


def write_csv(runs: Loaded | Mapping[str, Loaded] | Runs, path: str | os.PathLike[str]) -> None:
    """Write the results of a run to `path` as CSV, in one step; raises `DdlbenchError` naming path and errno.

    Of several runs by name, the results stand one run after the other, with the name in a last column `run`.
    """
    write_atomically(Path(path), as_text(Runs.of(runs).results).to_csv(index=False, lineterminator="\n"))
