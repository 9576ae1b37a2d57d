"""What is called slow: a node that is slow with all, a link that its nodes do not explain, and nothing in noise."""

from itertools import combinations

import numpy as np
import pytest

from ddlbench.links.judge import Measured, measured, slow_links, slow_nodes, suspects
from ddlbench.links.timing import Curve


def pairs_of(nodes, slow=(), links=(), *, factor=3.0, what="bandwidth", noise=0.0, seed=1):
    """Return all pairs of `nodes` nodes of one rank; those of nodes in `slow`, and those in `links`, are slower."""
    random = np.random.default_rng(seed)
    found = []
    for pair in combinations(range(nodes), 2):
        worse = factor if {*slow} & {*pair} or pair in links else 1.0
        latency, rate = 20e-6 * np.exp(noise * random.standard_normal(2)) * (1, 5e12)
        latency, rate = (latency * worse, rate) if what == "latency" else (latency, rate / worse)
        found.append(Measured(pair, pair, "nic", float(latency), float(rate)))
    return found


@pytest.mark.parametrize("nodes", [3, 4, 5, 16])
@pytest.mark.parametrize("what", ["bandwidth", "latency"])
def test_the_node_that_is_slow_with_all_others_is_named_and_its_links_are_not(nodes, what):
    pairs = pairs_of(nodes, slow=[nodes - 2], what=what, noise=0.03)
    assert [(found.node, found.what) for found in slow_nodes(pairs)] == [(nodes - 2, what)]
    assert slow_nodes(pairs)[0].factor == pytest.approx(3, rel=0.2)
    assert slow_links(pairs) == []
    assert set(suspects(pairs)) == {pair.ranks for pair in pairs if nodes - 2 in pair.nodes}


def test_two_slow_nodes_of_four_are_named_though_most_pairs_are_slow():
    assert {found.node for found in slow_nodes(pairs_of(4, slow=[1, 2]))} == {1, 2}


@pytest.mark.parametrize("nodes", [3, 4, 8])
def test_one_slow_link_is_named_and_neither_of_its_nodes(nodes):
    pairs = pairs_of(nodes, links=[(0, 2)], noise=0.03)
    assert slow_nodes(pairs) == []
    assert [found.pair.ranks for found in slow_links(pairs)] == [(0, 2)]
    assert suspects(pairs) == [(0, 2)]


@pytest.mark.parametrize("nodes", [2, 3, 4, 8, 32])
def test_nobody_is_named_in_a_healthy_cluster(nodes):
    for seed in range(20):
        pairs = pairs_of(nodes, noise=0.05, seed=seed)
        assert slow_nodes(pairs) + slow_links(pairs) == []


def test_even_noise_makes_no_small_difference_a_fault():
    pairs = pairs_of(8, slow=[3], factor=1.2)
    assert slow_nodes(pairs) == []


def test_of_two_nodes_neither_is_named():
    assert slow_nodes(pairs_of(2, slow=[0])) == []


def test_of_two_pairs_of_a_class_neither_is_named():
    inside = [Measured((2 * n, 2 * n + 1), (n, n), "node", 1e-6, 1e10 / (4 if n else 1)) for n in range(2)]
    assert slow_links(inside) == []


def test_pairs_inside_nodes_are_compared_with_each_other_and_say_nothing_of_the_network():
    inside = [Measured((2 * n, 2 * n + 1), (n, n), "node", 1e-6, 1e10 / (4 if n == 2 else 1)) for n in range(5)]
    across = [Measured((2 * a, 2 * b), (a, b), "nic", 20e-6, 1e8) for a, b in combinations(range(5), 2)]
    assert slow_nodes(inside + across) == []
    assert [found.pair.ranks for found in slow_links(inside + across)] == [(4, 5)]


def test_links_between_racks_are_compared_with_each_other():
    pairs = [
        Measured((a, b), (a, b), "nic" if a // 3 == b // 3 else "rack", 20e-6, 1e8 if a // 3 == b // 3 else 2e7)
        for a, b in combinations(range(6), 2)
    ]
    assert slow_nodes(pairs) + slow_links(pairs) == []


def test_where_racks_have_two_nodes_the_slow_one_of_them_is_told_from_its_mate():
    usual = {"nic": 1e8, "rack": 5e7}
    kinds = {pair: "nic" if pair[0] // 2 == pair[1] // 2 else "rack" for pair in combinations(range(4), 2)}
    pairs = [Measured(pair, pair, kind, 20e-6, usual[kind] / (3 if 2 in pair else 1)) for pair, kind in kinds.items()]
    assert [found.node for found in slow_nodes(pairs)] == [2]
    assert slow_links(pairs) == []


def test_other_work_that_spoils_most_samples_does_not_spoil_a_pair():
    sizes = (1.0, 8.0, 64.0, 65536.0, 1e6)
    times = ((9e-5,) * 5, (7e-5, 6e-5, 2e-5, 9e-5, 8e-5), (8e-5,) * 5, (5e-4,) * 5, (3e-2, 1.002e-2, 2e-2))
    found = measured((0, 1), (0, 1), "nic", Curve(sizes, times))
    assert found.latency_s == pytest.approx(2e-5)
    assert found.bytes_per_s == pytest.approx(1e8)
