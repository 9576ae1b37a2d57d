"""The page of a run: one file that opens anywhere, offline, and answers before it explains."""

import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ddlbench.errors import DdlbenchError
from ddlbench.records import Loaded
from ddlbench.records.disk import naming, write_atomically
from ddlbench.report.contest import with_series
from ddlbench.report.facts import date_text, details, facts
from ddlbench.report.notices import issues, notices
from ddlbench.report.payload import payload
from ddlbench.report.tables import results_table

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("model.js", "charts.js", "cursor.js", "tables.js", "page.js")


def write_html(loaded: Loaded, path: str | os.PathLike[str]) -> None:
    """Write the page of a run to `path`, in one step; raises `DdlbenchError` naming path and errno."""
    write_atomically(Path(path), render(loaded))


def render(loaded: Loaded) -> str:
    """Return the page of a run as HTML; every text of the record is escaped, in words, attributes and data alike."""
    table = with_series(results_table(loaded))
    listed, unlisted = issues(table)
    page = _environment().get_template("page.html")
    return page.render(
        run=loaded.run,
        date=date_text(loaded.run.created),
        facts=facts(loaded),
        details=details(loaded.run),
        notices=notices(loaded, table),
        issues=listed,
        unlisted=unlisted,
        points=len(loaded.points),
        imported=bool((table["statistic"] == "mean").any()),
        data=payload(loaded, table),
        style=_part("style.css"),
        script=Markup("\n").join(_part(name) for name in SCRIPTS),
        plotly=_plotly(),
    )


def _environment() -> Environment:
    environment = Environment(autoescape=True, loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    compact: dict[str, Any] = {"separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = compact
    return environment


def _part(name: str) -> Markup:
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
