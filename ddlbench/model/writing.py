"""The files of a comparison: points of both kinds one after the other, the errors beside them, and the page."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isnan
from pathlib import Path

from ddlbench import __version__
from ddlbench.model.pairing import Pair
from ddlbench.model.tables import Seen, by_size, charts, every, fitted, summary, verdict, worst
from ddlbench.records.disk import write_atomically
from ddlbench.report.markup import TextTable
from ddlbench.report.sheet import Chart, sheet

POINTS, ERRORS, PAGE = "points.csv", "errors.csv", "model.html"
LIMITS = ("latency", "bandwidth", "cards", "reduction", "uplink")
"""The columns of the bounds."""


def points_csv(pairs: Sequence[Pair]) -> str:
    """Return every time in a row of its own that says of which kind it is: measured, or predicted."""
    rows: list[dict[str, object]] = []
    for pair in pairs:
        head = {"shape": pair.shape, "algorithm": pair.algorithm, "nbytes": pair.nbytes}
        seen, said = pair.measured, pair.predicted
        interval = {"time_us_ci_low": _text(seen.low_us), "time_us_ci_high": _text(seen.high_us)}
        rows.append(
            {"kind": "measured", **head, "statistic": "median", "time_us": _text(seen.median_us), **interval}
            | {"samples": seen.samples}
        )
        bounds = {f"bound_{name}_us": _text(value) for name, value in said.limits_us.items()}
        rows.append(
            {"kind": "predicted", **head, "statistic": "predicted", "time_us": _text(said.model_us)}
            | bounds
            | {"bound_us": _text(said.bound_us), "binds": said.binds}
        )
    columns = ("kind", "shape", "algorithm", "nbytes", "statistic", "time_us", "time_us_ci_low", "time_us_ci_high")
    return _csv((*columns, "samples", "bound_us", "binds", *(f"bound_{name}_us" for name in LIMITS)), rows)


def errors_csv(pairs: Sequence[Pair]) -> str:
    """Return each point with both times, each in a column that says which it is, and the error."""
    rows = [
        {
            "shape": pair.shape,
            "algorithm": pair.algorithm,
            "nbytes": pair.nbytes,
            "measured_us": _text(pair.measured.median_us),
            "predicted_us": _text(pair.predicted.model_us),
            "error": f"{pair.error:.4f}",
        }
        for pair in pairs
    ]
    return _csv(("shape", "algorithm", "nbytes", "measured_us", "predicted_us", "error"), rows)


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    lines = csv.DictWriter(text, columns, lineterminator="\n", restval="")
    lines.writeheader()
    lines.writerows(rows)
    return text.getvalue()


def _text(value: float) -> str:
    return "" if isnan(value) else f"{value:.3f}"  # too few samples for an interval


def page(seen: Seen, facts: Sequence[tuple[str, str]]) -> str:
    """Return the page as HTML."""
    found = [fitted(machine, shape) for shape, machine in seen.machines.items()]
    lede = [
        f"{verdict(seen)}.",
        "All of it is of virtual clusters, whose nodes share one machine's processors: it says nothing of a network.",
    ]
    parts: list[TextTable | Chart] = [summary(seen), by_size(seen), *charts(seen), worst(seen), *found, every(seen)]
    return sheet("Predicted against measured", "Model", lede, facts, parts, f"ddlbench {__version__}")


def write(seen: Seen, folder: Path, conditions: Sequence[str]) -> list[Path]:
    """Write all files into `folder` and return them; `conditions` say what may have spoilt the measurements."""
    facts = [
        ("Measured on", ", ".join(f"{shape} (nodes × ranks on each)" for shape in seen.machines)),
        ("When", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"),
        *([("To mind", "; ".join(conditions))] if conditions else []),
    ]
    texts = {POINTS: points_csv(seen.whole.pairs), ERRORS: errors_csv(seen.whole.pairs), PAGE: page(seen, facts)}
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return [folder / name for name in texts]
