"""Links as a few numbers: what a first-order model and the lower bounds need."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Link:
    """A link between two ranks.

    latency_s
        seconds for 8 bytes one way, the least seen
    bytes_per_s
        one way, alone, the most seen at any size
    exchange_bytes_per_s
        each way, while the other sends as much
    """

    latency_s: float
    bytes_per_s: float
    exchange_bytes_per_s: float


@dataclass(frozen=True)
class Links:
    """The links of a launch: `within` a node and `between` nodes, None where there is no such pair of ranks.

    nodes
        number of nodes
    reduce_bytes_per_s
        bytes of the vector that one rank reduces a second (float32 sum, operands in cache)
    """

    nodes: int
    within: Link | None
    between: Link | None
    reduce_bytes_per_s: float

    def to_json(self) -> dict[str, Any]:
        """Return the links as a JSON value, units in the names."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Links":
        """Read what `to_json` wrote."""
        pairs = {name: Link(**value[name]) if value[name] else None for name in ("within", "between")}
        return cls(value["nodes"], pairs["within"], pairs["between"], value["reduce_bytes_per_s"])
