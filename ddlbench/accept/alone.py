"""A rank at work by itself: adding vectors with the engine's kernels, and copying more memory than caches hold.

What counts is the work that is done in a span of time on the wall: a processor that somebody else uses half of the time
does half of it, however fast each single call is.
"""

import time
from collections.abc import Callable

import numpy as np

from ddlbench import _reduce
from ddlbench.links.timing import FLOAT32, SUM

REDUCE_NBYTES, COPY_NBYTES = 1 << 20, 16 << 20
WHATS = ("reduction", "copy")
"""What a rank does alone."""


class Work:
    """The buffers of a rank's work; `window` measures how fast it goes."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._a, self._b, self._sum = (np.ones(REDUCE_NBYTES // 4, np.float32) for _ in range(3))
        self._source, self._target = (np.ones(COPY_NBYTES // 8) for _ in range(2))

    def window(self, seconds: float) -> tuple[float, float]:
        """Return the bytes a second that this rank adds, and that it copies, each over `seconds`."""
        return self._rate(self._reduce, REDUCE_NBYTES, seconds), self._rate(self._copy, COPY_NBYTES, seconds)

    def _reduce(self) -> None:
        _reduce.reduce(FLOAT32, SUM, self._sum, self._a, self._b)

    def _copy(self) -> None:
        np.copyto(self._target, self._source)

    def _rate(self, work: Callable[[], None], nbytes: int, seconds: float) -> float:
        begun, done = self._clock(), 0
        while True:
            work()
            done += 1
            if (taken := self._clock() - begun) >= seconds:
                return done * nbytes / taken
