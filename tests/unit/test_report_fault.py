"""What a report says of a run that a fault ended: what happened, and where each rank stood."""

import pytest

import synthetic
from ddlbench.records import Loaded
from ddlbench.report import html as html_module
from ddlbench.report.fault import ROWS, Standing, fault_text, standings
from ddlbench.report.html import render
from ddlbench.report.notices import notices
from ddlbench.report.runs import Runs
from report_page import Page

POINT = {"algorithm": "ring", "nbytes": 2**20, "dtype": "float32", "op": "sum", "pass": 2}


def fault(**changes) -> dict:
    """Four ranks on two nodes, of which the last is silent and the others wait."""
    places = ["round 3, waits for rank 3", "round 2, waits for rank 0", "round 3, waits for rank 3", "round 1"]
    ranks = [{"rank": rank, "host": f"node{rank // 2}", "where": where} for rank, where in enumerate(places)]
    found = {
        "what": "stalled: ring, 1 MiB float32 sum, pass 2: no progress for 60 s",
        "point": POINT,
        "ranks": ranks,
        "silent": [3],
        "at": "2026-03-02T09:44:00+00:00",
    }
    return found | changes


def run(told) -> object:
    return synthetic.run(fault=told, finished=False)


def test_a_fault_is_told_with_the_rank_that_nobody_heard_from():
    assert fault_text(run(fault())).replace("\u00a0", " ") == (
        "stalled: ring, 1 MiB float32 sum, pass 2: no progress for 60 s; nobody heard from rank 3 (node1)"
    )


def test_a_fault_that_does_not_name_its_point_is_told_with_it():
    told = fault_text(run(fault(what="rank 3 (node1, pid 77) died", silent=[]))).replace("\u00a0", " ")
    assert told == "rank 3 (node1, pid 77) died; while it measured ring 1 MiB float32 sum"
    assert fault_text(run(fault(what="rank 3 died", silent=[], point=None))) == "rank 3 died"


def test_ranks_that_stood_alike_are_told_together_the_silent_ones_first():
    assert standings(run(fault())) == [
        Standing("3", "node1", "round 1", silent=True),
        Standing("0,2", "node0, node1", "round 3, waits for rank 3", silent=False),
        Standing("1", "node0", "round 2, waits for rank 0", silent=False),
    ]


def test_a_thousand_ranks_that_stood_alike_are_one_row():
    ranks = [{"rank": rank, "host": f"n{rank // 8}", "where": "barrier"} for rank in range(1024)]
    (only,) = standings(run(fault(ranks=ranks, silent=[])))
    assert (only.ranks, only.hosts) == ("0-1023", "n0, n1 … n127 (128 hosts)")


def test_a_run_without_a_fault_says_nothing():
    assert fault_text(synthetic.run()) == ""
    assert standings(synthetic.run()) == []


@pytest.mark.parametrize(
    "odd", [{}, {"what": None}, {"ranks": 3, "silent": "x"}, {"ranks": [4, {}, {"rank": "a"}], "point": 7}]
)
def test_a_fault_of_which_little_is_recorded_does_no_harm(odd):
    assert fault_text(run(odd)) == "not recorded"
    assert standings(run(odd)) == []


def test_a_fault_is_the_first_notice():
    loaded = Loaded(run(fault()), (synthetic.point(status="wrong", wrong=1),), [])
    first, *others = notices(Runs.of(loaded))
    assert (first.weight, first.title) == ("alarm", "Ended early by a fault")
    assert "nobody heard from rank 3 (node1)" in first.detail
    assert "Not finished" in {notice.title for notice in others}


def test_the_page_has_where_each_rank_stood_with_hostile_words_as_text(monkeypatch):
    monkeypatch.setattr(html_module, "_plotly", lambda: "")
    evil = "<img src=x onerror=alert(1)>"
    told = fault(what=evil, ranks=[{"rank": 0, "host": evil, "where": evil}], silent=[0])
    page = Page(render(Loaded(run(told), (), [])))
    assert "Where each rank stood when the run ended" in page.text
    assert "Nobody heard from it. Last: <img" in page.text
    assert page.tags["img"] == 0


def test_very_many_places_are_cut_and_the_rest_is_counted(monkeypatch):
    monkeypatch.setattr(html_module, "_plotly", lambda: "")
    ranks = [{"rank": rank, "host": "a", "where": f"round {rank}"} for rank in range(100)]
    text = Page(render(Loaded(run(fault(ranks=ranks)), (), []))).text
    assert f"And {100 - ROWS} more rows" in text
