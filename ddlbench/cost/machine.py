"""A described machine: how ranks, islands, nodes and racks nest, what each link between them carries, and who says so.

    two ranks of one    link section    what they share
    island              [island]        `shared`: all that moves in the island
    node                [node]          `shared`: all that moves between islands of the node (in the node, without any)
    rack                [nic]           their node's network cards
    cluster             [rack]          the cards, and their rack's uplink

Figures are in seconds, bytes, and bytes a second. Each has a source; one that nobody measured says `estimate`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

from ddlbench.cost.quantity import AMOUNT, RATE, TIME, Unit
from ddlbench.errors import UsageError, unknown

MOST_WHOLE = (1 << 31) - 1
"""The most nodes, ranks or cards of a machine."""

ESTIMATE = "estimate"


@dataclass(frozen=True)
class Figure:
    """A number, where it comes from, and where it was fitted the interval it lies in."""

    value: float
    source: str
    low: float | None = None
    high: float | None = None

    @property
    def estimated(self) -> bool:
        """Whether nobody measured or published it."""
        return self.source.startswith(ESTIMATE)


COUNT: Mapping[str, Unit | None] = {"unit": None}
SECONDS: Mapping[str, Unit | None] = {"unit": TIME}
SPEED: Mapping[str, Unit | None] = {"unit": RATE}
NBYTES: Mapping[str, Unit | None] = {"unit": AMOUNT}
"""What a field is a figure of: COUNT has no unit, it is a whole number from 1 on."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How many there are: nodes, ranks (devices) of a node, islands of ranks inside a node, nodes of a rack."""

    nodes: Figure = field(metadata=COUNT)
    ranks_per_node: Figure = field(metadata=COUNT)
    islands_per_node: Figure | None = field(default=None, metadata=COUNT)
    nodes_per_rack: Figure | None = field(default=None, metadata=COUNT)


