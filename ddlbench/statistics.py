"""What the samples of one point say: median, its interval, tail, bandwidths. `docs/measurement.md` derives each."""

import math
from collections.abc import Sequence
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


def parts(samples_ns: npt.NDArray[np.int64], passes: Sequence[int]) -> list[npt.NDArray[np.int64]]:
    """Return the samples of each pass that gave any; `passes` are their numbers, in order, and add up to all."""
    if sum(passes) != len(samples_ns):
        return [samples_ns] if len(samples_ns) else []
    return [part for part in np.split(samples_ns, np.cumsum(passes)[:-1]) if len(part)]


def summarise(samples_ns: npt.ArrayLike, passes: Sequence[int] = ()) -> Summary:
    """Return the statistics of the samples of one point, given in nanoseconds, in the order they were taken.

    `passes` says how many of them each pass gave. Samples of one pass share a plan, buffers and a moment of the
    machine, so they agree better with each other than passes do: the interval is widened to hold every pass's median.
    """
    ordered = np.sort(np.asarray(samples_ns, dtype=np.int64)) / 1000
    count = len(ordered)
    if not count:
        return Summary(0, *[math.nan] * 5)
    rank = interval_rank(count)
    low, high = (ordered[rank - 1], ordered[count - rank]) if rank else (math.nan, math.nan)
    if rank:
        medians = [float(np.median(part)) / 1000 for part in parts(np.asarray(samples_ns), passes)]
        low, high = min([low, *medians]), max([high, *medians])
    tail = ordered[math.ceil(0.99 * count) - 1] if count >= TAIL_SAMPLES else math.nan
    return Summary(count, *map(float, (np.median(ordered), low, high, ordered[0], tail)))


def algorithm_bandwidth(nbytes: int, time_us: float) -> float:
    """Return the bytes of the vector over the time, in GB/s (1e9); NaN for an empty vector or no time."""
    return nbytes / time_us / 1e3 if nbytes and time_us > 0 else math.nan


def bus_bandwidth(nbytes: int, time_us: float, ranks: int) -> float:
    """Return the bandwidth an allreduce must have drawn from each rank's link, in GB/s; NaN with one rank (no link)."""
    return algorithm_bandwidth(nbytes, time_us) * 2 * (ranks - 1) / ranks if ranks > 1 else math.nan
