"""Ranks on hosts: node by node, no more than there is room for unless that is meant, and as a mode's grid has them."""

import pytest

from ddlbench.errors import UsageError
from ddlbench.launch import layout
from ddlbench.launch.allocation import HERE, Allocation
from ddlbench.launch.hosts import Host
from ddlbench.launch.layout import Wish, grid_of, planned


def hosts(*slots, scheduler="", promised=True, source="-H"):
    return Allocation(tuple(Host(f"n{at}", number) for at, number in enumerate(slots)), source, scheduler, promised)


FOUR_TIMES_TWO = hosts(2, 2, 2, 2)
BARE = hosts(None, None, None, None, promised=False)


def counts(allocation, **wish):
    return planned(allocation, Wish(**wish)).counts


@pytest.mark.parametrize(
    ("allocation", "wish", "expected"),
    [
        (FOUR_TIMES_TWO, {}, (2, 2, 2, 2)),
        (hosts(2, 1), {}, (2, 1)),
        (FOUR_TIMES_TWO, {"nodes": 2}, (2, 2)),
        (FOUR_TIMES_TWO, {"ranks_per_node": 1}, (1, 1, 1, 1)),
        (FOUR_TIMES_TWO, {"ranks": 4}, (2, 2)),
        (FOUR_TIMES_TWO, {"ranks": 5}, (2, 2, 1)),
        (FOUR_TIMES_TWO, {"ranks": 4, "ranks_per_node": 1}, (1, 1, 1, 1)),
        (FOUR_TIMES_TWO, {"ranks": 2, "ranks_per_node": 1}, (1, 1)),
        (FOUR_TIMES_TWO, {"mode": "p:2x4"}, (2, 2, 2, 2)),
        (FOUR_TIMES_TWO, {"mode": "p:1x4", "ranks_per_node": 1}, (1, 1, 1, 1)),
        (FOUR_TIMES_TWO, {"mode": "r"}, (2, 2, 2, 2)),
        (hosts(2, 2, 2, 2), {"mode": "p:2x2x2"}, (2, 2, 2, 2)),
        (hosts(1, 1), {"mode": "p:1x2"}, (1, 1)),
        (hosts(8), {"mode": "p:8x1"}, (8,)),
        (hosts(4, 4), {"mode": "n:4X2"}, (4, 4)),
        (hosts(8), {"mode": "p:8"}, (8,)),
        (BARE, {}, (1, 1, 1, 1)),
        (BARE, {"ranks_per_node": 3}, (3, 3, 3, 3)),
        (BARE, {"mode": "p:4x4"}, (4, 4, 4, 4)),
        (FOUR_TIMES_TWO, {"ranks": 12, "oversubscribe": True}, (3, 3, 3, 3)),
        (FOUR_TIMES_TWO, {"ranks": 9, "oversubscribe": True}, (3, 2, 2, 2)),
        (FOUR_TIMES_TWO, {"ranks_per_node": 5, "oversubscribe": True}, (5, 5, 5, 5)),
    ],
)
def test_ranks_fill_the_hosts_node_by_node(allocation, wish, expected):
    found = planned(allocation, Wish(**wish))
    assert found.counts == expected
    assert found.ranks == sum(expected)
    assert [host.name for host in found.hosts] == [f"n{at}" for at in range(len(expected))]


