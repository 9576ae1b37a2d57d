"""Recursive doubling: the whole vector is exchanged with partners at distance 1, 2, 4 and so on.

    rank      0   1   2   3   4   5   6   7
    round 0   └───┘   └───┘   └───┘   └───┘        both partners send all they have and add what arrives
    round 1   └───────┘       └───────┘            (0-2, 1-3, 4-6, 5-7)
    round 2   └───────────────┘                    (0-4, 1-5, 2-6, 3-7)

With p not a power of two, the ranks beyond the largest power of two c are folded onto the first ones and back.

rounds          log2 c, +2 if p > c
bytes per rank  n log2 c, + n if p > c
between nodes   n times the partners on other nodes, summed over rounds, + 2(p-c) n
reduced         n log2 c, + n if p > c
time            log2 p (a + n b + n g) for p a power of two

Best for short vectors: the fewest rounds there can be, but each carries the whole vector.
Source: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ddlbench.algorithms.folding import core_size, crossings, folded
from ddlbench.schedule.algorithm import Costs, flat_algorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Phase


def _doubling(group: Group) -> Iterator[Phase]:
    levels = group.size.bit_length() - 1
    step = np.arange(levels)[:, None]
    partner = group.position ^ (1 << step)
    sends = group.send(step, to=partner, piece=0, pieces=group.pieces)
    adds = group.add(step, source=partner, piece=0, pieces=group.pieces)
    yield Phase(levels, (sends, adds))


def allreduce(group: Group) -> Iterator[Phase]:
    """Exchange the whole range with partners at doubling distances."""
    return folded(group, _doubling)


def costs(grid: Grid) -> Costs:
    """Return the closed form above."""
    p, core = grid.size, core_size(grid.size)
    levels, folds = core.bit_length() - 1, int(p > core)
    sent = Fraction(levels + folds)
    across = sum(crossings(core, grid.ranks_per_node, 1 << k) for k in range(levels)) + 2 * (p - core)
    between = Fraction(across if grid.nodes > 1 else 0)
    return Costs(levels + 2 * folds, sent, Fraction(core * levels + 2 * (p - core)), between, sent)


ALGORITHM = flat_algorithm(
    "recursive-doubling",
    "exchange everything at distance 1, 2, 4, …: fewest rounds, most bytes",
    source="Thakur, Rabenseifner and Gropp 2005",
    pieces=lambda p: 1,
    allreduce=allreduce,
    costs=costs,
)
