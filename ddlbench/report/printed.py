"""Results as text for parsers that people have already: CSV, JSON lines, and the tables of OSU and nccl-tests."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ddlbench.errors import unknown
from ddlbench.records import Loaded, Point, Run
from ddlbench.report.csv import as_text
from ddlbench.report.nccl import nccl_lines
from ddlbench.report.osu import osu_lines
from ddlbench.report.tables import result_row, results_table


def printed(form: str, run: Run, points: Sequence[Point]) -> str:
    """Return `points` of `run` in the format `form`, one of `FORMS`, each line with its line break.

    "csv" is `results.csv`; "jsonl" has a JSON object of the same columns per line, figures unrounded, null where one
    does not apply. "osu" and "nccl" are tables as `osu_allreduce -c` and `all_reduce_perf` print them, one for each
    algorithm and setting. Raises `UsageError` for another `form`.
    """
    if form not in FORMS:
        raise unknown("format", form, FORMS)
    return "".join(f"{line}\n" for line in FORMS[form](run, points))


def csv_lines(run: Run, points: Sequence[Point]) -> list[str]:
    """Return the lines of `results.csv`."""
    table = as_text(results_table(Loaded(run, tuple(points), [])))
    return table.to_csv(index=False, lineterminator="\n").splitlines()


def jsonl_lines(run: Run, points: Sequence[Point]) -> list[str]:  # noqa: ARG001 - as all formats
    """Return a JSON object for each point: the columns of `results.csv`."""
    return [json.dumps({name: _value(value) for name, value in result_row(point).items()}) for point in points]


def _value(value: Any) -> Any:
    """Return what JSON has for a figure: null for one that does not apply."""
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain


FORMS: Mapping[str, Callable[[Run, Sequence[Point]], list[str]]] = {
    "csv": csv_lines,
    "jsonl": jsonl_lines,
    "osu": osu_lines,
    "nccl": nccl_lines,
}
"""From the name of a format to what makes its lines."""
