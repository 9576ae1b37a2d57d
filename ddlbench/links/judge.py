"""Which node and which link is slow, by comparison with the others: there is no other measure of what is normal.

What is compared is the logarithm of the time, for a small message (latency) and for a byte of a large one (bandwidth),
over the median of the pair's class. It is the least time seen: other work on a machine makes messages slower, never
faster. A node is judged by its *best* pair with another node, a pair by what the worse of its two nodes can do at best:

    a node is slow     when even its best pair is slow: compared with the median over the nodes' best pairs
    a link is slow     when it is slower than its two nodes' best pairs explain, compared with the median over pairs

Compared means a robust z-score, (value − median) / (1.4826 · MAD), the scale being at least `LEAST_SCALE`; slow means a
score above `LIMIT` and a factor above `FACTORS`, so that noise that happens to be even names nobody. Of an even number
the median is the faster one of the two in the middle. With fewer than three nodes there is no majority, and no node is
named; links inside nodes are compared with the median of their class. Where nodes share a machine, or ranks outnumber
its processors, latencies are the scheduler's, and bandwidths alone are compared.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from ddlbench.links.pairs import Pair
from ddlbench.links.timing import Curve

LIMIT = 3.5
"""The score from which a value counts as an outlier (Iglewicz and Hoaglin 1993)."""
LEAST_SCALE = 0.05
"""Relative scatter that every measurement is granted."""
FACTORS = {"latency": 2.0, "bandwidth": 1.4}
"""By how much something must be slower to be named: latencies scatter more."""
SMALL_NBYTES = 1024
"""A pair's latency is the least time up to this size."""
BETWEEN = ("nic", "rack")
"""Classes of links between nodes."""
LEAST = 3
"""So many nodes, or pairs of a class, make a majority."""


@dataclass(frozen=True)
class Measured:
    """A pair's link: its class, the least seconds one way of a small message, bytes a second."""

    ranks: Pair
    nodes: Pair
    kind: str
    latency_s: float
    bytes_per_s: float

    def cost(self, what: str) -> float:
        """Return the logarithm of what is compared: more is slower."""
        return log(self.latency_s if what == "latency" else 1 / self.bytes_per_s)


@dataclass(frozen=True)
class Slow:
    """Something that is slow: a node, or a pair of ranks. `factor` is how many times slower than the others."""

    what: str
    factor: float
    score: float
    node: int | None = None
    pair: Measured | None = None


def measured(ranks: Pair, nodes: Pair, kind: str, curve: Curve) -> Measured:
    """Return what a pair's least times come to: a bandwidth by the largest size, beyond what a small message takes."""
    least = [min(times) for times in curve.samples]
    latency = min(seconds for x, seconds in zip(curve.x, least, strict=True) if x <= SMALL_NBYTES)
    beyond = max(least[-1] - latency, least[-1] / 2)
    return Measured(ranks, nodes, kind, latency, curve.x[-1] / beyond)


def slow_nodes(pairs: Sequence[Measured], compared: Collection[str] = tuple(FACTORS)) -> list[Slow]:
    """Return the nodes of which every link to another is slow in what is `compared`, the slowest first."""
    found = []
    for what in compared:
        best = _bests(pairs, what)
        if len(best) >= LEAST:
            found += [Slow(what, factor, score, node=node) for node, factor, score in _outliers(best, what)]
    return sorted(found, key=lambda slow: -slow.factor)


def slow_links(pairs: Sequence[Measured], compared: Collection[str] = tuple(FACTORS)) -> list[Slow]:
    """Return the pairs that are slower than their nodes explain in what is `compared`, the slowest first."""
    found = []
    for what in compared:
        best, usual = _bests(pairs, what), _usual(pairs, what)
        for kind in usual:
            own = {at: pair for at, pair in enumerate(pairs) if pair.kind == kind}
            costs = {at: pair.cost(what) - usual[kind] - _explained(pair, best) for at, pair in own.items()}
            if len(costs) >= LEAST:
                found += [Slow(what, factor, score, pair=own[at]) for at, factor, score in _outliers(costs, what)]
    return sorted(found, key=lambda slow: -slow.factor)


def suspects(pairs: Sequence[Measured], compared: Collection[str] = tuple(FACTORS)) -> list[Pair]:
    """Return the pairs that would make something slow by what was measured so far: worth a second look."""
    nodes = {slow.node for slow in slow_nodes(pairs, compared)}
    links = [slow.pair.ranks for slow in slow_links(pairs, compared) if slow.pair is not None]
    return list(dict.fromkeys([*links, *(pair.ranks for pair in pairs if nodes & {*pair.nodes})]))


def _usual(pairs: Sequence[Measured], what: str) -> dict[str, float]:
    """Return the median cost of each class."""
    kinds = dict.fromkeys(pair.kind for pair in pairs)
    return {kind: _median(pair.cost(what) for pair in pairs if pair.kind == kind) for kind in kinds}


def _bests(pairs: Sequence[Measured], what: str) -> dict[int, float]:
    """Return the least cost of each node's pairs with other nodes, over what is usual in the pair's class."""
    found: dict[int, float] = {}
    usual = _usual(pairs, what)
    for pair in pairs:
        for node in pair.nodes if pair.kind in BETWEEN else ():
            over = pair.cost(what) - usual[pair.kind]
            found[node] = min(found.get(node, over), over)
    return found


def _explained(pair: Measured, best: Mapping[int, float]) -> float:
    """Return the cost that a link between two nodes may have because one of the nodes has it with all others."""
    return max(best[node] for node in pair.nodes) if pair.kind in BETWEEN else 0.0


def _outliers(costs: Mapping[int, float], what: str) -> Iterable[tuple[int, float, float]]:
    """Yield what is slow among `costs`: its key, how many times slower than the median, and its score."""
    middle = _median(costs.values())
    scale = max(1.4826 * _median(abs(cost - middle) for cost in costs.values()), LEAST_SCALE)
    for key, cost in costs.items():
        factor, score = exp(cost - middle), (cost - middle) / scale
        if score > LIMIT and factor > FACTORS[what]:
            yield key, factor, score


def _median(values: Iterable[float]) -> float:
    """Return the median; of an even number the lower one of the two in the middle."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]
