"""One clock for all ranks: what each host's clock says, corrected for its offset and drift against the first node's.

The ranks of a node share the node's clock, so only one rank per node measures. The nodes are synchronised along a
binomial tree, top down: in round k every node that knows the global time serves the one 2^k after it, log2 N rounds in
all, so the time does not grow with every node (the hierarchy of HCA3). A node asks its reference for the time in bursts
spread over a while; the exchange with the shortest round trip of each burst counts; a line through these offsets gives
offset and drift. The error stated is half the shortest round trip plus the residual of the line, added up along the
tree.

A drift that was seen over part of a second is known to a few parts in 10^8, which are microseconds after a minute, and
drifts change with the temperature. So while windows are used, offsets are measured again every second, and the
line goes on from there.

Source: Hunold and Carpen-Amarie, Hierarchical Clock Synchronization in MPI, CLUSTER 2018.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ddlbench import _clock

if TYPE_CHECKING:
    from ddlbench.comm import Communicator

BURSTS = 20
EXCHANGES = 10
SPREAD_SECONDS = 0.4
"""Over how long the bursts of one pair of nodes are spread: long enough to see drift above the noise."""
KEPT_NS = 1_000_000_000
"""How old a model becomes before offsets are measured again."""
MOST_DRIFT = 50e-6
"""How far apart quartz clocks run; where it could not be measured, the error has what that comes to in `KEPT_NS`."""
RENEWING_EXCHANGES = 30
DISTURBED = 3
"""Exchanges whose shortest round trip is so many times that of the first measurement tell nothing new."""

UNKNOWN_NS = MOST_DRIFT * KEPT_NS

Nanoseconds = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClockModel:
    """The global time as a line over this host's: global = local + offset_ns + drift * (local - at_ns).

    `error_ns` bounds how far off that was when it was measured; 0 on the first node, which keeps the time.
    """

    at_ns: int = 0
    offset_ns: float = 0.0
    drift: float = 0.0
    error_ns: float = 0.0

    def to_global(self, local: Nanoseconds) -> Nanoseconds:
        """Return the global time at each local time, nanoseconds."""
        correction = self.offset_ns + self.drift * (local - self.at_ns)
        moved: Nanoseconds = local + np.rint(correction).astype(np.int64)
        return moved

    def to_local(self, global_: Nanoseconds) -> Nanoseconds:
        """Return the local time at each global time, nanoseconds."""
        since = (global_ - self.at_ns - self.offset_ns) / (1 + self.drift)
        moved: Nanoseconds = self.at_ns + np.rint(since).astype(np.int64)
        return moved

    def after(self, reference: "ClockModel") -> "ClockModel":
        """Return this model, which leads to the clock of `reference`, continued to the global time."""
        there = self.at_ns + self.offset_ns
        offset = self.offset_ns + reference.offset_ns + reference.drift * (there - reference.at_ns)
        drift = self.drift + reference.drift + self.drift * reference.drift
        return ClockModel(self.at_ns, offset, drift, self.error_ns + reference.error_ns)

    def renewed(self, seen: "ClockModel") -> "ClockModel":
        """Return the model that goes on from `seen`, measured later, with the drift between the two measurements."""
        drift = (seen.offset_ns - self.offset_ns) / (seen.at_ns - self.at_ns)
        return ClockModel(seen.at_ns, seen.offset_ns, drift, seen.error_ns)


@dataclass(frozen=True)
class Synchronisation:
    """How the ranks' clocks were brought together.

    method
        "shared" when all ranks are on one node, else "hca"
    error_before_us, error_after_us
        the largest error of any node when it was measured, and the largest deviation found when it was measured again,
        during the run and after it (None before that)
    drift_ppm
        each node's drift against the first node, in parts per million
    """

    method: str
    error_before_us: float
    error_after_us: float | None
    drift_ppm: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the synchronisation as a JSON value."""
        errors = {"error_before_us": self.error_before_us, "error_after_us": self.error_after_us}
        return {"method": self.method, **errors, "drift_ppm": list(self.drift_ppm)}


def fit(times: Nanoseconds, offsets: Nanoseconds, trips: Nanoseconds) -> ClockModel:
    """Return the line through the offsets of bursts, (bursts, exchanges) each.

    Of each burst the exchange with the shortest round trip counts. The line is fitted by least squares to the bursts
    whose best round trip is within twice the best of all. Where these are fewer than three of several bursts, the drift
    is not known: it is taken for none, and the error says what it may come to.
    """
    best = np.argmin(trips, axis=1)
    row = np.arange(len(trips))
    at, offset, trip = times[row, best], offsets[row, best], trips[row, best]
    quick = trip <= 2 * trip.min()
    at, offset, trip = at[quick], offset[quick], trip[quick]
    middle = int(at.mean())
    since = (at - middle).astype(np.float64)
    known = len(at) > 2
    drift = float(since @ (offset - offset.mean()) / (since @ since)) if known else 0.0
    left = offset - offset.mean() - drift * since
    error = float(trip.min()) / 2 + float(np.abs(left).max())
    return ClockModel(middle, float(offset.mean()), drift, error if known or len(trips) == 1 else error + UNKNOWN_NS)


