"""Shapes: how many ranks on how many nodes a point ran on, and which of several the others are held against."""

from collections.abc import Iterable
from dataclasses import dataclass

from ddlbench.errors import UsageError
from ddlbench.report.units import counted


@dataclass(frozen=True, order=True)
class Shape:
    """Ranks on nodes; `per_node` is the number on each node as a text, "" where nodes hold different numbers."""

    ranks: int
    nodes: int
    per_node: str

    @property
    def name(self) -> str:
        """The shape as `--baseline` spells it: nodes x ranks on each, `5 on 3` where nodes differ."""
        return f"{self.nodes}x{self.per_node}" if self.per_node else f"{self.ranks} on {self.nodes}"

    @property
    def words(self) -> str:
        """The shape in words."""
        nodes = counted(self.nodes, "node")
        if not self.per_node.isdecimal():
            return f"{nodes} with {counted(self.ranks, 'rank')}"
        return f"{nodes} of {counted(int(self.per_node), 'rank')}"

    @property
    def over_network(self) -> bool:
        """Whether its ranks are on several nodes, so that something crosses the network."""
        return self.nodes > 1


def least(shapes: Iterable[Shape]) -> Shape | None:
    """Return the shape that others are held against unless told otherwise; None where none has a bus bandwidth.

    It is that with the fewest ranks above one; of several, that on the most nodes, for it uses the network that the
    larger ones use.
    """
    able = [shape for shape in shapes if shape.ranks > 1]
    return min(able, key=lambda shape: (shape.ranks, -shape.nodes), default=None)


def named(text: str, shapes: Iterable[Shape]) -> Shape:
    """Return the shape that `text` names; raises `UsageError` where there is none, or it cannot be a baseline."""
    known = {shape.name: shape for shape in sorted(set(shapes))}
    wanted = " ".join(text.lower().replace("×", "x").split())
    found = known.get(wanted)
    if found is None:
        there = ", ".join(name for name, shape in known.items() if shape.ranks > 1) or "none"
        raise UsageError(
            f"baseline {text!r} (nodes x ranks on each) is not in the run; of more than one rank there are: {there}"
        )
    if found.ranks < 2:
        raise UsageError(f"baseline {text!r} has one rank, which has no bus bandwidth to hold others against")
    return found
