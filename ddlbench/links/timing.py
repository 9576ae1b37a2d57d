"""Messages between a few ranks, timed by the engine: what allreduces pay for them, without Python on the way."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from ddlbench import _engine, _reduce
from ddlbench.comm import Plan
from ddlbench.schedule.move import FROM_INPUT, KEEP, SEND, Table, steps
from ddlbench.watch.board import Board, Step

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

SMALL_NBYTES, TRIPS = 4096, 8
"""Up to this size a sample inside a node has several trips: one is shorter than what starts it is sharp."""
LARGE_NBYTES, REST_SECONDS = 16384, 0.02
"""From this size on ranks of different nodes rest before each sample: a token bucket fills up again."""
RATE_NBYTES, RATE_SIZES = 4096, 3
"""A bandwidth needs three sizes from this one on: those are measured however little time there is."""
PATIENCE_SECONDS = 1.0
"""So are sizes that take no longer: pairs are compared, and a shaped link shows its rate at the largest ones alone."""
LEAST_SAMPLES, MOST_SAMPLES, MOST_LARGE_SAMPLES = 3, 60, 10
MESSAGES = (1, 2, 4, 8, 16)
"""How many messages are sent one after the other to see what each costs, and of how many bytes."""
MESSAGE_NBYTES = 8
CHUNKS = 1024
"""Of these one is the answer to the others."""
REDUCE_NBYTES = tuple(1 << k for k in range(12, 21, 2))
"""Bytes at which the reduction is timed: 4 KiB to 1 MiB, the engine's messages."""
REDUCE_SAMPLES, REDUCE_SECONDS = 15, 0.02
FLOAT32, UINT8, SUM = 2, 6, 0
"""Codes of the engine."""


@dataclass(frozen=True)
class Channel:
    """Ranks that measure together: their communicator, this rank's `peer` there, and whether this rank starts.

    `network` says that a network lies between them. Rank 0 keeps the time.
    """

    comm: "Comm"
    peer: int
    starts: bool
    yielding: bool
    network: bool
    board: Board


@dataclass(frozen=True)
class Curve:
    """The times of one thing at several amounts: `samples` seconds for each amount `x`, bytes or messages."""

    x: tuple[float, ...]
    samples: tuple[tuple[float, ...], ...]


def merged(one: Curve, other: Curve) -> Curve:
    """Return a curve with the samples of both, which begin with the same amounts; one may have come further."""
    longer, shorter = (one, other) if len(one.x) >= len(other.x) else (other, one)
    both = zip_longest(longer.samples, shorter.samples, fillvalue=())
    return Curve(longer.x, tuple(a + b for a, b in both))


def ping_pong(channel: Channel, trips: int, messages: int = 1) -> Table:
    """Return this rank's steps: who starts sends `messages` messages and gets as many back, `trips` times."""
    rounds, chunks = np.arange(2 * trips)[:, None], np.arange(messages)
    own = (rounds % 2 == 0) == channel.starts
    return _table(channel, rounds, chunks, own, ~own)


def flood(channel: Channel) -> Table:
    """Return this rank's steps: who starts sends all chunks but the last, and gets that one back."""
    whole, last = (0, CHUNKS - 1), (CHUNKS - 1, 1)
    (round_, sent), (later, kept) = ((0, whole), (1, last)) if channel.starts else ((1, last), (0, whole))
    rank, peer = channel.comm.rank, channel.peer
    send, keep = steps(SEND, round_, rank, peer, *sent), steps(KEEP, later, rank, peer, *kept)
    send["flags"] = FROM_INPUT
    return np.concatenate([send, keep] if channel.starts else [keep, send])


def exchange(channel: Channel) -> Table:
    """Return this rank's steps where both send and receive at the same time."""
    always = np.array(True)  # noqa: FBT003 - a mask
    return _table(channel, 0, 0, always, always)


def _table(channel: Channel, rounds: object, chunks: object, sends: object, keeps: object) -> Table:
    """Return the steps of this rank: it sends from its input and stores in its output, so nothing is copied."""
    rank, peer = channel.comm.rank, channel.peer
    sent = steps(SEND, rounds, rank, peer, chunks, 1, where=sends)  # type: ignore[arg-type]
    sent["flags"] = FROM_INPUT
    kept = steps(KEEP, rounds, rank, peer, chunks, 1, where=keeps)  # type: ignore[arg-type]
    table = np.concatenate([sent, kept])
    return table[np.argsort(table["round"], kind="stable")]


