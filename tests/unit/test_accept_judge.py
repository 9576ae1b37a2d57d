"""When a figure is too slow: against an expectation, against peers, and by counts."""

import pytest

from ddlbench.accept.expect import Expected, Nothing
from ddlbench.accept.judge import Bar, Readings, alone_checks, late_checks, stall_checks, usual, without_links
from ddlbench.accept.rules import Rules

NAN = float("nan")


def status(what, worst, peers, value, expected=None):
    return Bar.of(what, worst, peers, "nodes").check("node", (0,), value, expected).status


def test_against_peers_a_figure_must_be_beyond_the_limit_and_an_outlier():
    even, spread = [10.0, 10.1, 9.9, 10.0, 6.5], [10.0, 14.0, 7.0, 9.0, 6.5, 12.0, 8.0]
    assert status("copy", 1 / 0.7, even, 6.5) == "fail"
    assert status("copy", 1 / 0.6, even, 6.5) == "pass"
    assert status("copy", 1 / 0.7, spread, 6.5) == "pass"


def test_an_expectation_needs_no_peers_and_no_outlier():
    assert status("copy", 1 / 0.7, [6.5], 6.5, Expected(10.0, "told")) == "fail"
    assert status("copy", 1 / 0.7, [6.5], 7.5, Expected(10.0, "told")) == "pass"
    assert status("latency", 2.0, [], 2.1, Expected(1.0, "told")) == "fail"
    assert status("latency", 2.0, [], 1.9, Expected(1.0, "told")) == "pass"


@pytest.mark.parametrize(("peers", "value", "expected"), [([1.0, 2.0], 1.0, "unjudged"), ([], NAN, "fail")])
def test_fewer_than_three_are_no_majority(peers, value, expected):
    assert status("copy", 2.0, peers, value) == expected


def test_of_an_even_number_the_better_one_in_the_middle_is_usual_and_nan_is_none():
    assert usual([1.0, NAN, 3.0]) == 3.0
    assert usual([1.0, 3.0], lower=True) == 1.0
    assert usual([3.0, 1.0, 2.0]) == 2.0
    assert usual([NAN]) != usual([NAN])


def test_who_is_late_in_a_watch_too_short_to_tell_is_not_blamed():
    def failed(seconds):
        late = {0: (0.02, seconds), 1: (0.02, seconds), 2: (0.25, seconds)}
        return [check.nodes for check in late_checks(Readings(late=late), Rules()) if check.failed]

    assert failed(6.0) == [(2,)]
    assert failed(0.1) == []


def test_where_all_are_late_nobody_is():
    late = dict.fromkeys(range(4), (0.6, 6.0))
    assert {check.status for check in late_checks(Readings(late=late), Rules())} == {"pass"}


def test_a_network_that_stalls_as_a_whole_fails_pairs_and_no_node():
    stalled = dict.fromkeys([(0, 1), (0, 2), (1, 2)], 1.2)
    checks = stall_checks(Readings(stalled=stalled), Rules())
    assert [(check.scope, check.status) for check in checks] == [("node", "pass")] * 3 + [("pair", "fail")] * 3


def test_of_two_nodes_whose_link_stalls_neither_is_judged():
    checks = stall_checks(Readings(stalled={(0, 1): 1.2}), Rules())
    assert [(check.scope, check.status) for check in checks] == [("node", "unjudged")] * 2 + [("pair", "fail")]


def test_what_does_not_come_again_is_held_against_nobody():
    class Look:
        late, stalled = {0: (0.5, 6.0)}, {(0, 1): 1.2}

    class Again:
        late, stalled = {0: (0.01, 6.0)}, {(0, 1): 0.0}

    readings = Readings().with_vigil(Look).with_vigil(Again)
    assert (readings.late[0][0], readings.stalled[0, 1]) == (0.01, 0.0)
    faster = Readings().with_pairs({"latency": {(0, 1): 2.0}}).with_pairs({"latency": {(0, 1): 1.0, (1, 2): 3.0}})
    assert faster.pairs["latency"] == {(0, 1): 1.0, (1, 2): 3.0}


def failed_alone(**windows):
    named = {int(name[1:]): rates for name, rates in windows.items()}
    return [check.nodes for check in alone_checks(Readings(alone={"copy": named}), Nothing(), Rules()) if check.failed]


def test_a_node_alone_must_be_slow_in_its_best_window_and_slower_than_others_in_most():
    assert failed_alone(n0=[9.0, 10.0, 9.0], n1=[10.0, 9.0, 9.0], n2=[10.0, 10.0, 3.0], n3=[5.0, 5.0, 5.0]) == [(3,)]
    assert failed_alone(n0=[9.0, 10.0, 9.0], n1=[10.0, 9.0, 9.0], n2=[10.0, 10.0, 3.0], n3=[5.0, 5.0, 9.0]) == []
    disturbed = {"n0": [10.0, 3.0, 3.0, 4.0], "n1": [3.0, 10.0, 4.0, 3.0], "n2": [10.0, 10.0, 3.0, 3.0]}
    assert failed_alone(**disturbed, n3=[5.0, 4.0, 5.0, 5.0]) == []


def test_windows_of_several_looks_stand_side_by_side_with_those_of_the_nodes_that_were_there():
    readings = Readings().with_alone({"copy": {0: [1.0], 1: [2.0]}}).with_alone({"copy": {1: [3.0, 4.0]}})
    assert [*map(str, readings.alone["copy"][0])] == ["1.0", "nan", "nan"]
    assert readings.alone["copy"][1] == [2.0, 3.0, 4.0]
    inside = readings.with_alone({"allreduce": {1: [5.0]}})
    assert (inside.alone["allreduce"], inside.alone["copy"][1]) == ({1: [5.0]}, [2.0, 3.0, 4.0])


def test_as_few_nodes_as_it_takes_are_left_out_for_bad_links():
    assert without_links(range(5), [(1, 2), (2, 4), (2, 3)]) == ([0, 1, 3, 4], [2])
    assert without_links(range(3), []) == ([0, 1, 2], [])
