"""Who is blamed by an acceptance: the planted node in made-up clusters, nobody in healthy ones."""

import pytest

from ddlbench.accept.course import again
from ddlbench.accept.expect import Expected
from ddlbench.accept.rules import Rules, from_data
from made_cluster import Cluster

FAULTS = {
    "cpu": lambda node: {"cpu": {node: 2.0}},
    "link": lambda node: {"link": {node: 3.0}},
    "late": lambda node: {"late": {node: 0.5}},
    "drops": lambda node: {"drops": [node]},
}


def named(outcome):
    return {*outcome.bad, *outcome.spoilers}


@pytest.mark.parametrize("nodes", [3, 4, 5, 64])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_node_with_a_fault_is_named_and_nobody_else(nodes, fault):
    for seed in range(5 if nodes < 64 else 1):
        node = (7 * seed + 2) % nodes
        outcome = Cluster(nodes, seed=seed, hiccups=0.02, **FAULTS[fault](node)).judged()
        assert named(outcome) == {node}, seed
        assert outcome.links == ()
        assert outcome.good == tuple(other for other in range(nodes) if other != node)
        assert not outcome.passed


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 64])
def test_nobody_is_named_where_nothing_is_wrong(nodes):
    for seed in range(20 if nodes < 64 else 3):
        outcome = Cluster(nodes, seed=seed, noise=0.05, hiccups=0.02).judged()
        assert (named(outcome), outcome.links, outcome.good) == (set(), (), tuple(range(nodes))), seed
        assert outcome.passed


@pytest.mark.parametrize("fault", ["cpu", "link", "late", "drops"])
def test_a_bad_first_node_makes_nobody_else_bad(fault):
    assert named(Cluster(8, **FAULTS[fault](0)).judged()) == {0}


def test_two_bad_nodes_of_four_are_named_though_most_pairs_are_slow():
    outcome = Cluster(4, link={1: 3.0, 3: 3.0}).judged()
    assert (named(outcome), outcome.good) == ({1, 3}, (0, 2))


def test_several_faults_at_once_are_told_apart():
    outcome = Cluster(16, cpu={3: 2.0}, link={7: 3.0}, drops=[9], late={11: 0.6}).judged()
    assert {node: {check.what for check in why} for node, why in outcome.bad.items()} == {
        3: {"reduction", "copy"},
        7: {"bandwidth"},
        9: {"stalled"},
        11: {"late"},
    }


def test_of_two_nodes_neither_is_named_but_a_link_that_stalls_is():
    slow = Cluster(2, link={1: 3.0}).judged()
    assert (named(slow), slow.links, slow.good, slow.passed) == (set(), (), (0, 1), True)
    assert {check.status for check in slow.checks if check.what == "bandwidth"} == {"unjudged"}
    stalls = Cluster(2, drops=[1]).judged()
    assert (named(stalls), stalls.links, stalls.passed) == (set(), ((0, 1),), False)
    assert len(stalls.good) == 1


def test_a_bad_link_between_good_nodes_is_named_and_one_of_them_left_out():
    outcome = Cluster(6, pairs={(1, 4): 3.0}).judged()
    assert (named(outcome), outcome.links) == (set(), ((1, 4),))
    assert len(outcome.left_out) == 1
    assert {*outcome.left_out} < {1, 4}
    assert {*outcome.good} == {*range(6)} - {*outcome.left_out}


def test_a_node_that_spoils_only_crowds_is_found_by_halving():
    cluster = Cluster(64, spoils=[37])
    outcome = cluster.judged()
    assert (outcome.bad, outcome.spoilers) == ({}, (37,))
    assert {*outcome.good} == {*range(64)} - {37}
    assert not outcome.passed
    groups = [nodes for what, nodes in cluster.looks if what == "group"]
    assert len(groups) < 40  # doubling and halving, each that falls short three times: not one for each node


@pytest.mark.parametrize("nodes", [4, 6, 8, 64])
def test_a_spoiler_is_found_wherever_it_stands_also_among_the_first(nodes):
    for node in range(min(nodes, 8)):
        outcome = Cluster(nodes, spoils=[node], seed=node).judged()
        assert (outcome.spoilers, {*outcome.good}) == ((node,), {*range(nodes)} - {node})


