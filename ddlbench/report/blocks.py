"""Points in blocks, one for each table of a format that has room for one algorithm and one setting."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_

from ddlbench.records import Point, Run
from ddlbench.records.point import Kind
from ddlbench.report.contest import Setting
from ddlbench.report.tables import result_row
from ddlbench.report.units import SPACE

TIMES: Mapping[Kind, str] = {
    "measured": "median of the samples, each of the slowest rank",
    "imported": "mean as another program's log states it",
    "predicted": "what the model says",
}
"""What the times of a table are, by the kind of its points."""


@dataclass(frozen=True)
class Block:
    """Points of one algorithm and setting by size; those that were not timed stand apart.

    How starts were aligned is that of most points: it makes no table of its own, for a parser that takes the first
    would miss sizes.
    """

    algorithm: str
    setting: Setting
    timed: tuple[Point, ...]
    rest: tuple[Point, ...]

    def head(self, run: Run, words: str, like: str) -> list[str]:
        """Return the comments above the table: what it holds, in whose format (`like`), and what its times are.

        `words` are the setting as the table needs it told.
        """
        first = self.timed[0] if self.timed else self.rest[0]
        return [
            f"# ddlbench {run.ddlbench}: {_line(self.algorithm)}, {_line(words)}",
            f"# in the format of {like}; time: {TIMES[first.kind]}",
            *self._otherwise(),
        ]

    def _otherwise(self) -> Iterator[str]:
        """Yield a comment for each other way in which starts were aligned, with the points that it is of."""
        others = [point for point in self.timed if point.sync != self.setting.sync]
        for sync in dict.fromkeys(point.sync for point in others):
            places = [_place(point) for point in others if point.sync == sync]
            yield f"# timed by {_line(sync)}, all others by {_line(self.setting.sync)}: {', '.join(places)}"

    def remarks(self) -> list[str]:
        """Return a comment for each point without a time."""
        return [
            f"# {point.nbytes} B: {point.status}: {_line(point.reason or 'no reason given')}" for point in self.rest
        ]


def blocks(points: Sequence[Point], *, both_places: bool) -> Iterator[Block]:
    """Yield the blocks of `points`, algorithms and settings in the order of their first points.

    With `both_places` a block has the points in place and those out of place. Of a point measured twice the later
    counts.
    """
    found: dict[tuple[str, Kind, Setting], dict[tuple[int, bool], Point]] = {}
    for point in points:
        place = False if both_places else point.in_place
        setting = Setting(
            point.dtype, point.op, place, point.nodes, point.ranks_per_node, point.ranks, point.device, sync=""
        )
        found.setdefault((point.algorithm, point.kind, setting), {})[point.nbytes, point.in_place] = point
    for (algorithm, _, setting), members in found.items():
        ordered = [members[key] for key in sorted(members)]
        timed = [math.isfinite(time_us(point)) for point in ordered]
        rest = tuple(compress(ordered, map(not_, timed)))
        yield Block(algorithm, replace(setting, sync=_usual(ordered)), tuple(compress(ordered, timed)), rest)


def _usual(points: Sequence[Point]) -> str:
    """Return how starts were aligned at most of the points that were timed, or else at most of all."""
    timed = [point.sync for point in points if point.samples_ns]
    return Counter(timed or [point.sync for point in points]).most_common(1)[0][0]


def _place(point: Point) -> str:
    return f"{point.nbytes} B{' in place' if point.in_place else ''}"


def time_us(point: Point) -> float:
    """Return the time of a point in microseconds; NaN when it has none."""
    return float(result_row(point)["time_us_median"])


def _line(text: str) -> str:
    """Return `text` as one line of plain blanks."""
    return " ".join(text.replace(SPACE, " ").split())
