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
        (hosts(4, 4), {"mode": "p:2x2x2"}, (4, 4)),
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


def test_this_machine_has_room_for_as_many_ranks_as_cores_whatever_was_promised(monkeypatch):
    monkeypatch.setattr(layout, "is_here", lambda name: name == "n0")
    monkeypatch.setattr(layout, "cores", lambda: 2)
    for allocation in (hosts(2, source=HERE, promised=False), hosts(8), hosts(None, promised=False)):
        assert counts(allocation, ranks=2) == (2,)
        with pytest.raises(UsageError, match="3 on n0, which has 2 slots"):
            planned(allocation, Wish(ranks=3))
    assert counts(hosts(8, scheduler="slurm")) == (8,)
    assert not planned(hosts(2, source=HERE, promised=False), Wish()).named


def test_the_grid_of_a_mode():
    assert str(grid_of("p:4x16x4")) == "4x16x4"
    assert str(grid_of("4x2")) == "4x2"
    assert grid_of("b") is None