@dataclass(frozen=True, kw_only=True)
class Rank:
    """A rank: `reduction` bytes of the vector that it adds a second.

    `message_overhead` is what each message costs it, to send as to receive, and is part of the links' latencies; 0 when
    None. A message of up to `eager` bytes leaves without waiting for its receiver; none when None.
    """

    reduction: Figure = field(metadata=SPEED)
    message_overhead: Figure | None = field(default=None, metadata=SECONDS)
    eager: Figure | None = field(default=None, metadata=NBYTES)


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link inside a node: one way alone, both ways together (twice that when None), and of all its ranks together."""

    latency: Figure = field(metadata=SECONDS)
    bandwidth: Figure = field(metadata=SPEED)
    both_ways: Figure | None = field(default=None, metadata=SPEED)
    shared: Figure | None = field(default=None, metadata=SPEED)


@dataclass(frozen=True, kw_only=True)
class Nic:
    """The network cards of a node: `count` of them, each with its bandwidth one way, and both ways together.

    `both_ways` None means twice the bandwidth. `per_rank` is the most that one rank drives. Ranks use the cards in
    blocks: of 4 ranks and 2 cards, the first two use the first. Where messages are spread over cards, describe them as
    one. A shaped link lets `burst` bytes pass at the rate `peak` before its bandwidth holds, each way (a token bucket,
    which fills again at the bandwidth); both or neither.
    """

    latency: Figure = field(metadata=SECONDS)
    bandwidth: Figure = field(metadata=SPEED)
    count: Figure = field(metadata=COUNT)
    both_ways: Figure | None = field(default=None, metadata=SPEED)
    per_rank: Figure | None = field(default=None, metadata=SPEED)
    burst: Figure | None = field(default=None, metadata=NBYTES)
    peak: Figure | None = field(default=None, metadata=SPEED)


@dataclass(frozen=True, kw_only=True)
class Rack:
    """Between racks: the latency, and what the uplink of a rack carries, each way."""

    latency: Figure = field(metadata=SECONDS)
    uplink: Figure = field(metadata=SPEED)


@dataclass(frozen=True, kw_only=True)
class Processors:
    """The processors that all nodes share where they are one machine, as in a virtual cluster; nowhere else.

    `count` of them carry all messages; one between nodes keeps one of them busy for `message`, one inside a node for
    `inside` (as long when None). Both are part of the links' latencies. While all nodes are at work, one that sends
    `large` bytes or more at once to others gets no more than `one_way` a second, and where they send to it as well
    `both_ways`, both directions together; as much as the cards carry when None.
    """

    count: Figure = field(metadata=COUNT)
    message: Figure = field(metadata=SECONDS)
    inside: Figure | None = field(default=None, metadata=SECONDS)
    large: Figure | None = field(default=None, metadata=NBYTES)
    one_way: Figure | None = field(default=None, metadata=SPEED)
    both_ways: Figure | None = field(default=None, metadata=SPEED)


SECTIONS: dict[str, type] = {
    "shape": Shape,
    "rank": Rank,
    "island": Link,
    "node": Link,
    "nic": Nic,
    "rack": Rack,
    "processors": Processors,
}


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A described machine; a section is None where the machine has no such link. `device` is what computes.

    Raises `UsageError` when a section that the shape calls for is missing, or figures contradict each other.
    """

    name: str
    summary: str
    shape: Shape
    rank: Rank
    island: Link | None = None
    node: Link | None = None
    nic: Nic | None = None
    rack: Rack | None = None
    processors: Processors | None = None
    device: str = ""

    def __post_init__(self) -> None:
        wanted = {
            "island": self.islands_per_node > 1,
            "node": self.ranks_per_node > self.islands_per_node or self.islands_per_node > 1,
            "nic": self.nodes > 1,
            "rack": self.nodes_per_rack > 0,
        }
        for section, needed in wanted.items():
            self._check_section(section, needed)
        if self.ranks_per_node % self.islands_per_node:
            raise UsageError(
                f"shape.islands_per_node: {self.ranks_per_node} ranks of a node are no whole number for each of "
                f"{self.islands_per_node} islands"
            )
        self._check_overhead()
        if self.nic is not None and (self.nic.burst is None) != (self.nic.peak is None):
            raise UsageError("nic.burst and nic.peak say together what passes a shaped link at which rate: give both")

    def _check_section(self, section: str, needed: bool) -> None:
        if needed and getattr(self, section) is None:
            raise UsageError(f"the section [{section}] is missing: the shape has such links")
        if not needed and getattr(self, section) is not None:
            raise UsageError(f"the section [{section}] describes links that the shape does not have: leave it out")

    def _check_overhead(self) -> None:
        """Refuse an overhead that is more than a message takes: both sides' overheads are part of its latency."""
        for section in ("island", "node", "nic", "rack"):
            link = getattr(self, section)
            if link is not None and 2 * self.message_overhead > link.latency.value:
                raise UsageError(
                    f"{section}.latency is {TIME.written(link.latency.value)}, less than rank.message_overhead on "
                    f"both sides, 2 × {TIME.written(self.message_overhead)}"
                )

    @property
    def nodes(self) -> int:
        """The most nodes there are."""
        return int(self.shape.nodes.value)

    @property
    def ranks_per_node(self) -> int:
        """The most ranks a node has."""
        return int(self.shape.ranks_per_node.value)

    @property
    def islands_per_node(self) -> int:
        """Islands of a node; 1 where all its ranks are linked alike."""
        return int(self.shape.islands_per_node.value) if self.shape.islands_per_node else 1

    @property
    def nodes_per_rack(self) -> int:
        """Nodes of a rack; 0 where all nodes are linked alike."""
        return int(self.shape.nodes_per_rack.value) if self.shape.nodes_per_rack else 0

    @property
    def message_overhead(self) -> float:
        """Seconds that a rank is busy with each message it sends or receives."""
        return self.rank.message_overhead.value if self.rank.message_overhead else 0.0

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Yield every figure under its name, such as nic.bandwidth."""
        for section in SECTIONS:
            part = getattr(self, section)
            for one in fields(part) if part is not None else ():
                if (figure := getattr(part, one.name)) is not None:
                    yield f"{section}.{one.name}", figure

    def with_figure(self, name: str, text: str, source: str = "as asked for") -> "Machine":
        """Return the machine with the figure `name`, such as nic.bandwidth, as `text` says; raises `UsageError`."""
        unit = unit_of(name)
        value = whole(text) if unit is None else unit.parse(text)
        return self.with_value(name, value, source)

    def with_value(self, name: str, value: float, source: str) -> "Machine":
        """Return the machine with another `value` of the figure `name`, in seconds, bytes or bytes a second."""
        section, _, key = name.partition(".")
        part = getattr(self, section)
        if part is None:
            raise UsageError(f"{name}: the machine {self.name!r} has no section [{section}]")
        return replace(self, **{section: replace(part, **{key: Figure(value, source)})})


def unit_of(name: str) -> Unit | None:
    """Return the unit of the figure `name`, None where it is a number of things; raises `UsageError` for no figure."""
    known = {
        f"{section}.{one.name}": one.metadata["unit"] for section, part in SECTIONS.items() for one in fields(part)
    }
    if name not in known:
        raise unknown("figure of a topology", name, known)
    found: Unit | None = known[name]
    return found


def whole(value: object) -> int:
    """Return a whole number from 1 on; raises `UsageError` naming what it is instead."""
    text = str(value)
    if isinstance(value, bool) or not (re.fullmatch("[0-9]{1,18}", text) and 1 <= int(text) <= MOST_WHOLE):
        raise UsageError(f"{value!r}: expected a whole number from 1 on, at most {MOST_WHOLE}")
    return int(text)
