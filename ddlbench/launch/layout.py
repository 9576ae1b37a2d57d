"""How many ranks run on which host: node by node, checked against the slots and against the grid of a mode.

Slots that somebody stated are taken at their word, also on this machine, where they may be more than its cores: a
virtual cluster has as many as it was asked for. Only where nobody stated any, this machine has one for each core.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddlbench.errors import UsageError
from ddlbench.launch.allocation import Allocation, cores
from ddlbench.launch.hosts import Host, is_here

if TYPE_CHECKING:
    from ddlbench.schedule.grid import Grid

MODE = re.compile(r"(?:([rbnpm]):)?([0-9]+(?:[xX][0-9]+)*)|([rbnpm])")
"""PowerAI DDL's mode strings: a letter and a grid, or one of them."""


@dataclass(frozen=True)
class Wish:
    """What the command line asks for; None where it says nothing."""

    ranks: int | None = None
    ranks_per_node: int | None = None
    nodes: int | None = None
    mode: str | None = None
    oversubscribe: bool = False


@dataclass(frozen=True)
class Layout:
    """The hosts in rank order, with the ranks of each as slots.

    `oversubscribed` says that there are more than a host has slots or, on this machine, cores; `sharing` says of the
    cores how many ranks share how many, in words, "" where none do. `named` says that the hosts come from a list, so
    that launchers must be told them; else it is just this machine.
    """

    hosts: tuple[Host, ...]
    oversubscribed: bool = False
    named: bool = True
    sharing: str = ""

    @property
    def counts(self) -> tuple[int, ...]:
        """Ranks on each host."""
        return tuple(host.slots or 0 for host in self.hosts)

    @property
    def ranks(self) -> int:
        """Ranks on all hosts."""
        return sum(self.counts)

    @property
    def per_node(self) -> int | None:
        """Ranks on every host, None where they are not as many on all."""
        return self.counts[0] if len(set(self.counts)) == 1 else None

    @property
    def only_here(self) -> bool:
        """Whether all ranks run on this machine."""
        return len(self.hosts) == 1 and is_here(self.hosts[0].name)

    def one_per_node(self) -> "Layout":
        """Return the same hosts with one rank on each."""
        return Layout(tuple(replace(host, slots=1) for host in self.hosts))


def planned(allocation: Allocation, wish: Wish) -> Layout:
    """Return the ranks of each host of the `allocation`.

    Raises `UsageError` with both numbers when there are fewer hosts or slots than are wished for, or when the grid of
    the mode is not that of the slots.
    """
    given = _first(allocation, wish.nodes)
    counts = list(_counts(given, wish))
    hosts = tuple(replace(host, slots=count) for host, count in zip(given.hosts, counts, strict=False) if count)
    over = list(_beyond(given, counts))
    if over and not wish.oversubscribe:
        raise UsageError(
            f"more ranks than slots: {'; '.join(over[:4])}: ask for fewer, or give --oversubscribe to mean it"
        )
    if wish.mode is not None:
        _check_grid(wish.mode, Layout(hosts))
    sharing = _sharing(given, hosts)
    return Layout(hosts, oversubscribed=bool(over or sharing), named=allocation.named, sharing=sharing)


def _beyond(allocation: Allocation, counts: list[int]) -> Iterator[str]:
    """Yield in words the hosts that get more ranks than they have room for, with both numbers."""
    for host, count in zip(allocation.hosts, counts, strict=False):
        stated = allocation.named and host.slots is not None
        room = host.slots if stated or not is_here(host.name) else cores()
        if room is not None and count > room:
            slots = "1 slot" if room == 1 else f"{room} slots"
            yield f"{count} on {host.name}, which has {slots}{'' if stated else ', one for each core'}"


def _sharing(allocation: Allocation, hosts: tuple[Host, ...]) -> str:
    """Return in words how many ranks share how many cores of this machine, "" where each has its own.

    The slots of a scheduler are what it set aside, whatever this process may use of it; other machines are not known.
    """
    here = () if allocation.scheduler else tuple(host for host in hosts if is_here(host.name))
    ranks, own = Layout(here).ranks, cores()
    if ranks <= own:
        return ""
    return f"{ranks} ranks share {'the one core' if own == 1 else f'the {own} cores'} of {here[0].name}"


