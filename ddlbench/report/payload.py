"""The data of a page for its script: compact, by column, figures to the digits a screen can show."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ddlbench.records import Loaded
from ddlbench.report.contest import Contest, Setting, Verdict, contest_of, settings, verdicts
from ddlbench.report.headline import BASELINE, Name, Sentence, headline, lede
from ddlbench.report.units import counted
from ddlbench.report.workload import Workload, workload_of

STATUSES = ("ok", "wrong", "skipped", "failed")
OK = STATUSES.index("ok")
DIGITS = 5
FIGURES = {
    "time": "time_us_median",
    "low": "time_us_ci_low",
    "high": "time_us_ci_high",
    "min": "time_us_min",
    "p99": "time_us_p99",
    "algbw": "algbw_gb_per_s",
    "busbw": "busbw_gb_per_s",
    "bound": "bound_us",
    "model": "model_us",
}
"""Name of a column in the page to its column in the table of results."""


def payload(loaded: Loaded, table: pd.DataFrame) -> dict[str, Any]:
    """Return what the page's script draws; `table` is the table of results with its series.

    `algorithms` are the names that all indices mean, the vendors' last; `settings` has for each its sentences, rows
    (lists by column, ordered by size), verdicts and workload; `first` is the setting with the most right results.
    `workload` is the name of the workload; None for a sweep that is none.
    """
    names, ours = _names(table)
    index = {name: position for position, name in enumerate(names)}
    counted_table = table.assign(multiplicity=[point.multiplicity for point in loaded.points])
    part = _part_of_workload(loaded)
    parts = [_setting(setting, rows, index, part) for setting, rows in settings(counted_table)]
    return {
        "algorithms": names,
        "ours": ours,
        "baseline": index.get(BASELINE),
        "statuses": STATUSES,
        "first": max(range(len(parts)), key=lambda at: parts[at]["rows"]["status"].count(OK), default=0),
        "workload": _workload_name(loaded) if part else None,
        "settings": parts,
    }


def _part_of_workload(loaded: Loaded) -> str:
    """Return what the vectors of a workload are, "tensor" or "buffer"; "" for a sweep that is none."""
    config = loaded.run.config
    if not config.get("workload") and all(point.multiplicity == 1 for point in loaded.points):
        return ""
    return "buffer" if config.get("fuse") else "tensor"


def _workload_name(loaded: Loaded) -> str:
    workload = loaded.run.config.get("workload")
    return str(workload.get("name", "")) if isinstance(workload, Mapping) else str(workload or "")


def _names(table: pd.DataFrame) -> tuple[list[str], int]:
    """Return the names of all algorithms, ours before the vendors', and how many of ours there are.

    Vendors' stand back behind ours on the page; where there are none of ours, all count as such.
    """
    every = set(table["series"])
    vendor = set(table.loc[table["transport"] == "vendor", "series"])
    if vendor == every:
        vendor = set()
    return [*sorted(every - vendor), *sorted(vendor)], len(every - vendor)


def _setting(setting: Setting, rows: pd.DataFrame, index: dict[str, int], part: str) -> dict[str, Any]:
    contest = contest_of(rows)
    wins = verdicts(contest)
    multiplicity = dict(zip(rows["nbytes"].tolist(), rows["multiplicity"].tolist(), strict=True))
    return {
        "label": setting.label,
        "ranks": setting.ranks,
        "headline": _words(headline(contest, wins), index),
        "lede": [_words(sentence, index) for sentence in lede(contest, wins, setting.ranks)],
        "rows": _rows(rows, index),
        "best": [_best(win, contest, index) for win in wins],
        "workload": _workload(workload_of(contest, multiplicity), index, part) if part else None,
    }


def _words(sentence: Sentence, index: dict[str, int]) -> list[str | int]:
    """Return a sentence with each algorithm as its index."""
    return [index[str(word)] if isinstance(word, Name) else word for word in sentence]


def _rows(rows: pd.DataFrame, index: dict[str, int]) -> dict[str, list[Any] | None]:
    ordered = rows.sort_values(["nbytes", "series"], kind="stable")
    statistics = ordered["statistic"].tolist()
    columns: dict[str, list[Any] | None] = {
        "algorithm": ordered["series"].map(index).tolist(),
        "nbytes": ordered["nbytes"].tolist(),
        "count": ordered["count"].tolist(),
        "samples": ordered["samples"].tolist(),
        "status": ordered["status"].map(STATUSES.index).tolist(),
        "wrong": [None if pd.isna(wrong) else int(wrong) for wrong in ordered["wrong"]],
        "statistic": statistics if "mean" in statistics else None,
    }
    return columns | {short: _figures(ordered[column].tolist()) for short, column in FIGURES.items()}


def _figures(values: Sequence[float]) -> list[float | None] | None:
    """Return figures to `DIGITS` digits, null where one does not apply; null for a column that has none."""
    if all(map(math.isnan, values)):
        return None
    return [None if math.isnan(value) else float(f"{value:.{DIGITS}g}") for value in values]


def _best(win: Verdict, contest: Contest, index: dict[str, int]) -> list[Any]:
    """Return a verdict as a list: size, winner, runner-up, lead, outcome, rivals."""
    position = [index[name] for name in contest.names]
    runner_up = None if win.runner_up is None else position[win.runner_up]
    lead = None if math.isnan(win.lead) else round(win.lead, 4)
    return [win.nbytes, position[win.winner], runner_up, lead, win.outcome, [position[rival] for rival in win.rivals]]


def _workload(workload: Workload, index: dict[str, int], part: str) -> dict[str, Any]:
    """Return the totals of a workload, each as a list: algorithm, time in µs, sizes it lacks."""
    totals = [[index[total.name], *(_figures([total.time_us]) or [None]), total.missing] for total in workload.totals]
    best = None if math.isnan(workload.best_us) else workload.best_us
    return {"parts": counted(workload.parts, part), "nbytes": workload.nbytes, "totals": totals, "best": best}
