"""The samples of every point for the page's script, in as few characters as a screen needs, within a budget.

A sample takes two characters: one of 4096 levels between the fastest and the slowest of the point, evenly spaced in the
logarithm, so that the error is below 0.1 % where the slowest takes a thousand times as long as the fastest. Where the
samples of all points are more than the budget, points with many keep order statistics instead: the fastest, the
slowest, and samples at even steps between, and the three quartiles of each pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.records import Point
from ddlbench.statistics import parts

SIGNS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", dtype=np.uint8)
LEVELS = 4096
WIDTH = 2
"""Characters of one value."""
FEWEST = 9
"""Order statistics that still show a distribution: a point that would keep fewer keeps none."""
MOST_ROWS, MOST_COLUMNS = 64, 240
"""Cells of a map of ranks and samples; more are drawn together."""
LIST = 8
"""Characters that a point takes besides, in lists."""

Nanoseconds = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Kept:
    """The samples that a page holds.

    `drawn` has a text for each point, empty where it has none to show; `quartiles` those of the passes where `drawn`
    are order statistics, else empty; `maps` what `lateness` returns, or None. `thinned` points keep order statistics,
    `dropped` ones nothing, and of `unmapped` ones the ranks' own times had no room.
    """

    drawn: list[str]
    quartiles: list[str]
    maps: list[list[Any] | None]
    thinned: int = 0
    dropped: int = 0
    unmapped: int = 0


def encoded(levels: Floats) -> str:
    """Return levels between 0 and 1 as text, two characters for each."""
    codes = np.rint(np.clip(levels, 0, 1) * (LEVELS - 1)).astype(np.int64)
    return SIGNS[np.stack([codes >> 6, codes & 63], axis=-1).ravel()].tobytes().decode("ascii")


def _levels(samples: Floats | Nanoseconds, fastest: float, slowest: float) -> Floats:
    """Return where samples lie between the fastest and the slowest, in the logarithm."""
    if slowest <= fastest:
        return np.zeros(len(samples))
    return np.asarray(np.log(np.maximum(samples, fastest) / fastest) / np.log(slowest / fastest), dtype=np.float64)


def ceiling(sizes: Sequence[int], budget: int) -> int:
    """Return the largest number to which all sizes can be cut so that they add up to the budget at most."""
    if sum(sizes) <= budget:
        return max(sizes, default=0)
    ordered = np.sort(np.asarray(sizes, dtype=np.int64))
    below = np.concatenate([[0], np.cumsum(ordered)[:-1]])
    even = (budget - below) // np.arange(len(ordered), 0, -1)
    return max(0, int(even[int(np.argmax(even < ordered))]))


def kept(points: Sequence[Point], room: int) -> Kept:
    """Return what a page holds of the samples of points in `room` characters; a half is for maps where there are any.

    No point keeps more than any other could have as well: cuts fall on those with the most samples.
    """
    matrices = [_own_times(point) for point in points]
    maps = _maps(matrices, room // 2)
    rest = room - sum(len(found[3]) + 6 * LIST for found in maps if found) - 2 * LIST * len(points)
    cap = ceiling([len(point.samples_ns) for point in points], rest // WIDTH)
    texts = [_drawn(point, cap) for point in points]
    many = [len(point.samples_ns) > cap for point in points]
    dropped = sum(over and not text for over, (text, _) in zip(many, texts, strict=True))
    return Kept(
        drawn=[text for text, _ in texts],
        quartiles=[text for _, text in texts],
        maps=maps,
        thinned=sum(many) - dropped,
        dropped=dropped,
        unmapped=sum(matrix is not None and found is None for matrix, found in zip(matrices, maps, strict=True)),
    )


def _drawn(point: Point, cap: int) -> tuple[str, str]:
    """Return the samples of a point, or at most `cap` order statistics: of all samples, and the quartiles of passes."""
    samples = np.asarray(point.samples_ns, dtype=np.int64)
    if not len(samples):
        return "", ""
    fastest, slowest = float(max(samples.min(), 1)), float(max(samples.max(), 1))
    if len(samples) <= cap:
        return encoded(_levels(samples, fastest, slowest)), ""
    quartiles = [np.percentile(part, [25, 50, 75]) for part in parts(samples, point.passes)]
    number = cap - 3 * len(quartiles)
    if number < FEWEST:
        return _order_statistics(samples, cap, fastest, slowest), ""
    passes = encoded(_levels(np.concatenate(quartiles), fastest, slowest))
    return _order_statistics(samples, number, fastest, slowest), passes


def _order_statistics(samples: Nanoseconds, number: int, fastest: float, slowest: float) -> str:
    if number < FEWEST:
        return ""
    chosen = np.rint(np.linspace(0, len(samples) - 1, number)).astype(np.int64)
    return encoded(_levels(np.sort(samples)[chosen], fastest, slowest))


def _own_times(point: Point) -> Floats | None:
    """Return the ranks' own times, shape (ranks, samples) in nanoseconds; None where they are not all there."""
    lists = point.per_rank_ns
    if not lists or len(lists) < 2 or not lists[0] or len(set(map(len, lists))) > 1:
        return None
    return np.asarray(lists, dtype=np.float64)


def _maps(matrices: Sequence[Floats | None], room: int) -> list[list[Any] | None]:
    """Return the maps of lateness that fit into `room` characters, all cut to the same number of columns."""
    shapes = np.array([matrix.shape for matrix in matrices if matrix is not None], dtype=np.int64).reshape(-1, 2)
    rows, samples = np.minimum(shapes[:, 0], MOST_ROWS), shapes[:, 1]
    cells = (room - 6 * LIST * len(shapes)) // WIDTH
    fitting = (most for most in range(MOST_COLUMNS, 0, -1) if (rows * np.minimum(samples, most)).sum() <= cells)
    columns = next(fitting, 0)
    return [lateness(matrix, columns) if matrix is not None and columns else None for matrix in matrices]


def lateness(times: Floats, columns: int) -> list[Any]:
    """Return how late each rank was in each sample, from times of shape (ranks, samples) in nanoseconds.

    The result is a list: rows, columns, the greatest lateness in µs, the cells row by row as text (the square root of
    the lateness over the greatest), the rank that was the slowest most often, and in which share of the samples. A row
    is a rank, or the latest of several; a column is a sample, or the mean of several in a row.
    """
    late = times - times.min(axis=0)
    slowest = np.bincount(late.argmax(axis=0)[late.max(axis=0) > 0], minlength=len(late))
    rows, columns = min(len(late), MOST_ROWS), min(late.shape[1], columns)
    starts = [np.arange(number) * length // number for number, length in zip((rows, columns), late.shape, strict=True)]
    cells = np.maximum.reduceat(late, starts[0], axis=0)
    widths = np.diff(np.append(starts[1], late.shape[1]))
    cells = np.add.reduceat(cells, starts[1], axis=1) / widths
    greatest = float(cells.max())
    levels = np.sqrt(cells / greatest) if greatest else cells
    share = float(slowest.max()) / late.shape[1]
    return [
        *(rows, columns, float(f"{greatest / 1e3:.4g}")),
        encoded(levels.ravel()),
        *(int(slowest.argmax()), round(share, 3)),
    ]
