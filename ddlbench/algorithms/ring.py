"""Ring allreduce: each rank talks to two neighbours only.

    rank 0 ──► rank 1 ──► rank 2 ──► rank 3      The vector is cut into p pieces. In p-1 rounds every rank passes one
      ▲                                 │        piece on and adds the one that arrives, so that the sums travel around
      └─────────────────────────────────┘        the ring and rank q ends with piece q complete. In p-1 more rounds the
                                                  complete pieces travel around once.

    p = 4, what rank 0 sends:  round    0  1  2 │ 3  4  5
                               piece    3  2  1 │ 0  3  2      (sums, then complete pieces)

rounds          2(p-1)
bytes per rank  2(p-1)/p n
between nodes   N 2(p-1)/p n   for N > 1 nodes, ranks of a node being neighbours
reduced         (p-1)/p n
time            2(p-1) a + 2(p-1)/p n b + (p-1)/p n g

Best for long vectors on few ranks; the 2(p-1) latencies make it poor for short ones.
Source: Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009).
"""

from fractions import Fraction

import numpy as np

from ddlbench.schedule.algorithm import Costs, Halves, flat_algorithm, from_halves
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Phase


def reduce_scatter(group: Group) -> Phase:
    """Pass sums around the ring; position q ends with piece q."""
    p, me = group.size, group.position
    step = np.arange(p - 1)[:, None]
    sends = group.send(step, to=(me + 1) % p, piece=(me - step - 1) % p)
    adds = group.add(step, source=(me - 1) % p, piece=(me - step - 2) % p)
    return Phase(p - 1, (sends, adds))


def all_gather(group: Group) -> Phase:
    """Pass the complete pieces around the ring, from piece q at position q."""
    p, me = group.size, group.position
    step = np.arange(p - 1)[:, None]
    sends = group.send(step, to=(me + 1) % p, piece=(me - step) % p)
    keeps = group.keep(step, source=(me - 1) % p, piece=(me - step - 1) % p)
    return Phase(p - 1, (sends, keeps))


def costs(grid: Grid) -> Costs:
    """Return the closed form above."""
    p = grid.size
    sent = Fraction(2 * (p - 1), p)
    return Costs(2 * (p - 1), sent, p * sent, grid.nodes * sent if grid.nodes > 1 else Fraction(0), sent / 2)


HALVES = Halves(reduce_scatter, all_gather, rounds=lambda size: size - 1)
ALGORITHM = flat_algorithm(
    "ring",
    "one ring over all ranks: least bytes, most rounds",
    source="Patarasuk and Yuan 2009",
    pieces=lambda p: p,
    allreduce=from_halves(HALVES),
    costs=costs,
    halves=HALVES,
)
