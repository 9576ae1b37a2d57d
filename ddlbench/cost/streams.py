"""What a network link sustains: long streams between nodes, and the line that their bytes follow.

A shaped link (a token bucket, as clouds and virtual clusters have) lets a burst pass at the speed of memory and only
then shows its rate, so a ping-pong of some hundred KiB measures the burst. Here the receivers note when each part of a
long stream arrived. After the burst the arrivals lie on a line,

    bytes = burst + rate * (time since the receiver asked for them)

and its slope and intercept are what is looked for. Streams between all ranks of two nodes at once show what the node
can send, where one pair of ranks cannot fill its link.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ddlbench.comm import Communicator

FIRST_NBYTES, MOST_NBYTES = 1 << 20, 1 << 28
"""The bytes of the first stream of a pair of ranks, and of the longest."""
ENOUGH_SECONDS = 0.08
"""A stream that lasted so long is past any burst worth the name, and its line is sharp to a percent."""
AGREE, MOST_TRIES = 0.02, 6
"""A node's rate is taken for known when the two best streams agree to this share of it, or after so many."""
MESSAGES, AT_ONCE = 64, 8
"""A stream comes in so many messages; so many are under way."""
REST_SECONDS = 0.02
"""Before each stream: a token bucket fills up again."""
TAG, ASK = 18, 19

Flow = tuple[int, int]
"""A stream from one rank to another."""
Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """The line that the bytes of a stream follow."""

    bytes_per_s: float
    burst_nbytes: float


def rounds(nodes: int) -> list[list[tuple[int, int]]]:
    """Return pairs of nodes (from, to) by rounds: each sends to the next one and receives from the one before.

    No node is in two pairs of a round, so that each shows what it can do alone.
    """
    ring = [(node, (node + 1) % nodes) for node in range(nodes)]
    last = [ring.pop()] if nodes % 2 else []
    return [part for part in (ring[::2], ring[1::2], last) if part]


def stream(communicator: "Communicator", flows: Sequence[Flow]) -> dict[int, list[Line]]:
    """Stream along all `flows` at once and return what each receiving rank's node saw (collective), stream by stream.

    A rank sends in one flow at most, and receives in one. Other work on a machine makes streams slower, never faster:
    there are more of them until the best are alike.
    """
    seen: list[dict[int, Line]] = []
    nbytes = FIRST_NBYTES
    while len(seen) < MOST_TRIES and not (len(seen) > 1 and all(_alike([s[node] for s in seen]) for node in seen[0])):
        lines, nbytes = _lasting(communicator, flows, nbytes)
        seen.append(lines)
    return {node: [lines[node] for lines in seen] for node in seen[0]}


def _alike(lines: Sequence[Line]) -> bool:
    """Say whether the two fastest lines are as good as the same."""
    second, best = sorted(line.bytes_per_s for line in lines)[-2:]
    return second >= (1 - AGREE) * best


def _lasting(communicator: "Communicator", flows: Sequence[Flow], nbytes: int) -> tuple[dict[int, Line], int]:
    """Return the lines of streams of `nbytes`, or of longer ones where those do not last long enough, and how long."""
    while True:
        arrivals = communicator.comm.allgather(_streamed(communicator, flows, nbytes))
        seen = {rank: found for rank, found in enumerate(arrivals) if len(found)}
        seconds = max(found[-1] - found[0] for found in seen.values())
        if seconds >= ENOUGH_SECONDS or nbytes >= MOST_NBYTES:
            return _lines(seen, communicator.topology.node_of, nbytes // MESSAGES), nbytes
        longer = min(max(1.25 * ENOUGH_SECONDS / max(seconds, 1e-6), 2), 64)
        nbytes = min(int(nbytes * longer) // MESSAGES * MESSAGES, MOST_NBYTES)


def _streamed(communicator: "Communicator", flows: Sequence[Flow], nbytes: int) -> Seconds:
    """Send and receive once; return when this rank asked, and when each message arrived; nothing on a mere sender."""
    comm, rank = communicator.comm, communicator.rank
    to, source = ([flow[1 - at] for flow in flows if flow[at] == rank] for at in (0, 1))
    parts = np.zeros((AT_ONCE, nbytes // MESSAGES), np.uint8)
    own = np.zeros(nbytes // MESSAGES, np.uint8)
    time.sleep(REST_SECONDS)
    comm.Barrier()
    requests = [comm.Irecv(parts[at], source=peer, tag=TAG) for peer in source for at in range(AT_ONCE)]
    asked = time.perf_counter()
    for peer in source:
        comm.Send(own[:1], dest=peer, tag=ASK)
    for peer in to:
        _wait(comm.Irecv(own[:1], source=peer, tag=ASK), communicator.yielding)
    sends = [comm.Isend(own, dest=peer, tag=TAG) for peer in to for _ in range(MESSAGES)]
    arrivals = _received(communicator, source[0], parts, requests) if source else []
    for request in sends:
        _wait(request, communicator.yielding)
    return np.array([asked, *arrivals] if arrivals else [])


def _received(
    communicator: "Communicator", peer: int, parts: npt.NDArray[np.uint8], requests: list[Any]
) -> list[float]:
    """Receive all messages of `peer`; return when each arrived, in seconds of this host's clock."""
    arrivals = []
    for at in range(MESSAGES):
        _wait(requests[at], communicator.yielding)
        arrivals.append(time.perf_counter())
        if at + AT_ONCE < MESSAGES:
            requests.append(communicator.comm.Irecv(parts[at % AT_ONCE], source=peer, tag=TAG))
    return arrivals


def _wait(request: Any, yielding: bool) -> None:
    """Wait for a request, giving way to other ranks where they share processors."""
    while yielding and not request.Test():
        os.sched_yield()
    request.Wait()


def _lines(seen: dict[int, Seconds], node_of: Sequence[int], chunk: int) -> dict[int, Line]:
    """Return the line of each node that received: its ranks' arrivals, by one clock, put together."""
    nodes = {node_of[rank] for rank in seen}
    together = {node: [found for rank, found in seen.items() if node_of[rank] == node] for node in nodes}
    return {node: fitted(min(f[0] for f in own), np.concatenate([f[1:] for f in own]), chunk)
            for node, own in together.items()}  # fmt: skip


def fitted(start: float, arrivals: Seconds, chunk: int) -> Line:
    """Return the line that the arrivals of chunks of `chunk` bytes follow, which were asked for at `start` (seconds).

    Ranks that are held up make bytes late, never early, so the line lies along the lower edge of the times over the
    bytes: it is the longest side of their convex hull below. The burst is flat there, and a side of its own.
    """
    times = np.concatenate([[0.0], np.maximum(np.sort(arrivals) - start, 0.0)])
    hull = _lower_hull(times)
    sides = list(pairwise(hull))
    first, last = max(sides, key=lambda side: side[1] - side[0])
    rate = chunk * (last - first) / max(times[last] - times[first], 1e-9)
    return Line(float(rate), max(0.0, float(chunk * first - rate * times[first])))


def _lower_hull(values: Seconds) -> list[int]:
    """Return the places of `values`, evenly spaced, at the corners of their convex hull below (Andrew's chain)."""
    hull: list[int] = []
    for at, value in enumerate(values):
        while len(hull) > 1 and _turns_down(values, hull[-2], hull[-1], at, value):
            hull.pop()
        hull.append(at)
    return hull


def _turns_down(values: Seconds, a: int, b: int, c: int, value: float) -> bool:
    """Say whether the way from a over b to c does not bend upwards at b."""
    return bool((values[b] - values[a]) * (c - b) >= (value - values[b]) * (b - a))
