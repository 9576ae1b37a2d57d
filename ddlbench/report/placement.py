"""Where the ranks of a run were: which on which host, and which processors each might use."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from ddlbench.records import Run
from ddlbench.report.units import counted

ROWS = 40
"""Rows of the map; run.json has all ranks."""
CORES = 8
"""Lists of processors that a row names rank by rank."""


@dataclass(frozen=True)
class Node:
    """A node: its host, its ranks, and the processors of each of them as a text."""

    host: str
    ranks: tuple[int, ...]
    cores: tuple[str, ...]

    @property
    def kind(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """What is the same on nodes that one row can tell of: how ranks follow each other, and their processors."""
        return tuple(later - rank for rank, later in pairwise(self.ranks)), self.cores


@dataclass(frozen=True)
class Placed:
    """A row of the map: neighbouring nodes that are alike."""

    nodes: str
    ranks: str
    cores: str


def placement(topology: Mapping[str, Any]) -> tuple[list[Placed], int]:
    """Return the rows of the map of a topology, and how many were left out; none where it does not say.

    Nodes that follow each other and are alike are one row.
    """
    alike = [list(members) for _, members in groupby(_nodes(topology), key=lambda node: node.kind)]
    return [_row(members) for members in alike[:ROWS]], max(0, len(alike) - ROWS)


def _nodes(topology: Mapping[str, Any]) -> Iterator[Node]:
    hosts, node_of, cpus = (topology.get(name) for name in ("hosts", "node_of", "cpus"))
    columns = [column for column in (hosts, node_of, cpus) if isinstance(column, list | tuple)]
    if len(columns) < 3 or len(set(map(len, columns))) > 1:
        return
    found: dict[Any, list[tuple[int, str, str]]] = {}
    for rank, (host, node, cores) in enumerate(zip(*columns, strict=True)):
        found.setdefault(str(node), []).append((rank, str(host), spans(cores)))
    for members in found.values():
        ranks, names, cores = zip(*members, strict=True)
        yield Node(names[0], ranks, cores)


def _row(members: Sequence[Node]) -> Placed:
    first, last = members[0], members[-1]
    hosts = first.host if len(members) == 1 else f"{first.host} … {last.host} ({counted(len(members), 'node')})"
    return Placed(hosts, _ranks(members), _cores(first.cores))


def _ranks(members: Sequence[Node]) -> str:
    """Return the ranks of nodes that are alike: of several, all together and how they fall to the nodes."""
    every = spans([rank for node in members for rank in node.ranks])
    if len(members) == 1:
        return every
    steps = set(members[0].kind[0])
    each = counted(len(members[0].ranks), "rank")
    how = ", one after the other" if steps == {1} else f", every {_nth(min(steps))}" if len(steps) == 1 else ""
    return f"{every}: {each} on each{how}"


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return f"{number}{ending}"


def _cores(cores: Sequence[str]) -> str:
    """Return the processors of a node's ranks: those all share, a block for each in turn, or rank by rank."""
    if not any(cores):
        return ""
    if len(set(cores)) == 1:
        return cores[0] if len(cores) == 1 else f"{cores[0]}, shared by all"
    blocks = [_block(one) for one in cores]
    sizes = {high - low + 1 for low, high in blocks}
    if len(sizes) == 1 and all(low == high + 1 for (_, high), (low, _) in pairwise(blocks)):
        return f"{blocks[0][0]}-{blocks[-1][1]}, {sizes.pop():,} for each in turn"
    shown = [*cores[: CORES - 1], "…", cores[-1]] if len(cores) > CORES else cores
    return "rank by rank: " + "; ".join(shown)


def _block(spans: str) -> tuple[int, int]:
    """Return the first and the last of one span of processors; for several, what is next to nothing."""
    low, _, high = spans.partition("-")
    return (int(low), int(high or low)) if low.isdecimal() and (high or low).isdecimal() else (-2, -4)


def spans(numbers: Any) -> str:
    """Return whole numbers as spans, as taskset writes them: 0-3,8."""
    if not isinstance(numbers, list | tuple):
        return ""
    spans: list[list[int]] = []
    for number in sorted({number for number in numbers if isinstance(number, int)}):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in spans)


def virtual(run: Run) -> str:
    """Say what the nodes are when they are no machines of their own; "" when they are, or nothing is known of it."""
    variables = run.environment.get("variables")
    lab = variables.get("DDLBENCH_LAB") if isinstance(variables, Mapping) else None
    if lab:
        return f"network namespaces on one machine ({lab})"
    nodes, machines = (_different(run.topology.get(name)) for name in ("node_of", "machine_of"))
    return f"containers on {counted(machines, 'machine')}" if 0 < machines < nodes else ""


def _different(values: Any) -> int:
    return len(set(map(str, values))) if isinstance(values, list | tuple) else 0
