"""A short measurement of the links of a launch: ping-pong and exchange by the engine, streams between nodes."""

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ddlbench import _engine, _reduce
from ddlbench.cost.links import Link, Links, Memory
from ddlbench.cost.streams import AGREE, Line, rounds, stream
from ddlbench.errors import UnsupportedError
from ddlbench.schedule.lower import lower_phase
from ddlbench.schedule.move import KEEP, SEND, Phase, Table, steps

if TYPE_CHECKING:
    from ddlbench.comm import Communicator

SIZES = tuple(1 << k for k in range(14, 23, 2))
"""Bytes at which the bandwidth is probed, 16 KiB to 4 MiB: the best is the link's."""
SMALL_SAMPLES, LARGE_SAMPLES = 200, 12
EXCHANGES, EXCHANGE_SECONDS, LONGEST_NBYTES = 4, 0.05, 1 << 26
"""Exchanges between nodes: how many, and how long one takes one way, up to this size."""
REDUCE_BYTES = 1 << 17
COPIES = tuple(1 << k for k in range(14, 25, 2))
"""Bytes at which copies through shared memory are timed, 16 KiB to 16 MiB: a larger vector is no faster for a byte."""
COPY_SAMPLES = 12
Floats = npt.NDArray[np.float32]
T = TypeVar("T")


class Apart(Protocol):
    """A way to run an action on some ranks only (collective over all), its value being known to all then."""

    def __call__(self, members: Collection[int], action: Callable[[], T], /) -> T:
        """Run `action` on `members`."""


def probe_links(communicator: "Communicator", apart: Apart) -> Links:
    """Measure the links of a launch (collective), in about a second.

    Within a node that is a pair of ranks of the first node that has two; between nodes the first ranks of the first
    two, and then all ranks of each node at once with those of the next. `apart` runs an action on some ranks while the
    others sleep, so that they do not take processors and links from those that are measured.
    """
    topology = communicator.topology
    pairs = (topology.ranks_of(node)[:2] for node in range(topology.nodes))
    mates = next((pair for pair in pairs if len(pair) == 2), None)
    within = None if mates is None else _alone(communicator, apart, mates, _probe_pair)
    reduce = _broadcast(communicator, _probe_reduce())
    if topology.nodes == 1:
        return Links(1, within, None, reduce)
    between, lines = _probe_nodes(communicator, apart)
    rates = tuple(max(line.bytes_per_s for line in lines[node]) for node in range(topology.nodes))
    return Links(topology.nodes, within, between, reduce, rates, max(map(_burst, lines.values())))


def probe_memory(
    communicator: "Communicator", apart: Apart, shapes: Collection[Sequence[int]], most_nbytes: int
) -> tuple[Memory, ...]:
    """Measure what shared memory allows the ranks of each of `shapes`, all of one node (collective).

    Vectors are of up to `most_nbytes`. Ranks that share processors are left out: how long they take depends on who has
    its turn when, and nothing is least there. So is what there is no shared memory for.
    """
    topology = communicator.topology
    apiece = {len(ranks): ranks for ranks in shapes if len(ranks) > 1 and not topology.part(ranks).crowded}
    probe = partial(_copies, most_nbytes=most_nbytes)
    found = (_alone(communicator, apart, ranks, probe) for _, ranks in sorted(apiece.items()))
    return tuple(memory for memory in found if memory)


