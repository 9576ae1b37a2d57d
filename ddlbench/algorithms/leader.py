"""Leader: reduce to one rank per node, allreduce across the leaders, broadcast in the node (Facebook's three phases).

    node 0   0 ◄ 1   2 ◄ 3      1. up a binomial tree to the first rank of the node, which is its leader
             └───◄───┘          2. the leaders allreduce the whole vector
             ║                  3. down the same tree
    node 1   4 ◄ 5   6 ◄ 7

With k = ceil(log2 X) levels in a node of X ranks, and R, S, T, G of the algorithm across N nodes (rounds, bytes per
rank, bytes of all, reductions):

rounds          2 k + R(N)
bytes per rank  k n + S(N)     on a leader
between nodes   T(N)
reduced         k n + G(N)     on a leader
time            2 k a + k n (2 b + g) + that of the algorithm across

Few messages leave a node, so it is good for short vectors; for long ones the leaders move the whole vector.
Source: Goyal et al., arXiv 1706.02677, section 4.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ddlbench.algorithms.hierarchical import ACROSS, costs_across, flat_across, two_level
from ddlbench.schedule.algorithm import Algorithm, Costs, chosen
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Phase


def _levels(x: int) -> int:
    return (x - 1).bit_length()


def _reduce(node: Group) -> Phase:
    """Up the binomial tree: in round k, those at odd multiples of 2^k send to the one 2^k before them."""
    step = np.arange(_levels(node.size))[:, None]
    me, reach = node.position, 1 << step
    gives = me % (2 * reach) == reach
    takes = (me % (2 * reach) == 0) & (me + reach < node.size)
    sends = node.send(step, to=me - reach, piece=0, pieces=node.pieces, where=gives)
    adds = node.add(step, source=me + reach, piece=0, pieces=node.pieces, where=takes)
    return Phase(len(step), (sends, adds))


def _broadcast(node: Group) -> Phase:
    """Down the same tree."""
    step = np.arange(_levels(node.size))[:, None]
    me, reach = node.position, 1 << step[::-1]
    takes = me % (2 * reach) == reach
    gives = (me % (2 * reach) == 0) & (me + reach < node.size)
    sends = node.send(step, to=me + reach, piece=0, pieces=node.pieces, where=gives)
    keeps = node.keep(step, source=me - reach, piece=0, pieces=node.pieces, where=takes)
    return Phase(len(step), (sends, keeps))


def phases(grid: Grid, ranks: npt.ArrayLike, across: str = "halving-doubling") -> Iterator[Phase]:
    """Reduce to the leaders, allreduce across them, broadcast."""
    levels, total = two_level(grid), chunks(grid, across)
    world = Group.world(ranks, grid.size, total)
    node = world.along(levels, 0, world.chunk, total).in_pieces(total)
    yield _reduce(node)
    leaders = world.along(levels, 1, world.chunk, total).only(node.position == 0)
    yield from flat_across(across).allreduce(leaders.in_pieces(total))
    yield _broadcast(node)


def chunks(grid: Grid, across: str = "halving-doubling") -> int:
    """Return as many chunks as the algorithm across has pieces."""
    return flat_across(across).pieces(grid.nodes)


def costs(grid: Grid, across: str = "halving-doubling") -> Costs:
    """Return the closed form above."""
    x, n, over = grid.ranks_per_node, grid.nodes, costs_across(across, grid.nodes)
    k = _levels(x)
    total = over.total + n * 2 * (x - 1)
    return Costs(2 * k + over.rounds, k + over.sent, Fraction(total), over.total, k + over.reduced)


ALGORITHM = Algorithm(
    "leader",
    "reduce to one rank per node, allreduce across leaders, broadcast",
    source="arXiv 1706.02677 section 4",
    chunks=chunks,
    phases=phases,
    costs=costs,
    parameters=(chosen("across", "halving-doubling", ACROSS),),
    restriction="every node has the same number of ranks",
    node_aware=True,
)
