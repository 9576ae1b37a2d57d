"""The table of results: one row per point, in the columns that the CSV has."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ddlbench.records import Loaded, Point
from ddlbench.statistics import algorithm_bandwidth, bus_bandwidth, summarise

DTYPES = {
    "algorithm": "object",
    "nbytes": "int64",
    "count": "int64",
    "dtype": "object",
    "op": "object",
    "in_place": "bool",
    "nodes": "int64",
    "ranks_per_node": "object",
    "ranks": "int64",
    "device": "object",
    "transport": "object",
    "sync": "object",
    "samples": "int64",
    "time_us_median": "float64",
    "time_us_ci_low": "float64",
    "time_us_ci_high": "float64",
    "time_us_min": "float64",
    "time_us_p99": "float64",
    "algbw_gb_per_s": "float64",
    "busbw_gb_per_s": "float64",
    "bound_us": "float64",
    "model_us": "float64",
    "wrong": "Int64",
    "status": "object",
    "reason": "object",
    "statistic": "object",
    "limit": "object",
}
COLUMNS = tuple(DTYPES)
UNBOUND = "direct"
"""How the names of transports begin that use no messages, over which links are probed."""
NO_BOUND = "what memory that ranks share allows was not measured, so there is no lower bound over it"
"""Why points over such transports may have none."""
STATISTICS = {"measured": "median", "imported": "mean", "predicted": "predicted"}
"""What the time of a point is, by its kind."""


def result_row(point: Point) -> dict[str, Any]:
    """Return the row of one point: the columns of the CSV, unrounded; NaN or None where one does not apply.

    `time_us_median` of an imported point is the mean that its log states, and of a predicted one what the model says;
    `statistic` says which it is. There is no bound for an empty vector, nor over memory that ranks share where that was
    not measured.
    """
    summary = summarise(point.samples_ns, point.passes)
    time_us = _time_us(point, summary.median_us)
    figures = {
        "samples": summary.samples,
        "time_us_median": time_us,
        "time_us_ci_low": summary.ci_low_us,
        "time_us_ci_high": summary.ci_high_us,
        "time_us_min": summary.min_us,
        "time_us_p99": summary.p99_us,
        "algbw_gb_per_s": algorithm_bandwidth(point.nbytes, time_us),
        "busbw_gb_per_s": bus_bandwidth(point.nbytes, time_us, point.ranks),
        "bound_us": _bound_us(point),
        "statistic": STATISTICS[point.kind],
    }
    return {name: figures[name] if name in figures else getattr(point, name) for name in COLUMNS}


def _time_us(point: Point, median_us: float) -> float:
    if point.stated is not None:
        return point.stated.mean_us
    if point.kind == "predicted" and point.model_us is not None:
        return point.model_us
    return median_us


def _bound_us(point: Point) -> float | None:
    return point.bound_us if point.nbytes else None


def lacks_bound(table: pd.DataFrame) -> "pd.Series[bool]":
    """Return at which points of a table of results there is no bound because they used memory that was not measured."""
    shared = table["transport"].str.startswith(UNBOUND) & (table["ranks"] > 1) & (table["nbytes"] > 0)
    return shared & table["bound_us"].isna()


def results_table(loaded: Loaded) -> pd.DataFrame:
    """Return one row per point, in the order of `loaded.points`, with exactly the columns of the CSV.

    Figures are unrounded; one that does not apply is NaN (`wrong`: <NA>). The index is the position in `loaded.points`.
    """
    return points_table(loaded.points)


def points_table(points: Sequence[Point]) -> pd.DataFrame:
    """Return the table of results of some points, as `results_table` does for those of a run."""
    return pd.DataFrame([result_row(point) for point in points], columns=list(COLUMNS)).astype(DTYPES)
