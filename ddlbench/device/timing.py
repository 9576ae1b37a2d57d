"""Samples timed twice: by the host's clock, and by two events on the device."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.device.owner import Owner

Nanoseconds = npt.NDArray[np.int64]


class EventTimed:
    """Times the runs of `runner`, an engine's, as it does itself, with a pair of events around each."""

    def __init__(self, owner: Owner, runner: Any) -> None:
        self._owner, self._runner = owner, runner
        self._events: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
        self._seen: list[int] = []

    def time_samples(self, samples: int) -> Nanoseconds:
        """Time runs that start after a barrier."""
        self._mark(samples)
        taken: Nanoseconds = self._runner.time_samples(samples)
        self._read(samples)
        return taken

    def time_windows(self, starts: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
        """Run at the given starts; return when this rank began and when it was done."""
        self._mark(len(starts))
        begun, done = self._runner.time_windows(starts)
        self._read(len(starts))
        return begun, done

    def device_ns(self) -> Nanoseconds:
        """Return what the events say of the samples since this was asked last, the newest at the end.

        They are nanoseconds from the first work on the device to the end of the last.
        """
        seen, self._seen = self._seen, []
        return np.array(seen, np.int64)

    def close(self) -> None:
        """Give the events back."""
        for event in self._events.tolist():
            self._owner.cuda.event_destroy(event)
        self._events = np.empty(0, np.uint64)

    def _mark(self, samples: int) -> None:
        """Have a pair of events for each sample."""
        missing = 2 * samples - len(self._events)
        if missing > 0:
            more = np.array([self._owner.event() for _ in range(missing)], np.uint64)
            self._events = np.concatenate([self._events, more])
        self._runner.set_marks(self._events)

    def _read(self, samples: int) -> None:
        pairs = self._events[: 2 * samples].reshape(-1, 2).tolist()
        self._seen += [round(self._owner.cuda.event_seconds(start, end) * 1e9) for start, end in pairs]
