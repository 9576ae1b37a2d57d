"""Which link a message takes between two ranks of a machine, and what it shares with other messages on the way.

Everything that has a bandwidth is a *resource*: the port of a rank, a network card, the memory of a node, the uplink of
a rack; sending and receiving sides are two. A message uses up to `WAYS` resources at once.

A `Placement` may be folded: with period m, ranks r and r + m stand for each other, and what is shared by more ranks
than one fold has is scaled down with it (`ddlbench.cost.rounds` says when that is right).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ddlbench.cost.buckets import Buckets
from ddlbench.cost.machine import Link, Machine
from ddlbench.errors import UsageError
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import Bools
from ddlbench.schedule.move import Ints

Floats = npt.NDArray[np.float64]

ISLAND, NODE, NIC, RACK = range(4)
"""The level at which two ranks meet: what the message between them crosses."""
LEVELS = ("island", "node", "nic", "rack")
NOTHING = 0
"""The resource that holds nothing up."""
WAYS = 8


@dataclass(frozen=True)
class Placement:
    """Ranks on the nodes of a machine, in order: `ranks_per_node` on each of `nodes`.

    `islands` are the islands of a full node of `devices` ranks, `rack` the nodes of a rack (0: all in one), `cards` the
    network cards of a node. Ranks take the devices of a node from the first on. `together` says that all nodes share
    processors.
    """

    nodes: int
    ranks_per_node: int
    devices: int
    islands: int = 1
    rack: int = 0
    cards: int = 1
    together: bool = False

    @classmethod
    def on(cls, machine: Machine, nodes: int, ranks_per_node: int | None = None) -> "Placement":
        """Return `ranks_per_node` ranks (None: as many as there are) on each of `nodes` nodes of `machine`.

        Raises `UsageError` when the machine has fewer.
        """
        ranks = machine.ranks_per_node if ranks_per_node is None else ranks_per_node
        for wanted, there, what in ((nodes, machine.nodes, "nodes"), (ranks, machine.ranks_per_node, "ranks per node")):
            if not 1 <= wanted <= there:
                raise UsageError(f"{wanted} {what}: the machine {machine.name!r} has {there} {what}")
        cards = int(machine.nic.count.value) if machine.nic else 1
        inside = (machine.islands_per_node, machine.nodes_per_rack, cards)
        return cls(nodes, ranks, machine.ranks_per_node, *inside, together=machine.processors is not None)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.nodes * self.ranks_per_node

    @property
    def racks(self) -> int:
        """Number of racks, the last of which may not be full."""
        return -(-self.nodes // self.rack) if self.rack else 1

    @property
    def grid(self) -> Grid:
        """The grid of such a launch: ranks per node by nodes; one dimension on one node."""
        return Grid((self.ranks,)) if self.nodes == 1 else Grid((self.ranks_per_node, self.nodes))

    @property
    def cards_used(self) -> int:
        """How many network cards of a node its ranks use."""
        return len(set((np.arange(self.ranks_per_node) * self.cards // self.devices).tolist()))

    def island_of(self, rank: Ints) -> Ints:
        """Return the number of each rank's island, counted over all nodes."""
        inside = rank % self.ranks_per_node * self.islands // self.devices
        return rank // self.ranks_per_node * self.islands + inside

    def node_of(self, rank: Ints) -> Ints:
        """Return the number of each rank's node."""
        return rank // self.ranks_per_node

    def card_of(self, rank: Ints) -> Ints:
        """Return the number of each rank's network card, counted over all nodes."""
        inside = rank % self.ranks_per_node * self.cards // self.devices
        return rank // self.ranks_per_node * self.cards + inside

    def rack_of(self, rank: Ints) -> Ints:
        """Return the number of each rank's rack."""
        node = self.node_of(rank)
        return node // self.rack if self.rack else np.zeros_like(node)

    def level(self, a: Ints, b: Ints) -> Ints:
        """Return the level at which ranks `a` and `b` meet, int (…)."""
        level = np.where(self.rack_of(a) == self.rack_of(b), NIC, RACK)
        level = np.where(self.node_of(a) == self.node_of(b), NODE, level)
        same = self.island_of(a) == self.island_of(b)
        return np.where(same, ISLAND if self.islands > 1 else NODE, level)


