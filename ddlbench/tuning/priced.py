"""Which algorithm to use where nothing was measured: the closed forms of all that are possible, on assumed links.

Each costs rounds * latency + messages * overhead + bytes / bandwidth + reduction (`ddlbench.cost.closed`, and the
messages of its busiest rank, as far as rank 0 shows them). That is a line over the size of the vector, and the ranges
are the lower envelope of the lines. `docs/tuning.md` has the assumed figures.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ddlbench.algorithms import available
from ddlbench.cost.closed import model_seconds
from ddlbench.cost.links import Link, Links
from ddlbench.errors import UsageError
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import lower
from ddlbench.schedule.move import COPY
from ddlbench.tuning.table import Range


@dataclass(frozen=True)
class Assumed:
    """Links of a transport: within a node, between nodes, and what each message costs the rank that has it, seconds."""

    within: Link
    between: Link
    within_overhead_s: float
    between_overhead_s: float
    reduce_bytes_per_s: float = 10e9


MESSAGES = Link(latency_s=0.5e-6, bytes_per_s=8e9, exchange_bytes_per_s=5e9)
NETWORK = Link(latency_s=5e-6, bytes_per_s=3e9, exchange_bytes_per_s=2.8e9)
MEMORY = Link(latency_s=0.2e-6, bytes_per_s=20e9, exchange_bytes_per_s=10e9)
ASSUMED: Mapping[str, Assumed] = {
    "p2p": Assumed(MESSAGES, NETWORK, 0.15e-6, 0.5e-6),
    "direct": Assumed(MEMORY, NETWORK, 0.02e-6, 0.5e-6),
}
"""What is taken for the links of each transport: orders of magnitude, for only their proportions decide."""
PROBE_NBYTES = 1 << 30


@dataclass(frozen=True)
class Line:
    """An algorithm's time over the size of the vector: seconds for an empty one, and for each byte."""

    name: str
    start_s: float
    per_byte_s: float

    def meets(self, other: "Line") -> int:
        """Return the first size at which this line, the steeper one, is above the `other`."""
        return math.floor((other.start_s - self.start_s) / (self.per_byte_s - other.per_byte_s)) + 1


def ranges(grid: Grid, *, nodes: int, even: bool, transport: str) -> tuple[Range, ...]:
    """Return the ranges by closed form for the ranks of `grid` on `nodes` nodes over a transport of `ASSUMED`.

    On uneven nodes no algorithm that knows of nodes is possible, and each rank is priced as a node of its own.
    """
    at = grid if even else Grid((1, grid.size))
    assumed, count = ASSUMED[transport], nodes if even else grid.size
    lines = [_line(one, assumed, count) for one in _possible(at, node_aware=even)]
    envelope = list(_envelope(lines))
    starts = [0, *(above.meets(below) for above, below in pairwise(envelope))]
    pairs = zip(starts, envelope, strict=True)
    return tuple(Range(from_nbytes=start, algorithm=line.name, measured=(), clear=()) for start, line in pairs)


def _possible(grid: Grid, *, node_aware: bool) -> Iterator[BoundAlgorithm]:
    """Yield the algorithms with a closed form that this grid allows, with their default parameters."""
    for algorithm in available():
        if algorithm.costs is not None and (node_aware or not algorithm.node_aware):
            try:
                yield BoundAlgorithm(algorithm.name, grid, algorithm)
            except UsageError:
                continue


def _line(bound: BoundAlgorithm, assumed: Assumed, nodes: int) -> Line:
    ranks, several = bound.grid.size, nodes > 1
    links = Links(nodes, assumed.within, assumed.between if several else None, assumed.reduce_bytes_per_s)
    messages = int((lower(bound, [0]).table["kind"] != COPY).sum())
    each = assumed.between_overhead_s if several else assumed.within_overhead_s
    start, end = (model_seconds(links, nodes, ranks, bound, nbytes) or 0.0 for nbytes in (0, PROBE_NBYTES))
    return Line(bound.name, start + messages * each, (end - start) / PROBE_NBYTES)


def _envelope(lines: Sequence[Line]) -> Iterator[Line]:
    """Yield the lines that are the lowest somewhere from 0 bytes on, in the order of sizes."""
    here = min(lines, key=lambda line: (line.start_s, line.per_byte_s))
    while True:
        yield here
        flatter = [line for line in lines if line.per_byte_s < here.per_byte_s]
        if not flatter:
            return
        here = min(flatter, key=lambda line: (here.meets(line), line.per_byte_s))