def _copies(node: "Communicator", most_nbytes: int) -> Memory | None:
    """Return what memory allows the ranks of `node`, None where they get none that they share."""
    sizes = [nbytes for nbytes in COPIES if nbytes <= most_nbytes] or [COPIES[0]]
    try:
        source, target = node.empty(sizes[-1] // 4), node.empty(sizes[-1] // 4)
    except (MemoryError, UnsupportedError):
        return None
    source[:], target[:] = 1, 0
    handoffs = _least_copy(node, source[: node.size], target[: node.size], SMALL_SAMPLES)
    copies = [_least_copy(node, source[: n // 4], target[: n // 4], COPY_SAMPLES) for n in sizes]
    node.release(source)
    node.release(target)
    return Memory(node.size, handoffs / 2, tuple(zip(sizes, copies, strict=True)))


def _least_copy(node: "Communicator", source: Floats, target: Floats, samples: int) -> float:
    """Return the least seconds in which all parts are copied, by plain stores or past the caches."""
    least = np.inf
    for past_caches in (False, True):
        with node.floor_plan(source, target, stream=past_caches) as plan:
            plan.time_samples(3)
            least = min(least, float(plan.time_samples(samples).min()) * 1e-9)
    return _broadcast(node, least)


def _burst(lines: Sequence[Line]) -> float:
    """Return the largest burst that the fastest of a node's `lines` show; slow ones show what held them up."""
    best = max(line.bytes_per_s for line in lines)
    return max(line.burst_nbytes for line in lines if line.bytes_per_s >= (1 - AGREE) * best)


def _alone(communicator: "Communicator", apart: Apart, ranks: Sequence[int], probe: Callable[["Communicator"], T]) -> T:
    """Return what `probe` finds on `ranks` while the others sleep."""
    part = communicator.part(ranks)

    def probed() -> T:
        with part or communicator as own:  # the others have none, and do not come here
            return probe(own)

    return apart(ranks, probed)


def _probe_nodes(communicator: "Communicator", apart: Apart) -> tuple[Link, dict[int, list[Line]]]:
    """Return the link between the first ranks of the first two nodes, and the lines that each node took part in."""
    topology = communicator.topology
    of = [topology.ranks_of(node) for node in range(topology.nodes)]
    pair = (of[0][0], of[1][0])
    latency = _alone(communicator, apart, pair, _latency)
    alone = _alone(communicator, apart, pair, partial(stream, flows=[(0, 1)]))[1]
    one_way = max(line.bytes_per_s for line in alone)
    leaders = [ranks[0] for ranks in of]
    both = _alone(communicator, apart, leaders, partial(_passed_on, bytes_per_s=one_way, burst=_burst(alone)))
    lines = {node: list(alone) if node < 2 else [] for node in range(topology.nodes)}
    for pairs in rounds(topology.nodes):
        flows = [flow for source, target in pairs for flow in zip(of[source], of[target], strict=False)]
        at = {rank: place for place, rank in enumerate(sorted(rank for flow in flows for rank in flow))}
        own = [(at[source], at[target]) for source, target in flows]
        seen = _alone(communicator, apart, list(at), partial(stream, flows=own))
        here = topology.part(at).node_of
        for source, target in pairs:
            found = seen[here[at[of[target][0]]]]
            lines[source] += found
            lines[target] += found
    return Link(latency, one_way, both), lines


def _passed_on(ring: "Communicator", bytes_per_s: float, burst: float) -> float:
    """Return the bytes a second that each rank sends to the next while as many come from the one before.

    They outlast the burst, and come in messages of the size that allreduces use.
    """
    nbytes = min(max(int(bytes_per_s * EXCHANGE_SECONDS), SIZES[0]), LONGEST_NBYTES)
    segments = max(1, nbytes >> 20)
    return (nbytes - min(burst, nbytes / 2)) / _least_seconds(ring, _ring(ring.size), nbytes, EXCHANGES, segments)


def _latency(pair: "Communicator") -> float:
    return _least_seconds(pair, _ping_pong(1), 8, SMALL_SAMPLES) / 2


def _probe_pair(pair: "Communicator") -> Link:
    """Measure the link between the two ranks of `pair`, one way and both ways."""
    one_way = max(2 * n / _least_seconds(pair, _ping_pong(1), n, LARGE_SAMPLES) for n in SIZES)
    both = max(n / _least_seconds(pair, _exchange(1), n, LARGE_SAMPLES) for n in SIZES)
    return Link(_latency(pair), one_way, both)


def _ping_pong(other: int) -> Phase:
    """Rank 0 sends chunk 0 to `other`, which sends it back as chunk 1."""
    sends = steps(SEND, [0, 1], [0, other], [other, 0], [0, 1], 1)
    keeps = steps(KEEP, [0, 1], [other, 0], [0, other], [0, 1], 1)
    return Phase(2, (sends, keeps))


def _exchange(other: int) -> Phase:
    """Rank 0 sends chunk 0 and `other` sends chunk 1, at the same time."""
    sends = steps(SEND, 0, [0, other], [other, 0], [0, 1], 1)
    keeps = steps(KEEP, 0, [0, other], [other, 0], [1, 0], 1)
    return Phase(1, (sends, keeps))


def _ring(size: int) -> Phase:
    """Each of `size` ranks sends its chunk 0 to the next one, which keeps it as chunk 1, all at the same time."""
    ranks = np.arange(size)
    sends = steps(SEND, 0, ranks, (ranks + 1) % size, 0, 1)
    keeps = steps(KEEP, 0, ranks, (ranks - 1) % size, 1, 1)
    return Phase(1, (sends, keeps))


def _program(phase: Phase, rank: int) -> Table:
    own = tuple(table[table["rank"] == rank] for table in phase.steps)
    return lower_phase(Phase(phase.rounds, own), np.array([rank]), 2)


def _least_seconds(communicator: "Communicator", phase: Phase, nbytes: int, samples: int, segments: int = 1) -> float:
    """Return the least time of a round trip or exchange of `nbytes` each way, as rank 0 sees it."""
    source, target = np.zeros(2 * nbytes, np.uint8), np.zeros(2 * nbytes, np.uint8)
    handle, table = communicator.comm.py2f(), _program(phase, communicator.rank)
    engine = _engine.Engine(handle, table, 2, segments, source, target, 6, 0, communicator.yielding)
    engine.time_samples(3)
    taken = engine.time_samples(samples)
    engine.close()
    return _broadcast(communicator, float(taken.min()) * 1e-9)


def _probe_reduce() -> float:
    """Return the bytes a second that this rank adds, float32, operands in cache."""
    a, b = np.ones(REDUCE_BYTES // 4, np.float32), np.ones(REDUCE_BYTES // 4, np.float32)
    target = np.empty_like(a)
    best = np.inf
    for _ in range(20):
        start = time.perf_counter()
        _reduce.reduce(2, 0, target, a, b)
        best = min(best, time.perf_counter() - start)
    return float(REDUCE_BYTES / best)


def _broadcast(communicator: "Communicator", value: float) -> float:
    return float(communicator.comm.bcast(value))
