"""The measurement of a launch's links: all pairs, then what they share, what a message costs, and the reduction."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from ddlbench.bench.agreement import agreed
from ddlbench.links import crowd, timing
from ddlbench.links.crowd import Crowd
from ddlbench.links.judge import Measured, measured, slow_nodes, suspects
from ddlbench.links.pairs import CLASSES, Pair, Places, islands_of
from ddlbench.links.timing import Channel, Curve, merged
from ddlbench.watch.board import Board

if TYPE_CHECKING:
    from ddlbench.comm import Communicator

T = TypeVar("T")
PAIRS_SHARE, AGAIN_SHARE, TOGETHER_SHARE = 0.5, 0.3, 0.2
"""Of the time: for the pairs one by one, for a second look at those that seem slow, for what pairs share."""
CACHES = "/sys/devices/system/cpu/cpu{}/cache/index3/shared_cpu_list"


class Apart(Protocol):
    """A way to run an action on some ranks while the others sleep (collective over all); returns its value to all."""

    def __call__(self, members: Collection[int], action: Callable[[], T], /) -> T:
        """Run `action` on `members`."""


@dataclass(frozen=True)
class Survey:
    """What was measured, on the first rank.

    pings
        of each pair alone, one way
    both
        of a pair of each class, both ways at once
    bursts
        of the same pair, several small messages at once
    shared, shared_both
        of all pairs of a class that share an island, a node, two nodes or two racks, at once; one way and both ways
    reductions
        of each rank
    crowd
        with every rank awake, where all nodes share one machine's processors
    """

    places: Places
    pings: Mapping[Pair, Curve]
    both: Mapping[str, Curve] = field(default_factory=dict)
    bursts: Mapping[str, Curve] = field(default_factory=dict)
    shared: Mapping[str, Curve] = field(default_factory=dict)
    shared_both: Mapping[str, Curve] = field(default_factory=dict)
    reductions: Sequence[Curve] = ()
    crowd: Crowd | None = None

    def measured(self) -> list[Measured]:
        """Return each pair's link, as its least times show it."""
        places, node_of = self.places, self.places.topology.node_of
        return [
            measured((a, b), (node_of[a], node_of[b]), places.class_of((a, b)), curve)
            for (a, b), curve in self.pings.items()
        ]


def find_places(communicator: "Communicator", rack: int = 0) -> Places:
    """Return where the ranks are (collective); `rack` is the number of nodes of a rack, 0 where all stand in one."""
    topology = communicator.topology
    caches = communicator.comm.allgather(_cache(topology.cpus[communicator.rank]))
    by_node = [[caches[rank] for rank in topology.ranks_of(node)] for node in range(topology.nodes)]
    return Places(topology, islands_of(by_node), rack if topology.nodes > rack else 0)


def _cache(cpus: Sequence[int]) -> str:
    """Return the processors that share a last-level cache with all of `cpus`, "" where those share none."""
    try:
        found = {Path(CACHES.format(cpu)).read_text(encoding="ascii").strip() for cpu in cpus}
    except OSError:
        return ""
    return found.pop() if len(found) == 1 else ""


