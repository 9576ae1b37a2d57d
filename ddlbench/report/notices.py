"""Whether to trust runs: what speaks against its figures, and the points that are not ok, with their reasons."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pandas as pd

from ddlbench.records import Loaded, Run
from ddlbench.report.contest import settings
from ddlbench.report.facts import facts, shortened
from ddlbench.report.fault import fault_text
from ddlbench.report.placement import virtual
from ddlbench.report.runs import Part, Runs
from ddlbench.report.trust import NOTABLE_LATE, STARTS, clock_doubts, late_points
from ddlbench.report.units import counted, percent_text, size_text

Weight = Literal["alarm", "doubt", "fine"]
WEIGHTS = get_args(Weight)
PROBLEMS = 8
"""Unreadable lines named on top of the page; the small print has them all."""
DETAILS = 3
"""Details of one thing, different in several runs, told before the rest are only counted."""
ISSUES = 200
"""Lines of the list of points that are not ok; the CSV has them all."""


@dataclass(frozen=True)
class Notice:
    """A thing to know before reading a figure; `weight` is "alarm", "doubt" or "fine"."""

    weight: Weight
    title: str
    detail: str = ""


@dataclass(frozen=True)
class Issue:
    """Points that are not ok for one reason: same algorithm and status."""

    algorithm: str
    setting: str
    sizes: str
    status: str
    reason: str


def notices(runs: Runs) -> list[Notice]:
    """Return what a reader must know before trusting the figures, the gravest first.

    Of several runs, what is not true of all says of which it is.
    """
    told: dict[tuple[Weight, str], dict[str, list[str]]] = {}
    for part in runs.parts():
        for notice in _of_one(part):
            told.setdefault((notice.weight, notice.title), {}).setdefault(notice.detail, []).append(part.name)
    everywhere = len(runs.named)
    found = [Notice(weight, title, _joined(of, everywhere)) for (weight, title), of in told.items()]
    found += _unlike(runs)
    if found or not runs.points:
        return sorted(found, key=lambda notice: WEIGHTS.index(notice.weight))
    finished = "the runs" if runs.several else "the run"
    return [Notice("fine", "Nothing recorded speaks against these figures", f"{finished} finished, all points are ok")]


def _of_one(part: Part) -> list[Notice]:
    loaded, table = part.loaded, part.rows
    return [
        *_fault(loaded.run),
        *_wrong(table),
        *_empty(part),
        *_virtual(loaded.run),
        *_unfinished(loaded),
        *(Notice("doubt", _capital(flag.flag), shortened(flag.detail)) for flag in loaded.run.trust),
        *_clocks(part),
        *_late(loaded),
        *_otherwise(loaded),
        *_beaten(table),
        *_problems(loaded.problems),
        *_few_samples(table),
        *_unchecked(table),
        *_not_ok(table),
    ]


def _virtual(run: Run) -> Iterator[Notice]:
    """Say that the nodes are no machines of their own."""
    kind = virtual(run)
    if kind:
        share = "they share its processors and memory, and its kernel makes the links between them"
        yield Notice("doubt", "Not a cluster", f"the nodes are {shortened(kind)}: {share}")


def _joined(details: dict[str, list[str]], everywhere: int) -> str:
    """Return the details of one title, each with the runs it is told of unless it is told of all of them."""
    texts = [
        detail if len(names) == everywhere else f"{detail} ({', '.join(names)})".lstrip()
        for detail, names in details.items()
    ]
    more = f"; and in {len(texts) - DETAILS} more runs" if len(texts) > DETAILS else ""
    return "; ".join(texts[:DETAILS]) + more


def _unlike(runs: Runs) -> Iterator[Notice]:
    """Say in what several runs differ that may move a figure more than their ranks do."""
    told = [dict(facts(loaded)) for _, loaded in runs]
    apart = [label for label in ("MPI", "Program") if len({one.get(label) for one in told}) > 1]
    hosts = [set(map(str, loaded.run.topology.get("hosts") or ())) for _, loaded in runs]
    if all(hosts) and not set.intersection(*hosts):
        apart.insert(0, "hosts")
    if apart:
        yield Notice("doubt", "Runs of different machines or programs", f"they differ in {', '.join(apart)}")


def _empty(part: Part) -> Iterator[Notice]:
    if part.name and not part.loaded.points:
        yield Notice("doubt", "No points", "nothing was measured, or nothing that was stored could be read")


def _clocks(part: Part) -> Iterator[Notice]:
    """Say that the clocks are not known well enough, unless the run itself says so."""
    if all(flag.flag != "clock" for flag in part.loaded.run.trust):
        yield from (Notice("doubt", "Clocks", doubt) for doubt in clock_doubts(part))


def _late(loaded: Loaded) -> Iterator[Notice]:
    """Say at how many points many samples were left out, unless the run itself says so."""
    late = late_points(loaded.points)
    if late and all(flag.flag != "late" for flag in loaded.run.trust):
        more = f"more than {percent_text(NOTABLE_LATE)} of the samples were left out, for a rank was not ready"
        yield Notice("doubt", "Late samples", f"at {counted(len(late), 'point')} {more}")


def _otherwise(loaded: Loaded) -> Iterator[Notice]:
    """Say how many points were not timed as the others of the run, and that these are apart."""
    sync = str((loaded.run.clock or {}).get("sync", ""))
    counts = Counter(point.sync for point in loaded.points if point.samples_ns)
    if counts[sync]:
        usual = STARTS.get(sync, sync)
        for kind in counts.keys() - {sync}:
            points = f"{counted(counts[kind], 'point')} {STARTS.get(kind, kind)}, the others {usual}"
            apart = "not compared with each other, so a winner may be called without the former"
            yield Notice("doubt", "Timed otherwise", f"{points}: {apart}")


def _beaten(table: pd.DataFrame) -> Iterator[Notice]:
    """Say how many points are clearly faster than links and memory seemed to allow."""
    faster = table[(table["status"] == "ok") & (table["time_us_ci_high"] < table["bound_us"])]
    if len(faster):
        points = f"{counted(len(faster), 'point')} of {shortened(', '.join(dict.fromkeys(faster['series'])))}"
        why = "the probe was disturbed, or the data went another way than was probed"
        yield Notice("doubt", "Faster than the lower bound", f"{points}: {why}; ratios to it say nothing there")


def _wrong(table: pd.DataFrame) -> Iterator[Notice]:
    wrong = table[table["status"] == "wrong"]
    if len(wrong):
        names = ", ".join(dict.fromkeys(wrong["algorithm"]))
        points = f"{counted(len(wrong), 'point')} of {shortened(names)}"
        yield Notice("alarm", "Wrong results", f"{points}; left out of all comparisons")


def _fault(run: Run) -> Iterator[Notice]:
    told = fault_text(run)
    if told:
        yield Notice("alarm", "Ended early by a fault", shortened(told))


def _unfinished(loaded: Loaded) -> Iterator[Notice]:
    if not loaded.run.finished:
        yield Notice("doubt", "Not finished", f"the run ended early; {counted(len(loaded.points), 'point')} stored")


def _problems(problems: list[str]) -> Iterator[Notice]:
    if problems:
        more = f"; and {len(problems) - PROBLEMS} more" if len(problems) > PROBLEMS else ""
        shown = "; ".join(shortened(problem) for problem in problems[:PROBLEMS])
        yield Notice("doubt", "Parts of the record could not be read", shown + more)


def _unchecked(table: pd.DataFrame) -> Iterator[Notice]:
    ok = table[(table["status"] == "ok") & (table["statistic"] != "predicted")]
    unchecked = ok[ok["wrong"].isna()]
    if len(unchecked):
        what = "no result" if len(unchecked) == len(ok) else f"{len(unchecked):,} of {len(ok):,} results not"
        way_out = " (--check does)" if (unchecked["statistic"] == "median").all() else ""
        yield Notice("doubt", "Not checked", f"{what} compared with the right one{way_out}")


def _few_samples(table: pd.DataFrame) -> Iterator[Notice]:
    sampled = table[(table["status"] == "ok") & (table["statistic"] == "median")]
    few = int(sampled["time_us_ci_low"].isna().sum())
    if few:
        yield Notice(
            "doubt", "Too few samples", f"{counted(few, 'point')} of fewer than 6 samples: no interval, no winner"
        )


def _not_ok(table: pd.DataFrame) -> Iterator[Notice]:
    for status in ("failed", "skipped"):
        number = int((table["status"] == status).sum())
        if number:
            weight: Weight = "alarm" if status == "failed" else "doubt"
            yield Notice(weight, _capital(status), f"{counted(number, 'point')}; listed below with the reasons")


def issues(table: pd.DataFrame) -> tuple[list[Issue], int]:
    """Return the points that are not ok, grouped by reason, and how many groups were left out of the list."""
    bad = table[table["status"] != "ok"]
    groups = list(bad.groupby(["series", "status", "reason"], sort=False))
    return [_issue(key, rows) for key, rows in groups[:ISSUES]], max(0, len(groups) - ISSUES)


def _issue(key: tuple[Any, ...], rows: pd.DataFrame) -> Issue:
    algorithm, status, reason = key
    why = shortened(reason or "no reason given")
    return Issue(shortened(algorithm), shortened(_settings(rows)), _sizes(rows["nbytes"]), status, why)


def _settings(rows: pd.DataFrame) -> str:
    """Return the setting of some points; of several, how many there are, with their dtypes and ops."""
    found = list(settings(rows))
    if len(found) == 1:
        return found[0][0].label
    names = [dict.fromkeys(getattr(setting, name) for setting, _ in found) for name in ("dtype", "op")]
    return f"{len(found)} settings ({'; '.join(', '.join(each) for each in names)})"


def _sizes(nbytes: Iterable[int]) -> str:
    sizes = sorted(set(map(int, nbytes)))
    if len(sizes) <= 3:
        return ", ".join(map(size_text, sizes))
    return f"{size_text(sizes[0])} to {size_text(sizes[-1])} ({len(sizes)} sizes)"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:].replace("_", " ").replace("-", " ")
