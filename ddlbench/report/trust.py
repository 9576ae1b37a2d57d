"""How the figures of a run were come by: clock, starts, samples left out, what ended the points."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from ddlbench.records import Point
from ddlbench.records.point import Stop
from ddlbench.report.facts import facts, shortened
from ddlbench.report.runs import Part, Runs
from ddlbench.report.units import SPACE, counted, digits, percent_text, size_text, time_text

STARTS = {
    "window": "at agreed moments of a common clock (window)",
    "barrier": "after a barrier",
    "model": "all at once, in a model",
}
ENDS: tuple[Stop, ...] = ("interval", "time", "samples")
NOTABLE_LATE = 0.25
"""Share of a point's samples left out from which on the page warns of it."""
NOTABLE_ERROR = 0.1
"""Share of the shortest median that the error of the clocks may be before the page warns of it."""


def trust_table(runs: Runs) -> list[tuple[str, list[str]]]:
    """Return what there is to judge the runs by: a label, and a text for each run; lines without any are left out.

    Of several runs, the facts in which they differ come first.
    """
    parts = runs.parts()
    told = [dict(facts(part.loaded)) for part in parts]
    labels = dict.fromkeys(label for one in told for label in one)
    apart = [label for label in labels if len({one.get(label) for one in told}) > 1]
    lines = [(label, [one.get(label, "") for one in told]) for label in apart]
    lines += [(label, [say(part) for part in parts]) for label, say in ASPECTS.items()]
    return [(label, list(map(shortened, texts))) for label, texts in lines if any(texts)]


def shared_facts(runs: Runs) -> list[tuple[str, str]]:
    """Return what the runs were made on as far as it is the same for all; of several, their names first."""
    told = [dict(facts(loaded)) for _, loaded in runs]
    names = [("Runs", ", ".join(name for name, _ in runs))] if runs.several else []
    return names + [pair for pair in told[0].items() if all(one.get(pair[0]) == pair[1] for one in told)]


def late_share(point: Point) -> float:
    """Return the share of the samples of a point that were left out because a rank was not ready; 0 without any."""
    taken = point.late + len(point.samples_ns)
    return point.late / taken if taken else 0.0


def _flags(part: Part) -> str:
    flags = [f"{flag.flag} ({flag.detail})" if flag.detail else flag.flag for flag in part.loaded.run.trust]
    return "; ".join(flags) or "none"


def _starts(part: Part) -> str:
    """Return how the starts of ranks were aligned, and why so."""
    clock = part.loaded.run.clock or {}
    kinds = {point.sync for point in part.loaded.points if point.sync} or {str(clock.get("sync") or "")}
    words = " or ".join(STARTS.get(kind, kind) for kind in sorted(kinds))
    why = clock.get("why")
    return f"{words}: {why}" if words and why else words


def _clock(part: Part) -> str:
    """Return how the ranks' clocks were brought together, and how well they are known."""
    clock = part.loaded.run.clock
    if not clock:
        return "not recorded" if any(point.kind == "measured" for point in part.loaded.points) else ""
    if clock.get("method") == "shared":
        return "one for all ranks, which are on one node"
    before, after = _error(clock, "error_before_us"), _error(clock, "error_after_us")
    parts = [f"known to {_micro(before)} before the run" if before is not None else ""]
    parts += [f"{_micro(after)} off after it" if after is not None else "not measured again after it"]
    drifts = [abs(drift) for drift in _numbers(clock.get("drift_ppm"))]
    parts += [f"drift up to {digits(max(drifts))}{SPACE}ppm" if drifts and max(drifts) > 0 else ""]
    return f"of each node, by {clock.get('method', '?')}: {', '.join(filter(None, parts))}"


def _error(clock: Mapping[str, Any], name: str) -> float | None:
    value = clock.get(name)
    return float(value) if isinstance(value, (int, float)) else None


def _numbers(value: Any) -> list[float]:
    return [float(item) for item in value if isinstance(item, (int, float))] if isinstance(value, list | tuple) else []


def _micro(time_us: float) -> str:
    """Return an error in µs, to the hundredth: below that it says nothing."""
    return f"{time_us:.2f}{SPACE}µs"


