"""What is too slow, by name: figures held against what is expected of them, or against the median of their peers.

    a node    is judged alone, by its *best* pair with another node, and by the least of the stalls of its links
    a pair    is judged by its figures; where one of its nodes is bad, that is why
    late      is judged against the median of all nodes, and by a count: so many more late moments than the others

The best pair: a bad node makes all of its pairs bad, a good one has a good pair with whoever else is good. So no node
must be known to be good beforehand, and a bad partner condemns nobody. Against peers a figure is too slow only when it
is an outlier as well: a robust z-score of its logarithm, with a scale of 5 % at least, above 3.5. Of an even number the
median is the better one of the two in the middle. Fewer than three are no majority, and nothing is judged by them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite, log, nan
from typing import TypeVar

import numpy as np

from ddlbench.accept.examine import Vigil, Windows
from ddlbench.accept.expect import Expectation, Expected
from ddlbench.accept.rules import Rules
from ddlbench.links.judge import LEAST, LEAST_SCALE, LIMIT
from ddlbench.links.pairs import Pair

Key = TypeVar("Key", int, Pair)
LOWER_IS_BETTER = ("latency",)
UNITS = {"latency": "s", "late": "share", "stalled": "s"}
"""What is not in bytes a second."""
CHANCE = 1e-4
"""So unlikely must it be that a node is late so often by chance."""
MOMENT_SECONDS = 0.01
"""Late moments are counted."""
LEAST_LATE = 0.01
"""A share of late moments that everyone is granted."""
MOST_WINDOWS = 0.75
"""The share of its windows in which a node must be slower than the others."""
UNEVEN = "not slower than the others in most windows"
BY_RULE = "rule"


@dataclass(frozen=True)
class Check:
    """One figure and what came of it.

    scope, nodes, what
        of which node, pair or group, and what was measured
    measured, expected
        in `unit`; `expected` is NaN where there was nothing to compare with, `basis` says where it comes from
    limit
        what `measured` may be at worst, NaN where it was not judged
    status
        pass, fail or unjudged
    note
        why, where that is not plain
    """

    scope: str
    nodes: tuple[int, ...]
    what: str
    measured: float
    expected: float
    limit: float
    basis: str
    status: str
    note: str = ""

    @property
    def unit(self) -> str:
        """The unit of the figures: s, B/s, or a share."""
        return UNITS.get(self.what, "B/s")

    @property
    def failed(self) -> bool:
        """Whether it is too slow."""
        return self.status == "fail"


@dataclass(frozen=True)
class Readings:
    """What was measured so far, by node or pair: over several looks the best of each, NaN where there is no figure.

    alone
        bytes a second of each node in each window, by what it did; NaN for windows in which others were measured
    pairs
        latency in seconds and bandwidth in bytes a second of each pair
    late
        of each node the share of time in which it was not run, and the seconds that it watched
    stalled
        of each pair the seconds of stalls
    """

    alone: Windows = field(default_factory=dict)
    pairs: Mapping[str, Mapping[Pair, float]] = field(default_factory=dict)
    late: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    stalled: Mapping[Pair, float] = field(default_factory=dict)

    def with_alone(self, look: Windows) -> "Readings":
        """Return the readings with another look at nodes alone."""
        merged = {what: _longer(self.alone.get(what, {}), windows) for what, windows in look.items()}
        return replace(self, alone={**self.alone, **merged})

    def with_pairs(self, look: Mapping[str, Mapping[Pair, float]]) -> "Readings":
        """Return the readings with another look at pairs."""
        return replace(self, pairs=_better(self.pairs, look))

    def with_vigil(self, look: Vigil) -> "Readings":
        """Return the readings with another while of watching: what does not come again is held against nobody."""
        late = {node: min(one, self.late.get(node, one)) for node, one in look.late.items()}
        stalled = {pair: min(one, self.stalled.get(pair, one)) for pair, one in look.stalled.items()}
        return replace(self, late={**self.late, **late}, stalled={**self.stalled, **stalled})


def _longer(before: Mapping[int, Sequence[float]], look: Mapping[int, Sequence[float]]) -> dict[int, list[float]]:
    """Return the windows of both, one after the other: NaN where a node had none."""
    old, new = (max(map(len, windows.values()), default=0) for windows in (before, look))
    return {node: [*before.get(node, [nan] * old), *look.get(node, [nan] * new)] for node in {**before, **look}}


def _better(
    before: Mapping[str, Mapping[Key, float]], look: Mapping[str, Mapping[Key, float]]
) -> dict[str, Mapping[Key, float]]:  # fmt: skip
    return {**before, **{what: _best(what, before.get(what, {}), values) for what, values in look.items()}}


def _best(what: str, before: Mapping[Key, float], look: Mapping[Key, float]) -> dict[Key, float]:
    better = np.fmin if what in LOWER_IS_BETTER else np.fmax  # a figure wins over NaN
    return {**before, **{key: float(better(before.get(key, nan), value)) for key, value in look.items()}}


def usual(values: Iterable[float], *, lower: bool = False) -> float:
    """Return the median of the figures among `values`, of an even number the better in the middle; NaN of none."""
    ordered = sorted((value for value in values if isfinite(value)), reverse=not lower)
    return ordered[(len(ordered) - 1) // 2] if ordered else nan


@dataclass(frozen=True)
class Bar:
    """What figures of one kind are held against: `worst` is the factor by which they may be worse than expected.

    Without an expectation of its own a figure is held against `peers`, around `middle`, if there are `several`.
    """

    what: str
    worst: float
    peers: Sequence[float]
    middle: float
    several: bool
    basis: str

    @classmethod
    def of(cls, what: str, worst: float, peers: Collection[float], noun: str) -> "Bar":
        """Return the bar that the median of `peers` is."""
        known = [value for value in peers if isfinite(value)]
        middle = usual(known, lower=what in LOWER_IS_BETTER)
        return cls(what, worst, known, middle, len(known) >= LEAST, f"median of {len(known)} {noun}")

    def check(self, scope: str, nodes: tuple[int, ...], value: float, expected: Expected | None) -> Check:
        """Hold `value` against what is expected, else against the peers."""
        if expected is None and not self.several:
            note = "" if isfinite(value) else "no figure was measured"
            return Check(scope, nodes, self.what, value, nan, nan, "", "fail" if note else "unjudged", note)
        aim, basis = (self.middle, self.basis) if expected is None else (expected.value, expected.basis)
        limit = aim * self.worst if self.what in LOWER_IS_BETTER else aim / self.worst
        if not isfinite(value):
            return Check(scope, nodes, self.what, value, aim, limit, basis, "fail", "no figure was measured")
        bad = value > limit if self.what in LOWER_IS_BETTER else value < limit
        if bad and expected is None:
            bad = self._stands_out(value)
        return Check(scope, nodes, self.what, value, aim, limit, basis, "fail" if bad else "pass")

    def _stands_out(self, value: float) -> bool:
        spread = usual((abs(log(peer / self.middle)) for peer in self.peers), lower=True)
        return abs(log(value / self.middle)) / max(1.4826 * spread, LEAST_SCALE) > LIMIT


def alone_checks(readings: Readings, expectation: Expectation, rules: Rules) -> list[Check]:
    """Return what nodes do alone, by their best windows, judged.

    Against peers a node must also be slower than the others in most windows, one by one: where something else uses the
    processors now and then, a sound node may have had no good window, but neither was it the slow one all the time.
    """
    found = []
    for what, windows in readings.alone.items():
        best = {node: max(filter(isfinite, rates), default=nan) for node, rates in windows.items()}
        bar = Bar.of(what, 1 / rules.node.min_fraction, [*best.values()], "nodes")
        for node, value in best.items():
            expected = expectation.of(what, (node,))
            check = bar.check("node", (node,), value, expected)
            often = expected is not None or not isfinite(value) or _mostly(windows, node, rules.node.min_fraction)
            found.append(check if often or not check.failed else replace(check, status="pass", note=UNEVEN))
    return found


def _mostly(windows: Mapping[int, Sequence[float]], node: int, fraction: float) -> bool:
    """Say whether a node was slower than `fraction` of the others in most of the windows in which they are known."""
    slower = []
    for at, rate in enumerate(windows[node]):
        others = usual(rates[at] for other, rates in windows.items() if other != node)
        if isfinite(rate) and isfinite(others):
            slower.append(rate < fraction * others)
    return sum(slower) >= MOST_WINDOWS * len(slower)


def meeting_checks(
    readings: Readings, expectation: Expectation, rules: Rules, compared: Collection[str]
) -> list[Check]:  # fmt: skip
    """Return each node's best pair with another one, judged in what is `compared`."""
    found = []
    for what in compared:
        best = _best_pairs(readings.pairs.get(what, {}), what, expectation)
        bar = Bar.of(what, _worst(what, rules), [value for value, _ in best.values()], "nodes' best pairs")
        for node, (value, expected) in sorted(best.items()):
            found.append(bar.check("node", (node,), value, expected))
    return found


