"""Token buckets: links that let a burst pass at once before they hold messages to their rate, as clouds shape them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ddlbench.schedule.move import Ints

Floats = npt.NDArray[np.float64]
SAME = 1e-9
"""Times, and what is left, that differ by less than this share are one: they differ by rounding."""


@dataclass
class Buckets:
    """Token buckets of shaped resources: what each may still let pass at its peak, and when that was so.

    `burst` is the most that each holds, bytes, 0 for a resource without a bucket; `level` what it holds, `at` since
    when in seconds. It fills at the resource's own capacity, and lets bytes pass at `peak` bytes a second until it is
    empty.
    """

    burst: Floats
    peak: Floats
    level: Floats
    at: Floats

    @classmethod
    def empty(cls, burst: Floats, peak: Floats) -> "Buckets":
        """Return buckets that hold nothing."""
        return cls(burst, peak, np.zeros(len(burst)), np.zeros(len(burst)))


class Tokens:
    """The buckets of the resources of a `Sharing`, by their place in it, from `moment` on."""

    def __init__(self, buckets: Buckets, names: Ints, moment: float) -> None:
        self._buckets, self._names = buckets, names
        self.burst, self._peak = buckets.burst[names], buckets.peak[names]
        self._level, self._at = buckets.level[names].copy(), buckets.at[names].copy()
        self._moment = moment

    def capacity(self, capacity: Floats, now: Floats) -> Floats:
        """Return what each resource carries at its moment `now`: a bucket that holds something its peak."""
        rest = np.maximum(now - self._at, 0.0)
        gained = np.multiply(rest, capacity, out=np.zeros(len(rest)), where=self.burst > 0)
        self._level = np.minimum(self.burst, self._level + gained)
        self._at = np.maximum(self._at, now)
        return np.where(self._level > 0, self._peak, capacity)

    def lasting(self, spent: Floats, capacity: Floats) -> Floats:
        """Return the seconds until each bucket is empty, when so much passes a second."""
        drained = np.subtract(spent, capacity, out=np.zeros(len(spent)), where=self._level > 0)
        never = np.full(len(drained), np.inf)
        return np.asarray(np.divide(self._level, drained, out=never, where=drained > 0), np.float64)

    def spend(self, spent: Floats, capacity: Floats, seconds: Floats) -> None:
        """Let so much pass a second, for so long each; a bucket that is all but empty is."""
        gained = np.subtract(capacity, spent, out=np.zeros(len(spent)), where=self.burst > 0) * seconds
        level = np.clip(self._level + gained, 0.0, self.burst)
        self._level = np.where(level > SAME * self.burst, level, 0.0)
        self._at = self._at + seconds

    def store(self) -> None:
        """Give the buckets back as they are now."""
        self._buckets.level[self._names], self._buckets.at[self._names] = self._level, self._at
