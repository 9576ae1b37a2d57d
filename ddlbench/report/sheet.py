"""A page of tables and charts for what is no run: one file that opens anywhere, offline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddlbench.report.html import environment, part, plotly
from ddlbench.report.markup import TextTable

Trace = Mapping[str, Any]


@dataclass(frozen=True)
class Chart:
    """Curves over one another: `traces` as plotly takes them, the titles of both axes, and what a reader must know.

    `logarithmic` names the axes, of "x" and "y", that have equal steps for equal factors; `ticks` are the places on the
    x axis that have a name. `seconds` says that the y axis has seconds: they are shown as µs, ms or s.
    """

    caption: str
    traces: Sequence[Trace]
    x: str
    y: str
    note: str = ""
    logarithmic: str = "x"
    ticks: Mapping[float, str] | None = None
    seconds: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return what the page's script draws."""
        named = {"tickvals": [*self.ticks], "ticktext": [*self.ticks.values()]} if self.ticks else {}
        kinds = {axis: {"type": "log"} if axis in self.logarithmic else {} for axis in "xy"}
        units = {"tickformat": "~s", "ticksuffix": "s", "hoverformat": ".3s"} if self.seconds else {}
        across = {"title": {"text": self.x}, **kinds["x"], **named}
        up = {"title": {"text": self.y}, **kinds["y"], **units}
        return {"traces": [*self.traces], "axes": {"x": across, "y": up}}


def sheet(
    title: str,
    kicker: str,
    lede: Sequence[str],
    facts: Sequence[tuple[str, str]],
    parts: Sequence[TextTable | Chart],
    program: str,
) -> str:
    """Return the page as HTML: its answer first, then tables and charts in turn. Every text is escaped."""
    charts = [one for one in parts if isinstance(one, Chart)]
    return (
        environment()
        .get_template("sheet.html")
        .render(
            title=title,
            kicker=kicker,
            lede=lede,
            facts=facts,
            parts=[(isinstance(one, Chart), one) for one in parts],
            data=[chart.to_json() for chart in charts],
            program=program,
            style=part("style.css"),
            script=part("sheet.js"),
            plotly=plotly() if charts else None,
        )
    )
