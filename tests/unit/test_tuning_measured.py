"""From measured points to rules: who wins where, what is no win, and what takes no part."""

from dataclasses import replace

import numpy as np
import pytest

from ddlbench.errors import UsageError
from ddlbench.records import Loaded, TrustFlag
from ddlbench.tuning import tune
from ddlbench.tuning.measured import WORTH
from synthetic import point, run

SIZES = (8, 128, 2048, 32768)


def timed(algorithm, nbytes, median_us, *, spread=0.01, samples=20, **changes):
    """A point whose samples lie evenly within `spread` of the median on both sides."""
    values = np.linspace(1 - spread, 1 + spread, samples) * median_us * 1000
    return point(algorithm, nbytes, samples_ns=tuple(map(int, values)), **changes)


def row(algorithm, *medians_us, sizes=SIZES, **changes):
    return [timed(algorithm, nbytes, one, **changes) for nbytes, one in zip(sizes, medians_us, strict=True)]


def loaded(*rows, **changes):
    return Loaded(run(**changes), tuple(one for points in rows for one in points), [])


def nothing_against(*_):
    return ""


def tuned(*rows, **changes):
    return tune({"mine": loaded(*rows, **changes)}, nothing_against)


def rule(*rows, **changes):
    (found,) = tuned(*rows, **changes).table.rules
    return found


def chosen(found):
    return {nbytes: one.algorithm for one in found.ranges for nbytes in one.measured}


# ---- Ranges --------------------------------------------------------------------------------------------------------


def test_the_fastest_at_each_size_is_chosen_and_ranges_meet_halfway():
    found = rule(row("ring", 20, 20, 30, 100), row("direct", 5, 10, 60, 900), row("mpi", 50, 50, 50, 950))
    assert [(one.from_nbytes, one.algorithm) for one in found.ranges] == [(0, "direct"), (512, "ring")]
    assert [one.measured for one in found.ranges] == [(8, 128), (2048, 32768)]
    assert [one.clear for one in found.ranges] == [(8, 128), (2048, 32768)]
    assert [found.at(nbytes).algorithm for nbytes in (0, 8, 511, 512, 1 << 40)] == ["direct"] * 3 + ["ring"] * 2


def test_where_intervals_overlap_the_neighbours_winner_stays_and_is_no_clear_one():
    found = rule(row("ring", 10, 10, 10, 10), row("direct", 5, 9, 9, 5, spread=0.5))
    assert [(one.algorithm, one.clear) for one in found.ranges] == [("direct", (8, 32768))]
    slow = rule(row("ring", 5, 9.9, 9.9, 5, spread=0.5), row("direct", 10, 7.5, 7.5, 10, spread=0.5))
    assert [(one.algorithm, one.clear) for one in slow.ranges] == [("ring", (8, 32768))]


def test_where_none_can_be_told_from_the_others_anywhere_the_lower_median_is_kept_without_a_clear_size():
    (only,) = rule(row("direct", 10, 10, 10, 10, spread=0.3), row("ring", 9.9, 9.9, 9.9, 10.1, spread=0.3)).ranges
    assert (only.algorithm, only.clear) == ("ring", ())


def test_equal_medians_go_by_name():
    (only,) = rule(row("swing", 10, 10, 10, 10), row("direct", 10, 10, 10, 10)).ranges
    assert only.algorithm == "direct"


def test_a_change_must_be_worth_it():
    little, enough = WORTH - 0.02, WORTH + 0.02
    sure = {"spread": 0.001}
    kept = rule(row("ring", 10, 10, 10, 10, **sure), row("direct", 10 / little, 20, 20, 20, **sure))
    assert [(one.algorithm, one.clear) for one in kept.ranges] == [("ring", (128, 2048, 32768))]
    changed = rule(row("ring", 10, 10, 10, 10, **sure), row("direct", 10 / enough, 20, 20, 20, **sure))
    assert [one.algorithm for one in changed.ranges] == ["direct", "ring"]


def test_a_little_at_many_sizes_is_worth_a_change_too():
    little = {"spread": 0.001}
    sizes = tuple(8 * 4**power for power in range(8))
    ring = row("ring", *[10] * 4, *[10.3] * 4, sizes=sizes, **little)
    direct = row("direct", *[10.3] * 4, *[10] * 4, sizes=sizes, **little)
    assert [one.measured for one in rule(ring, direct).ranges] == [sizes[:4], sizes[4:]]


