"""Closed forms priced on measured links, and lower bounds that no algorithm over these links can beat.

docs/measurement.md derives both. Both are first-order: no congestion, no cache effects.
"""

from fractions import Fraction

from ddlbench.cost.links import Link, Links
from ddlbench.schedule.algorithm import BoundAlgorithm


def bound_seconds(links: Links, nodes: int, ranks: int, nbytes: int, *, shared: bool = False) -> float | None:
    """Return the greatest of `bounds`; None where there are none."""
    return max(bounds(links, nodes, ranks, nbytes, shared=shared).values(), default=None)


def bounds(links: Links, nodes: int, ranks: int, nbytes: int, *, shared: bool = False) -> dict[str, float]:
    """Return the lower bounds for an allreduce of `nbytes` by name, in seconds; none for one rank or an empty vector.

    `ranks` are on the first `nodes` nodes. ceil(log2 p) latencies; 2(p-1)/p n bytes through the fastest link; and what
    the nodes' network links must carry. Reduction is not counted: a fast enough kernel hides it. `shared` says that
    the ranks of a node share memory, whose speed was not measured: then there are as many parties as nodes.
    """
    if shared:
        ranks = nodes
    known = [link for link in _known(links, nodes, ranks) if link]
    if ranks < 2 or not nbytes or not known:
        return {}
    latency = (ranks - 1).bit_length() * min(link.latency_s for link in known)
    rates, burst = ((), 0.0) if nodes == 1 else (links.node_bytes_per_s[:nodes], links.burst_nbytes)
    fastest = max([*(link.bytes_per_s for link in known), *rates])
    bandwidth = (2 * (ranks - 1) / ranks * nbytes - burst) / fastest
    found = {"latency": latency, "bandwidth": bandwidth}
    return found | ({"cards": network_seconds(links, nodes, nbytes)} if nodes > 1 else {})


def memory_bounds(links: Links, ranks: int, nbytes: int) -> dict[str, float]:
    """Return the lower bounds by name, in seconds, for `ranks` of one node that share memory; none if not measured."""
    memory = links.memory_of(ranks)
    return {"latency": memory.handoff_s, "memory": memory.least_seconds(nbytes)} if memory and nbytes else {}


def network_seconds(links: Links, nodes: int, nbytes: int) -> float:
    """Return the least time that the network links of the first `nodes` nodes allow; 0 within one node.

    For each byte of the vector, either its value leaves a node and the result comes back, or those of others come in
    and the result leaves: each link carries n bytes each way. All together carry 2(N-1)n, so that equal links carry
    2(N-1)/N n. What passes a link at once, its burst, takes no time.
    """
    rates = links.node_bytes_per_s[:nodes]
    if nodes < 2 or not rates:
        return 0.0
    one = nbytes - links.burst_nbytes
    together = 2 * (nodes - 1) * nbytes - nodes * links.burst_nbytes
    return max(0.0, one / min(rates), together / sum(rates))


def _known(links: Links, nodes: int, ranks: int) -> tuple[Link | None, Link | None]:
    """Return the link within a node and that between nodes, as far as `ranks` on `nodes` nodes have them."""
    return links.within if ranks > nodes else None, links.between if nodes > 1 else None


def model_seconds(links: Links, nodes: int, ranks: int, algorithm: BoundAlgorithm, nbytes: int) -> float | None:
    """Return rounds * latency + bytes / bandwidth + reduction for `algorithm`; None without a closed form or links.

    Bytes within a node and between nodes overlap, so the slower of the two counts; a node's ranks share its network
    link.
    """
    costs, (within, between) = algorithm.costs(), _known(links, nodes, ranks)
    slowest = between or within
    if costs is None or slowest is None:
        return None
    inside = _seconds(costs.sent, nbytes, within.exchange_bytes_per_s) if within else 0.0
    across = 0.0
    if between:
        sent = max(0.0, float(costs.between_nodes / nodes) * nbytes - links.burst_nbytes)
        across = sent / between.exchange_bytes_per_s
    return (
        costs.rounds * slowest.latency_s
        + max(inside, across)
        + _seconds(costs.reduced, nbytes, links.reduce_bytes_per_s)
    )


def _seconds(vectors: Fraction, nbytes: int, bytes_per_s: float) -> float:
    return float(vectors) * nbytes / bytes_per_s