class Budget:
    """Seconds that a curve may take, and whether the next, longer transfer still fits in."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return self._end - self._clock()

    def samples(self, seconds: float, most: int, parts: int) -> int:
        """Return how many samples of `seconds` each may be taken when `parts` amounts are still to come."""
        return int(min(max(self.left / parts / max(seconds, 1e-9), LEAST_SAMPLES), most))


def pings(channel: Channel, sizes: Sequence[int], seconds: float) -> Curve:
    """Return the times one way of messages of `sizes` bytes (collective over the channel), ascending.

    Sizes that take long and would no longer fit into `seconds` are left out, but for those that a bandwidth needs; of
    the others there are fewer samples.
    """

    def runs(nbytes: int) -> tuple[Table, int, int]:
        trips = TRIPS if nbytes <= SMALL_NBYTES and not channel.network else 1
        return ping_pong(channel, trips), nbytes, 2 * trips

    return _curve(channel, [(n, runs(n)) for n in sizes], seconds, _needed(sizes))


def floods(channel: Channel, sizes: Sequence[int], seconds: float, share: int) -> Curve:
    """Return the times of messages that `share` pairs send at once, all the same way, x being what they move together.

    Answers are a thousandth: pairs that are done early must not send back while others still come.
    """
    part = (CHUNKS - 1) / CHUNKS
    return _curve(channel, [(share * n * part, (flood(channel), n, 1)) for n in sizes], seconds, _needed(sizes))


def exchanges(channel: Channel, sizes: Sequence[int], seconds: float, share: int = 1) -> Curve:
    """Return the times of exchanges of `sizes` bytes each way, x being the bytes both ways together."""
    return _curve(channel, [(2 * share * n, (exchange(channel), n, 1)) for n in sizes], seconds, _needed(sizes))


def bursts(channel: Channel, seconds: float) -> Curve:
    """Return the times one way of several small messages at once, x being how many there are beside the first."""
    trips = 1 if channel.network else TRIPS
    return _curve(
        channel,
        [(k - 1, (ping_pong(channel, trips, k), k * MESSAGE_NBYTES, 2 * trips)) for k in MESSAGES],
        seconds,
        RATE_SIZES,
    )


def _needed(sizes: Sequence[int]) -> int:
    """Return how many of `sizes`, ascending, a latency and a bandwidth need at least."""
    return sum(size < RATE_NBYTES for size in sizes) + RATE_SIZES


def _curve(
    channel: Channel, amounts: Sequence[tuple[float, tuple[Table, int, int]]], seconds: float, least: int
) -> Curve:  # fmt: skip
    """Time each amount's table over its bytes, whose time counts as so many one-way times; `least` amounts anyhow."""
    budget, x, taken = Budget(seconds), [], []
    for at, (amount, (table, nbytes, ways)) in enumerate(amounts):
        found = _timed(channel, table, nbytes, budget, len(amounts) - at)
        x.append(float(amount))
        taken.append(tuple(float(t) / ways for t in found))
        growth = amounts[at + 1][0] / max(amount, 1) if at + 1 < len(amounts) else 1
        if at + 1 >= least and not _fits(channel, budget, min(found) * growth):
            break
    return Curve(tuple(x), tuple(taken))


def _fits(channel: Channel, budget: Budget, seconds: float) -> bool:
    """Say, on all ranks alike, whether samples that take `seconds` each still fit into the budget, or are short."""
    return bool(channel.comm.bcast(max(budget.left, PATIENCE_SECONDS) > (1 + LEAST_SAMPLES) * seconds))


def _timed(channel: Channel, table: Table, nbytes: int, budget: Budget, parts: int) -> Sequence[float]:
    """Return the seconds that the slowest rank took, sample by sample; the first run is for warming up."""
    chunks = int(table["chunk"].max()) + 1
    source, target = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    runner = _engine.Engine(
        channel.comm.py2f(), table, chunks, 1, source, target, UINT8, SUM, channel.yielding
    )  # fmt: skip
    with Plan(runner, "ping-pong", "p2p", 1, int(table["round"].max()) + 1) as plan:
        channel.board.begin(Step(f"messages of {nbytes} B", plan=plan))
        first = _slowest(channel, plan, 1)[0]
        rests = channel.network and nbytes >= LARGE_NBYTES
        most = MOST_LARGE_SAMPLES if nbytes >= LARGE_NBYTES else MOST_SAMPLES
        count = channel.comm.bcast(budget.samples(first + REST_SECONDS * rests, most, parts))
        if not rests:
            return _slowest(channel, plan, count)
        return [seconds for _ in range(count) for seconds in _rested(channel, plan)]


def _rested(channel: Channel, plan: Plan) -> Sequence[float]:
    time.sleep(REST_SECONDS)
    return _slowest(channel, plan, 1)


def _slowest(channel: Channel, plan: Plan, count: int) -> Sequence[float]:
    """Return the seconds of `count` runs, each that of the slowest rank which starts: it has its answer last."""
    from mpi4py import MPI

    own = plan.time_samples(count) * 1e-9 if channel.starts else 0.0 * plan.time_samples(count)
    slowest = np.empty(count)
    channel.comm.Allreduce(np.ascontiguousarray(own, np.float64), slowest, MPI.MAX)
    return slowest.tolist()


def reduction() -> Curve:
    """Return this rank's times for adding vectors of float32, out of place, as the engine adds what arrives."""
    return Curve(tuple(map(float, REDUCE_NBYTES)), tuple(tuple(_reduced(nbytes)) for nbytes in REDUCE_NBYTES))


def _reduced(nbytes: int) -> Iterator[float]:
    a, b, target = (np.ones(nbytes // 4, np.float32) for _ in range(3))
    budget = Budget(REDUCE_SECONDS)
    for at in range(REDUCE_SAMPLES):
        if at >= LEAST_SAMPLES and budget.left < 0:
            return
        start = time.perf_counter()
        _reduce.reduce(FLOAT32, SUM, target, a, b)
        yield time.perf_counter() - start
