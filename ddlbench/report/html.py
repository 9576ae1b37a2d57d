"""The page of runs: one file that opens anywhere, offline, and answers before it explains."""

import os
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ddlbench.errors import DdlbenchError
from ddlbench.records import Loaded
from ddlbench.records.disk import naming, write_atomically
from ddlbench.report.facts import date_text, details
from ddlbench.report.fault import ROWS, Standing, standings
from ddlbench.report.notices import issues, notices
from ddlbench.report.payload import payload, samples_payload
from ddlbench.report.placement import placement
from ddlbench.report.runs import Runs
from ddlbench.report.samples import Kept, kept
from ddlbench.report.scaling_table import chosen
from ddlbench.report.shapes import Shape
from ddlbench.report.tables import NO_BOUND, lacks_bound
from ddlbench.report.trust import shared_facts, trust_table
from ddlbench.report.units import counted

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("model.js", "charts.js", "cursor.js", "map.js", "scaling.js", "samples.js", "tables.js", "page.js")
LIMIT = 5_950_000
"""Bytes of a page: what points, words and charts leave of it is for samples."""
NO_SAMPLES = Kept([], [], [])


def write_html(
    runs: Loaded | Mapping[str, Loaded] | Runs, path: str | os.PathLike[str], baseline: str | None = None
) -> None:
    """Write the page of a run, or of several by name, to `path`, in one step.

    `baseline` names the shape that efficiency is told against. Raises `UsageError` when it is in none of the runs,
    `DdlbenchError` naming path and errno.
    """
    write_atomically(Path(path), render(runs, baseline))


def render(runs: Loaded | Mapping[str, Loaded] | Runs, baseline: str | None = None) -> str:
    """Return the page of a run, or of several by name, as HTML.

    Every text of the record is escaped, in words, attributes and data alike. Raises `UsageError` when `baseline` is in
    none of the runs.
    """
    shown = Runs.of(runs)
    template, words = environment().get_template("page.html"), _words(shown, chosen(shown, baseline))
    bare = template.render(words, held=NO_SAMPLES, samples=None)
    held = kept(shown.points, LIMIT - len(bare.encode()))
    return template.render(words, held=held, samples=samples_payload(shown, held))


def _words(runs: Runs, baseline: Shape | None) -> dict[str, Any]:
    """Return all that the page says but the samples."""
    listed, unlisted = issues(runs.table)
    data = payload(runs, baseline)
    run = runs.latest.run
    return {
        "program": run.ddlbench,
        "date": date_text(run.created),
        "names": [name for name, _ in runs],
        "facts": shared_facts(runs),
        "stood": [(name, *_cut(standings(loaded.run))) for name, loaded in runs],
        "placed": [(name, *placement(loaded.run.topology)) for name, loaded in runs],
        "shapes": any(family["layouts"] for family in data["families"]),
        "details": [(name, details(loaded)) for name, loaded in runs],
        "notices": notices(runs),
        "trust": trust_table(runs),
        "issues": listed,
        "unlisted": unlisted,
        "points": counted(len(runs.points), "point"),
        "no_bound": NO_BOUND if lacks_bound(runs.table).any() else "",
        "imported": bool((runs.table["statistic"] == "mean").any()),
        "data": data,
        "style": part("style.css"),
        "script": Markup("\n").join(part(name) for name in SCRIPTS),
        "plotly": _plotly(),
    }


def _cut(standing: list[Standing]) -> tuple[list[Standing], int]:
    """Return the rows that the page has room for, and how many are left out."""
    return standing[:ROWS], max(0, len(standing) - ROWS)


def environment() -> Environment:
    """Return what renders the templates: every text is escaped, and a name that is not given is an error."""
    found = Environment(autoescape=True, loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined)
    found.trim_blocks = found.lstrip_blocks = True
    compact: dict[str, Any] = {"separators": (",", ":"), "allow_nan": False}
    found.filters["counted"] = counted
    found.policies["json.dumps_kwargs"] = compact
    return found


def part(name: str) -> Markup:
    """Return a style sheet or script of ours as it stands."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _plotly() -> Markup:
    """Return the chart library that the plotly package carries."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise DdlbenchError("the report's charts need the plotly package: pip install plotly")
    path = Path(spec.origin).parent / "package_data" / "plotly.min.js"
    with naming(path, "read"):
        return Markup(path.read_text(encoding="utf-8"))


def plotly() -> Markup:
    """Return the chart library as a script for a page; raises `DdlbenchError` where there is none."""
    return _plotly()