def _first(allocation: Allocation, nodes: int | None) -> Allocation:
    """Return the allocation cut to its first `nodes` hosts; raises `UsageError` when it has fewer."""
    if nodes is not None and nodes > len(allocation.hosts):
        raise UsageError(
            f"--nodes {nodes}, but {allocation.source} has {len(allocation.hosts)}: ask for fewer, or for a larger job"
        )
    return replace(allocation, hosts=allocation.hosts[:nodes])


def _counts(allocation: Allocation, wish: Wish) -> Iterator[int]:
    """Return the ranks of the hosts in order; hosts beyond its end stay empty."""
    grid = None if wish.mode is None else grid_of(wish.mode)
    if wish.ranks_per_node is not None:
        return _evenly(allocation, wish.ranks_per_node, wish.ranks)
    if wish.ranks is not None:
        return _filled(allocation, wish.ranks)
    if grid is not None and not allocation.promised:
        return _of_grid(allocation, grid)
    return (host.slots or 1 for host in allocation.hosts)


def _evenly(allocation: Allocation, per_node: int, ranks: int | None) -> Iterator[int]:
    """Return `per_node` for each host, or for as many as `ranks` take."""
    nodes = len(allocation.hosts) if ranks is None else ranks // per_node
    if ranks is not None and nodes * per_node != ranks:
        raise UsageError(f"{ranks} ranks cannot be {per_node} on each node: {ranks} is no multiple of {per_node}")
    if nodes > len(allocation.hosts):
        raise UsageError(
            f"{ranks} ranks, {per_node} per node, take {nodes} nodes, but {allocation.source} has"
            f" {len(allocation.hosts)}"
        )
    return iter([per_node] * nodes)


def _filled(allocation: Allocation, ranks: int) -> Iterator[int]:
    """Yield how `ranks` fill the hosts one after the other; what finds no slot is spread over all of them."""
    beyond = max(0, ranks - allocation.slots)
    extra, rest = divmod(beyond, len(allocation.hosts))
    for at, host in enumerate(allocation.hosts):
        taken = min(host.slots or 1, ranks)
        ranks -= taken
        yield taken + extra + (at < rest)


def _of_grid(allocation: Allocation, grid: "Grid") -> Iterator[int]:
    """Return the ranks per host of a grid over hosts whose slots nobody counted."""
    nodes = len(allocation.hosts)
    if grid.size % nodes:
        raise UsageError(f"grid {grid} holds {grid.size} ranks, which {nodes} nodes cannot share evenly")
    return iter([grid.size // nodes] * nodes)


def grid_of(mode: str) -> "Grid | None":
    """Return the grid that a mode such as `p:4x2` settles, None for a letter alone; raises `UsageError`."""
    from ddlbench.schedule.grid import Grid

    found = MODE.fullmatch(mode)
    if found is None:
        raise UsageError(f"mode {mode!r}: expected a letter and a grid such as p:4x2, X inside a node first")
    return Grid.parse(found[2]) if found[2] else None


def _check_grid(mode: str, layout: Layout) -> None:
    """Raise `UsageError` unless the grid of `mode` has all ranks, and its first dimension those of a node."""
    if layout.per_node is None:
        raise UsageError(f"mode {mode!r} needs as many ranks on every node; there are {_listed(layout)}")
    grid = grid_of(mode)
    if grid is None:
        return
    if grid.size != layout.ranks:
        raise UsageError(
            f"mode {mode!r}: grid {grid} holds {grid.size} ranks, but there are {layout.ranks} slots,"
            f" {_listed(layout)}: say how many to use with -n, --ranks-per-node or --nodes"
        )
    if layout.per_node != grid.ranks_per_node:
        raise UsageError(
            f"mode {mode!r}: a grid has the ranks of a node first, so {grid} is"
            f" {_on_nodes(grid.ranks_per_node, grid.nodes)}, but there are {_listed(layout)}: write"
            f" {layout.per_node}x{len(layout.hosts)}, or leave --mode out and name the mode to the sweep, -a {mode}"
        )


def _listed(layout: Layout) -> str:
    return _on_nodes(layout.per_node or "/".join(map(str, layout.counts[:8])), len(layout.hosts))


def _on_nodes(per_node: int | str, nodes: int) -> str:
    return f"{per_node} on 1 node" if nodes == 1 else f"{per_node} on each of {nodes} nodes"
