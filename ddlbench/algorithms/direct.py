"""Direct allreduce: everyone reads its piece from everyone, in two rounds.

      piece:   0    1    2    3         round 0   rank q gets piece q from every other rank and adds all of them
    rank 0  │ sum │ ►  │ ►  │ ►  │       round 1   rank q sends the finished piece q to every other rank
    rank 1  │ ►  │ sum │ ►  │ ►  │
    rank 2  │ ►  │ ►  │ sum │ ►  │
    rank 3  │ ►  │ ►  │ ►  │ sum │

rounds          2
bytes per rank  2(p-1)/p n
between nodes   2(p-X) n        with X ranks per node
reduced         (p-1)/p n
time            2 a + 2(p-1)/p n b + (p-1)/p n g, where a rank can talk to p-1 others at once

Best inside a node, where memory is shared; between nodes its p(p-1) messages meet at the receivers.
Source: the linear (pairwise) algorithms of Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
"""

from fractions import Fraction

import numpy as np

from ddlbench.schedule.algorithm import Costs, Halves, flat_algorithm, from_halves
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Ints, Phase


def _others(group: Group) -> Ints:
    """Return the other positions, (size-1, R): each starts with its right neighbour, so that no one is met by all."""
    return (group.position + 1 + np.arange(group.size - 1)[:, None]) % group.size


def reduce_scatter(group: Group) -> Phase:
    """Every position adds its piece from all others, in one round."""
    other = _others(group)
    sends = group.send(0, to=other, piece=other)
    adds = group.add(0, source=other, piece=group.position)
    return Phase(min(1, group.size - 1), (sends, adds))


def all_gather(group: Group) -> Phase:
    """Every position sends its piece to all others, in one round."""
    other = _others(group)
    sends = group.send(0, to=other, piece=group.position)
    keeps = group.keep(0, source=other, piece=other)
    return Phase(min(1, group.size - 1), (sends, keeps))


def costs(grid: Grid) -> Costs:
    """Return the closed form above."""
    p = grid.size
    sent = Fraction(2 * (p - 1), p)
    return Costs(2 if p > 1 else 0, sent, p * sent, Fraction(2 * (p - grid.ranks_per_node)), sent / 2)


HALVES = Halves(reduce_scatter, all_gather, rounds=lambda size: min(1, size - 1))
ALGORITHM = flat_algorithm(
    "direct",
    "everyone reads its piece from everyone: two rounds, many messages",
    source="Thakur, Rabenseifner and Gropp 2005",
    pieces=lambda p: p,
    allreduce=from_halves(HALVES),
    costs=costs,
    halves=HALVES,
)
