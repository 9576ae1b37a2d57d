"""Which pairs there are, of which class, and which are measured at the same time."""

from dataclasses import replace
from itertools import combinations

import pytest

from ddlbench.links.pairs import MOST_INSIDE, Places, islands_of, tournament
from made_links import topology


@pytest.mark.parametrize("players", [2, 3, 4, 7, 16, 33])
def test_in_a_tournament_everyone_meets_everyone_once_and_nobody_twice_in_a_round(players):
    rounds = tournament(players)
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(players), 2))
    assert len(rounds) == players - 1 + players % 2
    for pairs in rounds:
        assert len({player for pair in pairs for player in pair}) == 2 * len(pairs)


@pytest.mark.parametrize(("nodes", "each"), [(1, 2), (1, 5), (3, 1), (4, 2), (5, 3)])
def test_few_ranks_all_meet_and_pairs_of_a_round_share_no_node(nodes, each):
    places = Places(topology(nodes, each))
    rounds = places.pairs()
    assert sorted(pair for pairs in rounds for pair in pairs) == list(combinations(range(nodes * each), 2))
    for pairs in rounds:
        used = [node for pair in pairs for node in {places.topology.node_of[rank] for rank in pair}]
        assert len(used) == len(set(used))


def test_nodes_of_one_machine_are_measured_pair_by_pair():
    assert {len(pairs) for pairs in Places(topology(4, 2, one_machine=True)).pairs()} == {1}
    assert {len(pairs) for pairs in Places(topology(8, 1)).pairs()} == {4}


def test_latencies_are_compared_only_where_no_rank_waits_for_a_processor():
    assert Places(topology(3, 2)).compared == ("latency", "bandwidth")
    assert Places(topology(3, 2, one_machine=True)).compared == ("bandwidth",)
    crowded = replace(topology(1, 4), cpus=((0, 1),) * 4)
    assert Places(crowded).compared == ("bandwidth",)


def test_of_many_ranks_the_first_of_all_nodes_meet_and_those_inside_one_node():
    places = Places(topology(6, 4))
    pairs = [pair for pairs in places.pairs() for pair in pairs]
    across = [pair for pair in pairs if places.class_of(pair) == "nic"]
    assert sorted(across) == [(4 * a, 4 * b) for a, b in combinations(range(6), 2)]
    assert sorted(pair for pair in pairs if pair not in across) == list(combinations(range(4), 2))
    assert len(Places(topology(1, 128)).pairs()) <= MOST_INSIDE


def test_the_class_of_a_pair_is_the_level_at_which_its_ranks_meet():
    places = Places(topology(4, 4), islands=2, rack=2)
    kinds = [places.class_of(pair) for pair in ((0, 1), (0, 2), (0, 4), (0, 8))]
    assert kinds == ["island", "node", "nic", "rack"]
    assert Places(topology(1, 4)).class_of((0, 1)) == "node"


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        ("island", [(0, 1), (2, 3)]),
        ("node", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ("nic", [(rank, 8 + rank) for rank in range(8)]),
        ("rack", [(rank, 16 + rank) for rank in range(16)]),
    ],
)
def test_at_once_are_those_that_share_an_island_a_node_two_nodes_or_two_racks(kind, pairs):
    assert Places(topology(4, 8), islands=2, rack=2).at_once(kind) == pairs


def test_slow_nodes_take_no_part_where_there_are_others():
    assert Places(topology(4, 1)).at_once("nic", avoid=[0]) == [(1, 2)]
    assert Places(topology(2, 1)).at_once("nic", avoid=[0]) == [(0, 1)]


@pytest.mark.parametrize(
    ("caches", "islands"),
    [
        ([["0-3", "0-3", "4-7", "4-7"]] * 2, 2),
        ([["0-1"] * 4], 1),
        ([["0", "1", "2", "3"]], 1),
        ([["0-3", "4-7", "0-3", "4-7"]], 1),
        ([["0-3", "0-3", "0-3", "4-7"]], 1),
        ([["", "", "", ""]], 1),
        ([["0-3", "0-3", "4-7", "4-7"], ["0-7"] * 4], 1),
    ],
)
def test_islands_are_equal_blocks_of_ranks_that_share_a_cache_or_none(caches, islands):
    assert islands_of(caches) == islands
