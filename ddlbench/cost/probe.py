"""A short measurement of the links of a launch, by the engine itself: ping-pong and exchange between two ranks."""

import time
from typing import TYPE_CHECKING

import numpy as np

from ddlbench import _engine, _reduce
from ddlbench.cost.links import Link, Links
from ddlbench.schedule.lower import lower_phase
from ddlbench.schedule.move import KEEP, SEND, Phase, Table, steps

if TYPE_CHECKING:
    from ddlbench.comm import Communicator

SIZES = tuple(1 << k for k in range(14, 23, 2))
"""Bytes at which the bandwidth is probed, 16 KiB to 4 MiB: the best is the link's."""
SMALL_SAMPLES, LARGE_SAMPLES = 200, 12
REDUCE_BYTES = 1 << 17


def probe_links(communicator: "Communicator") -> Links:
    """Measure a pair of ranks of the first node and one of the first two nodes; collective, under a second."""
    topology = communicator.topology
    mate = next((r for r in range(1, topology.ranks) if topology.node_of[r] == topology.node_of[0]), None)
    stranger = next((r for r in range(1, topology.ranks) if topology.node_of[r] != topology.node_of[0]), None)
    within = _probe_pair(communicator, mate) if mate is not None else None
    between = _probe_pair(communicator, stranger) if stranger is not None else None
    return Links(topology.nodes, within, between, _broadcast(communicator, _probe_reduce()))


def _probe_pair(communicator: "Communicator", other: int) -> Link:
    """Measure the link between ranks 0 and `other`; all ranks take part in the barriers."""
    small = _least_seconds(communicator, _ping_pong(other), 8, SMALL_SAMPLES) / 2
    one_way = max(2 * n / _least_seconds(communicator, _ping_pong(other), n, LARGE_SAMPLES) for n in SIZES)
    both = max(n / _least_seconds(communicator, _exchange(other), n, LARGE_SAMPLES) for n in SIZES)
    return Link(small, one_way, both)


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


def _program(phase: Phase, rank: int) -> Table:
    own = tuple(table[table["rank"] == rank] for table in phase.steps)
    return lower_phase(Phase(phase.rounds, own), np.array([rank]), 2)


def _least_seconds(communicator: "Communicator", phase: Phase, nbytes: int, samples: int) -> float:
    """Return the least time of a round trip or exchange of `nbytes` each way, as rank 0 sees it."""
    source, target = np.zeros(2 * nbytes, np.uint8), np.zeros(2 * nbytes, np.uint8)
    handle, table = communicator.comm.py2f(), _program(phase, communicator.rank)
    engine = _engine.Engine(handle, table, 2, 1, source, target, 6, 0, communicator.yielding)
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
