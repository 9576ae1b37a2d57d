"""By how much one point's times differ from another's, with an interval and a test that mind slow spells.

Samples that follow each other are alike: a slow second of the machine makes a hundred of them slow. They are cut into
blocks in the order they were taken, and how the blocks vary says how much the samples are worth.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
LEAST_SAMPLES = 8
"""Samples of each point below which nothing but the ratio is told."""
BLOCKS = 12
"""Blocks that the samples of a point are cut into, or as many as there are samples."""
MOST_CORRELATION = 0.9
"""Bound of the estimated correlation of neighbouring blocks, which a dozen of them cannot tell from 1."""


@dataclass(frozen=True)
class Shift:
    """The ratio of two medians, new over base, and its 95 % interval; `p` is that of the test of no difference.

    The interval and `p` are NaN where there are too few samples for them.
    """

    ratio: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan

    @property
    def known(self) -> bool:
        """Whether there is an interval and a test."""
        return not math.isnan(self.p)


@dataclass(frozen=True)
class _Series:
    """The samples of one point, in the order they were taken, and what their blocks say.

    `logs` are the logarithms of the times, shape (samples,); `medians` those of the blocks, shape (blocks,).
    `inflation` is how many times the variance of a block's mean rank is that of independent samples; `stretch` how many
    times the variance of a mean over blocks is that of independent blocks, at least 1.
    """

    logs: Floats
    medians: Floats
    inflation: float = 1.0
    stretch: float = 1.0


def shift(base_ns: Sequence[int], new_ns: Sequence[int]) -> Shift:
    """Return how the samples `new_ns` differ from `base_ns`, both in nanoseconds and in the order they were taken.

    Without samples on both sides the ratio is NaN.
    """
    if not len(base_ns) or not len(new_ns):
        return Shift(math.nan)
    ratio = float(np.median(_times(new_ns)) / np.median(_times(base_ns)))
    if min(len(base_ns), len(new_ns)) < LEAST_SAMPLES:
        return Shift(ratio)
    base, new = _series(base_ns), _series(new_ns)
    stretch = (base.stretch + new.stretch) / 2
    ends = _interval(base.medians, new.medians, math.sqrt(stretch))
    low, high = min(math.exp(ends[0]), ratio), max(math.exp(ends[1]), ratio)
    ranks = _rank_sum_test(base, new, max(1.0, max(base.inflation, new.inflation) * stretch))
    gap = _gap_test(Shift(ratio, low, high), min(len(base.medians), len(new.medians)) - 1)
    return Shift(ratio, low, high, min(1.0, 2 * min(ranks, gap)))


def _times(samples_ns: Sequence[int]) -> Floats:
    """Return the times; one below the clock's resolution is a nanosecond, for it has no logarithm."""
    return np.maximum(np.asarray(samples_ns, dtype=np.float64), 1.0)


def _series(samples_ns: Sequence[int]) -> _Series:
    from scipy.stats import rankdata

    logs = np.log(_times(samples_ns))
    blocks = min(BLOCKS, len(logs))
    medians = np.array([np.median(part) for part in np.array_split(logs, blocks)])
    ranks = rankdata(logs) - (len(logs) + 1) / 2
    parts = np.array_split(ranks, blocks)
    means = np.array([part.mean() for part in parts])
    spread, power = float(ranks.var(ddof=1)), float((means**2).sum())
    if spread == 0 or power == 0:
        return _Series(logs, medians)
    squares = sum(len(part) * float(mean) ** 2 for part, mean in zip(parts, means, strict=True))
    echo = float((means[1:] * means[:-1]).sum()) / power
    return _Series(logs, medians, squares / (blocks - 1) / spread, _stretch(echo, blocks))


def _stretch(echo: float, blocks: int) -> float:
    """Return how many times the variance of a mean over blocks is that of independent blocks; at least 1.

    That is (1 + r)/(1 - r) where neighbouring blocks have the correlation r and others what follows from it. `echo`,
    its estimate from the blocks, is too low by about (1 + 4 r)/blocks, which is made good for.
    """
    correlation = (echo + 1 / blocks) / (1 - 4 / blocks)
    correlation = min(max(correlation, 0.0), MOST_CORRELATION)
    return (1 + correlation) / (1 - correlation)


def _interval(base: Floats, new: Floats, width: float) -> tuple[float, float]:
    """Return the interval of the shift between two samples by Hodges and Lehmann, `width` times as wide."""
    differences = np.sort(np.subtract.outer(new, base), axis=None)
    rank = interval_rank(len(base), len(new))
    middle, low, high = np.median(differences), differences[rank - 1], differences[-rank]
    return float(middle - width * (middle - low)), float(middle + width * (high - middle))


@lru_cache
def interval_rank(base: int, new: int) -> int:
    """Return k such that the k-th smallest and k-th largest of all differences of two samples enclose their shift.

    It is the largest k for which they do with 95 % probability: without a shift, the number of differences below 0
    has the distribution of the rank-sum statistic U, so the interval misses with probability 2 P(U < k).
    """
    pairs = base * new
    ways = np.zeros((base + 1, pairs + 1))
    ways[0, 0] = 1
    for above in range(new + 1):
        for chosen in range(1, base + 1):
            ways[chosen, above:] += ways[chosen - 1, : pairs + 1 - above]
    below = np.cumsum(ways[base]) / ways[base].sum()
    return int(np.searchsorted(below, (1 - CONFIDENCE) / 2, side="right"))


def _rank_sum_test(base: _Series, new: _Series, inflation: float) -> float:
    """Return the two-sided p-value of the rank-sum test where its variance is `inflation` times as large.

    The inflation is estimated from a few blocks, so the statistic is referred to Student's distribution.
    """
    from scipy.special import ndtri, stdtr
    from scipy.stats import mannwhitneyu

    naive = max(float(mannwhitneyu(base.logs, new.logs).pvalue), np.finfo(float).tiny)
    deviate = float(ndtri(naive / 2)) / math.sqrt(inflation)
    return float(2 * stdtr(len(base.medians) + len(new.medians) - 2, deviate))


def _gap_test(found: Shift, freedom: int) -> float:
    """Return the two-sided p-value of the distance of a ratio from 1, in half-widths of its interval.

    Ranks do not say how far apart two samples are that do not overlap; this does. Student's distribution with `freedom`
    degrees of freedom carries the interval on to other probabilities than its own.
    """
    from scipy.special import stdtr, stdtrit

    distance = abs(math.log(found.ratio))
    width = math.log(found.ratio / found.low) if found.ratio > 1 else math.log(found.high / found.ratio)
    if distance == 0:
        return 1.0
    deviate = distance / width * stdtrit(freedom, (1 - CONFIDENCE) / 2) if width > 0 else -math.inf
    return float(2 * stdtr(freedom, deviate))
