"""Folding any number of ranks onto a power of two, and who exchanges with whom at a distance.

positions  0 1 2 3 │ 4 5      6 ranks, core of 4: before the core works, 4 and 5 give their vectors to 0 and 1;
▲ ▲       │ │      afterwards they get the result back
└─┼───────┘ │      costs 2 more rounds and, for the folded ranks, one vector each way
└─────────┘
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Phase


def core_size(size: int) -> int:
    """Return the largest power of two that is at most `size`."""
    return 1 << (size.bit_length() - 1)


def is_power_of_two(size: int) -> bool:
    """Say whether `size` is a power of two."""
    return size == core_size(size)


def folded(group: Group, allreduce: Callable[[Group], Iterator[Phase]]) -> Iterator[Phase]:
    """Yield the phases of `allreduce` on the core of `group`, with the other ranks folded onto it and back."""
    core = core_size(group.size)
    inside = group.position < core
    order = None if group.order is None else group.order[:core]
    yield _fold(group, core)
    yield from allreduce(replace(group.only(inside), size=core, order=order))
    yield _unfold(group, core)


def _fold(group: Group, core: int) -> Phase:
    extra, me = group.size - core, group.position
    sends = group.send(0, to=me - core, piece=0, pieces=group.pieces, where=me >= core)
    adds = group.add(0, source=me + core, piece=0, pieces=group.pieces, where=me < extra)
    return Phase(min(1, extra), (sends, adds))


def _unfold(group: Group, core: int) -> Phase:
    extra, me = group.size - core, group.position
    sends = group.send(0, to=me + core, piece=0, pieces=group.pieces, where=me < extra)
    keeps = group.keep(0, source=me - core, piece=0, pieces=group.pieces, where=me >= core)
    return Phase(min(1, extra), (sends, keeps))


def crossings(core: int, ranks_per_node: int, distance: int) -> int:
    """Return how many of `core` ranks have their partner `rank XOR distance` on another node.

    For distance >= ranks_per_node that is all of them. Below it, each node boundary b separates
    min(b mod 2d, 2d - b mod 2d) pairs.
    """
    if distance >= ranks_per_node:
        return core
    period = 2 * distance
    return 2 * sum(min(b % period, -b % period) for b in range(ranks_per_node, core, ranks_per_node))
