"""Two ways to time a batch of samples: from a barrier on, or from an agreed moment on a synchronised clock."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ddlbench.bench.clock import GlobalClock

if TYPE_CHECKING:
    from ddlbench.comm import Communicator, Plan

FIRST_START_NS = 200_000
"""From agreeing on the first start of a batch to that start: time for the agreement to reach every rank."""
AGREED_AT_ONCE = 32
LEAST_GAP_NS = 15_000
"""The least time between the expected end of a sample and the next start."""
TRUSTED_SHARE = 0.1
"""Windows are used while the clocks' error is at most this share of the time that is measured."""


@dataclass(frozen=True)
class Batch:
    """Samples as this rank saw them: nanoseconds from the start, int64 (n,), and whether it came late, bool (n,)."""

    durations: npt.NDArray[np.int64]
    late: npt.NDArray[np.bool_]


class Timer(Protocol):
    """A way to time samples; `sync` is its name in records."""

    sync: str

    def batch(self, plan: "Plan", samples: int, window_ns: int) -> Batch:
        """Time `samples` runs of `plan` (collective); `window_ns` is the time from one start to the next."""


class BarrierTimer:
    """Each sample starts when the rank leaves an MPI barrier; ranks leave it at somewhat different times."""

    sync = "barrier"

    def batch(self, plan: "Plan", samples: int, window_ns: int) -> Batch:  # noqa: ARG002 - windows are the other timer's
        """Time `samples` runs of `plan` (collective)."""
        return Batch(plan.time_samples(samples), np.zeros(samples, bool))


class WindowTimer:
    """Each sample starts at an agreed moment of the global clock; a rank that is not ready by then is late."""

    sync = "window"

    def __init__(self, communicator: "Communicator", clock: GlobalClock) -> None:
        self._comm = communicator.comm
        self._clock = clock

    def batch(self, plan: "Plan", samples: int, window_ns: int) -> Batch:
        """Time `samples` runs of `plan`, `window_ns` apart (collective).

        The first start is agreed on anew every few samples: a rank that was held up makes those late, and no others.
        """
        parts = [min(AGREED_AT_ONCE, samples - done) for done in range(0, samples, AGREED_AT_ONCE)]
        batches = [self._agreed(plan, part, window_ns) for part in parts]
        return Batch(*(np.concatenate(column) for column in zip(*batches, strict=True)))

    def _agreed(
        self, plan: "Plan", samples: int, window_ns: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        model = self._clock.model
        now = int(model.to_global(np.array([self._clock.now()]))[0])
        first = self._comm.bcast(now + FIRST_START_NS)
        starts = first + window_ns * np.arange(samples, dtype=np.int64)
        local = model.to_local(starts)
        ready, done = plan.time_windows(local)
        return model.to_global(done) - starts, ready > local


def window_ns(expected_s: float, stretch: float) -> int:
    """Return the time between starts for samples that should take `expected_s` seconds, `stretch` times as roomy."""
    return int((expected_s * 1e9 * 1.25 + LEAST_GAP_NS) * stretch)


def may_use_windows(clock: GlobalClock, expected_s: float, *, oversubscribed: bool) -> bool:
    """Say whether windows are to be trusted for a point of `expected_s` seconds.

    Ranks that share a core cannot all be ready at one moment, and waiting for it would take the core from the others.
    """
    return not oversubscribed and clock.error_us <= TRUSTED_SHARE * expected_s * 1e6
