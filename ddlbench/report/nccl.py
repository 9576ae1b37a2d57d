"""Results as `all_reduce_perf` of nccl-tests prints them: out of place on the left, in place on the right.

A cell without a figure is `N/A`, as `#wrong` is there without checking: both halves are seldom measured, and with one
rank there is no bus bandwidth.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import fmean

from ddlbench.records import Point, Run
from ddlbench.report.blocks import Block, blocks, time_us
from ddlbench.statistics import algorithm_bandwidth, bus_bandwidth

TYPES = {"float16": "half", "float32": "float", "float64": "double"}
LEFT = ("size", "count", "type", "redop", "root")
RIGHT = ("time", "algbw", "busbw", "#wrong")
UNITS = ("(B)", "(elements)", "", "", "", *2 * ("(us)", "(GB/s)", "(GB/s)", ""))
WIDTHS = (12, 12, 8, 6, 6, *2 * (7, 6, 6, 6))


def nccl_lines(run: Run, points: Sequence[Point]) -> list[str]:
    """Return the lines of one table for each algorithm and setting."""
    lines: list[str] = []
    for block in blocks(points, both_places=True):
        lines += [*([""] if lines else []), *_table(run, block)]
    return lines


def _table(run: Run, block: Block) -> list[str]:
    words = f"{block.setting.dtype} {block.setting.op}, {block.setting.layout}"
    return [
        *block.head(run, words, "all_reduce_perf of nccl-tests"),
        "#",
        _comment((*[""] * 5, "", "out-of-place", "", "", "", "in-place", "", "")),
        _comment((*LEFT, *RIGHT, *RIGHT)),
        _comment(UNITS),
        *(_row(list(pair)) for _, pair in groupby(block.timed, key=lambda point: point.nbytes)),
        *block.remarks(),
        *_footer(block.timed),
    ]


def _cells(words: Sequence[str]) -> str:
    return "  ".join(word.rjust(width) for word, width in zip(words, WIDTHS, strict=True)).rstrip()


def _comment(words: Sequence[str]) -> str:
    return "#" + _cells(words)[1:]


def _row(pair: list[Point]) -> str:
    """Return the row of one size: of the point out of place, the one in place, or both."""
    first = pair[0]
    halves = {point.in_place: point for point in pair}
    left = (str(first.nbytes), str(first.count), TYPES.get(first.dtype, first.dtype), first.op, "-1")
    return _cells([*left, *_half(halves.get(False)), *_half(halves.get(True))])


def _half(point: Point | None) -> list[str]:
    if point is None:
        return ["N/A"] * len(RIGHT)
    time = time_us(point)
    bandwidths = (algorithm_bandwidth(point.nbytes, time), bus_bandwidth(point.nbytes, time, point.ranks))
    wrong = "N/A" if point.wrong is None else f"{point.wrong:g}"
    return [_short(time, 7), *(_short(bandwidth, 6) for bandwidth in bandwidths), wrong]


def _short(value: float, width: int) -> str:
    """Return a figure with two decimals, or as many as fit into `width` characters."""
    if not math.isfinite(value):
        return "N/A"
    return next(
        (text for text in (f"{value:.{digits}f}" for digits in (2, 1, 0)) if len(text) <= width), f"{value:.1e}"
    )


def _footer(timed: Sequence[Point]) -> Iterator[str]:
    bad = sum(point.status == "wrong" for point in timed)
    yield f"# {'Out of bounds values':<20} : {bad} {'FAILED' if bad else 'OK'}"
    rates = [bus_bandwidth(point.nbytes, time_us(point), point.ranks) for point in timed]
    known = [rate for rate in rates if math.isfinite(rate)]
    if known:
        yield f"# {'Avg bus bandwidth':<20} : {fmean(known):g}"
    yield "#"
