"""Points of several shapes in one run: told apart in every table, and never compared with each other."""

import pytest

import synthetic
from ddlbench.compare import Margin, compare
from ddlbench.records import Loaded
from ddlbench.report.contest import contest_of, settings, verdicts
from ddlbench.report.markup import results_tables
from ddlbench.report.notices import issues
from ddlbench.report.payload import payload
from ddlbench.report.printed import printed
from ddlbench.report.runs import Runs

SHAPES = ((2, 1), (2, 2), (4, 1))


def timed(algorithm: str, nodes: int, each: int, time_us: float, **changes):
    layout = {"nodes": nodes, "ranks_per_node": str(each), "ranks": nodes * each}
    samples = tuple(round(1000 * time_us) + at for at in range(20))
    return synthetic.point(algorithm, 1024, samples_ns=samples, **(layout | changes))


def swept(factor: float = 1) -> Loaded:
    """Ring wins on two nodes, mpi on four; the times of shapes are far apart."""
    points = [
        timed(name, nodes, each, factor * 100 * at * (2 if (name == "ring") == (nodes == 4) else 1))
        for at, (nodes, each) in enumerate(SHAPES, 1)
        for name in ("ring", "mpi")
    ]
    return Loaded(synthetic.run(), tuple(points), [])


def test_each_shape_has_its_own_winner():
    found = {}
    for setting, rows in settings(Runs.of(swept()).table):
        contest = contest_of(rows)
        (win,) = verdicts(contest)
        found[setting.nodes, setting.ranks_per_node] = contest.names[win.winner]
    assert found == {(2, "1"): "ring", (2, "2"): "ring", (4, "1"): "mpi"}


def test_as_many_ranks_on_other_nodes_are_a_column_of_their_own_in_the_map():
    (family,) = payload(Runs.of(swept()))["families"]
    assert family["heads"] == (("2 ranks", "2 nodes"), ("4 ranks", "2 nodes"), ("4 ranks", "4 nodes"))


def test_each_shape_has_a_table_of_results_that_names_it():
    assert [table.caption for table in results_tables(swept())] == [
        f"float32 sum, out of place, {nodes * each} ranks on {nodes} nodes, {each} on each" for nodes, each in SHAPES
    ]


@pytest.mark.parametrize("form", ["osu", "nccl"])
def test_each_shape_has_a_table_for_parsers_that_names_it(form):
    loaded = swept()
    text = printed(form, loaded.run, loaded.points)
    for nodes, each in SHAPES:
        assert text.count(f"{nodes * each} ranks on {nodes} nodes, {each} on each") == 2


def test_points_of_two_runs_are_compared_shape_by_shape():
    found = compare(swept(), swept(1.5), Margin.parse("5%", "--margin"))
    assert len(found.findings) == 6
    assert [round(finding.shift.ratio, 2) for finding in found.findings] == [1.5] * 6
    pairs = [(finding.pair.base, finding.pair.new) for finding in found.findings]
    assert all((a.nodes, a.ranks_per_node, a.ranks) == (b.nodes, b.ranks_per_node, b.ranks) for a, b in pairs)


def test_points_that_are_not_ok_are_listed_with_their_shape():
    points = [*swept().points, timed("swing", 4, 1, 1, status="failed", reason="no memory")]
    ((only,), _) = issues(Runs.of(Loaded(synthetic.run(), tuple(points), [])).table)
    assert only.setting == "float32 sum, out of place, 4 ranks on 4 nodes, 1 on each"