def _worst(what: str, rules: Rules) -> float:
    return rules.pair.max_latency_factor if what in LOWER_IS_BETTER else 1 / rules.pair.min_fraction


def _best_pairs(
    values: Mapping[Pair, float], what: str, expectation: Expectation
) -> dict[int, tuple[float, Expected | None]]:  # fmt: skip
    """Return the figure of each node's best pair, by what is expected of it, and that."""
    found: dict[int, tuple[float, Expected | None]] = {}
    cost: dict[int, float] = {}
    for pair, value in values.items():
        expected = expectation.of(what, pair)
        ratio = value / (expected.value if expected else 1.0)
        worse = ratio if what in LOWER_IS_BETTER else -ratio
        for node in pair:
            if node not in found or worse < cost[node] or not isfinite(cost[node]):
                found[node], cost[node] = (value, expected), worse
    return found


def pair_checks(
    readings: Readings, expectation: Expectation, rules: Rules, compared: Collection[str], bad: Collection[int]
) -> list[Check]:  # fmt: skip
    """Return the pairs judged in what is `compared`, against those of nodes that are not `bad`."""
    found = []
    for what in compared:
        values = readings.pairs.get(what, {})
        sound = {pair: value for pair, value in values.items() if not {*pair} & {*bad}} or values
        best = [value for value, _ in _best_pairs(sound, what, expectation).values()]
        bar = Bar.of(what, _worst(what, rules), [*sound.values()], "")
        several = len({node for pair in values for node in pair}) >= LEAST
        bar = replace(
            bar,
            middle=usual(best, lower=what in LOWER_IS_BETTER),
            several=several and bool(bar.peers),
            basis="median of good nodes' best pairs",
        )
        found += [bar.check("pair", pair, value, expectation.of(what, pair)) for pair, value in values.items()]
    return [_explained(check, bad) for check in found]


