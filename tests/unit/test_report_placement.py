"""Where ranks ran, in few rows, and whether the nodes are machines of their own."""

import pytest

import synthetic
from ddlbench.records import Loaded
from ddlbench.report import html as html_module
from ddlbench.report.facts import facts
from ddlbench.report.html import render
from ddlbench.report.notices import notices
from ddlbench.report.placement import ROWS, Placed, placement
from ddlbench.report.runs import Runs
from report_page import Page


def topology(node_of, cpus, **more) -> dict:
    hosts = [f"node{node}" for node in node_of]
    found = {"hosts": hosts, "node_of": list(node_of), "cpus": cpus, "ranks": len(hosts), "nodes": len(set(node_of))}
    return found | more


def rows(*args) -> list[Placed]:
    found, left = placement(topology(*args))
    assert left == 0
    return found


def test_eight_ranks_are_told_with_their_hosts_and_processors():
    assert rows([0, 0, 0, 1, 1], [[0], [1], [2], [0, 1, 2, 3], [0, 1, 2, 3]]) == [
        Placed("node0", "0-2", "0-2, 1 for each in turn"),
        Placed("node1", "3-4", "0-3, shared by all"),
    ]


def test_a_thousand_ranks_on_nodes_alike_are_one_row():
    ranks = range(1024)
    cpus = [list(range(4 * (rank % 8), 4 * (rank % 8) + 4)) for rank in ranks]
    assert rows([rank // 8 for rank in ranks], cpus) == [
        Placed(
            "node0 … node127 (128 nodes)", "0-1023: 8 ranks on each, one after the other", "0-31, 4 for each in turn"
        )
    ]


def test_ranks_placed_round_robin_are_told_as_such():
    assert rows([rank % 4 for rank in range(12)], [[0, 1]] * 12) == [
        Placed("node0 … node3 (4 nodes)", "0-11: 3 ranks on each, every 4th", "0-1, shared by all")
    ]
    assert rows([0, 1, 0], [[0]] * 3) == [Placed("node0", "0,2", "0, shared by all"), Placed("node1", "1", "0")]


def test_one_rank_on_each_node_is_one_row():
    assert rows(range(64), [[0]] * 64) == [Placed("node0 … node63 (64 nodes)", "0-63: 1 rank on each", "0")]


def test_a_node_unlike_its_neighbours_has_a_row_of_its_own():
    found = rows([rank // 2 for rank in range(8)], [*[[0], [1]] * 2, [4], [9], [0], [1]])
    assert [(row.nodes, row.ranks) for row in found] == [
        ("node0 … node1 (2 nodes)", "0-3: 2 ranks on each, one after the other"),
        ("node2", "4-5"),
        ("node3", "6-7"),
    ]
    assert found[1].cores == "rank by rank: 4; 9"


def test_processors_with_gaps_are_told_rank_by_rank_and_of_many_ranks_only_some():
    assert rows([0, 0], [[0, 64], [1, 65]])[0].cores == "rank by rank: 0,64; 1,65"
    assert rows([0] * 10, [[3 * rank] for rank in range(10)])[0].cores == "rank by rank: 0; 3; 6; 9; 12; 15; 18; …; 27"


def test_very_many_rows_are_cut_and_the_rest_is_counted():
    found, left = placement(topology(range(100), [[rank % 2] for rank in range(100)]))
    assert (len(found), left) == (ROWS, 100 - ROWS)


@pytest.mark.parametrize(
    "odd", [{}, {"hosts": ["a"]}, topology([0], "0"), topology([0], [[0], [1]]), {"hosts": 1, "node_of": 2, "cpus": 3}]
)
def test_a_record_that_does_not_say_makes_no_map(odd):
    assert placement(odd) == ([], 0)


@pytest.mark.parametrize("odd", [["x"], [None], [[None, "1", 0]]])
def test_processors_that_are_no_numbers_do_no_harm(odd):
    assert len(rows([0], odd)) == 1


def loaded(**changes) -> Loaded:
    return Loaded(synthetic.run(**changes), (synthetic.point(),), [])


@pytest.fixture
def light_plotly(monkeypatch):
    monkeypatch.setattr(html_module, "_plotly", lambda: "")


@pytest.mark.usefixtures("light_plotly")
def test_the_page_has_the_map_with_hostile_hosts_as_text():
    evil = "<script>alert(1)</script>"
    page = Page(render(loaded(topology=topology([0, 0], [[0], [1]], hosts=[evil, evil]))))
    assert "Where the ranks ran" in page.text
    assert evil in page.text
    assert "0-1, 1 for each in turn" in page.text
    assert page.tags["script"] == 4


@pytest.mark.usefixtures("light_plotly")
def test_of_several_runs_each_has_its_map():
    runs = {name: loaded(topology=topology([0] * ranks, [[0]] * ranks)) for name, ranks in (("a", 2), ("b", 4))}
    text = Page(render(runs)).text
    assert ("0-1" in text, "0-3" in text) == (True, True)


# Nodes that are no machines

LAB = {"variables": {"DDLBENCH_LAB": "4 nodes, 1gbit each"}}
TWO = topology([0, 1], [[0], [1]])


def test_a_virtual_cluster_is_told_first_and_in_words():
    first, *_ = notices(Runs.of(loaded(environment=LAB, trust=synthetic.flags(), finished=False)))
    assert first.title == "Not a cluster"
    assert "network namespaces on one machine (4 nodes, 1gbit each)" in first.detail
    told = dict(facts(loaded(environment=LAB)))["Ranks"]
    assert told == "4 ranks on 2 nodes, network namespaces on one machine (4 nodes, 1gbit each)"


def test_nodes_of_one_kernel_are_told_without_the_lab_too():
    (first,) = notices(Runs.of(loaded(topology=TWO | {"machine_of": [0, 0]})))
    assert (first.title, "containers on 1 machine" in first.detail) == ("Not a cluster", True)


@pytest.mark.parametrize(
    "changes",
    [
        {"topology": TWO | {"machine_of": [0, 1]}},
        {"topology": TWO},
        {"environment": {}},
        {"environment": {"variables": 3}},
    ],
)
def test_nothing_is_said_of_machines_of_their_own(changes):
    assert [notice.title for notice in notices(Runs.of(loaded(**changes)))] == [
        "Nothing recorded speaks against these figures"
    ]
