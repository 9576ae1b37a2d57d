"""One shape of a sweep, from where a rank stands: taking part, or left out and asleep."""

from dataclasses import dataclass

from ddlbench.bench.shapes import Shape
from ddlbench.bench.sweep import Layout
from ddlbench.comm import Communicator
from ddlbench.schedule.algorithm import BoundAlgorithm


def layout_of(shape: Shape, rank: int) -> Layout:
    """Return the layout of `shape` as `rank` of the whole launch sees it: without neighbours when it is left out."""
    here = shape.members.index(rank) if rank in shape.members else None
    neighbours = 0 if here is None else shape.topology.ranks_per_node[shape.topology.node_of[here]]
    return Layout(ranks=shape.ranks, nodes=shape.nodes, ranks_per_node=shape.ranks_per_node, neighbours=neighbours)


@dataclass(frozen=True)
class Stage:
    """One shape of a sweep as this rank sees it; `communicator` is None where the rank is left out."""

    shape: Shape
    layout: Layout
    algorithms: tuple[BoundAlgorithm, ...]
    communicator: Communicator | None

    @property
    def here(self) -> Communicator:
        """The communicator of a rank that takes part."""
        if self.communicator is None:
            raise ValueError("this rank is left out")
        return self.communicator
