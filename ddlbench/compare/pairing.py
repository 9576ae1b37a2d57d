"""Which point of one run is which of another."""

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddlbench.errors import UsageError
from ddlbench.records import Point

Key = tuple[Any, ...]

SETTING = (
    "nbytes",
    "algorithm",
    "dtype",
    "op",
    "in_place",
    "nodes",
    "ranks_per_node",
    "ranks",
    "device",
    "sync",
    "cache",
)
"""The fields that two points must share to be compared, in the order a table is sorted by."""


@dataclass(frozen=True)
class Pair:
    """One point in two runs, None in the run that lacks it; at least one is there.

    `torn` says that the ranks' starts were aligned in another way in each run, as where a sweep falls back on barriers:
    the point is in both, and its times are not comparable.
    """

    base: Point | None
    new: Point | None
    torn: bool = False

    @property
    def point(self) -> Point:
        """Either point, for what both share."""
        found = self.new or self.base
        if found is None:
            raise ValueError("a pair of no points")
        return found

    @property
    def key(self) -> Key:
        """What the pair is sorted by: size, algorithm, then the rest of the setting."""
        return tuple(getattr(self.point, field) for field in (*SETTING, "transport"))


def pairs(base: Iterable[Point], new: Iterable[Point], apart: Collection[str] = ()) -> list[Pair]:
    """Return the points of two runs as pairs of the same setting, in the order of a table.

    The fields `apart` are left out of the setting; raises `UsageError` where points of a run cannot be told apart
    without them. Of a point measured twice in a run, the later counts. The transport may differ between the runs, for
    it may be what is compared; where one setting ran over several in one of the runs, it must agree. Points that differ
    in nothing but how starts were aligned, in runs that share a way otherwise, are a pair too, `torn`.
    """
    base, new = tuple(base), tuple(new)
    fields = [field for field in SETTING if field not in apart]
    several = _several_transports(base, fields) | _several_transports(new, fields)

    def keyed(points: Iterable[Point]) -> dict[Key, Point]:
        found: dict[Key, Point] = {}
        for point in points:
            key = _key(point, fields)
            key = (*key, point.transport) if key in several else key
            _check_alike(found.get(key, point), point, apart)
            found[key] = point
        return found

    ours, theirs = keyed(base), keyed(new)
    made = [Pair(ours.get(key), theirs.get(key)) for key in {**ours, **theirs}]
    return sorted(_rejoined(made, [field for field in fields if field != "sync"]), key=lambda pair: pair.key)


def _rejoined(made: Sequence[Pair], fields: list[str]) -> Iterator[Pair]:
    """Yield the pairs, two halves of one point that differ in how starts were aligned being one."""
    halves: dict[Key, list[Pair]] = {}
    for pair in made:
        if pair.base and pair.new:
            yield pair
        else:
            halves.setdefault(_key(pair.point, fields), []).append(pair)
    for several in halves.values():
        bases, news = ([one for pair in several if (one := getattr(pair, run))] for run in ("base", "new"))
        if len(bases) == len(news) == 1:
            yield Pair(bases[0], news[0], torn=True)
        else:
            yield from several


def _check_alike(first: Point, second: Point, fields: Iterable[str]) -> None:
    for field in fields:
        values = getattr(first, field), getattr(second, field)
        if values[0] != values[1]:
            raise UsageError(
                f"one of the runs has points of {field} {values[0]!r} and {values[1]!r}, the other has neither: "
                "there is no telling which to compare"
            )


def _key(point: Point, fields: Iterable[str]) -> Key:
    return tuple(getattr(point, field) for field in fields)


def _several_transports(points: Iterable[Point], fields: list[str]) -> set[Key]:
    """Return the settings that ran over more than one transport; none is recorded where nothing could be planned."""
    seen: dict[Key, set[str]] = {}
    for point in points:
        seen.setdefault(_key(point, fields), set()).add(point.transport)
    return {key for key, transports in seen.items() if len(transports - {""}) > 1}


def time_us(point: Point | None) -> float:
    """Return the median time of a point in microseconds, or the mean an imported log states; NaN without either."""
    if point is None:
        return math.nan
    if point.stated is not None:
        return point.stated.mean_us
    return float(np.median(point.samples_ns)) / 1000 if point.samples_ns else math.nan