def test_an_algorithm_is_not_chosen_where_it_gave_no_result():
    small = row("direct", 5, 5, sizes=SIZES[:2])
    failed = [point("direct", nbytes, status="failed", reason="no room", samples_ns=()) for nbytes in SIZES[2:]]
    found = rule(row("ring", 6, 6, 6, 6, spread=0.3), small, failed)
    assert chosen(found)[32768] == "ring"


def test_the_interval_is_widened_by_passes_that_disagree():
    steady = row("ring", 10, 10, 10, 10)
    samples = (8000,) * 15 + (11000,) * 5
    moody = [point("direct", nbytes, samples_ns=samples, passes=(10, 5, 5)) for nbytes in SIZES]
    (only,) = rule(steady, moody).ranges
    assert (only.algorithm, only.clear) == ("direct", ())


# ---- What a rule is for --------------------------------------------------------------------------------------------


def test_shapes_dtypes_ops_and_placements_have_rules_of_their_own():
    settings = [
        {},
        {"nodes": 1, "ranks_per_node": "2", "ranks": 2},
        {"nodes": 3, "ranks_per_node": "", "ranks": 5},
        {"dtype": "float64"},
        {"op": "max"},
        {"in_place": True},
    ]
    rows = []
    for number, setting in enumerate(settings):
        fast, slow = ("ring", "direct") if number % 2 else ("direct", "ring")
        rows += [row(fast, 1, 1, 1, 1, **setting), row(slow, 2, 2, 2, 2, **setting)]
    rules = tuned(*rows).table.rules
    assert [one.ranges[0].algorithm for one in rules] == ["direct", "ring"] * 3
    assert [str(one.shape) for one in rules[:3]] == ["2 nodes of 2 ranks", "1 node of 2 ranks", "3 nodes with 5 ranks"]
    assert [one.grid for one in rules[:3]] == ["2x2", "2", "5"]
    assert [one.what for one in rules[3:]] == [
        "float64 sum, out of place, p2p",
        "float32 max, out of place, p2p",
        "float32 sum, in place, p2p",
    ]


def test_a_grid_that_was_asked_for_is_part_of_the_shape():
    ours, theirs = (row(name, 1, 2, 3, 4, nodes=1, ranks_per_node="4") for name in ("ring", "mpi"))
    found = rule(ours, theirs, config={"grid": "2x2"})
    assert (found.grid, str(found.shape)) == ("2x2", "1 node of 4 ranks as 2x2")


def test_the_vendor_takes_part_in_the_rules_of_each_transport():
    messages, memory = row("ring", 10, 10, 10, 10), row("ring", 2, 2, 2, 2, transport="direct")
    found = tuned(messages, memory, row("mpi", 5, 5, 5, 5)).table.rules
    assert [(one.transport, one.ranges[0].algorithm) for one in found] == [("p2p", "mpi"), ("direct", "ring")]


def test_nodes_on_one_machine_are_virtual_ones_but_a_single_node_is_not():
    shared = run().topology | {"machine_of": [0, 0, 0, 0]}
    alone = {"nodes": 1, "ranks_per_node": "2", "ranks": 2}
    rows = [row(name, 1, 2, 3, 4, **more) for more in ({}, alone) for name in ("ring", "mpi")]
    virtual = [one.virtual for one in tuned(*rows, topology=shared).table.rules]
    apart = [one.virtual for one in tuned(*rows, topology=shared | {"machine_of": [0, 0, 1, 1]}).table.rules]
    assert (virtual, apart) == ([True, False], [False, False])
    assert str(tuned(*rows, topology=shared).table.rules[0].shape) == "2 virtual nodes of 2 ranks"


# ---- What takes no part --------------------------------------------------------------------------------------------


def test_an_algorithm_that_was_wrong_anywhere_is_never_chosen():
    wrong = [*row("direct", 1, 1, 1, sizes=SIZES[:3]), point("direct", 32768, status="wrong", wrong=3)]
    done = tuned(row("ring", 5, 5, 5, 5), row("swing", 9, 9, 9, 9), wrong)
    assert chosen(done.table.rules[0]) == dict.fromkeys(SIZES, "ring")
    assert "mine: left out: direct: it gave wrong results" in done.notes


def test_an_algorithm_that_nobody_could_name_later_is_left_out_with_the_reason():
    rows = [row("mine.py:bruck", 1, 1, 1, 1), row("ring", 5, 5, 5, 5), row("swing", 9, 9, 9, 9)]
    rows.append(row("mine.py:bruck", 1, 1, 1, 1, nodes=1, ranks_per_node="4"))
    done = tune({"mine": loaded(*rows)}, lambda name, _: "a file" if name.startswith("mine.py") else "")
    assert chosen(done.table.rules[0])[8] == "ring"
    assert done.notes == ("mine: left out: mine.py:bruck: a file",)  # once, whatever it was measured on


