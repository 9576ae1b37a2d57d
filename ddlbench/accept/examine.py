"""Measurements over a launch: nodes alone, in pairs, all for a while, in groups; all ranks learn every figure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import nan
from typing import TYPE_CHECKING

import numpy as np

from ddlbench.accept import alone, vigil
from ddlbench.accept.rules import Rules
from ddlbench.accept.vigil import Seen
from ddlbench.comm import Communicator
from ddlbench.links.judge import measured
from ddlbench.links.pairs import Pair, Places, packed, tournament
from ddlbench.links.survey import Apart, Surveyor
from ddlbench.watch.board import WORK_FACTOR, Board, Step

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

SMALL_NBYTES = 8
"""What latencies are measured with."""
DEAD_SECONDS = 120.0
"""A link over which no answer comes for so long, after all others are there, ends the run."""
INSIDE_SAMPLES = 50
"""Allreduces inside a node, of which the fastest counts: they take a millisecond or so each."""
PAIR_SECONDS = 0.6
"""About what a pair may take."""


Windows = Mapping[str, Mapping[int, Sequence[float]]]
"""What nodes did alone: for each kind of work and node, bytes a second in each window, in which all had their turn."""


@dataclass(frozen=True)
class Vigil:
    """What was seen of all nodes over a while.

    late
        of each node the share of the time in which its process was not run, and the seconds that it watched
    stalled
        of each pair the seconds of stalls that are not its processes'
    trips
        of each pair the median, 99th percentile and longest round trip, seconds
    """

    late: Mapping[int, tuple[float, float]]
    stalled: Mapping[Pair, float]
    trips: Mapping[Pair, tuple[float, float, float]]


class Examiner:
    """Measures nodes of an open communicator; every method is collective over all of its ranks.

    A node is represented by its first rank where it meets others. `apart` lets those sleep that have no part in a
    measurement, `begin` is told what comes next.
    """

    def __init__(
        self, communicator: Communicator, rules: Rules, apart: Apart, board: Board, begin: Callable[[str], None]
    ) -> None:  # fmt: skip
        self._all, self._rules, self._apart, self._board, self._begin = communicator, rules, apart, board, begin
        self.topology = communicator.topology
        self._places = Places(self.topology)
        self._surveyor = Surveyor(communicator, self._places, apart, board)
        self._node = self.topology.node_of[communicator.rank]
        self._work: alone.Work | None = None

    @property
    def compared(self) -> tuple[str, ...]:
        """What pairs are compared by: latencies say nothing where nodes share processors."""
        return self._places.compared

    def turns(self, nodes: Collection[int]) -> list[list[int]]:
        """Return `nodes` in turns whose nodes share no machine."""
        machine_of = self.topology.machine_of or self.topology.node_of
        firsts = {self._first(node): node for node in nodes}
        return [[firsts[a] for a, _ in turn] for turn in packed([(rank, rank) for rank in firsts], machine_of)]

    def alone(self, nodes: Collection[int], look: str = "", times: int = 1) -> Windows:
        """Return what each of `nodes` does alone: bytes a second of its slowest rank, window by window.

        There are so many `times` the windows that the rules say. The nodes come in turn in each, so that what disturbs
        them all disturbs them alike.
        """
        own = []
        for window in range(self._rules.node.windows * times):
            for turn in self.turns(nodes):
                self._begin(f"nodes alone{look}, window {window + 1}")
                rates = self._apart(self._ranks(turn), partial(self._window, mine=self._node in turn))
                own += [rates] if self._node in turn else []
        every = self._all.comm.allgather(own)
        found: Windows = {
            what: {node: self._slowest(every, node, at) for node in nodes} for at, what in enumerate(alone.WHATS)
        }
        several = [node for node in nodes if len(self.topology.ranks_of(node)) > 1]
        return {**found, "allreduce": self._inside(several, look)} if several else found

    def _slowest(self, every: Sequence[Sequence[tuple[float, ...]]], node: int, at: int) -> list[float]:
        """Return the rate of the slowest rank of `node` in each window."""
        windows = zip(*(every[rank] for rank in self.topology.ranks_of(node)), strict=True)
        return [min(rates[at] for rates in window) for window in windows]

    def _window(self, *, mine: bool) -> tuple[float, ...]:
        if not mine:
            return (nan, nan)
        self._work = self._work or alone.Work()
        self._board.begin("work of a rank alone")
        return self._work.window(self._rules.node.window)

    def _inside(self, nodes: Sequence[int], look: str) -> dict[int, list[float]]:
        """Return the bus bandwidth of an allreduce inside each of `nodes`, bytes a second, as of one window."""
        found: dict[int, list[float]] = {}
        for turn in self.turns(nodes):
            self._begin(f"allreduce inside nodes{look}")
            mine = self._node if self._node in turn else None
            seconds = self._allreduces(mine, self._ranks(turn), self._rules.node.size, INSIDE_SAMPLES)
            every = self._all.comm.allgather(seconds)
            for node in turn:
                ranks = self.topology.ranks_of(node)
                found[node] = [bus(self._rules.node.size, len(ranks), min(every[ranks[0]]))]
        return found

    def pairs(self, pairs: Sequence[Pair], look: str = "") -> dict[str, dict[Pair, float]]:
        """Return latency (seconds) and bandwidth (bytes a second) of `pairs` of nodes, by their least times."""
        machine_of = self.topology.machine_of or self.topology.node_of
        ranks = {(self._first(a), self._first(b)): (a, b) for a, b in pairs}
        rounds = packed([*ranks], machine_of)
        sizes = [SMALL_NBYTES, self._rules.pair.size]
        curves = self._surveyor.pings(rounds, sizes, PAIR_SECONDS, lambda what: self._begin(f"{what}{look}"))
        curves = self._all.comm.bcast(curves)
        links = {pair: measured(at, pair, "nic", curves[at]) for at, pair in ranks.items()}
        return {
            "latency": {pair: link.latency_s for pair, link in links.items()},
            "bandwidth": {pair: link.bytes_per_s for pair, link in links.items()},
        }

    def partners(self, most: int) -> list[Pair]:
        """Return the pairs of nodes of the first rounds of a tournament, in which each meets up to `most` others."""
        return [pair for round_ in tournament(self.topology.nodes)[:most] for pair in round_]

    def vigil(self, look: str = "") -> Vigil:
        """Return what all nodes see of each other over a while."""
        rules = self._rules.watch
        self._begin(f"all nodes for {rules.seconds:g} s{look}")
        pairs = self.partners(rules.partners)
        firsts = [self._first(node) for node in range(self.topology.nodes)]
        starts = [self._first(b) for a, b in pairs if self._first(a) == self._all.rank]
        answers = [self._first(a) for a, b in pairs if self._first(b) == self._all.rank]

        def action() -> Seen:
            # Looking for answers is work in Python, which the watchdog lets go on for so many times the limit.
            self._board.begin(Step("small messages for a while", limit_s=(rules.seconds + DEAD_SECONDS) / WORK_FACTOR))
            return vigil.watch(self._all.comm, starts, answers, rules)

        own = self._apart(firsts, action)
        every = self._all.comm.allgather(own if self._all.rank in firsts else None)
        seen = {node: found for node in range(self.topology.nodes) if (found := every[self._first(node)])}
        return Vigil(
            {node: (one.late_s / one.seconds, one.seconds) for node, one in seen.items()},
            {(a, b): _stalled(seen[a].links[self._first(b)], rules.stall) for a, b in pairs},
            {(a, b): _summary(seen[a].trips[self._first(b)]) for a, b in pairs},
        )

    def group(self, nodes: Sequence[int]) -> float:
        """Return the bus bandwidth of an allreduce over all ranks of `nodes`, per node, bytes a second."""
        self._begin(f"{len(nodes)} nodes together")
        members, rules = self._ranks(nodes), self._rules.group
        mine = 0 if self._all.rank in members else None
        every = self._all.comm.allgather(self._allreduces(mine, members, rules.size, rules.samples))
        return bus(rules.size, len(nodes), float(np.median(every[members[0]])))

    def _allreduces(self, colour: int | None, members: Sequence[int], nbytes: int, samples: int) -> tuple[float, ...]:
        """Return the seconds of allreduces among the ranks of this one's `colour`, the slowest rank's each time."""
        from mpi4py import MPI

        comm = self._all.comm.Split(MPI.UNDEFINED if colour is None else colour, key=self._all.rank)
        found = self._apart(members, lambda: self._timed(comm, nbytes, samples) if colour is not None else ())
        if colour is None:
            return ()
        comm.Free()
        return found

    def _timed(self, comm: "Comm", nbytes: int, samples: int) -> tuple[float, ...]:
        from mpi4py import MPI

        with Communicator(comm) as part:
            source, target = np.ones(nbytes // 4, np.float32), np.empty(nbytes // 4, np.float32)
            with part.plan(source, target, algorithm=algorithm(part.topology.ranks_per_node), transport="p2p") as plan:
                self._board.begin(Step(f"allreduces of {part.size} ranks", plan=plan))
                plan.execute()
                own = plan.time_samples(samples) * 1e-9
            slowest = np.empty(samples)
            part.comm.Allreduce(np.ascontiguousarray(own, np.float64), slowest, MPI.MAX)
            return tuple(slowest.tolist())

    def _first(self, node: int) -> int:
        return self.topology.ranks_of(node)[0]

    def _ranks(self, nodes: Collection[int]) -> list[int]:
        return sorted(rank for node in nodes for rank in self.topology.ranks_of(node))


def algorithm(ranks_per_node: Sequence[int]) -> str:
    """Return the algorithm that groups of nodes are measured with: rings, inside nodes and between them."""
    several = len(ranks_per_node) > 1 and len(set(ranks_per_node)) == 1 and ranks_per_node[0] > 1
    return "hierarchical" if several else "ring"


def bus(nbytes: int, parts: int, seconds: float) -> float:
    """Return the bytes a second that each of `parts` must have sent for an allreduce of `nbytes`."""
    return 2 * (parts - 1) / parts * nbytes / seconds


def _stalled(links: Sequence[float], stall: float) -> float:
    return float(sum(seconds for seconds in links if seconds >= stall))


def _summary(trips: Sequence[float]) -> tuple[float, float, float]:
    if not trips:
        return (nan, nan, nan)
    median, tail = np.quantile(trips, [0.5, 0.99]).tolist()
    return (median, tail, max(trips))