def test_of_three_nodes_that_are_only_slow_all_together_none_is_blamed():
    outcome = Cluster(3, spoils=[1]).judged()
    assert (outcome.bad, outcome.spoilers, len(outcome.good)) == ({}, (), 2)
    assert outcome.stopped == "a larger one is slower than expected, and no single node is why"
    assert not outcome.passed


def test_a_crowd_that_is_slow_whoever_is_in_it_has_no_spoiler():
    class Narrow(Cluster):
        def group(self, nodes):
            return super().group(nodes) / (3.0 if len(nodes) > 5 else 1.0)

    outcome = Narrow(16).judged()
    assert (outcome.bad, outcome.passed) == ({}, False)
    assert outcome.spoilers == ()
    assert len(outcome.good) >= 4


def test_a_figure_that_was_not_measured_is_no_pass_and_spoils_no_other():
    outcome = Cluster(5, missing=[2]).judged()
    assert set(outcome.bad) == {2}
    assert {check.note for check in outcome.bad[2]} == {"no figure was measured"}
    pair = Cluster(5, missing=[(1, 3)]).judged()
    assert (named(pair), pair.links) == (set(), ((1, 3),))


def test_a_suspect_is_measured_again_beside_good_nodes_before_it_is_blamed():
    cluster = Cluster(8, cpu={5: 2.0})
    cluster.judged()
    looks = [nodes for what, nodes in cluster.looks if what == "alone"]
    assert len(looks) == Rules().looks
    assert all(5 in nodes and len(nodes) == 3 for nodes in looks[1:])
    healthy = Cluster(8)
    healthy.judged()
    assert [what for what, _ in healthy.looks if what != "group"] == ["alone", "pairs", "vigil"]


def test_who_is_bad_by_now_is_no_suspect_any_more():
    cluster = Cluster(8, cpu={5: 2.0}, link={5: 3.0}, drops=[5])
    cluster.judged()
    assert [what for what, _ in cluster.looks if what != "group"] == ["alone"] * 3 + ["pairs", "vigil"]


def test_pairs_that_are_measured_again_are_suspects_with_good_nodes_and_good_ones_for_comparison():
    pairs = [(0, 1), (2, 3), (4, 5), (0, 4), (1, 4), (2, 4), (3, 4), (0, 2), (3, 5)]
    assert again([4], [(0, 1)], pairs, []) == [(0, 1), (4, 5), (2, 4), (2, 3), (3, 5)]
    assert again([4], [], [(0, 4), (1, 4)], [0, 1]) == [(0, 4), (1, 4)]


class Promised:
    """Expects these figures."""

    def __init__(self, **figures):
        self._figures = {name.replace("_", " "): value for name, value in figures.items()}

    def of(self, what, _nodes):
        return Expected(self._figures[what], "a promise") if what in self._figures else None


def test_against_a_promise_all_nodes_can_be_too_slow_and_two_are_enough():
    outcome = Cluster(2).judged(Promised(reduction=2e10))
    assert set(outcome.bad) == {0, 1}
    assert {check.basis for checks in outcome.bad.values() for check in checks} == {"a promise"}
    assert outcome.good == ()
    assert Cluster(2).judged(Promised(reduction=1e10, bandwidth=1e10, bus_bandwidth=8e9)).passed


def test_a_group_that_is_slower_than_promised_fails_and_no_node_is_blamed_for_it():
    outcome = Cluster(4).judged(Promised(bus_bandwidth=1e11))
    assert (outcome.bad, outcome.spoilers, outcome.good) == ({}, (), ())
    assert outcome.stopped == "no two nodes together are as fast as expected"


def test_rules_decide():
    cluster = {"cpu": {2: 1.2}}
    assert named(Cluster(5, **cluster).judged()) == set()
    assert named(Cluster(5, **cluster).judged(rules=from_data({"node": {"min_fraction": 0.95}}))) == {2}
