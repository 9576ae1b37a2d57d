"""What the samples of one point say: median, its interval, tail, bandwidths. `docs/measurement.md` derives each."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
TAIL_SAMPLES = 100
"""Samples from which on the 99th percentile is told; below, it would be the maximum under another name."""


@dataclass(frozen=True)
class Summary:
    """Statistics of one point's samples, in microseconds; NaN where there are too few samples for one."""

    samples: int
    median_us: float
    ci_low_us: float
    ci_high_us: float
    min_us: float
    p99_us: float


@lru_cache(maxsize=1024)
def interval_rank(samples: int) -> int:
    """Return k such that the k-th smallest and k-th largest of `samples` values enclose the median; 0 when too few.

    It is the largest k for which the interval covers the median of any distribution with 95 % probability: the number
    of samples below the median is binomial(n, 1/2), so the interval misses with probability 2 P(B < k).
    """
    successes = np.arange(1, samples // 2 + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((samples - successes + 1) / successes))])
    below = np.cumsum(np.exp(log_ways - samples * math.log(2)))
    return int(np.searchsorted(below, (1 - CONFIDENCE) / 2, side="right"))


def summarise(samples_ns: npt.ArrayLike) -> Summary:
    """Return the statistics of the samples of one point, given in nanoseconds."""
    ordered = np.sort(np.asarray(samples_ns, dtype=np.int64)) / 1000
    count = len(ordered)
    if not count:
        return Summary(0, *[math.nan] * 5)
    rank = interval_rank(count)
    low, high = (ordered[rank - 1], ordered[count - rank]) if rank else (math.nan, math.nan)
    tail = ordered[math.ceil(0.99 * count) - 1] if count >= TAIL_SAMPLES else math.nan
    return Summary(count, *map(float, (np.median(ordered), low, high, ordered[0], tail)))


def algorithm_bandwidth(nbytes: int, time_us: float) -> float:
    """Return the bytes of the vector over the time, in GB/s (1e9); NaN for an empty vector or no time."""
    return nbytes / time_us / 1e3 if nbytes and time_us > 0 else math.nan


def bus_bandwidth(nbytes: int, time_us: float, ranks: int) -> float:
    """Return the bandwidth an allreduce must have drawn from each rank's link, in GB/s; NaN with one rank (no link)."""
    return algorithm_bandwidth(nbytes, time_us) * 2 * (ranks - 1) / ranks if ranks > 1 else math.nan
