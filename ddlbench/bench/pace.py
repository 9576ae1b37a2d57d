"""How many samples a point takes, in how many batches: enough for a median, no longer than its time cap."""

import math
from dataclasses import dataclass

LEAST_SAMPLES = 20
MOST_SAMPLES = 1000
PASSES = 4
"""Batches a point's samples are cut into at least; the algorithms of one size take turns batch by batch."""
BATCH_SECONDS = 1.0
"""The longest a batch should last: an interrupt waits for the end of a batch."""


@dataclass(frozen=True)
class Pace:
    """The samples of one point: `iterations` when given, otherwise what fits into `cap_seconds`, and at least 20."""

    iterations: int | None
    cap_seconds: float

    def batch(self, done: int, per_sample: float | None) -> int:
        """Return how many samples to take next, 0 when there are enough.

        `per_sample` is the seconds that one takes, its barrier included, as far as known; None asks for one to find
        out.
        """
        if per_sample is None:
            return 1
        goal = self._goal(per_sample)
        size = min(math.ceil(goal / PASSES), max(1, int(BATCH_SECONDS / per_sample)))
        return max(0, min(goal - done, size))

    def _goal(self, per_sample: float) -> int:
        if self.iterations is not None:
            return self.iterations
        return int(min(max(self.cap_seconds / per_sample, LEAST_SAMPLES), MOST_SAMPLES))
