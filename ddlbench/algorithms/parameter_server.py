"""Parameter server: k of the ranks each keep one share of the vector; everyone sends to them and fetches the sums.

    rank 1 ─┐            ┌─► rank 1      round 0   every rank sends share j to server j, which adds them
    rank 2 ─┼─► server ──┼─► rank 2      round 1   server j sends the sum of share j to every rank
    rank 3 ─┘            └─► rank 3

Servers are spread over the ranks: server j is rank floor(j p / k).

rounds          2
bytes per rank  (p+k-2)/k n on a server, n elsewhere
between nodes   2(p-X) n    with X ranks per node
reduced         (p-1)/k n on a server
time            2 a + (p+k-2)/k n b + (p-1)/k n g

The pattern of DistBelief and Project Adam, here as the baseline that PowerAI DDL beat: the servers' links carry
everything. With k = p it is `direct`. Source: Dean et al., NIPS 2012; Li et al., OSDI 2014.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ddlbench.algorithms.halving_doubling import Bools
from ddlbench.schedule.algorithm import Costs, Parameter, counted, flat_algorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Ints, Phase


def _push(group: Group) -> Phase:
    share, server, other = _layout(group)
    me = group.position
    sends = group.send(0, to=server, piece=share, where=server != me)
    adds = group.add(0, source=other, piece=_share_of(group), where=_serves(group))
    return Phase(min(1, group.size - 1), (sends, adds))


def _pull(group: Group) -> Phase:
    share, server, other = _layout(group)
    me = group.position
    sends = group.send(0, to=other, piece=_share_of(group), where=_serves(group))
    keeps = group.keep(0, source=server, piece=share, where=server != me)
    return Phase(min(1, group.size - 1), (sends, keeps))


def _layout(group: Group) -> tuple[Ints, Ints, Ints]:
    """Return the shares (k, 1), the position of each one's server (k, 1), and the other positions (size-1, R)."""
    share = np.arange(group.pieces)[:, None]
    other = (group.position + 1 + np.arange(group.size - 1)[:, None]) % group.size
    return share, share * group.size // group.pieces, other


def _share_of(group: Group) -> Ints:
    """Return the share that each position would serve: the first j with floor(j p / k) >= position."""
    return -(-group.position * group.pieces // group.size)


def _serves(group: Group) -> Bools:
    share = _share_of(group)
    serves: Bools = (share < group.pieces) & (share * group.size // group.pieces == group.position)
    return serves


def allreduce(group: Group, servers: int = 1) -> Iterator[Phase]:
    """Send every share to its server, and fetch the sums."""
    yield _push(group)
    yield _pull(group)


def pieces(size: int, servers: int = 1) -> int:
    """Return the number of shares: one per server, at most one server per rank."""
    return min(size, servers)


def costs(grid: Grid, servers: int = 1) -> Costs:
    """Return the closed form above."""
    p, k = grid.size, pieces(grid.size, servers)
    between = Fraction(2 * (p - grid.ranks_per_node))
    return Costs(2 if p > 1 else 0, Fraction(p + k - 2, k), Fraction(2 * (p - 1)), between, Fraction(p - 1, k))


SERVERS: Parameter = counted("servers", 1)
ALGORITHM = flat_algorithm(
    "parameter-server",
    "everyone sends to k servers and fetches the sums: the baseline",
    source="Dean et al. 2012; Li et al. 2014",
    pieces=pieces,
    allreduce=allreduce,
    costs=costs,
    parameters=(SERVERS,),
)
