"""Two ways to time a batch of samples: from a barrier on, or from an agreed moment on a synchronised clock."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ddlbench.bench.clock import GlobalClock, Nanoseconds
from ddlbench.bench.cold import ColdPlan

if TYPE_CHECKING:
    from ddlbench.comm import Communicator

FIRST_START_NS = 200_000
"""From agreeing on the first start of a batch to that start: time for the agreement to reach every rank."""
AGREED_AT_ONCE, AGREED_NS = 32, 2_000_000
"""An agreement is for so many samples at most, and for so long."""
LEAST_GAP_NS = 15_000
"""The least time between the expected end of a sample and the next start."""
LATE_NS = 200
"""A rank that begins later than this after the start is late; reading the clock takes some tens of nanoseconds."""
MOST_ERROR_US = 1.0
"""Windows are used while the clocks are known to this many microseconds."""


@dataclass(frozen=True)
class Batch:
    """Samples as this rank saw them: nanoseconds from the start, int64 (n,), and whether it came late, bool (n,)."""

    durations: Nanoseconds
    late: npt.NDArray[np.bool_]


class Timed(Protocol):
    """What can be timed: a plan, or several that take turns."""

    def time_samples(self, samples: int) -> Nanoseconds:
        """Time runs that start after a barrier."""

    def time_windows(self, starts: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
        """Run at the given starts; return when this rank began and when it was done."""


class Timer(Protocol):
    """A way to time samples; `sync` is its name in records, `fallback` what to use where it does not work."""

    sync: str
    fallback: "Timer | None"

    def batch(self, plan: Timed, samples: int, window_ns: int, patience: float = 1.0) -> Batch:
        """Time `samples` runs of `plan` (collective).

        `window_ns` is the time from one start to the next, `patience` stretches the time until the first.
        """


class BarrierTimer:
    """Each sample starts when the rank leaves an MPI barrier; ranks leave it at somewhat different times."""

    sync = "barrier"
    fallback: Timer | None = None

    def batch(self, plan: Timed, samples: int, window_ns: int, patience: float = 1.0) -> Batch:  # noqa: ARG002
        """Time `samples` runs of `plan` (collective); windows are the other timer's."""
        return Batch(plan.time_samples(samples), np.zeros(samples, bool))


class WindowTimer:
    """Each sample starts at an agreed moment of the global clock; a rank that begins after it is late."""

    sync = "window"

    def __init__(self, communicator: "Communicator", clock: GlobalClock, fallback: Timer | None = None) -> None:
        self.fallback = fallback
        self._communicator = communicator
        self._comm = communicator.comm
        self._given = clock
        self._kept: GlobalClock | None = None

    @property
    def _clock(self) -> GlobalClock:
        """The clock as the ranks of this timer keep it; collective when it is first asked for."""
        if self._kept is None:
            self._kept = self._given.kept_by(self._communicator)
        return self._kept

    def batch(self, plan: Timed, samples: int, window_ns: int, patience: float = 1.0) -> Batch:
        """Time `samples` runs of `plan`, `window_ns` apart (collective).

        The first start is agreed on anew every few samples, and for long ones each time: a rank that was held up makes
        those late, and no others. Where a cache must be emptied before each sample, each is agreed on after that.
        """
        self._clock.keep()
        emptied = isinstance(plan, ColdPlan) and plan.scrubs
        at_once = 1 if emptied else max(1, min(AGREED_AT_ONCE, AGREED_NS // window_ns))
        parts = [min(at_once, samples - done) for done in range(0, samples, at_once)]
        lead = int(FIRST_START_NS * patience)
        batches = [self._agreed(plan, part, window_ns, lead) for part in parts]
        return Batch(*(np.concatenate(column) for column in zip(*batches, strict=True)))

    def _agreed(
        self, plan: Timed, samples: int, window_ns: int, lead: int
    ) -> tuple[Nanoseconds, npt.NDArray[np.bool_]]:
        if isinstance(plan, ColdPlan) and plan.scrubs:
            plan.clear()
            self._comm.Barrier()  # ranks take different times to empty a cache
        model = self._clock.model
        now = int(model.to_global(np.array([self._clock.now()]))[0])
        first = self._comm.bcast(now + lead)
        starts = first + window_ns * np.arange(samples, dtype=np.int64)
        local = model.to_local(starts)
        begun, done = plan.time_windows(local)
        return model.to_global(done) - starts, begun > local + LATE_NS


def window_ns(expected_s: float, stretch: float) -> int:
    """Return the time between starts for samples that should take `expected_s` seconds, `stretch` times as roomy."""
    return int((expected_s * 1e9 * 1.25 + LEAST_GAP_NS) * stretch)


def choose_timer(
    communicator: "Communicator", clock: GlobalClock, asked: str, cache: str, *, crowded: bool | None = None
) -> tuple[Timer, str]:
    """Return the timer for a run and why it is that one ("" where it was asked for).

    `asked` is barrier, window or auto. Automatic is the window, unless ranks share a processor: they cannot all be
    ready at one moment, and waiting for it would take the processor from the others; or the clocks are not close
    enough; or caches are emptied before each sample. `crowded` says that of other ranks, where several sets of them are
    to be timed alike (None: of these).
    """
    barrier = BarrierTimer()
    window = WindowTimer(communicator, clock, barrier)
    if asked == "window":
        return WindowTimer(communicator, clock), ""
    if asked == "barrier":
        return barrier, ""
    if communicator.yielding if crowded is None else crowded:
        return barrier, "ranks share processors"
    if cache == "cold":
        return barrier, "caches are emptied before each sample"
    if clock.error_us > MOST_ERROR_US:
        return barrier, f"clocks are known to {clock.error_us:.1f} us only"
    return window, ""