class GlobalClock:
    """The synchronised clock of a communicator; collective to make and to check."""

    def __init__(self, communicator: "Communicator") -> None:
        self._communicator = communicator
        self._node_of = communicator.topology.node_of
        self._leader = [self._node_of.index(node) for node in range(communicator.topology.nodes)]
        self._usual_trip_ns = 0
        self._parts: list[GlobalClock] = []
        self._models = self._synchronised()
        self._before_us = max(model.error_ns for model in self._models) / 1e3
        self._error_after_us: float | None = None
        self._kept_at = self.now()

    @property
    def model(self) -> ClockModel:
        """How the clock of this rank's host leads to the global time."""
        return self._models[self._node_of[self._communicator.rank]]

    @property
    def error_us(self) -> float:
        """The largest error of any node known so far, in microseconds; 0 on one node."""
        return max(self._before_us, self._error_after_us or 0.0)

    def now(self) -> int:
        """Return this host's clock in nanoseconds, uncorrected."""
        return _clock.now()

    def check(self) -> None:
        """Measure all offsets again and hold them against the models (collective).

        Where ranks went by clocks of their own (`kept_by`), what these found counts instead.
        """
        seen = [part.summary() for part in self._parts]
        every = [one for several in self._communicator.comm.allgather(seen) for one in several]
        found = [one.error_after_us for one in every if one.error_after_us is not None]
        if not found:
            self._measured_again()
        self._before_us = max([self._before_us, *(one.error_before_us for one in every)])
        self._error_after_us = max([*found, self._error_after_us or 0.0])

    def kept_by(self, communicator: "Communicator") -> "GlobalClock":
        """Return the clock by which the ranks of `communicator` can start (collective over them).

        That is this one where it is theirs or needs no keeping; else one of their own, which asks nothing of the other
        ranks. What that finds out about its errors counts here too.
        """
        if communicator is self._communicator or len(self._leader) == 1:
            return self
        self._parts.append(GlobalClock(communicator))
        return self._parts[-1]

    def keep(self) -> None:
        """Bring models up to date that are older than `KEPT_NS` on the first rank (collective)."""
        if len(self._leader) == 1 or not self._communicator.comm.bcast(self.now() - self._kept_at > KEPT_NS):
            return
        self._models = self._measured_again()
        self._kept_at = self.now()

    def _measured_again(self) -> list[ClockModel]:
        """Return the models as they are now, and take note of how far off the old ones were (collective)."""
        models, deviation = list(self._models), 0.0
        for level in self._levels():
            mine = []
            for server, client, found in self._measured(level, 1, RENEWING_EXCHANGES):
                seen, at = found.after(models[server]), np.array([found.at_ns])
                deviation = abs(float(seen.to_global(at)[0] - self._models[client].to_global(at)[0]))
                if found.error_ns <= DISTURBED * self._usual_trip_ns / 2:
                    mine.append((client, self._models[client].renewed(seen)))
            self._tell(models, mine)
        worst = max(self._communicator.comm.allgather(deviation)) / 1e3
        self._error_after_us = max(self._error_after_us or 0.0, worst)
        return models

    def summary(self) -> Synchronisation:
        """Return what the record says of the clock."""
        method = "shared" if len(self._leader) == 1 else "hca"
        drifts = tuple(model.drift * 1e6 for model in self._models)
        return Synchronisation(method, self._before_us, self._error_after_us, drifts)

    def _levels(self) -> Iterator[list[tuple[int, int]]]:
        """Yield the pairs (reference node, node) of each level of the tree, which are measured at once."""
        nodes, reach = len(self._leader), 1
        while reach < nodes:
            yield [(node - reach, node) for node in range(reach, min(2 * reach, nodes))]
            reach *= 2

    def _synchronised(self) -> list[ClockModel]:
        """Return the model of every node (collective)."""
        models = [ClockModel() for _ in self._leader]
        for level in self._levels():
            found = self._measured(level, BURSTS, EXCHANGES)
            self._tell(models, [(client, model.after(models[server])) for server, client, model in found])
        return models

    def _tell(self, models: list[ClockModel], mine: list[tuple[int, ClockModel]]) -> None:
        """Enter `mine`, the models that this rank found, into `models` on every rank (collective)."""
        for found in self._communicator.comm.allgather(mine):
            for client, model in found:
                models[client] = model

    def _measured(self, level: list[tuple[int, int]], bursts: int, exchanges: int) -> list[tuple[int, int, ClockModel]]:
        """Measure the pairs of a level; return what this rank measured: one pair, or none."""
        found = []
        for server, client in level:
            measured = self._burst(server, client, bursts, exchanges)
            if measured is not None:
                self._usual_trip_ns = self._usual_trip_ns or int(measured[2].min())
                found.append((server, client, fit(*measured)))
        return found

    def _burst(
        self, server: int, client: int, bursts: int, exchanges: int
    ) -> tuple[Nanoseconds, Nanoseconds, Nanoseconds] | None:
        """Measure `client` against `server`, nodes; return the measurements on the client's leader, None elsewhere."""
        comm, rank = self._communicator.comm, self._communicator.rank
        handle, yielding = comm.py2f(), self._communicator.yielding
        if rank == self._leader[server]:
            for _ in range(bursts):
                _clock.answer(handle, self._leader[client], exchanges, yielding)
        if rank != self._leader[client]:
            return None
        found = []
        for burst in range(bursts):
            if burst:
                time.sleep(SPREAD_SECONDS / bursts)
            found.append(_clock.ask(handle, self._leader[server], exchanges, yielding))
        times, offsets, trips = (np.stack(part) for part in zip(*found, strict=True))
        return times, offsets, trips
