"""The data of a page for its script: compact, by column, figures to the digits a screen can show."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from ddlbench.records import Loaded
from ddlbench.report.contest import Contest, Setting, Verdict, contest_of, labels, settings, verdicts
from ddlbench.report.headline import BASELINE, Name, Sentence, headline, lede
from ddlbench.report.runs import Runs
from ddlbench.report.samples import Kept
from ddlbench.report.scaling import Family, Layout, fall, families
from ddlbench.report.scaling_cells import Cell, Subject
from ddlbench.report.scaling_table import Scaling, doubts, scalings_of
from ddlbench.report.shapes import Shape
from ddlbench.report.tables import lacks_bound
from ddlbench.report.units import counted
from ddlbench.report.workload import Total, is_whole, multiplicity_of, parts_of, workload_name, workload_of

STATUSES = ("ok", "wrong", "skipped", "failed")
STOPS = ("", "interval", "samples", "time")
OK = STATUSES.index("ok")
DIGITS = 5
FIGURES = {
    "time": "time_us_median",
    "low": "time_us_ci_low",
    "high": "time_us_ci_high",
    "min": "time_us_min",
    "p99": "time_us_p99",
    "max": "time_us_max",
    "bound": "bound_us",
    "model": "model_us",
}
"""Name of a column in the page to its column in the table of results."""


def payload(runs: Runs, baseline: Shape | None = None) -> dict[str, Any]:
    """Return what the page's script draws.

    `algorithms` are the names that all indices mean, the vendors' last; `unbound` are those for which there is no lower
    bound; `settings` has for each its sentences, rows
    (lists by column, ordered by size), verdicts and workload; `first` is the setting with the most right results.
    `families` are the settings that a map has side by side, the lines along which efficiency is told, and the shapes of
    its table, held against `baseline` (None: the least of each family).
    """
    names, ours = _names(runs.table)
    index = {name: position for position, name in enumerate(names)}
    found = list(settings(runs.table))
    kinds = [setting for setting, _ in found]
    contests = [contest_of(rows) for _, rows in found]
    grown = families(kinds, [len(rows[rows["status"] == "ok"]) for _, rows in found], baseline)
    scaled = {scaling.family: scaling for scaling in scalings_of(runs, found, grown)}
    parts = [
        {"label": label, **_setting(setting, rows, contest, index)}
        | _workload(runs.named[setting.run], rows, contest, index)
        for (setting, rows), contest, label in zip(found, contests, labels(kinds), strict=True)
    ]
    for line in (family.lines[0] for family in grown if family.lines):
        parts[line.places[-1]]["lede"] += [_words(sentence, index) for sentence in fall(line, kinds, contests)]
    return {
        "algorithms": names,
        "ours": ours,
        "baseline": index.get(BASELINE),
        "unbound": sorted(index[name] for name in set(runs.table.loc[lacks_bound(runs.table), "series"])),
        "statuses": STATUSES,
        "stops": STOPS,
        "first": max(range(len(parts)), key=lambda at: _weight(parts[at]), default=0),
        "settings": parts,
        "families": [_family(family, scaled.get(family), index) for family in grown],
    }


def _family(family: Family, scaling: Scaling | None, index: dict[str, int]) -> dict[str, Any]:
    """Return a family; its shapes, `layouts`, are without any where there is nothing to hold against something else.

    `notes` are the doubts for each of the shapes as the baseline.
    """
    told: dict[str, Any] = {name: getattr(family, name) for name in ("members", "places", "heads", "base", "spread")}
    told |= {"lines": [asdict(line) for line in family.lines], "layouts": [], "notes": [], "workloads": []}
    if scaling is None:
        return told
    subjects = [subject for subject in scaling.subjects if subject.is_workload]
    return told | {
        "layouts": [_layout(layout) for layout in family.layouts],
        "notes": [list(doubts(scaling, shape, "N₀ = ")) for shape in scaling.shapes],
        "workloads": [_scaled_workload(scaling, subject, index) for subject in subjects],
    }


def _layout(layout: Layout) -> dict[str, Any]:
    shape = layout.shape
    return {"name": shape.name, "words": shape.words, "places": layout.places} | asdict(shape)


def _scaled_workload(scaling: Scaling, subject: Subject, index: dict[str, int]) -> dict[str, Any]:
    """Return a workload with its cells: a list for each algorithm, null for the best of each size, of one per shape."""
    cells = [[index.get(name), list(map(_scaled, of))] for name, of in scaling.cells[subject].items()]
    return {
        "title": subject.title,
        "parts": counted(subject.parts, subject.kind),
        "nbytes": subject.nbytes,
        "cells": cells,
    }


def _scaled(cell: Cell) -> list[float | None] | str:
    """Return time, interval and bound in µs, or why there is no time."""
    return cell.reason or list(map(_figure, (cell.time_us, cell.low_us, cell.high_us, cell.bound_us)))


def _weight(part: dict[str, Any]) -> tuple[int, int]:
    """Return by how much a page would open with this setting: right results, then ranks."""
    return part["rows"]["status"].count(OK), part["ranks"]


def samples_payload(runs: Runs, held: Kept) -> dict[str, Any]:
    """Return the samples for the page's script, those of each setting in the order of its rows in `payload`.

    `passes` are the different ways in which samples fell to passes, which a point names by its place in the list.
    """
    passes = list(dict.fromkeys(point.passes for point in runs.points))
    place = {numbers: at for at, numbers in enumerate(passes)}
    orders = [_ordered(rows).index.tolist() for _, rows in settings(runs.table)]
    return {
        "passes": passes,
        "settings": [
            {
                "drawn": [held.drawn[at] for at in order],
                "passes": [place[runs.points[at].passes] for at in order],
                "quartiles": _unless_empty([held.quartiles[at] for at in order]),
                "maps": _unless_empty([held.maps[at] for at in order]),
            }
            for order in orders
        ],
    }


def _unless_empty(values: list[Any]) -> list[Any] | None:
    return values if any(values) else None


def _names(table: pd.DataFrame) -> tuple[list[str], int]:
    """Return the names of all algorithms, ours before the vendors', and how many of ours there are.

    Vendors' stand back behind ours on the page; where there are none of ours, all count as such.
    """
    every = set(table["series"])
    # On devices a vendor's allreduce runs over the transports of ours.
    vendor = set(table.loc[table["transport"].isin(("vendor", "nccl")) | (table["series"] == "mpi"), "series"])
    if vendor == every:
        vendor = set()
    return [*sorted(every - vendor), *sorted(vendor)], len(every - vendor)


def _setting(setting: Setting, rows: pd.DataFrame, contest: Contest, index: dict[str, int]) -> dict[str, Any]:
    wins = verdicts(contest)
    return {
        "ranks": setting.ranks,
        "sync": setting.sync,
        "headline": _words(headline(contest, wins), index),
        "lede": [_words(sentence, index) for sentence in lede(contest, wins, setting.ranks)],
        "rows": _rows(_ordered(rows), index),
        "best": [_best(win, contest, index) for win in wins],
    }


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(["nbytes", "series"], kind="stable")


def _words(sentence: Sentence, index: dict[str, int]) -> list[str | int]:
    """Return a sentence with each algorithm as its index."""
    return [index[str(word)] if isinstance(word, Name) else word for word in sentence]


def _rows(ordered: pd.DataFrame, index: dict[str, int]) -> dict[str, list[Any] | None]:
    statistics = ordered["statistic"].tolist()
    columns: dict[str, list[Any] | None] = {
        "algorithm": ordered["series"].map(index).tolist(),
        "nbytes": ordered["nbytes"].tolist(),
        "count": ordered["count"].tolist(),
        "samples": ordered["samples"].tolist(),
        "late": _unless_empty(ordered["late"].tolist()),
        "stopped": _unless_empty(ordered["stopped"].map(STOPS.index).tolist()),
        "status": ordered["status"].map(STATUSES.index).tolist(),
        "wrong": [None if pd.isna(wrong) else int(wrong) for wrong in ordered["wrong"]],
        "limit": _unless_empty(ordered["limit"].tolist()),
        "statistic": statistics if "mean" in statistics else None,
    }
    return columns | {short: _figures(ordered[column].tolist()) for short, column in FIGURES.items()}


def _figures(values: Sequence[float]) -> list[float | None] | None:
    """Return figures to `DIGITS` digits, null where one does not apply; null for a column that has none."""
    if all(map(math.isnan, values)):
        return None
    return list(map(_figure, values))


def _figure(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.{DIGITS}g}")


def _best(win: Verdict, contest: Contest, index: dict[str, int]) -> list[Any]:
    """Return a verdict as a list: size, winner, runner-up, lead, outcome, rivals."""
    position = [index[name] for name in contest.names]
    runner_up = None if win.runner_up is None else position[win.runner_up]
    lead = None if math.isnan(win.lead) else round(win.lead, 4)
    return [win.nbytes, position[win.winner], runner_up, lead, win.outcome, [position[rival] for rival in win.rivals]]


def _workload(loaded: Loaded, rows: pd.DataFrame, contest: Contest, index: dict[str, int]) -> dict[str, Any]:
    """Return the totals of a workload by algorithm, and with the best of each size; None where there is none.

    The vectors of a workload are tensors, or buffers that they were gathered into.
    """
    config = loaded.run.config
    if not config.get("workload") and (rows["multiplicity"] == 1).all():
        return {"workload": None}
    found = workload_of(contest, multiplicity_of(rows))
    told = {
        "name": workload_name(loaded),
        "parts": counted(found.parts, parts_of(loaded)),
        "nbytes": found.nbytes,
        "totals": [[index[total.name], *_total(total)] for total in found.totals],
        "best": None if math.isnan(found.best_us) else _total(found.best),
        "whole": is_whole(loaded, rows),
    }
    return {"workload": told}


def _total(total: Total) -> list[float | int | None]:
    """Return a total as a list: time, the ends of its interval, in µs, and how many sizes it lacks."""
    return [*map(_figure, (total.time_us, total.low_us, total.high_us)), total.missing]
