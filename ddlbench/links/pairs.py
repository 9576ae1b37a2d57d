"""Which ranks are linked by what, and in which order pairs are measured: rounds of a tournament.

A pair's class is the level at which its ranks meet, by the name of its section in a topology file: `island` (ranks
that share a last-level cache, where a node has several such groups), `node`, `nic` (between nodes), `rack` (between
racks, where it was said how many nodes stand in one).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product, zip_longest

from ddlbench.topology import Topology

CLASSES = ("island", "node", "nic", "rack")
ALL_PAIRS_RANKS = 16
"""Up to so many ranks every pair is measured; of more, the first ranks of all nodes and the pairs inside one node."""
MOST_INSIDE = 120
"""At most so many pairs inside that node."""

Pair = tuple[int, int]


@dataclass(frozen=True)
class Places:
    """Where the ranks of a launch are, as far as links tell them apart.

    `islands` are the groups of ranks inside a node that share a last-level cache, 1 where there are none to tell;
    `rack` is the number of nodes of a rack, 0 where all stand in one.
    """

    topology: Topology
    islands: int = 1
    rack: int = 0

    def island_of(self, rank: int) -> int:
        """Return the number of a rank's island inside its node."""
        ranks = self.topology.ranks_of(self.topology.node_of[rank])
        return ranks.index(rank) * self.islands // len(ranks)

    def rack_of(self, node: int) -> int:
        """Return the number of a node's rack."""
        return node // self.rack if self.rack else 0

    def class_of(self, pair: Pair) -> str:
        """Return the class of the link between two ranks."""
        nodes = [self.topology.node_of[rank] for rank in pair]
        if nodes[0] != nodes[1]:
            return "nic" if self.rack_of(nodes[0]) == self.rack_of(nodes[1]) else "rack"
        same = self.island_of(pair[0]) == self.island_of(pair[1])
        return "island" if same and self.islands > 1 else "node"

    @property
    def compared(self) -> tuple[str, ...]:
        """What pairs are compared by: a latency says nothing of a link where ranks wait for each other's processor."""
        topology = self.topology
        shared = any(len({topology.node_of[rank] for rank in ranks}) > 1 for ranks in topology.machines)
        return ("bandwidth",) if shared or topology.crowded else ("latency", "bandwidth")

    def pairs(self) -> list[list[Pair]]:
        """Return the pairs to measure, by rounds; those of a round share no machine, and so hold each other up in none.

        Pairs of nodes come in the rounds of a tournament, by the circle method.
        """
        whole = self.topology.ranks <= ALL_PAIRS_RANKS
        of = [self.topology.ranks_of(node) for node in range(self.topology.nodes)]
        inside = [list(combinations(ranks, 2)) for ranks in of]
        if not whole:
            inside = [_spread(next((pairs for pairs in inside if pairs), []))]
        found = list(self._together(inside))
        for round_ in tournament(len(of)):
            found += self._together([list(product(of[a], of[b])) if whole else [(of[a][0], of[b][0])]
                                     for a, b in round_])  # fmt: skip
        return found

    def _together(self, groups: Sequence[Sequence[Pair]]) -> Iterator[list[Pair]]:
        """Yield rounds that take a pair of each group, cut further where pairs share a machine."""
        machine_of = self.topology.machine_of or self.topology.node_of
        for taken in zip_longest(*groups):
            yield from packed([pair for pair in taken if pair is not None], machine_of)

    def apart(self, pairs: Sequence[Pair]) -> list[list[Pair]]:
        """Return `pairs` by rounds whose pairs share no machine."""
        return packed(pairs, self.topology.machine_of or self.topology.node_of)

    def at_once(self, kind: str, avoid: Sequence[int] = ()) -> list[Pair]:
        """Return the disjoint pairs of the class `kind` that share something: in an island, a node, between two nodes.

        Nodes in `avoid` are left out where there are others. Between racks all nodes of the first two take part.
        """
        nodes = [node for node in range(self.topology.nodes) if node not in avoid]
        found = self._at_once(kind, nodes)
        return found or self._at_once(kind, range(self.topology.nodes))

    def _at_once(self, kind: str, nodes: Sequence[int]) -> list[Pair]:
        of = self.topology.ranks_of
        if kind in ("island", "node"):
            inside = ([pair for pair in combinations(of(node), 2) if self.class_of(pair) == kind] for node in nodes)
            found = next((pairs for pairs in inside if pairs), [])
            if kind == "island":
                found = [pair for pair in found if self.island_of(pair[0]) == self.island_of(found[0][0])]
            return disjoint(found)
        if kind == "nic":
            two = next(([a, b] for a, b in combinations(nodes, 2) if self.rack_of(a) == self.rack_of(b)), [])
            return list(zip(*map(of, two), strict=False))
        racks = sorted({self.rack_of(node) for node in nodes})[:2]
        sides = [[node for node in nodes if self.rack_of(node) == rack] for rack in racks]
        facing = zip(*sides, strict=False) if len(sides) == 2 else ()
        return list(chain.from_iterable(zip(of(a), of(b), strict=False) for a, b in facing))


def tournament(players: int) -> list[list[Pair]]:
    """Return rounds of pairs in which everyone meets everyone once and nobody is twice in a round.

    The circle method: one stays, the others walk round; with an odd number of players one rests in each round.
    """
    if players < 2:
        return []
    circle = [*range(players), *([-1] if players % 2 else [])]
    found = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        meet = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append([(min(a, b), max(a, b)) for a, b in meet if min(a, b) >= 0])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


def packed(pairs: Sequence[Pair], machine_of: Sequence[int]) -> list[list[Pair]]:
    """Return `pairs` in as few rounds as come of taking each into the first that has none of its machines."""
    rounds: list[list[Pair]] = []
    used: list[set[int]] = []
    for pair in pairs:
        machines = {machine_of[rank] for rank in pair}
        free = next((at for at, taken in enumerate(used) if not taken & machines), len(rounds))
        if free == len(rounds):
            rounds.append([])
            used.append(set())
        rounds[free].append(pair)
        used[free] |= machines
    return rounds


def disjoint(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the first pairs of which no two share a rank: neighbours with neighbours."""
    used: set[int] = set()
    found = []
    for pair in pairs:
        if not used & set(pair):
            used |= set(pair)
            found.append(pair)
    return found


def _spread(pairs: list[Pair]) -> list[Pair]:
    return pairs[:: -(-len(pairs) // MOST_INSIDE)] if pairs else []


def islands_of(caches: Sequence[Sequence[str]]) -> int:
    """Return into how many islands the ranks of every node fall, by the caches that they share; 1 where none are told.

    `caches` names, node by node and rank by rank, the last-level cache of all processors a rank may run on, "" where
    they have several. Islands are what a topology file can say: equally many ranks in each, in order, more than one.
    """
    counts = {len(set(node)) for node in caches}
    islands = counts.pop() if len(counts) == 1 else 1
    blocks = all(
        "" not in node and len(node) % islands == 0 and len(node) > islands
        and list(node) == [name for name in dict.fromkeys(node) for _ in range(len(node) // islands)]
        for node in caches
    )  # fmt: skip
    return islands if blocks else 1