@dataclass(frozen=True)
class Resources:
    """The numbers of all resources of a placement folded to `period` ranks, and what they carry on a machine."""

    placement: Placement
    period: int

    @cached_property
    def _offsets(self) -> dict[str, int]:
        """Where the numbers of each kind of resource begin."""
        place, found, at = self.placement, {}, 1
        rank = np.array([self.period - 1])
        cards, racks = int(place.card_of(rank)[0]) + 1, int(place.rack_of(rank)[0]) + 1
        nodes, islands = int(place.node_of(rank)[0]) + 1, int(place.island_of(rank)[0]) + 1
        sizes = {"port": self.period, "card": cards, "rank": self.period, "rack": racks}
        for kind, size in sizes.items():
            for side in ("out", "in"):
                found[f"{kind} {side}"], at = at, at + size
        for kind, size in {"port": self.period, "card": cards, "node": nodes, "island": islands}.items():
            found[f"{kind} both"], at = at, at + size
        # Two ranks of an island have ports of their own beside those through the node.
        for side in ("out", "in", "both"):
            found[f"near {side}"], at = at, at + self.period
        return found | {"end": at}

    def shared(self, capacity: Floats) -> Bools:
        """Say of each resource whether it holds up messages of several ranks, which need not be in step."""
        found = np.isfinite(capacity)
        for kind, first in self._offsets.items():
            if kind.split()[0] in ("port", "near", "rank"):
                found[first : first + self.period] = False
        return found if self.period > 1 else np.zeros(len(capacity), bool)

    def used(self, src: Ints, dst: Ints, level: Ints) -> Ints:
        """Return the resources of messages between folded ranks, int (WAYS, messages)."""
        near, node, out = level == ISLAND, level == NODE, level >= NIC
        place, racks = self.placement, level == RACK
        card = place.card_of

        def number(kind: str, of: Ints) -> Ints:
            return self._offsets[kind] + of

        def port(side: str, rank: Ints) -> Ints:
            inside = np.where(near, number(f"near {side}", rank), number(f"port {side}", rank))
            return np.where(out, number(f"card {side}", card(rank)), inside)

        shared = np.where(near, number("island both", place.island_of(src)), number("node both", place.node_of(src)))
        return np.stack([
            port("out", src),
            port("in", dst),
            port("both", src),
            port("both", dst),
            np.where(node | near, shared, np.where(racks, number("rack out", place.rack_of(src)), NOTHING)),
            np.where(racks, number("rack in", place.rack_of(dst)), NOTHING),
            np.where(out, number("rank out", src), NOTHING),
            np.where(out, number("rank in", dst), NOTHING),
        ])  # fmt: skip

    def capacity(self, machine: Machine) -> Floats:
        """Return the bytes a second that each resource carries, inf where nothing is said of it."""
        found = np.full(self._offsets["end"], np.inf)
        starts = sorted((at, kind) for kind, at in self._offsets.items())
        for (first, kind), (last, _) in pairwise(starts):
            found[first:last] = self._carried(kind, machine)
        return found

    def buckets(self, machine: Machine) -> Buckets | None:
        """Return the token buckets of the network cards, each way; None where they let no burst pass.

        What limits a card's both ways together, and a rank's share of it, lets as much pass.
        """
        nic = machine.nic
        if nic is None or nic.burst is None or nic.peak is None:
            return None
        burst, peak = np.zeros(self._offsets["end"]), np.full(self._offsets["end"], np.inf)
        starts = sorted((at, kind) for kind, at in self._offsets.items())
        for (first, kind), (last, _) in pairwise(starts):
            ways = {"card out": 1, "card in": 1, "card both": 2, "rank out": 1, "rank in": 1}.get(kind, 0)
            if ways and np.isfinite(carried := self._carried(kind, machine)):
                burst[first:last], peak[first:last] = ways * nic.burst.value, max(ways * nic.peak.value, carried)
        return Buckets.empty(burst, peak)

    def _carried(self, kind: str, machine: Machine) -> float:
        what, side = kind.split()
        if what in ("node", "island"):
            link = machine.node if what == "node" else machine.island
            return link.shared.value * self._share(what) if link and link.shared else math.inf
        if what == "rack":
            return machine.rack.uplink.value if machine.rack else math.inf
        if what == "rank":
            return machine.nic.per_rank.value if machine.nic and machine.nic.per_rank else math.inf
        link_of: dict[str, Link | None] = {"port": machine.node, "near": machine.island}
        part = machine.nic if what == "card" else link_of[what]
        if part is None:
            return math.inf
        if side == "both":
            return part.both_ways.value if part.both_ways else math.inf
        return part.bandwidth.value

    def _share(self, what: str) -> float:
        """Return the share of a node's or island's resource that one fold of ranks has."""
        place = self.placement
        ranks = place.ranks_per_node if what == "node" else min(place.ranks_per_node, place.devices // place.islands)
        return min(1.0, self.period / ranks)


def latencies(machine: Machine) -> Floats:
    """Return the seconds of latency at each level, without the overheads of sender and receiver, float64 (4,)."""
    links = (machine.island, machine.node, machine.nic, machine.rack)
    return np.array([link.latency.value - 2 * machine.message_overhead if link else 0.0 for link in links])
