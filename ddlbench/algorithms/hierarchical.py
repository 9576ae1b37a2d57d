"""Hierarchical allreduce: reduce-scatter in the node, allreduce across nodes, all-gather in the node.

    node 0   0 ─ 1 ─ 2 ─ 3      1. in each node the ranks reduce-scatter: rank x ends with piece x of the node's sum
             │   │   │   │      2. ranks with the same x in all nodes allreduce piece x: X allreduces of n/X at once
    node 1   4 ─ 5 ─ 6 ─ 7      3. in each node the ranks all-gather the pieces

With r the rounds of half the inner algorithm, and R, S, T, G of the one across N nodes: rounds, bytes per rank, bytes
of all, reductions.

rounds          2 r(X) + R(N)
bytes per rank  2(X-1)/X n + S(N)/X
between nodes   T(N), the across algorithm's bytes of all ranks: 2(N-1) n for ring or halving-doubling
reduced         (X-1)/X n + G(N)/X
time            with rings: 2(X-1 + N-1) a + 2(p-1)/p n b + (p-1)/p n g

For ranks that share their node's network card: each byte of the result crosses it once each way, the least possible.
Source: Jia et al., arXiv 1807.11205; Cho et al., BlueConnect, MLSys 2019.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy.typing as npt

from ddlbench.algorithms import direct, double_binary_tree, halving_doubling, recursive_doubling, ring, swing
from ddlbench.algorithms.multi_ring import BASES
from ddlbench.schedule.algorithm import Algorithm, Costs, Flat, chosen
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Phase

ACROSS = {
    a.name: a
    for a in (
        ring.ALGORITHM,
        halving_doubling.ALGORITHM,
        recursive_doubling.ALGORITHM,
        direct.ALGORITHM,
        double_binary_tree.ALGORITHM,
        swing.ALGORITHM,
    )
}


def flat_across(across: str) -> Flat:
    """Return the algorithm that runs across nodes."""
    flat = ACROSS[across].flat
    if flat is None:
        raise TypeError(f"{across} is not a flat algorithm")
    return flat


def costs_across(across: str, nodes: int) -> Costs:
    """Return its closed form on `nodes` ranks, one per node."""
    form = ACROSS[across].costs
    if form is None:
        raise TypeError(f"{across} has no closed form")
    return form(Grid((1, nodes)))


def two_level(grid: Grid) -> Grid:
    """Return the grid as ranks per node by nodes."""
    return Grid((grid.ranks_per_node, grid.nodes))


def phases(grid: Grid, ranks: npt.ArrayLike, across: str = "ring", inside: str = "ring") -> Iterator[Phase]:
    """Reduce-scatter inside, allreduce across, all-gather inside."""
    levels, halves, total = two_level(grid), BASES[inside], chunks(grid, across)
    world = Group.world(ranks, grid.size, total)
    node = world.along(levels, 0, world.chunk, total).in_pieces(levels.dims[0])
    yield halves.reduce_scatter(node)
    share = node.nchunks
    peers = world.along(levels, 1, node.chunk + halves.owned(node) * share, share)
    yield from flat_across(across).allreduce(peers.in_pieces(share))
    yield halves.all_gather(node)


def chunks(grid: Grid, across: str = "ring", inside: str = "ring") -> int:
    """Return a chunk for each piece of the algorithm across, for each rank of a node."""
    return grid.ranks_per_node * flat_across(across).pieces(grid.nodes)


def costs(grid: Grid, across: str = "ring", inside: str = "ring") -> Costs:
    """Return the closed form above."""
    x, n, over = grid.ranks_per_node, grid.nodes, costs_across(across, grid.nodes)
    half = Fraction(x - 1, x)
    rounds = 2 * BASES[inside].rounds(x) + over.rounds
    total = n * 2 * (x - 1) + over.total
    return Costs(rounds, 2 * half + over.sent / x, Fraction(total), over.total, half + over.reduced / x)


def why_not(grid: Grid, across: str = "ring", inside: str = "ring") -> str:
    """Say why a node of this size cannot be done with the inner algorithm, or ""."""
    return BASES[inside].why_not(grid.ranks_per_node)


ALGORITHM = Algorithm(
    "hierarchical",
    "reduce-scatter in the node, allreduce across, all-gather in the node",
    source="arXiv 1807.11205; BlueConnect, MLSys 2019",
    chunks=chunks,
    phases=phases,
    costs=costs,
    parameters=(chosen("across", "ring", ACROSS), chosen("inside", "ring", BASES)),
    restriction="every node has the same number of ranks",
    node_aware=True,
    why_not=why_not,
)
