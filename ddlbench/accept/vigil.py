"""Small messages between all nodes for seconds on end: whose processes run late, and which links stall.

Each rank has a few partners, and with each a message goes to and fro every few milliseconds, whatever the others do: a
link that stands still holds up its own messages alone. A round trip that is long because a process of either end did
not run says nothing of the link, so each rank keeps account of the time in which it was not run, and an answer tells
the other side how much of it there was since the one before. What is left is the link's.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddlbench.accept.rules import WatchRules

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Request

TAG = 11
NAP_SECONDS = 0.001
END = -1.0
"""What goes out instead of a number when there will be no more messages."""


@dataclass(frozen=True)
class Seen:
    """What a rank saw: the seconds that it watched, those in which it was late, and of its partners the round trips.

    `trips` are seconds by the partner's rank, for those that this rank starts; `links` the same without the time in
    which a process of either end was late.
    """

    seconds: float
    late_s: float
    trips: dict[int, tuple[float, ...]]
    links: dict[int, tuple[float, ...]]


class _End:
    """One end of what goes on between two ranks."""

    def __init__(self, comm: "Comm", peer: int) -> None:
        self._comm, self.peer = comm, peer
        self._out, self._in = np.zeros(2), np.zeros(2)
        self._sent: Request | None = None
        self._expected: Request | None = None
        self.lost = 0.0
        self.done = False

    def _send(self, number: float, lost: float) -> None:
        if self._sent is not None:
            self._sent.Wait()
        self._out[:] = number, lost
        self._sent = self._comm.Isend(self._out, self.peer, TAG)

    def _expect(self) -> None:
        self._expected = self._comm.Irecv(self._in, self.peer, TAG)

    def _arrived(self) -> bool:
        return self._expected is not None and bool(self._expected.Test())

    def finish(self) -> None:
        """Wait until the last message has left."""
        if self._sent is not None:
            self._sent.Wait()


class _Asking(_End):
    """The end that starts each round trip."""

    def __init__(self, comm: "Comm", peer: int, interval: float) -> None:
        super().__init__(comm, peer)
        self._interval, self._next, self._number = interval, 0.0, 0
        self._since: float | None = None
        self.trips: list[float] = []
        self.links: list[float] = []

    def step(self, now: float, end: float) -> None:
        """Take the answer if it is there, or ask again when it is time."""
        if self._since is not None:
            if self._arrived():
                trip = now - self._since
                self.trips.append(trip)
                self.links.append(max(trip - self.lost - float(self._in[1]), 0.0))
                self._next = max(self._since + self._interval, now)
                self._since = None
        elif now >= end:
            self._send(END, 0.0)
            self.done = True
        elif now >= self._next:
            self.lost, self._since, self._number = 0.0, now, self._number + 1
            self._expect()
            self._send(self._number, 0.0)


class _Answering(_End):
    """The end that sends back what comes."""

    def __init__(self, comm: "Comm", peer: int) -> None:
        super().__init__(comm, peer)
        self._expect()

    def step(self, now: float, end: float) -> None:  # noqa: ARG002 - as the other end's
        """Answer what has come."""
        if not self._arrived():
            return
        number, lost = float(self._in[0]), self.lost
        if number == END:
            self._expected, self.done = None, True
            return
        self.lost = 0.0
        self._expect()
        self._send(number, lost)


def watch(
    comm: "Comm", starts: Sequence[int], answers: Sequence[int], rules: WatchRules,
    clock: Callable[[], float] = time.perf_counter,
) -> Seen:  # fmt: skip
    """Exchange messages with the ranks `starts`, which this one asks, and `answers`, which ask this one.

    Collective over the ranks that are each other's partners. Ends after `rules.seconds`, and when all answers are here.
    """
    asking = [_Asking(comm, peer, rules.interval) for peer in starts]
    ends: list[_Asking | _Answering] = [*asking, *(_Answering(comm, peer) for peer in answers)]
    begun = last = clock()
    late = watched = 0.0
    while not all(one.done for one in ends) or last < begun + rules.seconds:
        time.sleep(NAP_SECONDS)
        now = clock()
        gap, last = now - last, now
        lost = gap if gap > rules.late else 0.0
        if now < begun + rules.seconds or not watched:
            late, watched = late + lost, now - begun
        for one in ends:
            one.lost += lost
            if not one.done:
                one.step(now, begun + rules.seconds)
    for one in ends:
        one.finish()
    return Seen(
        watched, late, {one.peer: tuple(one.trips) for one in asking}, {one.peer: tuple(one.links) for one in asking}
    )
