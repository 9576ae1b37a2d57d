"""What figures should be: by a topology, by an earlier acceptance, or by neither, when the peers' median must do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any, Protocol

from ddlbench.accept.examine import algorithm, bus
from ddlbench.accept.rules import Rules
from ddlbench.algorithms import resolve
from ddlbench.cost.machine import Machine
from ddlbench.cost.network import Placement
from ddlbench.cost.simulate import simulate
from ddlbench.errors import UsageError
from ddlbench.schedule.grid import Grid
from ddlbench.topology import Topology


@dataclass(frozen=True)
class Expected:
    """A figure that is expected, in the unit of what is measured, and what says so."""

    value: float
    basis: str


class Expectation(Protocol):
    """Says what a figure should be; None where it does not know."""

    def of(self, what: str, nodes: Sequence[int]) -> Expected | None:
        """Return what is expected of `what` of a node, a pair or a group."""


class Nothing:
    """Knows nothing: the peers are all there is to compare with."""

    def of(self, what: str, nodes: Sequence[int]) -> Expected | None:  # noqa: ARG002 - it says nothing of any
        """Return None."""
        return None


class Described:
    """What a described machine should do; raises `UsageError` when the launch is larger than it."""

    def __init__(self, machine: Machine, topology: Topology, rules: Rules) -> None:
        each = max(topology.ranks_per_node)
        Placement.on(machine, topology.nodes, each)
        self._machine, self._topology, self._rules = machine, topology, rules
        self._basis = f"topology {machine.name}"

    def of(self, what: str, nodes: Sequence[int]) -> Expected | None:
        """Return what the machine's figures come to."""
        ways: dict[str, Callable[[], float | None]] = {
            "reduction": lambda: self._machine.rank.reduction.value,
            "allreduce": lambda: self._inside(nodes[0]),
            "latency": lambda: self._latency(nodes),
            "bandwidth": lambda: self._bandwidth(nodes),
            "bus bandwidth": lambda: self._group(nodes),
        }
        value = ways[what]() if what in ways else None
        return None if value is None else Expected(value, self._basis)

    def _apart(self, nodes: Sequence[int]) -> bool:
        """Say whether two nodes stand in different racks."""
        rack = self._machine.nodes_per_rack
        return bool(rack) and nodes[0] // rack != nodes[-1] // rack

    def _latency(self, nodes: Sequence[int]) -> float | None:
        link = self._machine.rack if self._apart(nodes) else self._machine.nic
        return link.latency.value if link else None

    def _bandwidth(self, nodes: Sequence[int]) -> float | None:
        nic = self._machine.nic
        if nic is None:
            return None
        one = min(nic.bandwidth.value, nic.per_rank.value) if nic.per_rank else nic.bandwidth.value
        return min(one, self._machine.rack.uplink.value) if self._machine.rack and self._apart(nodes) else one

    def _inside(self, node: int) -> float:
        ranks = self._topology.ranks_per_node[node]
        return bus(self._rules.node.size, ranks, self._seconds((ranks,), self._rules.node.size))

    def _group(self, nodes: Sequence[int]) -> float | None:
        counts = [self._topology.ranks_per_node[node] for node in nodes]
        if len(set(counts)) > 1:
            return None  # a described machine has as many ranks on each node
        return bus(self._rules.group.size, len(nodes), self._seconds(counts, self._rules.group.size))

    def _seconds(self, counts: Sequence[int], nbytes: int) -> float:
        grid = Grid((counts[0], len(counts))) if len(counts) > 1 and counts[0] > 1 else Grid((sum(counts),))
        placement = Placement.on(self._machine, len(counts), counts[0])
        return simulate(resolve(algorithm(counts), grid), self._machine, placement, nbytes)


class Earlier:
    """What an earlier acceptance measured: of the same hosts, else the median of its like.

    `data` is what `record.read` returns. Raises `UsageError` when it was measured with other sizes.
    """

    def __init__(self, data: Mapping[str, Any], hosts: Sequence[str], rules: Rules) -> None:
        self._hosts = hosts
        sizes = {"node": rules.node.size, "pair": rules.pair.size, "group": rules.group.size}
        for part, size in sizes.items():
            if data["sizes"].get(part) != size:
                raise UsageError(
                    f"the baseline was measured with {data['sizes'].get(part)} bytes for each {part}, this run with "
                    f"{size}: give the same {part}.size in --rules"
                )
        self._figures: dict[tuple[str, tuple[str, ...]], float] = {}
        for check in data["checks"]:
            if check["measured"] is not None and isfinite(check["measured"]) and check["status"] == "pass":
                self._figures[check["what"], tuple(sorted(check["hosts"]))] = float(check["measured"])

    def of(self, what: str, nodes: Sequence[int]) -> Expected | None:
        """Return what was measured then and found good."""
        hosts = tuple(sorted(self._hosts[node] for node in nodes))
        if (found := self._figures.get((what, hosts))) is not None:
            return Expected(found, "baseline, same hosts" if len(hosts) > 1 else "baseline, same host")
        like = [value for (name, others), value in self._figures.items() if name == what and len(others) == len(hosts)]
        return Expected(median(like), f"baseline, median of {len(like)}") if like else None