def _late(part: Part) -> str:
    """Return how many samples were left out because a rank was not ready, and the point that lost most."""
    late = sum(point.late for point in part.loaded.points)
    taken = late + sum(len(point.samples_ns) for point in part.loaded.points)
    if not late:
        return "none" if taken else ""
    worst = max(part.loaded.points, key=late_share)
    most = f"{percent_text(late_share(worst))} ({worst.algorithm} at {size_text(worst.nbytes)})"
    return f"{percent_text(late / taken)} of {taken:,} samples, at most {most}"


def _ends(part: Part) -> str:
    """Return how many points were ended by what."""
    counts = Counter(point.stopped for point in part.loaded.points)
    return ", ".join(f"{counts[stop]:,} by {stop}" for stop in ENDS if counts[stop])


def _intervals(part: Part) -> str:
    """Return how wide the intervals are against their medians: that of the middle point, and the widest."""
    ok = _timed(part.rows)
    widths = ((ok["time_us_ci_high"] - ok["time_us_ci_low"]) / ok["time_us_median"]).dropna()
    if widths.empty:
        return ""
    worst = ok[ok.index == widths.idxmax()].iloc[0]
    widest = f"{percent_text(float(widths.max()))} ({worst['series']} at {size_text(int(worst['nbytes']))})"
    return f"{percent_text(float(widths.median()))} of the median at half of the points, at most {widest}"


def _timed(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[(rows["status"] == "ok") & (rows["time_us_median"] > 0)]


def _passes(part: Part) -> str:
    """Return in how many passes the samples were taken, in orders from which seed."""
    passes, seed = (part.loaded.run.config.get(name) for name in ("passes", "seed"))
    if not isinstance(passes, int) or not any(point.passes for point in part.loaded.points):
        return ""
    return f"{counted(passes, 'pass', 'passes')}, in orders from seed {seed}"


def _caches(part: Part) -> str:
    kinds = {point.cache for point in part.loaded.points if point.samples_ns}
    words = {"warm": "warm, as the last sample left them", "cold": "cold, emptied before each sample"}
    return " or ".join(words[kind] for kind in sorted(kinds))


def _checks(part: Part) -> str:
    """Return how many results were compared with the right ones, and how many of them were wrong."""
    timed = [point for point in part.loaded.points if point.status in ("ok", "wrong")]
    checked = [point for point in timed if point.wrong is not None]
    if not checked:
        return "none" if timed else ""
    wrong = sum(point.status == "wrong" for point in checked)
    return f"{len(checked):,} of {len(timed):,}, {wrong or 'none'} wrong"


def _proofs(part: Part) -> str:
    return f"{counted(len(part.loaded.run.proofs), 'schedule')}, before they ran" if part.loaded.run.proofs else ""


def _huge_pages(part: Part) -> str:
    """Return how much of the memory that was to be in huge pages was there."""
    told = part.loaded.run.huge_pages or {}
    parts = []
    for kind in ("windows", "arrays"):
        tally = told.get(kind)
        if isinstance(tally, Mapping) and isinstance(asked := tally.get("nbytes"), int) and asked:
            parts.append(f"{percent_text(tally.get('huge_nbytes', 0) / asked)} of {size_text(asked)} of {kind}")
    return " and ".join(parts) or ("asked for" if told else "")


ASPECTS: dict[str, Callable[[Part], str]] = {
    "Doubts recorded": _flags,
    "Starts": _starts,
    "Clock": _clock,
    "Left out as late": _late,
    "Points ended": _ends,
    "Width of intervals": _intervals,
    "Order": _passes,
    "Caches": _caches,
    "Huge pages": _huge_pages,
    "Results checked": _checks,
    "Proved": _proofs,
}


def late_points(points: Iterable[Point]) -> list[Point]:
    """Return the points of which a notable share of samples was left out as late."""
    return [point for point in points if late_share(point) > NOTABLE_LATE]


def clock_doubts(part: Part) -> Iterator[str]:
    """Say that the clocks are not known well enough for the shortest points, where starts rest on them."""
    clock = part.loaded.run.clock or {}
    errors = [error for name in ("error_before_us", "error_after_us") if (error := _error(clock, name)) is not None]
    timed = _timed(part.rows)
    windows = timed[timed["sync"] == "window"]
    if not errors or windows.empty:
        return
    shortest = float(windows["time_us_median"].min())
    if max(errors) > NOTABLE_ERROR * shortest:
        yield f"known to {_micro(max(errors))}, and the shortest point takes {time_text(shortest)}"