@pytest.mark.parametrize(
    ("allocation", "wish", "parts"),
    [
        (FOUR_TIMES_TWO, {"ranks_per_node": 3}, ["3 on n0", "2 slots", "--oversubscribe"]),
        (FOUR_TIMES_TWO, {"ranks": 9}, ["3 on n0", "2 slots"]),
        (hosts(4, 1), {"ranks_per_node": 2}, ["2 on n1", "1 slot"]),
        (FOUR_TIMES_TWO, {"nodes": 5}, ["--nodes 5", "-H has 4"]),
        (FOUR_TIMES_TWO, {"ranks": 5, "ranks_per_node": 2}, ["5 ranks", "2 on each", "no multiple"]),
        (FOUR_TIMES_TWO, {"ranks": 10, "ranks_per_node": 2}, ["10 ranks", "5 nodes", "has 4"]),
        (FOUR_TIMES_TWO, {"mode": "p:4x4"}, ["'p:4x4'", "16 ranks", "8 slots"]),
        (FOUR_TIMES_TWO, {"mode": "p:4x2"}, ["'p:4x2'", "4 on each of 2 nodes", "2 on each of 4 nodes"]),
        (hosts(1, 1), {"mode": "p:2x1"}, ["'p:2x1'", "2 on 1 node", "1 on each of 2 nodes", "1x2"]),
        (hosts(*[1] * 8), {"mode": "p:4x2"}, ["'p:4x2'", "4 on each of 2 nodes", "1 on each of 8 nodes", "1x8"]),
        (hosts(*[1] * 8), {"mode": "p:8"}, ["'p:8'", "8 on 1 node", "1 on each of 8 nodes", "1x8"]),
        (hosts(8), {"mode": "p:4x2"}, ["'p:4x2'", "4 on each of 2 nodes", "8 on 1 node", "-a p:4x2"]),
        (hosts(4, 4), {"mode": "p:2x2x2"}, ["'p:2x2x2'", "2 on each of 4 nodes", "4 on each of 2 nodes"]),
        (hosts(2, 1), {"mode": "p:3x1"}, ["'p:3x1'", "2/1"]),
        (hosts(2, 1), {"mode": "p"}, ["'p'", "as many ranks on every node"]),
        (BARE, {"mode": "p:3x3"}, ["3x3", "9 ranks", "4 nodes"]),
        (FOUR_TIMES_TWO, {"mode": "q:4x2"}, ["'q:4x2'", "p:4x2"]),
        (FOUR_TIMES_TWO, {"mode": "p:4y2"}, ["'p:4y2'"]),
        (FOUR_TIMES_TWO, {"mode": "p:0x2"}, ["0x2", "at least 1"]),
        (FOUR_TIMES_TWO, {"mode": "p:4x2;reboot"}, ["'p:4x2;reboot'"]),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(allocation, wish, parts):
    with pytest.raises(UsageError) as refused:
        planned(allocation, Wish(**wish))
    assert [part for part in parts if part not in str(refused.value)] == []


def test_more_ranks_than_slots_are_marked_when_they_are_meant():
    assert planned(FOUR_TIMES_TWO, Wish(ranks_per_node=4, oversubscribe=True)).oversubscribed
    assert not planned(FOUR_TIMES_TWO, Wish(ranks_per_node=2, oversubscribe=True)).oversubscribed


@pytest.fixture
def on_n0(monkeypatch):
    """Have n0 be this machine, of two cores."""
    monkeypatch.setattr(layout, "is_here", lambda name: name in ("n0", "localhost"))
    monkeypatch.setattr(layout, "cores", lambda: 2)


@pytest.mark.usefixtures("on_n0")
@pytest.mark.parametrize(
    "allocation", [hosts(2, source=HERE, promised=False), hosts(None, promised=False), hosts(None, None)]
)
def test_where_nobody_stated_slots_this_machine_has_one_for_each_core(allocation):
    assert planned(allocation, Wish(ranks=2, ranks_per_node=2)).counts == (2,)
    with pytest.raises(UsageError, match="3 on n0, which has 2 slots, one for each core:"):
        planned(allocation, Wish(ranks=3, ranks_per_node=3))
    assert not planned(hosts(2, source=HERE, promised=False), Wish()).named


@pytest.mark.usefixtures("on_n0")
def test_slots_that_somebody_stated_are_taken_at_their_word_also_on_this_machine():
    assert counts(hosts(3, 3)) == (3, 3)
    assert counts(hosts(8), ranks=8) == (8,)
    assert counts(hosts(8, scheduler="slurm")) == (8,)
    with pytest.raises(UsageError, match="4 on n0, which has 3 slots; 4 on n1, which has 3 slots: ask for fewer"):
        planned(hosts(3, 3), Wish(ranks_per_node=4))
    with pytest.raises(UsageError, match="2 on n0, which has 1 slot:"):
        planned(hosts(1), Wish(ranks=2))


@pytest.mark.usefixtures("on_n0")
def test_ranks_that_share_the_cores_of_this_machine_are_oversubscribed_and_it_is_said():
    shared = planned(hosts(3, 3), Wish())
    assert (shared.oversubscribed, shared.sharing) == (True, "3 ranks share the 2 cores of n0")
    both = Allocation((Host("n0", 2), Host("localhost", 1)), "-H")
    assert planned(both, Wish()).sharing == "3 ranks share the 2 cores of n0"
    meant = planned(hosts(2, source=HERE, promised=False), Wish(ranks=4, oversubscribe=True))
    assert (meant.oversubscribed, meant.sharing) == (True, "4 ranks share the 2 cores of n0")
    for enough in (hosts(2, 3), hosts(8, scheduler="slurm")):
        assert (planned(enough, Wish()).oversubscribed, planned(enough, Wish()).sharing) == (False, "")


def test_one_core_is_shared_as_well(monkeypatch):
    monkeypatch.setattr(layout, "is_here", lambda name: name == "n0")
    monkeypatch.setattr(layout, "cores", lambda: 1)
    assert planned(FOUR_TIMES_TWO, Wish()).sharing == "2 ranks share the one core of n0"


def test_the_grid_of_a_mode():
    assert str(grid_of("p:4x16x4")) == "4x16x4"
    assert str(grid_of("4x2")) == "4x2"
    assert grid_of("b") is None
