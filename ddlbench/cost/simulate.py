"""How long a schedule takes on a described machine, by going through it as the engine does.

The engine cuts the vector into segments, each an instance of the schedule, started one round apart. At each tick a rank
starts all its receives and sends of the rounds under way, takes what arrives in the order of its table, adds it up, and
goes on to the next tick when all is done. Ranks are in step only as far as messages hold them together:

    a message leaves        when its sender has come to its tick, and its receiver too unless it is short (eager)
    it arrives              after the latency, and when its bytes are through what it shares with others of the tick
    a rank's tick ends      when its arrivals are added one after the other, and its sends are done

docs/model.md derives closed forms from this and says what is not in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, groupby

import numpy as np

from ddlbench.cost.machine import Machine
from ddlbench.cost.network import Floats, Placement, latencies
from ddlbench.cost.processors import processors_of
from ddlbench.cost.rounds import Messages, Program, prepare
from ddlbench.cost.sharing import Sharing, Underway
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.lower import Bools
from ddlbench.schedule.move import Ints
from ddlbench.schedule.segments import segments_for

STEADY = 1e-12
"""Ranks' progress in a tick that differs by less than this share of the time so far is the same."""
REPEATS = 4
"""Where links let a burst pass, the time is that of so many runs' last: the first ones find other buckets."""


@dataclass(frozen=True)
class Tick:
    """What happened in a tick, for those who draw it: when messages left and arrived, and when ranks began and ended.

    Seconds from the start; `messages` says which they are, `begun` and `ended` are of each rank of the fold.
    """

    number: int
    messages: Messages
    left: Floats
    arrived: Floats
    begun: Floats
    ended: Floats


Watch = Callable[[Tick], None]


def simulate(
    algorithm: BoundAlgorithm, machine: Machine, placement: Placement, nbytes: float, *, segments: int | None = None
) -> float:
    """Return the seconds that an allreduce of `nbytes` takes; `segments` None: as many as the engine would take.

    Raises as `prepare` does.
    """
    return seconds(prepare(algorithm, placement), machine, nbytes, segments=segments)


def segments_of(program: Program, nbytes: float) -> int:
    """Return how many segments the engine cuts a vector of `nbytes` into."""
    return segments_for(program.chunks, program.message_chunks, program.steps, int(nbytes))


def seconds(
    program: Program, machine: Machine, nbytes: float, *, segments: int | None = None, watch: Watch | None = None
) -> float:
    """Return the seconds that the prepared schedule takes for `nbytes` on `machine`, as `simulate` does.

    With `watch`, every tick is gone through and told; otherwise ticks that repeat each other are counted.
    """
    cut = segments_of(program, nbytes) if segments is None else segments
    price = _Price(program, machine, nbytes / cut / program.chunks)
    if not price.shaped:
        return _once(price, program, cut, 0.0, watch)
    for begin in accumulate(range(REPEATS - 1), lambda begin, _: _next(price, program, cut, begin), initial=0.0):
        last = begin
    return _once(price, program, cut, last, watch) - last


def _next(price: "_Price", program: Program, cut: int, begin: float) -> float:
    """Return when the next run begins after one at `begin`: behind a barrier."""
    return _once(price, program, cut, begin, None) + price.barrier(program.placement.ranks)


def _once(price: "_Price", program: Program, segments: int, begin: float, watch: Watch | None) -> float:
    """Return when all ranks are done that begin at `begin`."""
    ready = np.full(program.period, begin)
    number = 0
    for kinds, run in groupby(_under_way(program, segments)):
        ticks = sum(1 for _ in run)
        ready = _repeated(price, program.tick(kinds), ready, number, ticks, watch)
        number += ticks
    return float(ready.max())


def _under_way(program: Program, segments: int) -> "list[tuple[int, ...]]":
    """Return, per tick, the kinds of the rounds under way, the first segment's first."""
    order, rounds = program.order.tolist(), program.rounds
    ticks = rounds + segments - 1 if rounds else 0
    return [
        tuple(order[tick - segment] for segment in range(max(0, tick - rounds + 1), min(tick, segments - 1) + 1))
        for tick in range(ticks)
    ]


def _repeated(
    price: "_Price", tick: tuple[Messages, Sharing], ready: Floats, number: int, ticks: int, watch: Watch | None
) -> Floats:  # fmt: skip
    """Return when the ranks are done with `ticks` ticks alike.

    Once all ranks have advanced by the same time, each further tick is that one again, later: it is not gone through.
    """
    before = np.inf
    for done in range(ticks):
        begun = ready
        ready = price.tick(*tick, begun, number + done, watch)
        gained = ready - begun
        last, steady = float(gained.max()), np.ptp(gained) <= STEADY * ready.max()
        if watch is None and steady and price.repeats(abs(last - before) <= STEADY * ready.max()):
            rest = last * (ticks - done - 1)
            price.pass_over(rest)
            return np.asarray(ready + rest)
        before = last if steady else np.inf
    return ready


