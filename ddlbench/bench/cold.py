"""Samples with cold caches: buffers take turns, and where they are too small to fill a cache, other memory does.

A vector that was used a moment ago is still in cache, which a training step's gradients are not. Here each sample takes
the next of several pairs of buffers that together are larger than twice the last-level cache. Where that would take too
many, memory of that size is written to between the samples instead.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ddlbench.comm import Plan

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE_NBYTES = 64 << 20
"""Taken for the last-level cache where the system does not tell its size."""
MOST_COPIES = 32


@lru_cache(maxsize=1)
def last_level_nbytes() -> int:
    """Return the size of the last-level cache of the first processor, in bytes."""
    sizes = [_size(path.read_text()) for path in CACHES.glob("index*/size")]
    return max(sizes, default=UNKNOWN_CACHE_NBYTES)


def _size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number = text.strip()
    return int(number[:-1]) * units[number[-1]] if number[-1] in units else int(number)


def copies_needed(nbytes: int) -> int:
    """Return how many pairs of buffers, `nbytes` a pair, take turns; 2 where writing other memory does the rest."""
    wanted = -(-2 * last_level_nbytes() // max(nbytes, 1)) + 1
    return max(2, wanted) if wanted <= MOST_COPIES else 2


class ColdPlan:
    """Plans for the same allreduce over different buffers; each sample takes the next one.

    `nbytes` is the size of one pair of buffers. Checks run the first plan.
    """

    def __init__(self, plans: Sequence["Plan"], nbytes: int) -> None:
        self._plans = plans
        self._next = 0
        scrub = nbytes * len(plans) <= 2 * last_level_nbytes()
        self._scrubbed = np.zeros(2 * last_level_nbytes() if scrub else 0, np.uint8)
        self.algorithm, self.transport, self.why = plans[0].algorithm, plans[0].transport, plans[0].why
        self.segments, self.execute = plans[0].segments, plans[0].execute

    @property
    def scrubs(self) -> bool:
        """Whether `clear` takes a while and must come before each sample, since buffers alone do not fill the cache."""
        return bool(self._scrubbed.size)

    def clear(self) -> None:
        """Write to memory larger than the cache, where buffers that take turns are too small."""
        self._scrubbed += 1

    def time_samples(self, samples: int) -> npt.NDArray[np.int64]:
        """Time `samples` runs as `Plan.time_samples` does, each on memory that is not in cache."""
        taken = np.empty(samples, np.int64)
        for sample in range(samples):
            self.clear()
            taken[sample] = self._turn().time_samples(1)[0]
        return taken

    def time_windows(self, starts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Run at the given starts as `Plan.time_windows` does; `clear` must come before it, for one start each."""
        seen = [self._turn().time_windows(starts[at : at + 1]) for at in range(len(starts))]
        begun, done = (np.concatenate(part) for part in zip(*seen, strict=True))
        return begun, done

    def _turn(self) -> "Plan":
        self._next = (self._next + 1) % len(self._plans)
        return self._plans[self._next]

    def position(self) -> tuple[Any, ...]:
        """Return where the plan whose turn it is stands, as `Plan.position` does."""
        return (*self._plans[self._next].position(), self._next)

    def waiting(self) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None:
        """Return what that plan waits for, as `Plan.waiting` does."""
        waiting: tuple[int, int, tuple[int, ...], tuple[int, ...]] | None = self._plans[self._next].waiting()
        return waiting

    def close(self) -> None:
        """Free all plans."""
        for plan in self._plans:
            plan.close()