def test_points_without_an_interval_take_no_part():
    done = tuned(row("ring", 5, 5, 5, 5), row("swing", 9, 9, 9, 9), row("direct", 1, 1, 1, 1, samples=5))
    assert set(chosen(done.table.rules[0]).values()) == {"ring"}
    assert any("4 points with too few samples" in note for note in done.notes)


def test_of_one_size_only_points_that_started_alike_are_compared():
    window = {"sync": "window"}
    rows = row("ring", 5, 5, 5, 5, **window), row("swing", 9, 9, 9, 9, **window), row("direct", 1, 1, 1, 1)
    done = tuned(*rows)
    assert set(chosen(done.table.rules[0]).values()) == {"ring"}
    assert any("4 points whose ranks started in another way" in note for note in done.notes)


def test_of_a_point_measured_twice_the_later_counts():
    found = rule(row("ring", 5, 5, 5, 5), row("direct", 1, 1, 1, 1), row("direct", 9, 9, 9, 9))
    assert set(chosen(found).values()) == {"ring"}


def test_what_was_measured_of_one_algorithm_alone_gives_no_rule():
    done = tuned(row("ring", 5, 5, 5, 5), row("swing", 9, 9, 9, 9), row("mpi", 1, 1, 1, 1, in_place=True),
                 row("ring", 5, 5, 5, 5, dtype="int32"))  # fmt: skip
    assert [one.what for one in done.table.rules] == ["float32 sum, out of place, p2p"]
    assert any("int32 sum" in note and "only ring was measured" in note for note in done.notes)
    with pytest.raises(UsageError, match=r"mine gives no rule: .*only ring was measured.*measure two algorithms"):
        tuned(row("ring", 5, 5, 5, 5))


def test_runs_without_a_measured_point_are_refused_by_what_they_hold():
    imported = [replace(one, kind="imported", samples_ns=()) for one in row("osu_allreduce", 1, 2, 3, 4)]
    predicted = [replace(one, kind="predicted", samples_ns=(), model_us=1.0) for one in row("ring", 1, 2, 3, 4)]
    with pytest.raises(UsageError, match="mine holds no measured point: it has 4 imported, 4 predicted"):
        tuned(imported, predicted)
    with pytest.raises(UsageError, match="mine holds no measured point: it has no points at all"):
        tuned([])
    with pytest.raises(UsageError, match="mine: none of its 1 measured points gave a right result"):
        tuned([point(status="wrong", wrong=1)])


# ---- Runs ----------------------------------------------------------------------------------------------------------


def test_the_table_says_where_it_comes_from():
    flag = TrustFlag("busy", "load of 2.0")
    done = tuned(row("ring", 5, 5, 5, 5), row("mpi", 9, 9, 9, 9), trust=(flag,), finished=False)
    (source,) = done.table.runs
    assert (source.directory, source.created, source.day) == ("mine", run().created, "2026-03-02")
    assert (source.hosts, source.mpi_version, source.cache) == (("node0", "node1"), "5.0.11", "warm")
    assert (source.trust, source.finished) == ((flag,), False)
    assert (done.table.processor, done.table.mpi) == ("AMD EPYC 7543", "Open MPI")
    assert done.notes == ("mine: the run did not finish", "mine: to mind: busy: load of 2.0")


def test_several_runs_of_a_machine_make_one_table_when_they_measured_different_things():
    out, into = (loaded(row("ring", 5, 5, 5, 5, in_place=one), row("mpi", 9, 9, 9, 9, in_place=one)) for one in (0, 1))
    both = tune({"a": out, "b": into}, nothing_against).table
    assert [(one.in_place, both.runs[one.run].directory) for one in both.rules] == [(0, "a"), (1, "b")]


def test_runs_that_do_not_go_together_are_refused_by_what_keeps_them_apart():
    rows = row("ring", 5, 5, 5, 5), row("mpi", 9, 9, 9, 9)
    mpich = loaded(*rows, mpi={"library": "MPICH", "version": "5.0.2"})
    with pytest.raises(UsageError, match=r"a was measured on AMD EPYC 7543 with Open MPI, b on .* with MPICH"):
        tune({"a": loaded(*rows), "b": mpich}, nothing_against)
    with pytest.raises(UsageError, match="a and b both measured 2 nodes of 2 ranks, float32 sum, out of place, p2p"):
        tune({"a": loaded(*rows), "b": loaded(*rows)}, nothing_against)
