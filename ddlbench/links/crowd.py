"""What messages take while every rank is awake, on one machine that all nodes share: a virtual cluster.

A pair that is measured while the others sleep has the machine's processors for itself. In an allreduce it has not:
every rank polls, and all nodes' messages go through one kernel. So here all ranks are awake, the idle ones in the
barrier of the next sample, and more and more of them send at once:

    small messages   from every rank to the next node, to the next two, three …, all at the same time
    large messages   every node sends to the next one, and pairs of nodes exchange, size by size
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ddlbench import _engine
from ddlbench.comm import Plan
from ddlbench.links.timing import MESSAGE_NBYTES, SUM, UINT8, Curve
from ddlbench.schedule.move import FROM_INPUT, KEEP, SEND, Table, steps
from ddlbench.topology import Topology
from ddlbench.watch.board import Board, Step

if TYPE_CHECKING:
    from ddlbench.comm import Communicator

SMALL_TRIPS, SMALL_SAMPLES = 16, 40
LARGE_NBYTES = tuple(1 << bits for bits in (17, 18, 19, 20, 21))
LARGE_TRIPS, LARGE_SAMPLES, WARM_UP = 4, 5, 2
LARGE_SECONDS = 2.0
"""A size that would take longer is left out, and so are larger ones."""
LEAST_NODES = 3
"""A line through messages at once needs three numbers of them."""

Way = tuple[int, int]
"""To whom a rank sends, and from whom it receives, round after round."""
Layers = Sequence[dict[int, Way]]
"""The ways of ranks, several of a rank in as many layers."""


@dataclass(frozen=True)
class Crowd:
    """Times with every rank awake, on so many `processors`.

    `between` and `inside` are those of small messages between nodes and inside them, x being how many times over all
    processors have a message each, beyond the first; `around` and `exchange` are those of a message of x bytes, when
    every node sends to the next one, and when nodes exchange in pairs.
    """

    processors: int
    between: Curve
    inside: Curve | None
    around: Curve
    exchange: Curve


def shares_processors(topology: Topology) -> bool:
    """Say whether all nodes are one machine, and enough of them to see what they do to each other."""
    return topology.nodes >= LEAST_NODES and len(topology.machines) == 1


def measure(communicator: "Communicator", board: Board) -> Crowd:
    """Measure (collective over all ranks, none asleep); whole on every rank."""
    topology = communicator.topology
    processors = topology.cores_of(range(topology.ranks))
    run = _Runs(communicator, board)
    each = topology.ranks_per_node[0]
    return Crowd(
        processors,
        _small(run, processors, _between(topology)),
        _small(run, processors, _inside(topology)) if each > 1 else None,
        _large(run, shifted(topology, topology.nodes, 1)),
        _large(run, exchanged(topology)),
    )


def _between(topology: Topology) -> Iterator[Layers]:
    """Yield who sends to whom: every rank to the next node, to the next two, and so on to all.

    Of three nodes these are two numbers of messages; there the first ranks of two nodes make a third.
    """
    nodes, each = topology.nodes, topology.ranks_per_node[0]
    if nodes == LEAST_NODES:
        yield [shifted(topology, nodes - 1, 1)]
    for most in range(1, nodes):
        yield [shifted(topology, nodes, each, by) for by in range(1, most + 1)]


def _inside(topology: Topology) -> Iterator[Layers]:
    """Yield who exchanges with whom: the first two ranks of one node, of two, and so on."""
    for nodes in range(1, topology.nodes + 1):
        pairs = [topology.ranks_of(node)[:2] for node in range(nodes)]
        yield [{rank: (peer, peer) for pair in pairs for rank, peer in (pair, pair[::-1])}]


def shifted(topology: Topology, nodes: int, each: int, by: int = 1) -> dict[int, Way]:
    """Return that the first `each` ranks of the first `nodes` nodes send `by` nodes on from theirs, in a circle."""
    of = [topology.ranks_of(node)[:each] for node in range(nodes)]
    return {
        rank: (of[(node + by) % nodes][at], of[(node - by) % nodes][at])
        for node, ranks in enumerate(of)
        for at, rank in enumerate(ranks)
    }


def exchanged(topology: Topology) -> dict[int, Way]:
    """Return that the first ranks of neighbouring nodes exchange; the last of an odd number of nodes rests."""
    first = [topology.ranks_of(node)[0] for node in range(topology.nodes)]
    pairs = list(zip(first[::2], first[1::2], strict=False))
    return {rank: (peer, peer) for pair in pairs for rank, peer in (pair, pair[::-1])}


def _small(run: "_Runs", processors: int, ways: Iterator[Layers]) -> Curve:
    found = {sum(map(len, layers)): run.seconds(layers, MESSAGE_NBYTES, SMALL_TRIPS, SMALL_SAMPLES) for layers in ways}
    return Curve(tuple(max(0.0, count / processors - 1) for count in found), tuple(map(tuple, found.values())))


def _large(run: "_Runs", way: dict[int, Way]) -> Curve:
    found: dict[int, Sequence[float]] = {}
    for nbytes in LARGE_NBYTES:
        found[nbytes] = run.seconds([way], nbytes, LARGE_TRIPS, LARGE_SAMPLES)
        rounds = LARGE_TRIPS * (LARGE_SAMPLES + WARM_UP)
        if rounds * 2 * min(found[nbytes]) > LARGE_SECONDS:  # the next is twice as large; all ranks know the same times
            break
    return Curve(tuple(map(float, found)), tuple(map(tuple, found.values())))


def table(rank: int, ways: Sequence[Way], trips: int) -> Table:
    """Return the steps of a rank that sends and receives a message for each of `ways` in each of `trips` rounds.

    What comes by the k-th way lands in chunk k.
    """
    rounds, none = np.arange(trips), steps(SEND, 0, rank, rank, 0, 1, where=False)
    sent = [none, *(steps(SEND, rounds, rank, to, 0, 1) for to, _ in ways)]
    kept = [none, *(steps(KEEP, rounds, rank, source, at, 1) for at, (_, source) in enumerate(ways))]
    for one in sent:
        one["flags"] = FROM_INPUT
    both = np.concatenate(sent + kept)
    return both[np.argsort(both["round"], kind="stable")]


class _Runs:
    """Runs rounds of messages on all ranks at once."""

    def __init__(self, communicator: "Communicator", board: Board) -> None:
        self._all, self._board = communicator, board

    def seconds(self, layers: Layers, nbytes: int, trips: int, samples: int) -> Sequence[float]:
        """Return the seconds of a round, sample by sample, of the slowest rank that takes part (collective).

        All messages of all `layers` are under way at once.
        """
        from mpi4py import MPI

        comm, rank = self._all.comm, self._all.rank
        ways, chunks = [layer[rank] for layer in layers if rank in layer], len(layers)
        own, messages = table(rank, ways, trips), sum(map(len, layers))
        source, target = np.zeros(chunks * nbytes, np.uint8), np.zeros(chunks * nbytes, np.uint8)
        runner = _engine.Engine(comm.py2f(), own, chunks, 1, source, target, UINT8, SUM, self._all.yielding)
        with Plan(runner, "all awake", "p2p", 1, trips) as plan:
            self._board.begin(Step(f"{messages} messages of {nbytes} B at once", plan=plan))
            plan.time_samples(WARM_UP)
            taken = plan.time_samples(samples) * 1e-9 / trips
            slowest = np.empty(samples)
            comm.Allreduce(np.ascontiguousarray(taken if ways else 0 * taken, np.float64), slowest, MPI.MAX)
        return slowest.tolist()
