"""The shapes of a sweep: sub-grids of one launch, so many ranks on each of so many nodes.

Shape (N, R) is the first R ranks on each of the first N nodes, in the order in which the nodes' first ranks were
launched. Rank 0 is in every shape; it writes the record.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from ddlbench.errors import UsageError
from ddlbench.topology import Topology


@dataclass(frozen=True)
class Shape:
    """Ranks that are measured together, as ranks of the whole launch, ascending, and where they are.

    `topology` has these ranks alone, numbered from 0 in the same order.
    """

    members: tuple[int, ...]
    topology: Topology

    @classmethod
    def of(cls, topology: Topology, members: Collection[int]) -> "Shape":
        """Return the shape of the ranks `members` of `topology`."""
        ordered = tuple(sorted(members))
        return cls(ordered, topology.part(frozenset(ordered)))

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return self.topology.nodes

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.members)

    @property
    def ranks_per_node(self) -> str:
        """Number of ranks on each node; "" where nodes have different numbers."""
        return str(self.topology.ranks_per_node[0]) if self.topology.even else ""

    def __str__(self) -> str:
        return shape_text(self.nodes, self.ranks_per_node, self.ranks)


def shape_text(nodes: int, ranks_per_node: str, ranks: int) -> str:
    """Return a shape in words: `4 nodes of 2 ranks`, or `3 nodes with 5 ranks` where nodes differ."""
    where = _counted(nodes, "node")
    return f"{where} of {_counted(int(ranks_per_node), 'rank')}" if ranks_per_node else f"{where} with {ranks} ranks"


def shapes(topology: Topology, nodes: Sequence[int], ranks_per_node: Sequence[int]) -> tuple[Shape, ...]:
    """Return the shapes of a sweep over `nodes` and `ranks_per_node`, in their order, nodes outermost.

    No `nodes` means all nodes, no `ranks_per_node` all ranks of each node, and neither the whole launch as it is.
    Raises `UsageError` for a shape that the launch does not hold, naming what there is.
    """
    found = (_members(topology, count, each) for count in nodes or (None,) for each in ranks_per_node or (None,))
    return tuple(Shape.of(topology, members) for members in dict.fromkeys(found))


def _members(topology: Topology, nodes: int | None, each: int | None) -> tuple[int, ...]:
    """Return the first `each` ranks (None: all) on each of the first `nodes` nodes (None: all)."""
    count = topology.nodes if nodes is None else nodes
    if count > topology.nodes:
        raise UsageError(f"--nodes {count}: {_what_there_is(topology)}")
    return tuple(sorted(rank for node in range(count) for rank in _of_node(topology, node, each)))


def _of_node(topology: Topology, node: int, each: int | None) -> tuple[int, ...]:
    here = topology.ranks_of(node)
    if each is not None and each > len(here):
        lacking = f"node {node} ({topology.hosts[here[0]]}) has {_counted(len(here), 'rank')}"
        raise UsageError(f"--ranks-per-node {each}: {lacking}; {_what_there_is(topology)}")
    return here[:each]


def _what_there_is(topology: Topology) -> str:
    """Return how many nodes there are and with how many ranks on each."""
    if topology.nodes == 1:
        return f"this launch has 1 node with {_counted(topology.ranks, 'rank')}"
    if topology.even:
        each = _counted(topology.ranks_per_node[0], "rank")
        return f"this launch has {topology.nodes} nodes with {each} on each"
    return f"this launch has {topology.nodes} nodes: {', '.join(_uneven(topology))}"


def _uneven(topology: Topology) -> Iterator[str]:
    """Yield how many nodes have how many ranks, most ranks first."""
    for each, nodes in sorted(Counter(topology.ranks_per_node).items(), reverse=True):
        yield f"{nodes} with {_counted(each, 'rank')}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
