"""Halving-doubling (Rabenseifner): exchange halves of what is left, then double back.

    rank 0's share of the vector, 8 ranks          round 0  with rank 1: each keeps one half, adds the other's
    ├───────────────────────────────┤              round 1  with rank 2: half of that
    ├───────────────┤                              round 2  with rank 4: an eighth is left, complete
    ├───────┤                                      rounds 3, 4, 5 go back: ranks 4, 2, 1, doubling what is complete
    ├───┤

Near partners come first, so most bytes stay inside a node. With p not a power of two, the ranks beyond the largest
power of two c are folded onto the first ones and back.

rounds          2 log2 c, +2 if p > c
bytes per rank  2(c-1)/c n, + n if p > c
between nodes   sum over rounds k of 2 n/2^(k+1) times the partners on other nodes, + 2(p-c) n
reduced         (c-1)/c n, + n if p > c
time            2 log2 p a + 2(p-1)/p n b + (p-1)/p n g for p a power of two

Good for all but the shortest vectors when p is a power of two.
Source: Rabenseifner, ICCS 2004; Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005).
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ddlbench.algorithms.folding import core_size, crossings, folded, is_power_of_two
from ddlbench.schedule.algorithm import Costs, Halves, flat_algorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Ints, Phase

Bools = npt.NDArray[np.bool_]


def shares(pieces: int, upper: Bools) -> tuple[Ints, Ints, Ints]:
    """Return, per round, the first piece kept, the first piece given away, and how many: (L, R), (L, R), (L, 1).

    `upper` (L, R) says in which rounds a rank keeps the upper half of what it has.
    """
    half = pieces >> (np.arange(len(upper))[:, None] + 1)
    kept = np.cumsum(upper * half, axis=0)
    given = kept - np.where(upper, half, -half)
    return kept, given, half


def halve(group: Group, partner: Ints, upper: Bools) -> Phase:
    """Reduce-scatter by exchanging halves with `partner` (L, R), keeping the `upper` ones (L, R)."""
    kept, given, half = shares(group.pieces, upper)
    step = np.arange(len(upper))[:, None]
    sends = group.send(step, to=partner, piece=given, pieces=half)
    adds = group.add(step, source=partner, piece=kept, pieces=half)
    return Phase(len(upper), (sends, adds))


def double(group: Group, partner: Ints, upper: Bools) -> Phase:
    """All-gather that goes the way of `halve` backwards."""
    kept, given, half = shares(group.pieces, upper)
    step = np.arange(len(upper))[::-1, None]
    sends = group.send(step, to=partner, piece=kept, pieces=half)
    keeps = group.keep(step, source=partner, piece=given, pieces=half)
    return Phase(len(upper), (sends, keeps))


def _partners(group: Group) -> tuple[Ints, Bools]:
    bit = 1 << np.arange(group.size.bit_length() - 1)[:, None]
    return group.position ^ bit, (group.position & bit) > 0


def reduce_scatter(group: Group) -> Phase:
    """Halve with partners at distance 1, 2, 4, …; the group is a power of two."""
    return halve(group, *_partners(group))


def all_gather(group: Group) -> Phase:
    """Double with partners at distance …, 4, 2, 1."""
    return double(group, *_partners(group))


def owned(group: Group) -> Ints:
    """Return the piece each position ends with: its bits in reverse."""
    _, upper = _partners(group)
    kept, _, _ = shares(group.pieces, upper)
    return kept[-1] if len(kept) else np.zeros_like(group.position)


def _core(group: Group) -> Iterator[Phase]:
    yield reduce_scatter(group)
    yield all_gather(group)


def allreduce(group: Group) -> Iterator[Phase]:
    """Halve and double on the largest power of two, the other ranks folded."""
    return folded(group, _core)


def costs(grid: Grid) -> Costs:
    """Return the closed form above."""
    p, core = grid.size, core_size(grid.size)
    levels, folds = core.bit_length() - 1, int(p > core)
    reduced = Fraction(core - 1, core) + folds
    halves = (Fraction(2 * crossings(core, grid.ranks_per_node, 1 << k), 2 << k) for k in range(levels))
    across = sum(halves, Fraction(0))
    between = across + 2 * (p - core) if grid.nodes > 1 else Fraction(0)
    return Costs(2 * levels + 2 * folds, reduced + Fraction(core - 1, core), Fraction(2 * (p - 1)), between, reduced)


def why_not(size: int) -> str:
    """Say why a dimension of `size` ranks cannot be halved, or ""."""
    return (
        "" if is_power_of_two(size) else f"{size} is not a power of two, so it cannot be halved down to one rank each"
    )


HALVES = Halves(reduce_scatter, all_gather, lambda size: size.bit_length() - 1, owned, why_not)
ALGORITHM = flat_algorithm(
    "halving-doubling",
    "Rabenseifner: least bytes in a logarithmic number of rounds",
    source="Rabenseifner 2004",
    pieces=core_size,
    allreduce=allreduce,
    costs=costs,
    halves=HALVES,
)
