"""Links as a few numbers: what a first-order model and the lower bounds need."""

from bisect import bisect_left
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
class Memory:
    """What the memory that ranks of one node share allows, measured by programs that only copy.

    ranks
        how many ranks took part, all there are of them at once
    handoff_s
        seconds until all know that all have come, the least seen
    copies
        (bytes n, least seconds in which the ranks copy n bytes from all inputs to all outputs), ascending in n; each
        includes two handoffs
    """

    ranks: int
    handoff_s: float
    copies: tuple[tuple[int, float], ...]

    def least_seconds(self, nbytes: int) -> float:
        """Return what an allreduce of `nbytes` cannot be faster than for its bytes: the copies, but for one handoff.

        Between two sizes that were measured the better rate of both counts, above the largest its own.
        """
        sizes = [size for size, _ in self.copies]
        at = bisect_left(sizes, nbytes)
        near = self.copies[max(at - 1, 0) : at + 1] if at == len(sizes) or sizes[at] != nbytes else (self.copies[at],)
        copied = nbytes * min(seconds / size for size, seconds in near)
        return copied - self.handoff_s


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
    memory
        what shared memory allows, for each number of ranks on one node that was measured
    """

    nodes: int
    within: Link | None
    between: Link | None
    reduce_bytes_per_s: float
    node_bytes_per_s: tuple[float, ...] = ()
    burst_nbytes: float = 0.0
    memory: tuple[Memory, ...] = ()

    def memory_of(self, ranks: int) -> Memory | None:
        """Return what shared memory allows so many ranks of one node, None where it was not measured."""
        return next((one for one in self.memory if one.ranks == ranks), None)

    def to_json(self) -> dict[str, Any]:
        """Return the links as a JSON value, units in the names."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Links":
        """Read what `to_json` wrote."""
        pairs = {name: Link(**value[name]) if value[name] else None for name in ("within", "between")}
        rates, burst = tuple(value.get("node_bytes_per_s", ())), value.get("burst_nbytes", 0.0)
        memory = tuple(
            Memory(one["ranks"], one["handoff_s"], tuple((size, seconds) for size, seconds in one["copies"]))
            for one in value.get("memory", ())
        )
        return cls(value["nodes"], pairs["within"], pairs["between"], value["reduce_bytes_per_s"], rates, burst, memory)