class Surveyor:
    """Measures the links of an open communicator; every method is collective over all of its ranks.

    `apart` lets those sleep that have no part in a measurement.
    """

    def __init__(self, communicator: "Communicator", places: Places, apart: Apart, board: Board) -> None:
        self._all, self._places, self._apart, self._board = communicator, places, apart, board

    def run(self, sizes: Sequence[int], seconds: float, begin: Callable[[str], None]) -> Survey:
        """Measure messages of `sizes`, ascending, in about `seconds`; `begin` is told what comes next.

        The survey is whole on rank 0 alone.
        """
        rounds = self._places.pairs()
        share = seconds * PAIRS_SHARE / len(rounds)
        survey = Survey(self._places, self.pings(rounds, sizes, share, begin))
        again = self._places.apart(self.on_first(lambda: suspects(survey.measured(), self._places.compared)))
        if again:
            share = min(share, seconds * AGAIN_SHARE / len(again))
            more = self.pings(again, sizes, share, lambda text: begin(f"{text} again"))
            pings = {pair: merged(curve, more[pair]) if pair in more else curve for pair, curve in survey.pings.items()}
            survey = replace(survey, pings=pings)
        begin("the reduction")
        survey = replace(survey, reductions=self._all.comm.gather(timing.reduction()) or [])
        avoid = self.on_first(lambda: [slow.node for slow in slow_nodes(survey.measured(), self._places.compared)])
        survey = self._together(survey, sizes, avoid, seconds * TOGETHER_SHARE, begin)
        if avoid or not crowd.shares_processors(self._places.topology):
            return survey
        begin("all ranks awake")
        return replace(survey, crowd=crowd.measure(self._all, self._board))

    def on_first(self, action: Callable[[], T]) -> T:
        """Run `action` on rank 0 while the others sleep; return its value, or raise its `AgreedError`, on all."""
        from mpi4py import MPI

        return self._apart([0], lambda: agreed(MPI.COMM_SELF, action))

    def pings(
        self, rounds: Sequence[Sequence[Pair]], sizes: Sequence[int], seconds: float, begin: Callable[[str], None]
    ) -> dict[Pair, Curve]:
        """Measure pairs by rounds, each in about `seconds`; return all curves on rank 0, else those this rank began."""
        own = {}
        for pairs in rounds:
            begin(" and ".join(f"ranks {a}-{b}" for a, b in pairs[:2]) + (" …" if len(pairs) > 2 else ""))
            mine = self._mine(pairs)
            curve = self._each(pairs, partial(timing.pings, sizes=sizes, seconds=seconds))
            if mine is not None and self._all.rank == mine[0]:
                own[mine] = curve
        gathered = self._all.comm.gather(own)
        return own if gathered is None else {pair: one for curves in gathered for pair, one in curves.items()}

    def _together(
        self, survey: Survey, sizes: Sequence[int], avoid: Sequence[int | None], seconds: float,
        begin: Callable[[str], None],
    ) -> Survey:  # fmt: skip
        """Measure a pair of each class both ways and with several messages, and all of its pairs at once."""
        avoided = [node for node in avoid if node is not None]
        sets = {kind: pairs for kind in CLASSES if (pairs := self._places.at_once(kind, avoided))}
        large = [size for size in sizes if size >= timing.RATE_NBYTES]
        each = seconds / (4 * len(sets))
        both: dict[str, Curve] = {}
        bursts: dict[str, Curve] = {}
        shared: dict[str, Curve] = {}
        shared_both: dict[str, Curve] = {}
        for kind, pairs in sets.items():
            begin(f"a pair both ways ({kind})")
            one, share = pairs[:1], len(pairs)
            both[kind] = self._as_one(one, partial(timing.exchanges, sizes=large, seconds=each))
            bursts[kind] = self._as_one(one, partial(timing.bursts, seconds=each))
            if share > 1:
                begin(f"{share} pairs at once ({kind})")
                floods = partial(timing.floods, sizes=large, seconds=each, share=share)
                exchanges = partial(timing.exchanges, sizes=large, seconds=each, share=share)
                shared[kind], shared_both[kind] = self._as_one(pairs, floods), self._as_one(pairs, exchanges)
        return replace(survey, both=both, bursts=bursts, shared=shared, shared_both=shared_both)

    def _mine(self, pairs: Sequence[Pair]) -> Pair | None:
        return next((pair for pair in pairs if self._all.rank in pair), None)

    def _as_one(self, pairs: Sequence[Pair], action: Callable[[Channel], Curve]) -> Curve:
        """Run `action` on all `pairs` at once, their ranks on one communicator; return its value on all ranks."""
        members = sorted(rank for pair in pairs for rank in pair)
        return self._on(pairs, members, 0, action)

    def _each(self, pairs: Sequence[Pair], action: Callable[[Channel], Curve]) -> Curve:
        """Run `action` on each of `pairs` at the same time, on communicators of their own; return this rank's value."""
        mine = self._mine(pairs)
        return self._on(pairs, sorted(mine or ()), 0 if mine is None else pairs.index(mine), action)

    def _on(
        self, pairs: Sequence[Pair], order: Sequence[int], colour: int, action: Callable[[Channel], Curve]
    ) -> Curve:  # fmt: skip
        """Run `action` where this rank has a pair, on the communicator of `order`; all others sleep."""
        from mpi4py import MPI

        mine = self._mine(pairs)
        comm = self._all.comm.Split(MPI.UNDEFINED if mine is None else colour, key=self._all.rank)
        members = sorted(rank for pair in pairs for rank in pair)
        if mine is None:
            return self._apart(members, lambda: Curve((), ()))
        starts = self._all.rank == mine[0]
        channel = Channel(
            comm,
            peer=order.index(mine[1] if starts else mine[0]),
            starts=starts,
            yielding=self._places.topology.part(members).crowded,
            network=self._places.class_of(mine) in ("nic", "rack"),
            board=self._board,
        )
        curve = self._apart(members, lambda: action(channel))
        comm.Free()
        return curve
