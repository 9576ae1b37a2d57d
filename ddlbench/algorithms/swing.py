"""Swing: halving-doubling whose partners swing from side to side, so that they stay near on a ring or torus.

    rank      0   1   2   3   4   5   6   7       partner in round s: an even rank goes +1, -1, +3, -5, …,
    round 0   0─1     2─3     4─5     6─7         an odd one the other way, modulo p
    round 1   7─0     1─2     3─4     5─6
    round 2   0─3     2─5     4─7     6─1         distance (1 - (-2)^(s+1)) / 3

What is exchanged is half of what is left, as in halving-doubling; only the partners differ, and with them the
distance each round's bytes travel: about a third of the way that recursive distances need. With p not a power of two,
the ranks beyond the largest power of two c are folded onto the first ones and back.

rounds          2 log2 c, +2 if p > c
bytes per rank  2(c-1)/c n, + n if p > c
between nodes   sum over rounds s of 2 n/2^(s+1) times the partners on other nodes, + 2(p-c) n
reduced         (c-1)/c n, + n if p > c
time            2 log2 p a + 2(p-1)/p n b + (p-1)/p n g for p a power of two

For machines whose network is a torus or ring, or whose neighbours share a switch.
Source: De Sensi, Bonato, Saam and Hoefler, Swing, NSDI 2024.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ddlbench.algorithms import halving_doubling
from ddlbench.algorithms.folding import core_size, folded
from ddlbench.algorithms.halving_doubling import Bools, double, halve
from ddlbench.schedule.algorithm import Costs, flat_algorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Ints, Phase


def partners(position: Ints, size: int) -> tuple[Ints, Bools]:
    """Return the partner in each round and whether the upper half is kept, both (L, R), for a power of two `size`.

    From round s on, a rank meets exactly the ranks whose even member (itself, or its last partner) agrees with its own
    modulo 2^(s+1): so bit s+1 of the even member splits the group in round s, and parity splits the last pair.
    """
    levels = size.bit_length() - 1
    step = np.arange(levels)[:, None]
    swing = (1 - (-2) ** (step + 1)) // 3
    odd = position % 2 == 1
    partner = (position + np.where(odd, -swing, swing)) % size
    even = np.where(odd, partner[-1:], position) if levels else position
    upper = np.where(step == levels - 1, odd, (even >> (step + 1)) & 1 == 1)
    return partner, upper


def _core(group: Group) -> Iterator[Phase]:
    partner, upper = partners(group.position, group.size)
    yield halve(group, partner, upper)
    yield double(group, partner, upper)


def allreduce(group: Group) -> Iterator[Phase]:
    """Halve and double with swinging partners on the largest power of two, the other ranks folded."""
    return folded(group, _core)


def costs(grid: Grid) -> Costs:
    """Return the closed form above: that of halving-doubling, with other partners on other nodes."""
    same = halving_doubling.costs(grid)
    core, x = core_size(grid.size), grid.ranks_per_node
    rank = np.arange(core)
    crossing = np.sum(partners(rank, core)[0] // x != rank // x, axis=1)
    across = sum(Fraction(2 * int(c), 2 << s) for s, c in enumerate(crossing)) + 2 * (grid.size - core)
    between = Fraction(across) if grid.nodes > 1 else Fraction(0)
    return Costs(same.rounds, same.sent, same.total, between, same.reduced)


ALGORITHM = flat_algorithm(
    "swing",
    "halving-doubling with partners that stay near on a ring or torus",
    source="De Sensi et al., NSDI 2024",
    pieces=core_size,
    allreduce=allreduce,
    costs=costs,
)
