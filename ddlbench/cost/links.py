"""Links as a few numbers: what a first-order model and the lower bounds need."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Link:
    """A link between two ranks.

    latency_s
        seconds for 8 bytes one way, the least seen
    bytes_per_s
        one way, alone: within a node the most seen at any size, between nodes as it stays after a burst
    exchange_bytes_per_s
        each way at once: within a node between two ranks, between nodes along a ring of one rank of each
    """

    latency_s: float
    bytes_per_s: float
    exchange_bytes_per_s: float


@dataclass(frozen=True)
class Links:
    """The links of a launch: `within` a node and `between` nodes, None where there is no such pair of ranks.

    nodes
        number of nodes
    node_bytes_per_s
        of each node, the most that its ranks together sent or received a second, one way; empty with one node
    burst_nbytes
        what a node's link lets pass at once before that holds, as a shaper's token bucket does
    reduce_bytes_per_s
        bytes of the vector that one rank reduces a second (float32 sum, operands in cache)
    """

    nodes: int
    within: Link | None
    between: Link | None
    reduce_bytes_per_s: float
    node_bytes_per_s: tuple[float, ...] = ()
    burst_nbytes: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the links as a JSON value, units in the names."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Links":
        """Read what `to_json` wrote."""
        pairs = {name: Link(**value[name]) if value[name] else None for name in ("within", "between")}
        rates, burst = tuple(value.get("node_bytes_per_s", ())), value.get("burst_nbytes", 0.0)
        return cls(value["nodes"], pairs["within"], pairs["between"], value["reduce_bytes_per_s"], rates, burst)
