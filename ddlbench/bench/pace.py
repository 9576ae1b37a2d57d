"""How many samples a point takes, in how many passes, and what ends it.

Every point is visited in several passes, each in another order, so that a slow minute of the machine falls on no one
algorithm, and each with a plan and buffers of its own. In a pass a point takes its share of the least samples, and goes
on until the interval of its median is narrow enough or the pass's share of its time is used up.
"""

import math
from dataclasses import dataclass
from typing import Literal

LEAST_SAMPLES = 20
MOST_SAMPLES = 2000
MOST_LATE = 2000
TURNS = 3
"""Batches that a pass is cut into at least; the algorithms of one size take turns batch by batch."""
BATCH_SECONDS = 1.0
"""The longest a batch should last: an interrupt waits for the end of a batch."""

Stop = Literal["interval", "samples", "time"]


@dataclass(frozen=True)
class Progress:
    """What is known of a point: samples that count, in this pass too, samples taken, seconds, the interval's width.

    `per_sample` is the seconds that one takes, its start included, None while not known; `width` is relative to the
    median, None while there are too few samples for an interval.
    """

    done: int = 0
    in_pass: int = 0
    taken: int = 0
    seconds: float = 0.0
    per_sample: float | None = None
    width: float | None = None


@dataclass(frozen=True)
class Pace:
    """When a point has enough samples.

    `iterations` is an exact number, or None: then the point goes on until the 95 % interval of its median is narrower
    than `ci` of the median, but no longer than `max_seconds`, in `passes` passes.
    """

    iterations: int | None
    ci: float
    max_seconds: float
    passes: int

    def batch(self, at: Progress, pass_: int) -> int:
        """Return how many samples to take next in pass `pass_` (from 0), 0 when there are enough for this pass."""
        if at.per_sample is None:
            return 1
        wanted = self._wanted(at, at.per_sample, pass_)
        turn = max(1, math.ceil(self._share(at.per_sample) / TURNS))
        return max(0, min(wanted, turn, max(1, int(BATCH_SECONDS / at.per_sample))))

    def stopped(self, at: Progress) -> Stop:
        """Return what ended the point after its last pass."""
        if self.iterations is None and self._narrow(at):
            return "interval"
        return "samples" if at.done >= (self.iterations or MOST_SAMPLES) else "time"

    def _wanted(self, at: Progress, per_sample: float, pass_: int) -> int:
        """Return the samples still to be taken in this pass."""
        part = (pass_ + 1) / self.passes
        if self._hopeless(at):
            return 0
        if self.iterations is not None:
            return math.ceil(self.iterations * part) - at.done
        least = max(math.ceil(LEAST_SAMPLES * part) - at.done, math.ceil(LEAST_SAMPLES / self.passes) - at.in_pass)
        if least > 0:
            return least
        if self._narrow(at):
            return 0
        room = min(self.max_seconds * part - at.seconds, self.max_seconds) / per_sample
        return min(int(room), math.ceil(MOST_SAMPLES * part) - at.done)

    def _share(self, per_sample: float) -> float:
        """Return the samples of one pass, were the whole time used."""
        whole = self.iterations or max(LEAST_SAMPLES, min(self.max_seconds / per_sample, MOST_SAMPLES))
        return whole / self.passes

    def _narrow(self, at: Progress) -> bool:
        return at.width is not None and at.width <= self.ci

    def _hopeless(self, at: Progress) -> bool:
        """Say whether so many samples were late, for so long, that the rest would be too."""
        late = at.taken - at.done
        long = at.seconds >= 4 * self.max_seconds or late >= MOST_LATE
        return long and late > 3 * max(LEAST_SAMPLES, at.done)
