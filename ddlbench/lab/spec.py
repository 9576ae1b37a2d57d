"""What a lab looks like: how many nodes, how fast their links are, how they are wired. Checked when it is made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ddlbench.errors import UsageError

MOST_NODES = 200
"""Addresses of one subnet, with room; a machine runs out of patience long before."""
MOST_RANKS = 4096
MOST_NICS = 4
UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9, "tbit": 10**12}
LEAST, MOST = 64 * 10**3, 100 * 10**9
"""Bits per second. Below, one packet takes a fifth of a second; above, no machine shapes anything."""
NODE = re.compile(r"(?:node)?([0-9]{1,9})")
RATE = re.compile(r"(\d+(?:\.\d+)?)([a-z]+)", re.ASCII)


@dataclass(frozen=True, order=True)
class Rate:
    """How much a link carries in each direction, in bits per second."""

    bits_per_s: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a rate as tc takes it: 1gbit, 2.5gbit, 100mbit; raises `UsageError`."""
        match = RATE.fullmatch(text.strip().lower())
        if match is None or match[2] not in UNITS:
            bytes_hint = "; tc's bps are bytes" if text.strip().lower().endswith("bps") else ""
            raise UsageError(f"rate {text!r}: expected bits per second as in 1gbit, 2.5gbit or 100mbit{bytes_hint}")
        bits = float(match[1]) * UNITS[match[2]]  # infinite where the number has hundreds of digits
        if not LEAST <= bits <= MOST:
            raise UsageError(f"rate {text!r}: expected {cls(LEAST)} to {cls(MOST)}")
        return cls(round(bits))

    def __str__(self) -> str:
        unit = next(unit for unit in reversed(UNITS) if self.bits_per_s >= UNITS[unit])
        return f"{self.bits_per_s / UNITS[unit]:.12g}{unit}"

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second in each direction."""
        return self.bits_per_s / 8


@dataclass(frozen=True, kw_only=True)
class Lab:
    """The shape of a virtual cluster; raises `UsageError` when it makes no sense.

    nodes, ranks_per_node
        hosts node0, node1 …, and the ranks that each has room for
    rate
        what each network card of a node carries in each direction
    node_rates
        the rates of nodes that differ, by the node's number
    racks, rack_rate
        nodes stand in this many racks, in order; each rack's way to the others carries `rack_rate` in each direction
    nics
        network cards of each node: eth0, eth1 …, each in a network of its own
    """

    nodes: int = 4
    ranks_per_node: int = 1
    rate: Rate = Rate(UNITS["gbit"])
    node_rates: Mapping[int, Rate] = field(default_factory=dict)
    racks: int = 1
    rack_rate: Rate | None = None
    nics: int = 1

    def __post_init__(self) -> None:
        _check_range("--nodes", self.nodes, 1, MOST_NODES)
        _check_range("--ranks-per-node", self.ranks_per_node, 1, MOST_RANKS // self.nodes)
        _check_range("--nics", self.nics, 1, MOST_NICS)
        _check_range("--racks", self.racks, 1, self.nodes)
        if self.racks == 1 and self.rack_rate is not None:
            raise UsageError(f"--rack-rate {self.rack_rate} is for the way between racks: add --racks 2")
        if self.racks > 1 and self.rack_rate is None:
            raise UsageError(f"--racks {self.racks}: say what the way between them carries, as in --rack-rate 500mbit")
        for node in self.node_rates:
            if not 0 <= node < self.nodes:
                raise UsageError(f"--node-rate {node}=…: there is no node {node}, only 0 to {self.nodes - 1}")

    @property
    def ranks(self) -> int:
        """Ranks that the lab has room for."""
        return self.nodes * self.ranks_per_node

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host names."""
        return tuple(f"node{node}" for node in range(self.nodes))

    def rate_of(self, node: int) -> Rate:
        """Return what each network card of `node` carries."""
        return self.node_rates.get(node, self.rate)

    def rack_of(self, node: int) -> int:
        """Return the rack that `node` stands in."""
        return node * self.racks // self.nodes

    def address(self, node: int, nic: int = 0) -> str:
        """Return the IPv4 address of a network card."""
        return f"10.9.{nic}.{node + 1}"

    def describe(self) -> str:
        """Return the shape in words, for records and screens: "4 nodes, 1gbit each; node2 100mbit"."""
        cards = f"{self.nics} x {self.rate}" if self.nics > 1 else str(self.rate)
        parts = [f"{self.nodes} node{'s' * (self.nodes > 1)}, {cards} each"]
        parts += [f"node{node} {rate}" for node, rate in sorted(self.node_rates.items())]
        if self.racks > 1:
            parts.append(f"{self.racks} racks, {self.rack_rate} between them")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the shape as a JSON value."""
        return {
            "nodes": self.nodes,
            "ranks_per_node": self.ranks_per_node,
            "rate": str(self.rate),
            "node_rates": {str(node): str(rate) for node, rate in self.node_rates.items()},
            "racks": self.racks,
            "rack_rate": self.rack_rate and str(self.rack_rate),
            "nics": self.nics,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        rates = {
            "rate": Rate.parse(value["rate"]),
            "node_rates": {int(node): Rate.parse(rate) for node, rate in value["node_rates"].items()},
            "rack_rate": value["rack_rate"] and Rate.parse(value["rack_rate"]),
        }
        return cls(**{**value, **rates})


def _check_range(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UsageError(f"{option} {value}: expected {least} to {most}")


def parse_node_rates(texts: tuple[str, ...]) -> dict[int, Rate]:
    """Read rates of single nodes, each as 2=100mbit or node2=100mbit, one for each node; raises `UsageError`."""
    found: dict[int, Rate] = {}
    for text in texts:
        node, equals, rate = text.partition("=")
        number = NODE.fullmatch(node.strip())
        if not equals or number is None:
            raise UsageError(f"--node-rate {text!r}: expected a node and its rate, as in 2=100mbit")
        if int(number[1]) in found:
            raise UsageError(f"--node-rate {text!r}: node {int(number[1])} has a rate already, {found[int(number[1])]}")
        found[int(number[1])] = Rate.parse(rate)
    return found
