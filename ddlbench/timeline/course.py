"""The course of a predicted run: all its messages and ticks, with their times."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ddlbench.cost.machine import Machine
from ddlbench.cost.network import LEVELS, Placement
from ddlbench.cost.rounds import prepare
from ddlbench.cost.simulate import Tick, seconds, segments_of
from ddlbench.errors import UsageError
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.lower import lower
from ddlbench.schedule.move import SEND, Ints

MOST_MESSAGES = 500_000
"""More messages than this make no file that anybody opens."""


@dataclass(frozen=True)
class Message:
    """A message: from when to when it was under way, in seconds from the start, and what it carried.

    It is of a round of a segment; `chunk` is the first of `nchunks` chunks; `adds` says that the receiver adds what
    arrives, and does not just keep it. `link` is what lies between the two ranks, by its section of a topology.
    """

    source: int
    target: int
    left: float
    arrived: float
    segment: int
    round: int
    chunk: int
    nchunks: int
    nbytes: float
    adds: bool
    link: str


@dataclass(frozen=True)
class Span:
    """A rank at a tick, with the (segment, round) pairs that are under way then; seconds from the start."""

    rank: int
    tick: int
    begun: float
    ended: float
    at: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Course:
    """A predicted run: `name` of the algorithm, `nbytes` of the vector in `segments` of `chunks` chunks each."""

    name: str
    machine: str
    placement: Placement
    nbytes: int
    chunks: int
    segments: int
    seconds: float
    messages: Sequence[Message]
    spans: Sequence[Span]


def course(
    algorithm: BoundAlgorithm, machine: Machine, placement: Placement, nbytes: int, *, segments: int | None = None
) -> Course:
    """Return the course of an allreduce of `nbytes`; `segments` None: as many as the engine would take.

    Raises `UsageError` where there are too many messages, and as `ddlbench.cost.rounds.prepare` does.
    """
    program = prepare(algorithm, placement, fold=False)
    cut = segments_of(program, nbytes) if segments is None else segments
    count = cut * sum(len(program.kinds[kind].source) for kind in program.order.tolist())
    if count > MOST_MESSAGES:
        raise UsageError(
            f"{algorithm.name} on {placement.ranks} ranks sends {count:,} messages; a timeline shows up to "
            f"{MOST_MESSAGES:,}: ask for fewer ranks or a smaller vector"
        )
    chunks = _chunks_sent(algorithm, program.rounds)
    ticks: list[Tick] = []
    taken = seconds(program, machine, nbytes, segments=cut, watch=ticks.append)
    start = min((float(tick.begun.min()) for tick in ticks), default=0.0)
    tell = partial(_messages, chunks=chunks, segments=cut, start=start, chunk_nbytes=nbytes / cut / program.chunks)
    messages = [message for tick in ticks for message in tell(tick)]
    spans = [span for tick in ticks for span in _spans(tick, program.rounds, cut, start)]
    return Course(algorithm.name, machine.name, placement, nbytes, program.chunks, cut, taken, messages, spans)


def under_way(tick: int, rounds: int, segments: int) -> tuple[tuple[int, int], ...]:
    """Return the (segment, round) pairs that are under way at a tick, the first segment's first."""
    return tuple((at, tick - at) for at in range(max(0, tick - rounds + 1), min(tick, segments - 1) + 1))


def _chunks_sent(algorithm: BoundAlgorithm, rounds: int) -> list[tuple[Ints, Ints]]:
    """Return, round by round, the senders and the first chunks of all messages, in the order of the tables."""
    table = lower(algorithm).table
    sends = table[table["kind"] == SEND]
    bounds = np.searchsorted(sends["round"], np.arange(rounds + 1))
    parts = (sends[bounds[at] : bounds[at + 1]] for at in range(rounds))
    return [(part["rank"].astype(np.int64), part["chunk"].astype(np.int64)) for part in parts]


def _messages(
    tick: Tick, *, chunks: list[tuple[Ints, Ints]], segments: int, start: float, chunk_nbytes: float
) -> list[Message]:
    """Return the messages of a tick: those of the rounds under way, by sender, in each sender's order."""
    pairs = under_way(tick.number, len(chunks), segments)
    sender, chunk = (np.concatenate([chunks[round_][at] for _, round_ in pairs]) for at in (0, 1))
    of = np.repeat(np.arange(len(pairs)), [len(chunks[round_][0]) for _, round_ in pairs])
    order = np.argsort(sender, kind="stable")
    adds = np.zeros(len(order), bool)
    adds[tick.messages.taken] = tick.messages.added > 0
    found = tick.messages
    return [
        Message(
            source=int(found.source[at]),
            target=int(found.target[at]),
            left=float(tick.left[at]) - start,
            arrived=float(tick.arrived[at]) - start,
            segment=pairs[of[where]][0],
            round=pairs[of[where]][1],
            chunk=int(chunk[where]),
            nchunks=int(found.chunks[at]),
            nbytes=float(found.chunks[at]) * chunk_nbytes,
            adds=bool(adds[at]),
            link=LEVELS[found.level[at]],
        )
        for at, where in enumerate(order.tolist())
    ]


def _spans(tick: Tick, rounds: int, segments: int, start: float) -> list[Span]:
    pairs = under_way(tick.number, rounds, segments)
    busy = set(tick.messages.source.tolist()) | set(tick.messages.taker.tolist())
    return [
        Span(rank, tick.number, float(tick.begun[rank]) - start, float(tick.ended[rank]) - start, pairs)
        for rank in sorted(busy)
    ]
