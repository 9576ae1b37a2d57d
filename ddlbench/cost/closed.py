"""Closed forms priced on measured links, and lower bounds that no algorithm over these links can beat.

docs/measurement.md derives both. Both are first-order: no congestion, no cache effects.
"""

from fractions import Fraction

from ddlbench.cost.links import Links
from ddlbench.schedule.algorithm import BoundAlgorithm


def bound_seconds(links: Links, ranks: int, nbytes: int) -> float | None:
    """Return the greatest of the lower bounds for an allreduce of `nbytes`; None with one rank.

    ceil(log2 p) latencies; 2(p-1)/p n bytes through the fastest link; 2(N-1)/N n bytes through a node's share of the
    network. Reduction is not counted: a fast enough kernel hides it.
    """
    known = [link for link in (links.within, links.between) if link]
    if ranks < 2 or not known:
        return None
    latency = (ranks - 1).bit_length() * min(link.latency_s for link in known)
    bandwidth = 2 * (ranks - 1) / ranks * nbytes / max(link.bytes_per_s for link in known)
    nodes = links.nodes
    network = 2 * (nodes - 1) / nodes * nbytes / links.between.bytes_per_s if links.between else 0.0
    return max(latency, bandwidth, network)


def model_seconds(links: Links, algorithm: BoundAlgorithm, nbytes: int) -> float | None:
    """Return rounds * latency + bytes / bandwidth + reduction for `algorithm`; None without a closed form or links.

    Bytes within a node and between nodes overlap, so the slower of the two counts; a node's ranks share its network
    link.
    """
    costs = algorithm.costs()
    slowest = links.between or links.within
    if costs is None or slowest is None:
        return None
    inside = _seconds(costs.sent, nbytes, links.within.exchange_bytes_per_s) if links.within else 0.0
    across = 0.0
    if links.between:
        across = _seconds(costs.between_nodes / links.nodes, nbytes, links.between.exchange_bytes_per_s)
    return (
        costs.rounds * slowest.latency_s
        + max(inside, across)
        + _seconds(costs.reduced, nbytes, links.reduce_bytes_per_s)
    )


def _seconds(vectors: Fraction, nbytes: int, bytes_per_s: float) -> float:
    return float(vectors) * nbytes / bytes_per_s