class _Price:
    """A machine's figures, for chunks of `nbytes` each."""

    def __init__(self, program: Program, machine: Machine, nbytes: float) -> None:
        self._nbytes = nbytes
        self._capacity = program.resources.capacity(machine)
        self._latency = latencies(machine)
        self._overhead = machine.message_overhead
        self._eager = machine.rank.eager.value if machine.rank.eager else -1.0
        self._add = nbytes / machine.rank.reduction.value
        self._shared = program.resources.shared(self._capacity)
        self._underway = Underway.nothing()
        self._buckets = program.resources.buckets(machine)
        self._processors, self._placement = processors_of(machine), program.placement

    def repeats(self, again: bool) -> bool:
        """Say whether a tick alike takes the same again: nothing under way meets it, or it just took as long as before.

        Where links let a burst pass, none can be taken for another.
        """
        return not self.shaped and (again or not len(self._underway.end))

    @property
    def shaped(self) -> bool:
        """Whether links let a burst pass: then a tick depends on those before it, and a run on the one before."""
        return self._buckets is not None

    def barrier(self, ranks: int) -> float:
        """Return the seconds from the end of a run to the start of the next one: a barrier's rounds."""
        return (ranks - 1).bit_length() * (float(self._latency.max()) + 2 * self._overhead)

    def pass_over(self, seconds: float) -> None:
        """Let what is under way be so many seconds later: ticks were counted and not gone through."""
        self._underway = self._underway.later(seconds)

    def tick(
        self, messages: Messages, sharing: Sharing, ready: Floats, number: int, watch: Watch | None
    ) -> Floats:  # fmt: skip
        """Return when each rank has ended the tick that it begins at `ready`."""
        if not len(messages.source):
            return ready
        ranks = len(ready)
        nbytes: Floats = np.asarray(messages.chunks * self._nbytes, np.float64)
        posted = ready[messages.source] + self._overhead * (_place(messages.source) + 1)
        short = nbytes <= self._eager
        left = np.where(short, posted, np.maximum(posted, ready[messages.target]))
        latency = self._latency[messages.level]
        begins: Floats = np.add(left, latency, dtype=np.float64)
        if self._processors is not None:
            begins += self._processors.waits(left, messages.level, latency)
            ends = (messages.source, messages.target, messages.level)
            nbytes = nbytes * self._processors.stretch(nbytes, *ends, self._placement)
        arrived = sharing.finish(begins, nbytes, self._capacity, self._underway, self._buckets)
        sent = np.where(short, posted, arrived)
        own = ready + self._overhead * np.bincount(messages.source, minlength=ranks)
        ended = self._taken(messages, ~messages.late, arrived, own)
        np.maximum.at(ended, messages.source, sent)
        ended = self._taken(messages, messages.late, arrived, ended)
        if self._shared.any():
            on = self._underway.and_of(sharing.resources, self._shared, begins, arrived, nbytes)
            self._underway = on.after(float(ended.min()))
        if watch is not None:
            watch(Tick(number, messages, left, arrived, ready, ended))
        return ended

    def _taken(self, messages: Messages, which: Bools, arrived: Floats, begin: Floats) -> Floats:
        """Return when each rank, free from `begin` on, has taken its arrivals, one after the other in their order.

        The end is the latest of begin + all costs, and over all arrivals of its time + the costs from it to the last.
        """
        end = begin.copy()
        if not which.any():
            return end
        taker, cost = messages.taker[which], self._overhead + messages.added[which] * self._add
        first = _first(taker)
        total = np.add.reduceat(cost, first)
        before = np.cumsum(cost) - cost
        rest = _each(total + before[first], first, len(taker)) - before
        latest = np.maximum.reduceat(arrived[messages.taken[which]] + rest, first)
        end[taker[first]] = np.maximum(begin[taker[first]] + total, latest)
        return end


def _first(group: Ints) -> Ints:
    """Return where each group of equal elements, which stand together, begins."""
    return np.flatnonzero(np.diff(group, prepend=-1))


def _each(values: Floats, first: Ints, length: int) -> Floats:
    """Return the value of its group for each of `length` elements, groups beginning at `first`."""
    return values.repeat(np.diff(np.append(first, length)))


def _place(group: Ints) -> Ints:
    """Return the place of each element among those of its group."""
    first = _first(group)
    return np.arange(len(group)) - first.repeat(np.diff(np.append(first, len(group))))
