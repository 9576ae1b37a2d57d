"""Points in blocks, one for each table of a format that has room for one algorithm and one setting."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import not_

from ddlbench.records import Point, Run
from ddlbench.report.contest import Setting
from ddlbench.report.tables import result_row
from ddlbench.report.units import SPACE


@dataclass(frozen=True)
class Block:
    """Points of one algorithm and setting by size; those that were not timed stand apart."""

    algorithm: str
    setting: Setting
    timed: tuple[Point, ...]
    rest: tuple[Point, ...]

    def head(self, run: Run, words: str, like: str) -> list[str]:
        """Return the comments above the table: what it holds, in whose format (`like`), and what its times are.

        `words` are the setting as the table needs it told.
        """
        first = self.timed[0] if self.timed else self.rest[0]
        time = "median of the samples, each of the slowest rank"
        if first.kind == "imported":
            time = "mean as another program's log states it"
        return [
            f"# ddlbench {run.ddlbench}: {_line(self.algorithm)}, {_line(words)}",
            f"# in the format of {like}; time: {time}",
        ]

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
    found: dict[tuple[str, Setting], dict[tuple[int, bool], Point]] = {}
    for point in points:
        place = False if both_places else point.in_place
        setting = Setting(
            point.dtype, point.op, place, point.nodes, point.ranks_per_node, point.ranks, point.device, point.sync
        )
        found.setdefault((point.algorithm, setting), {})[point.nbytes, point.in_place] = point
    for (algorithm, setting), members in found.items():
        ordered = [members[key] for key in sorted(members)]
        timed = [math.isfinite(time_us(point)) for point in ordered]
        yield Block(algorithm, setting, tuple(compress(ordered, timed)), tuple(compress(ordered, map(not_, timed))))


def time_us(point: Point) -> float:
    """Return the time of a point in microseconds; NaN when it has none."""
    return float(result_row(point)["time_us_median"])


def _line(text: str) -> str:
    """Return `text` as one line of plain blanks."""
    return " ".join(text.replace(SPACE, " ").split())
