"""A comparison as a table: one row per point."""

import math
import os
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.compare.comparison import Comparison, Finding
from ddlbench.compare.pairing import SETTING, time_us
from ddlbench.records import Point
from ddlbench.records.disk import write_atomically

SHARED = ("algorithm", *(name for name in SETTING if name != "algorithm"))
COLUMNS = (
    *SHARED,
    "samples_base",
    "samples_new",
    "time_us_base",
    "time_us_new",
    "ratio",
    "ratio_ci_low",
    "ratio_ci_high",
    "p_value",
    "p_adjusted",
    "verdict",
    "why",
)


def comparison_table(comparison: Comparison) -> pd.DataFrame:
    """Return one row per point that is right in one run at least, by size, then algorithm.

    Figures are unrounded; one that does not apply is NaN. `ratio` is the time in NEW over that in BASE.
    """
    return pd.DataFrame([_row(finding) for finding in comparison.findings], columns=list(COLUMNS))


def _row(finding: Finding) -> dict[str, Any]:
    pair, shift = finding.pair, finding.shift
    return {
        **{name: getattr(pair.point, name) for name in SHARED},
        "samples_base": _samples(pair.base),
        "samples_new": _samples(pair.new),
        "time_us_base": time_us(pair.base),
        "time_us_new": time_us(pair.new),
        "ratio": shift.ratio,
        "ratio_ci_low": shift.low,
        "ratio_ci_high": shift.high,
        "p_value": shift.p,
        "p_adjusted": finding.p,
        "verdict": finding.verdict,
        "why": finding.why,
    }


def _samples(point: Point | None) -> int:
    return len(point.samples_ns) if point else 0


def write_csv(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write the table to `path` as CSV, in one step; raises `DdlbenchError` naming path and errno."""
    table = comparison_table(comparison)
    text = table.apply(lambda column: column.map(_spelt(str(column.name))))
    write_atomically(Path(path), text.to_csv(index=False, lineterminator="\n"))


def _spelt(column: str) -> Any:
    """Return the function that spells a cell of a column: times to the nanosecond, ratios and p to six digits."""
    pattern = "{:.3f}" if column.startswith("time_us") else "{:.6g}"

    def spell(value: Any) -> Any:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return pattern.format(value) if math.isfinite(value) else ""
        return " ".join(value.split()) if isinstance(value, str) else value

    return spell
