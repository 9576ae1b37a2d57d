"""Tables to paste into a page or a paper: GitHub Markdown and LaTeX. Every text of a record is escaped for either."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ddlbench.records import Loaded
from ddlbench.report.contest import labels, settings
from ddlbench.report.runs import Runs
from ddlbench.report.tables import NO_BOUND, lacks_bound
from ddlbench.report.units import SPACE, digits, interval_text, size_text

BREAKABLE = re.compile(rf"[^\S{SPACE}]+")
MARKDOWN_SPECIAL = re.compile(r"[\\`*_{}\[\]<>|~&#$]")
LATEX_SPECIAL: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    '"': r"{\char34}",
    "[": "{[}",
    "*": "{*}",
    SPACE: "~",
    "µ": r"\textmu{}",
    "×": r"\texttimes{}",
    "…": r"\ldots{}",
    "–": r"\textendash{}",
    "₀": r"\textsubscript{0}",
}
"""Signs that mean something to LaTeX, or at the start of a row, and how they are written."""
LATEX_JOINED = re.compile("([-,])(?=[-,])")
"""Signs that LaTeX joins to their like: -- is a dash."""
NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class TextTable:
    """A table of texts: `titles` of its columns, the `right` ones aligned to the right, `rows`, and what it is of.

    `notes` are what a reader must know of the figures, each a sentence or two.
    """

    titles: tuple[str, ...]
    right: frozenset[int]
    rows: Sequence[tuple[str, ...]]
    caption: str = ""
    notes: tuple[str, ...] = ()


def markdown_text(text: str) -> str:
    """Return `text` as one line that GitHub shows as it stands, also in a cell of a table."""
    return MARKDOWN_SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))


def latex_text(text: str) -> str:
    """Return `text` as one line that LaTeX sets as it stands."""
    line = BREAKABLE.sub(" ", text).strip(" ")
    escaped = "".join(LATEX_SPECIAL.get(sign, sign) for sign in line if sign.isprintable() or sign == SPACE)
    return LATEX_JOINED.sub(r"\1{}", escaped)


def markdown(table: TextTable) -> str:
    """Return the table in GitHub's Markdown, its caption above it, its notes below as a list."""
    rule = tuple("---:" if at in table.right else ":---" for at in range(len(table.titles)))
    lines = [tuple(map(markdown_text, table.titles)), rule, *(tuple(map(markdown_text, row)) for row in table.rows)]
    above = [markdown_text(table.caption), ""] if table.caption else []
    below = ["", *(f"- {markdown_text(note)}" for note in table.notes)] if table.notes else []
    return "\n".join([*above, *(f"| {' | '.join(cells)} |" for cells in lines), *below]) + "\n"


def latex(table: TextTable) -> str:
    """Return the table as a LaTeX `tabular`, its caption above it, its notes below; it needs no package."""
    layout = "".join("r" if at in table.right else "l" for at in range(len(table.titles)))
    above = [rf"\noindent {latex_text(table.caption)}\par\medskip", ""] if table.caption else []
    titles, *rows = (rf"{' & '.join(map(latex_text, cells))} \\" for cells in (table.titles, *table.rows))
    body = [rf"\begin{{tabular}}{{{layout}}}", r"\hline", titles, r"\hline", *rows, r"\hline"]
    below = [r"\par\medskip", *(rf"\noindent{{\small {latex_text(note)}\par}}" for note in table.notes)]
    return "\n".join([*above, *body, r"\end{tabular}", *(below if table.notes else [])]) + "\n"


FORMS: Mapping[str, Callable[[TextTable], str]] = {"markdown": markdown, "latex": latex}
"""The forms that a table can be written in, by the names of `--table`."""


def results_text(loaded: Loaded, form: str) -> str:
    """Return the results of a run as text in one of `FORMS`, a table for each setting, by size and algorithm."""
    return "\n".join(FORMS[form](table) for table in results_tables(loaded))


def results_tables(runs: Loaded | Mapping[str, Loaded] | Runs) -> Iterator[TextTable]:
    """Yield the results of a run, or of several by name, a table for each setting, which is its caption.

    There is no table for a run without points.
    """
    found = list(settings(Runs.of(runs).table))
    captions = labels([setting for setting, _ in found])
    for caption, (_, rows) in zip(captions, found, strict=True):
        yield _results(caption, rows.sort_values(["nbytes", "series"], kind="stable"))


def _results(caption: str, rows: pd.DataFrame) -> TextTable:
    """Return the table of one setting; columns in which nothing stands are left out."""
    means = bool((rows["statistic"] != "median").any())
    columns = {
        "Size": [size_text(nbytes) for nbytes in rows["nbytes"]],
        "Algorithm": rows["series"].tolist(),
        "Time (µs)" if means else "Median (µs)": _figures(rows["time_us_median"]),
        "Statistic": rows["statistic"].tolist() if means else [],
        "95 % interval (µs)": _intervals(rows),
        "Samples": [str(count) if count else "" for count in rows["samples"]],
        "algbw (GB/s)": _figures(rows["algbw_gb_per_s"]),
        "busbw (GB/s)": _figures(rows["busbw_gb_per_s"]),
        "Bound (µs)": _bounds(rows),
        "Limit": rows["limit"].tolist(),
        "Status": _statuses(rows),
    }
    filled = {title: cells for title, cells in columns.items() if any(cells)}
    left = {"Algorithm", "Statistic", "Limit", "Status"}
    right = frozenset(at for at, title in enumerate(filled) if title not in left)
    notes = (f"{NOT_APPLICABLE}: {NO_BOUND}.",) if lacks_bound(rows).any() else ()
    return TextTable(tuple(filled), right, list(zip(*filled.values(), strict=True)), caption, notes)


def _figures(column: pd.Series) -> list[str]:
    return [digits(value) if np.isfinite(value) else "" for value in column]


def _intervals(rows: pd.DataFrame) -> list[str]:
    pairs = zip(rows["time_us_ci_low"], rows["time_us_ci_high"], strict=True)
    return [interval_text(low, high) if np.isfinite(low) else "" for low, high in pairs]


def _bounds(rows: pd.DataFrame) -> list[str]:
    """Return the bounds, and where there cannot be one that there is none."""
    pairs = zip(_figures(rows["bound_us"]), lacks_bound(rows), strict=True)
    return [NOT_APPLICABLE if lacking else figure for figure, lacking in pairs]


def _statuses(rows: pd.DataFrame) -> list[str]:
    """Return each status with its reason; nothing where every point is ok."""
    if (rows["status"] == "ok").all():
        return []
    pairs = zip(rows["status"], rows["reason"], strict=True)
    return [status if status == "ok" or not reason else f"{status}: {reason}" for status, reason in pairs]
