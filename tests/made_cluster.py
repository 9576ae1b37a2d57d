"""A made-up cluster that measures itself: for what is judged of figures, without a network or a clock."""

import numpy as np

from ddlbench.accept.course import Course
from ddlbench.accept.examine import Vigil
from ddlbench.accept.expect import Nothing
from ddlbench.accept.record import Report
from ddlbench.accept.rules import Rules
from ddlbench.links.pairs import tournament
from made_links import topology


class Cluster:
    """Nodes with planted faults; `hiccups` is how often a measurement is three times too slow by chance.

    cpu, link, pairs
        by how much nodes compute slower, nodes' links are slower, and single pairs are
    late, drops
        the share of time that nodes do not run, and the nodes whose links stall for a second at a time
    spoils
        nodes with which a group of more than two is three times too slow
    """

    compared = ("latency", "bandwidth")

    def __init__(
        self, nodes, *, seed=1, each=1, noise=0.03, hiccups=0.0,
        cpu=(), link=(), pairs=(), late=(), drops=(), spoils=(), missing=(),
    ):  # fmt: skip
        self.topology = topology(nodes, each)
        self._random, self._noise, self._hiccups = np.random.default_rng(seed), noise, hiccups
        self._cpu, self._link, self._pairs, self._late = map(dict, (cpu, link, pairs, late))
        self._drops, self._spoils, self._missing = set(drops), set(spoils), set(missing)
        self.looks = []

    def _times(self):
        slow = 3.0 if self._random.random() < self._hiccups else 1.0
        return float(np.exp(self._noise * abs(self._random.standard_normal()))) * slow

    def alone(self, nodes, _look="", times=1):
        self.looks.append(("alone", tuple(nodes)))
        speed = {"reduction": 1e10, "copy": 5e9}
        return {
            what: {node: [self._speed(rate, node) for _ in range(3 * times)] for node in nodes}
            for what, rate in speed.items()
        }

    def _speed(self, rate, node):
        return float("nan") if node in self._missing else rate / self._cpu.get(node, 1) / self._times()

    def partners(self, most):
        return [pair for round_ in tournament(self.topology.nodes)[:most] for pair in round_]

    def pairs(self, pairs, _look=""):
        self.looks.append(("pairs", tuple(pairs)))
        found = {"latency": {}, "bandwidth": {}}
        for a, b in pairs:
            worse = max(self._link.get(a, 1), self._link.get(b, 1)) * self._pairs.get((a, b), 1)
            lost = (a, b) in self._missing
            found["latency"][a, b] = float("nan") if lost else 2e-6 * self._times()
            found["bandwidth"][a, b] = float("nan") if lost else 1e10 / worse / self._times()
        return found

    def vigil(self, _look=""):
        self.looks.append(("vigil", ()))
        late = {
            node: (min(self._late.get(node, 0.01) * self._times(), 1.0), 6.0) for node in range(self.topology.nodes)
        }
        pairs = self.partners(4)
        stalled = {pair: 1.2 if {*pair} & self._drops else self._hiccup_of_a_link() for pair in pairs}
        return Vigil(late, stalled, dict.fromkeys(pairs, (1e-5, 2e-5, 1e-3)))

    def _hiccup_of_a_link(self):
        return 0.5 if self._random.random() < self._hiccups else 0.0

    def group(self, nodes):
        self.looks.append(("group", tuple(nodes)))
        worst = max([1.0, *(self._link.get(node, 1) for node in nodes)])
        slow = 3.0 if len(nodes) > 2 and {*nodes} & self._spoils else 1.0
        return 8e9 / worst / slow / self._times()

    def judged(self, expectation=None, rules=None):
        """Return what an acceptance of it comes to."""
        return Course(self, expectation or Nothing(), rules or Rules()).run()


def report_of(cluster, outcome=None, **given):
    """Return the report of an acceptance of `cluster`."""
    found = outcome or cluster.judged()
    hosts = tuple(f"node{node}" for node in range(cluster.topology.nodes))
    of = {
        "outcome": found, "hosts": hosts, "slots": cluster.topology.ranks_per_node, "rules": Rules(),
        "against": "the peers' median", "created": "2026-01-02T03:04:05+00:00", "seconds": 12.5,
        "program": "ddlbench 1",
    }  # fmt: skip
    return Report(**(of | given))
