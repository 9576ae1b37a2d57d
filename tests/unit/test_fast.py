"""What `make bench-fast` says: ratios, goals and means by hand; and the program that only moves bytes."""

import numpy as np
import pytest

from ddlbench.local.compile import Layout
from ddlbench.local.floor import floor_program
from ddlbench.local.program import INPUT, OUTPUT, REDUCE
from ddlbench.local.races import prove
from ddlbench.peers.fast import CROWDED, TITLES, as_csv, crowd, lines
from ddlbench.peers.figures import Figure
from ddlbench.peers.goals import Race
from ddlbench.peers.library import Environment, this_python


def figure(nbytes: int, us: float) -> Figure:
    return Figure("direct (Open MPI 5.0.11, registered)", nbytes, us, us * 0.9, us * 1.1, 60, 3)


def race(**goals: float) -> Race:
    ours = {8: figure(8, 1.0), 1024: figure(1024, 2.0), 4096: figure(4096, 5.0)}
    return Race("ours against theirs", ours, {8: 4.0, 1024: 1.0, 65536: 9.0}, **goals)


def test_a_ratio_is_their_time_over_ours_where_both_have_one():
    assert race(mean=1, least=1).ratios == {8: 4.0, 1024: 0.5}


def test_the_mean_is_geometric_and_sizes_where_the_other_is_faster_are_named():
    found = race(mean=1.4, least=0.5)
    assert found.reached_mean == pytest.approx(2**0.5)
    assert found.behind == [1024]
    assert found.reached


@pytest.mark.parametrize(("mean", "least"), [(1.5, 0.5), (1.4, 0.6)])
def test_a_goal_is_missed_by_the_mean_or_by_the_least(mean, least):
    assert not race(mean=mean, least=least).reached


def test_nothing_to_compare_reaches_no_goal():
    empty = Race("nobody", {}, {8: 1.0}, 1, 1)
    assert not empty.reached
    assert lines([empty])[-1] == "# nobody: nothing to compare"


def test_the_table_shows_each_size_and_says_whether_the_goals_are_reached():
    text = "\n".join(lines([race(mean=2.5, least=1.15)]))
    assert "# ours against theirs: medians in µs" in text
    assert "geometric mean 1.41× (goal 2.5), least 0.50× (goal 1.15): NOT reached; behind at 1" in text


def test_the_csv_has_a_line_for_each_ratio():
    head, *rows = as_csv([race(mean=1, least=1)]).splitlines()
    assert head.split(",") == list(TITLES)
    assert rows[0].endswith(',8,"direct (Open MPI 5.0.11, registered)",4.000,1.000,0.900,1.100,4.0000')
    assert len(rows) == 2


def test_ranks_beyond_the_cores_are_not_pinned_and_yield():
    pinned = Environment(this_python(), ("mpirun",), {"PRTE_MCA_hwloc_default_binding_policy": "core", "A": "1"})
    assert crowd(pinned).variables == {"A": "1", **CROWDED}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_the_floor_copies_a_part_of_every_input_to_every_output_and_nothing_twice(ranks):
    layout = Layout(103, 4, 1, registered=True, in_place=False)
    programs = [floor_program(ranks, rank, 103, 4, stream=False) for rank in range(ranks)]
    assert prove(programs, layout)
    written = np.zeros((ranks, 103 * 4), int)
    for one in (one for program in programs for one in program.variants[0] if one.kind == REDUCE):
        (source,), (target,) = one.sources, one.targets
        assert (source.space, target.space) == (INPUT, OUTPUT)
        assert (source.rank, source.offset) == (target.rank, target.offset)
        written[target.rank, target.offset : target.offset + 4 * one.count] += 1
    assert (written == 1).all()