def _explained(check: Check, bad: Collection[int]) -> Check:
    """Return a pair's check with the nodes that are why it failed."""
    return replace(check, note="a bad node") if check.failed and {*check.nodes} & {*bad} and not check.note else check


def late_checks(readings: Readings, rules: Rules) -> list[Check]:
    """Return how much of the time the nodes were late, judged against the median and by counts."""
    shares = {node: share for node, (share, _) in readings.late.items()}
    middle = usual(shares.values(), lower=True)
    limit = middle + rules.watch.max_late_share
    found = []
    for node, (share, seconds) in readings.late.items():
        others = [other for at, other in shares.items() if at != node and isfinite(other)]
        bad = share > limit and _more_often(share, seconds, others)
        note = "" if isfinite(share) else "no figure was measured"
        status = "fail" if bad or note else "pass"
        found.append(
            Check("node", (node,), "late", share, middle, limit, f"median of {len(shares)} nodes", status, note)
        )
    return found


def _more_often(share: float, seconds: float, others: Sequence[float]) -> bool:
    """Say whether a node was late at so many moments that it cannot be as the others are."""
    from scipy.stats import binomtest  # takes a second to load, and is only needed for suspects

    moments = max(round(seconds / MOMENT_SECONDS), 1)
    usually = min(max(sum(others) / len(others) if others else 0.0, LEAST_LATE), 1 - LEAST_LATE)
    count = min(round(share * moments), moments)
    return bool(binomtest(count, moments, usually, alternative="greater").pvalue < CHANCE)


def stall_checks(readings: Readings, rules: Rules) -> list[Check]:
    """Return the stalls of links, and of nodes those that all of their links have at least, judged."""
    limit, stalled = rules.watch.max_stalled, readings.stalled
    least: dict[int, float] = {}
    for pair, seconds in stalled.items():
        for node in pair:
            least[node] = min(seconds, least.get(node, seconds))
    middle = usual(least.values(), lower=True)
    nodes = [_stall_of_node(node, one, middle, limit, len(least)) for node, one in sorted(least.items())]
    bad = {check.nodes[0] for check in nodes if check.failed}
    pairs = [
        Check("pair", pair, "stalled", one, 0.0, limit, BY_RULE, "pass" if one <= limit else "fail",
              "" if isfinite(one) else "no figure was measured")
        for pair, one in stalled.items()
    ]  # fmt: skip
    return [*nodes, *(_explained(check, bad) for check in pairs)]


def _stall_of_node(node: int, seconds: float, middle: float, limit: float, nodes: int) -> Check:
    if nodes < LEAST:
        return Check("node", (node,), "stalled", seconds, nan, nan, "", "unjudged", "of two nodes neither can be named")
    status = "fail" if seconds > middle + limit else "pass"
    return Check("node", (node,), "stalled", seconds, middle, middle + limit, f"median of {nodes} nodes", status)


def bad_nodes(checks: Iterable[Check]) -> dict[int, list[Check]]:
    """Return the nodes that failed, and by which checks."""
    found: dict[int, list[Check]] = {}
    for check in checks:
        if check.scope == "node" and check.failed:
            found.setdefault(check.nodes[0], []).append(check)
    return found


def bad_links(checks: Iterable[Check], bad: Collection[int]) -> list[Pair]:
    """Return the pairs that failed although neither of their nodes is `bad`."""
    failed = (check.nodes for check in checks if check.scope == "pair" and check.failed)
    return [(nodes[0], nodes[-1]) for nodes in dict.fromkeys(failed) if not {*nodes} & {*bad}]


def without_links(nodes: Collection[int], links: Collection[Pair]) -> tuple[list[int], list[int]]:
    """Return `nodes` without those that have to go for no bad one of `links` to be left, and those."""
    left: list[int] = []
    rest = [*links]
    while rest:
        ends = [node for pair in rest for node in pair]
        worst = max(sorted(set(ends), reverse=True), key=ends.count)
        left.append(worst)
        rest = [pair for pair in rest if worst not in pair]
    return [node for node in sorted(nodes) if node not in left], left
