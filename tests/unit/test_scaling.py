"""The scaling-efficiency table: its figures by hand, what N₀ is, and what has no figure and why."""

import io
import math

import pandas as pd
import pytest

import synthetic
from ddlbench.errors import UsageError
from ddlbench.records import Loaded, Stated
from ddlbench.report import scaling_table, scalings
from ddlbench.report.csv import scaling_csv
from ddlbench.report.runs import Runs
from ddlbench.report.shapes import Shape, least, named
from ddlbench.report.workload import BEST

HEADER = (
    "workload,vectors,nbytes,algorithm,dtype,op,in_place,device,cache,nodes,ranks_per_node,ranks,sync,statistic,time_us,"
    "time_us_low,time_us_high,busbw_gb_per_s,speedup,efficiency,efficiency_low,efficiency_high,time_over_baseline,"
    "bound_us,time_over_bound,baseline,reason"
)
MB = 10**6


def loaded(points, **changes) -> Loaded:
    return Loaded(synthetic.run(**changes), tuple(points), [])


def timed(algorithm: str, nbytes: int, nodes: int, each: int, time_us: float, spread: float = 0, **changes):
    """A point of 20 samples on nodes of `each` ranks, the interval of its median `spread` wide to either side."""
    samples = [time_us - spread] * 6 + [time_us] * 8 + [time_us + spread] * 6
    values = {"nodes": nodes, "ranks_per_node": str(each), "ranks": nodes * each}
    values |= {"samples_ns": tuple(round(1000 * time) for time in samples)}
    return synthetic.point(algorithm, nbytes, **(values | changes))


def tiny() -> list:
    """Two shapes, two algorithms, two sizes: ring loses rate as nodes are added, mpi does not."""
    return [
        timed("ring", MB, 2, 1, 1000, 10, bound_us=800.0),
        timed("mpi", MB, 2, 1, 2000, bound_us=800.0),
        timed("ring", 4 * MB, 2, 1, 4000),
        timed("mpi", 4 * MB, 2, 1, 8000),
        timed("ring", MB, 4, 1, 2000, 20, bound_us=1200.0),
        timed("mpi", MB, 4, 1, 3000, bound_us=1200.0),
        timed("ring", 4 * MB, 4, 1, 12000),
        timed("mpi", 4 * MB, 4, 1, 11000),
    ]


def rows(points, baseline: str | None = None, **changes) -> dict[tuple, dict]:
    """The rows of the table by workload or size, algorithm and shape, as dictionaries."""
    table = scaling_table(points if isinstance(points, Loaded | dict) else loaded(points, **changes), baseline)
    return {
        (row["workload"] or row["nbytes"], row["algorithm"], f"{row['nodes']}x{row['ranks_per_node']}"): row
        for row in table.to_dict("records")
    }


def reason(points, *key, **more) -> str:
    row = rows(points, **more)[key]
    assert math.isnan(row["efficiency"])
    assert math.isnan(row["speedup"]), "what is not known is never 0"
    return row["reason"]


# Figures


def test_a_row_has_the_figures_that_follow_by_hand():
    row = rows(tiny())[MB, "ring", "4x1"]
    assert (row["nodes"], row["ranks_per_node"], row["ranks"], row["baseline"]) == (4, "1", 4, "2x1")
    assert row["time_us"] == 2000
    assert (row["time_us_low"], row["time_us_high"]) == (1980, 2020)
    assert row["busbw_gb_per_s"] == pytest.approx(0.5 * 1.5), "1 MB in 2 ms is 0.5 GB/s, times 2 (4 - 1) / 4"
    assert row["efficiency"] == pytest.approx(0.75), "the baseline has 1 GB/s, times 2 (2 - 1) / 2"
    assert row["speedup"] == pytest.approx(1.5), "4 ranks for 2, times 0.75"
    assert row["time_over_baseline"] == pytest.approx(2)
    assert row["time_over_bound"] == pytest.approx(2000 / 1200)
    assert row["reason"] == ""


def test_over_memory_that_was_not_measured_there_is_no_bound_to_divide_by():
    points = [timed("ring", MB, 1, each, 1000, bound_us=None, transport="direct-slots") for each in (2, 4)]
    row = rows(points)[MB, "ring", "1x4"]
    assert math.isnan(row["bound_us"])
    assert math.isnan(row["time_over_bound"])
    assert row["efficiency"] > 0
    assert row["reason"] == "", "it has all other figures"


def test_each_algorithm_is_held_against_itself_at_its_own_size():
    found = rows(tiny())
    figures = {key: round(row["efficiency"], 6) for key, row in found.items() if key[2] == "4x1"}
    assert figures == {
        (MB, "ring", "4x1"): 0.75,
        (MB, "mpi", "4x1"): 1.0,
        (4 * MB, "ring", "4x1"): 0.5,
        (4 * MB, "mpi", "4x1"): round(8 / 11 * 1.5, 6),
    }


def test_the_baseline_is_1_and_has_no_interval():
    row = rows(tiny())[MB, "ring", "2x1"]
    assert (row["efficiency"], row["speedup"], row["time_over_baseline"]) == (1, 1, 1)
    assert math.isnan(row["efficiency_low"])
    assert math.isnan(row["efficiency_high"])


def test_the_interval_of_efficiency_is_what_the_two_intervals_allow():
    row = rows(tiny())[MB, "ring", "4x1"]
    assert row["efficiency_low"] == pytest.approx(990 / 2020 * 1.5)
    assert row["efficiency_high"] == pytest.approx(1010 / 1980 * 1.5)


def test_the_speed_up_is_how_many_times_as_many_bytes_all_ranks_move_in_a_second():
    row = rows(tiny())[MB, "ring", "4x1"]
    moved = {2: 2 * (2 - 1) * MB / 1000, 4: 2 * (4 - 1) * MB / 2000}
    assert row["speedup"] == pytest.approx(moved[4] / moved[2])


def test_a_machine_without_loss_has_an_efficiency_of_1_and_a_speed_up_of_its_ranks():
    times = {ranks: 2 * (ranks - 1) / ranks * 500 for ranks in (2, 4, 16)}
    found = rows([timed("ring", MB, ranks, 1, time) for ranks, time in times.items()])
    assert [round(row["efficiency"], 5) for row in found.values()] == [1, 1, 1]
    assert [round(row["speedup"], 4) for row in found.values()] == [1, 2, 8]


def test_with_every_link_of_a_node_full_efficiency_moves_with_nodes_and_ranks_on_each():
    points = [
        timed("hierarchical", MB, nodes, each, 2 * (nodes - 1) / nodes * 1000, bound_us=2 * (nodes - 1) / nodes * 1000)
        for nodes, each in ((2, 1), (4, 1), (2, 2), (4, 2))
    ]
    per_rank = {key[2]: row["efficiency"] for key, row in rows(points).items()}
    assert per_rank == pytest.approx({"2x1": 1, "4x1": 1, "2x2": 3 / 2, "4x2": 7 / 6})
    assert rows(points, "2x2")[MB, "hierarchical", "4x2"]["efficiency"] == pytest.approx(7 / 9)
    assert {row["time_over_bound"] for row in rows(points).values()} == {1}
    assert rows(points)[MB, "hierarchical", "4x2"]["speedup"] == pytest.approx(8 / 2 * 7 / 6), "by ranks, not nodes"


def test_the_fastest_on_the_largest_shape_comes_first_and_sizes_ascend():
    order = list(dict.fromkeys(key[:2] for key in rows(list(reversed(tiny())))))
    assert order == [(MB, "ring"), (MB, "mpi"), (4 * MB, "mpi"), (4 * MB, "ring")]


# Workloads


def gradients(slow: float = 1.0) -> list:
    """A model of three tensors of 1 MB and one of 4 MB, on 2 and 4 nodes."""
    times = {1: 3, 4: 1}
    return [
        timed(
            name, size * MB, nodes, 1, slow * factor * size * nodes * 100, 10, multiplicity=often, bound_us=size * 90.0
        )
        for nodes in (2, 4)
        for size, often in times.items()
        for name, factor in (("ring", 1 if size == 4 else 3), ("mpi", 2))
    ]


def test_the_time_of_a_workload_is_the_sum_of_its_vectors_each_as_often_as_it_occurs():
    found = rows(gradients(), config={"workload": {"name": "resnet50"}})
    row = found["resnet50", "ring", "4x1"]
    assert (row["vectors"], row["nbytes"]) == (4, 7 * MB)
    assert row["time_us"] == pytest.approx(3 * 1200 + 1600)
    assert row["time_us_low"] == pytest.approx(3 * 1190 + 1590)
    assert row["time_us_high"] == pytest.approx(3 * 1210 + 1610)
    assert row["bound_us"] == pytest.approx(3 * 90 + 360)
    assert row["time_over_bound"] == pytest.approx(5200 / 630)
    assert row["busbw_gb_per_s"] == pytest.approx(7 * MB / 5200 / 1e3 * 1.5)
    assert row["efficiency"] == pytest.approx(2600 / 5200 * 1.5)
    assert found["resnet50", "mpi", "2x1"]["time_us"] == pytest.approx(3 * 400 + 1600)


def test_of_a_workload_the_best_of_each_size_comes_first():
    found = rows(gradients(), config={"workload": {"name": "resnet50"}})
    names = list(dict.fromkeys(name for subject, name, _ in found if subject == "resnet50"))
    assert names[0] == BEST
    assert found["resnet50", BEST, "2x1"]["time_us"] == pytest.approx(3 * 400 + 800), "mpi at 1 MB, ring at 4 MB"
    alone = [timed("a", MB, nodes, 1, 100, multiplicity=2) for nodes in (2, 4)]
    assert [key[1] for key in rows(alone, config={})][:3] == [BEST, BEST, "a"], "also where one has every size"


def test_a_workload_of_which_a_size_failed_has_no_sum_and_says_so():
    points = gradients()
    points[-2] = timed("ring", 4 * MB, 4, 1, 1, status="failed", reason="no memory", multiplicity=1)
    found = rows(points, config={"workload": {"name": "resnet50"}})
    row = found["resnet50", "ring", "4x1"]
    assert math.isnan(row["time_us"])
    assert row["reason"] == "lacks 1 of 2 sizes"
    assert found["resnet50", BEST, "4x1"]["time_us"] > 0, "mpi has every size"


MODEL = {"workload": {"name": "resnet50", "numels": [MB // 4] * 3 + [MB]}}


def test_a_shape_that_lacks_a_size_of_the_workload_says_so():
    points = [point for point in gradients() if (point.nodes, point.nbytes) != (4, 4 * MB)]
    found = rows(points, config=MODEL)
    assert {row["reason"] for key, row in found.items() if key[::2] == ("resnet50", "4x1")} == {"lacks 1 of 2 sizes"}
    assert found["resnet50", "ring", "2x1"]["time_us"] == pytest.approx(3 * 600 + 800), "the other shape has them all"
    assert found["resnet50", "ring", "4x1"]["vectors"] == 4


def test_a_run_that_lacks_vectors_of_its_workload_at_every_shape_has_no_total():
    points = [point for point in gradients() if point.nbytes == MB]
    of_model = [row for key, row in rows(points, config=MODEL).items() if key[0] == "resnet50"]
    assert {row["reason"] for row in of_model} == {"the run lacks vectors of it"}
    assert all(math.isnan(row["time_us"]) for row in of_model)
    full = [row for key, row in rows(gradients(), config=MODEL).items() if key[0] == "resnet50"]
    assert {row["reason"] for row in full} == {""}


def test_points_with_a_multiplicity_are_a_workload_without_a_name():
    assert ("workload", "ring", "4x1") in rows(gradients(), config={})
    assert scalings(Runs.of(loaded(gradients(), config={})))[0].subjects[0].kind == "tensor"
    fused = loaded(gradients(), config={"fuse": 64})
    assert scalings(Runs.of(fused))[0].subjects[0].kind == "buffer"


def test_two_workloads_are_not_held_against_each_other():
    runs = {
        name: loaded([point for point in gradients() if point.nodes == nodes], config={"workload": {"name": name}})
        for name, nodes in (("resnet50", 2), ("gpt2", 4))
    }
    assert not {key[0] for key in rows(runs)} & {"resnet50", "gpt2"}


# The baseline


def test_the_baseline_has_the_fewest_ranks_above_one_and_of_these_the_most_nodes():
    shapes = {"1x1": Shape(1, 1, "1"), "1x2": Shape(2, 1, "2"), "2x1": Shape(2, 2, "1"), "2x2": Shape(4, 2, "2")}
    assert least(shapes.values()) == shapes["2x1"]
    assert least([shapes["1x1"], shapes["1x2"], shapes["2x2"]]) == shapes["1x2"]
    assert least([shapes["1x1"]]) is None


def test_the_baseline_can_be_chosen():
    row = rows(tiny(), "4x1")[MB, "ring", "2x1"]
    assert row["baseline"] == "4x1"
    assert row["efficiency"] == pytest.approx(1 / 0.75)
    assert row["speedup"] == pytest.approx(1 / 1.5)


@pytest.mark.parametrize("text", ["4x1", " 4X1 ", "4×1"])
def test_a_baseline_is_found_however_it_is_spelt(text):
    assert named(text, [Shape(2, 2, "1"), Shape(4, 4, "1")]).ranks == 4


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("3x1", ["'3x1'", "not in the run", "2x1, 4x1"]),
        ("many", ["'many'", "nodes x ranks on each"]),
        ("1x1", ["'1x1'", "one rank", "no bus bandwidth"]),
    ],
)
def test_a_baseline_that_is_not_in_the_run_is_refused_by_name(text, parts):
    points = [*tiny(), timed("ring", MB, 1, 1, 10)]
    with pytest.raises(UsageError) as refusal:
        rows(points, text)
    assert [part for part in parts if part not in str(refusal.value)] == []


def test_the_only_shape_is_refused_as_a_baseline():
    with pytest.raises(UsageError, match="the only shape"):
        rows([timed("ring", MB, 2, 1, 10)], "2x1")


def test_a_setting_that_lacks_the_baseline_has_no_efficiency():
    points = [*tiny(), *(timed("ring", MB, nodes, 1, 100, dtype="float16") for nodes in (4, 8))]
    table = scaling_table(loaded(points), "2x1")
    of_half = table[table["dtype"] == "float16"]
    assert of_half["efficiency"].isna().all()
    assert set(of_half["reason"]) == {"the baseline was not measured"}
    assert table[table["dtype"] == "float32"]["efficiency"].notna().all()


# What has no figure


def test_one_rank_has_a_time_and_nothing_that_needs_a_link():
    points = [*tiny(), timed("ring", MB, 1, 1, 5)]
    row = rows(points)[MB, "ring", "1x1"]
    assert row["time_us"] == 5
    assert math.isnan(row["busbw_gb_per_s"])
    assert reason(points, MB, "ring", "1x1") == "one rank uses no link"
    assert rows(points)[MB, "ring", "4x1"]["efficiency"] == pytest.approx(0.75), "and it is no baseline"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"status": "failed", "samples_ns": (), "reason": "no memory"}, "failed: no memory"),
        ({"status": "wrong", "wrong": 3, "reason": "3 elements"}, "wrong: 3 elements"),
        ({"status": "skipped", "samples_ns": ()}, "skipped"),
    ],
)
def test_a_point_that_is_not_ok_has_no_figures_and_its_reason(changes, said):
    points = [*tiny()[:4], synthetic.point("ring", MB, nodes=4, ranks_per_node="1", ranks=4, **changes), *tiny()[5:]]
    assert reason(points, MB, "ring", "4x1") == said
    assert math.isnan(rows(points)[MB, "ring", "4x1"]["time_us"])
    base = [synthetic.point("ring", MB, nodes=2, ranks_per_node="1", ranks=2, **changes), *tiny()[1:]]
    assert reason(base, MB, "ring", "4x1") == f"N₀: {said}"
    assert rows(base)[MB, "ring", "4x1"]["time_us"] == 2000, "the time is known all the same"


def test_a_point_that_is_missing_says_so():
    assert reason(tiny()[:4] + tiny()[5:], MB, "ring", "4x1") == "not measured"
    assert reason(tiny()[1:], MB, "ring", "4x1") == "N₀: not measured"


def test_an_empty_vector_has_a_time_and_no_bandwidth():
    points = [timed("ring", 0, nodes, 1, 5 * nodes, count=0) for nodes in (2, 4)]
    assert reason(points, 0, "ring", "4x1") == "an empty vector has no bandwidth"


def test_a_size_that_one_shape_has_is_not_in_the_table():
    assert {key[0] for key in rows([*tiny(), timed("ring", 8, 2, 1, 5)])} == {MB, 4 * MB}


def test_one_shape_makes_no_table():
    assert scaling_table(loaded(tiny()[:4])).empty
    assert scaling_table(loaded([])).empty


def test_one_rank_alone_makes_no_table():
    alone = timed("ring", 8, 1, 1, 5)
    assert scaling_table({"a": loaded([alone]), "b": loaded([alone])}).empty


# Shapes, starts and runs


def test_uneven_nodes_are_a_shape_of_their_own():
    points = [*tiny(), timed("ring", MB, 3, 1, 3000, ranks=5, ranks_per_node="")]
    row = rows(points)[MB, "ring", "3x"]
    assert row["efficiency"] == pytest.approx(1000 / 3000 * 1.6)
    assert rows(points, "5 on 3")[MB, "ring", "2x1"]["baseline"] == "5 on 3"


def test_as_many_ranks_on_more_nodes_are_another_shape():
    found = rows([timed("ring", MB, 2, 2, 100), timed("ring", MB, 4, 1, 200), timed("ring", MB, 1, 4, 10)])
    assert [key[2] for key in found] == ["1x4", "2x2", "4x1"]
    assert {row["baseline"] for row in found.values()} == {"4x1"}


def test_points_timed_after_barriers_fill_the_gaps_of_their_shape():
    window = {"sync": "window"}
    points = [timed("ring", nbytes, nodes, 1, 100, **window) for nodes in (2, 4) for nbytes in (8, 16, 32)]
    late = timed("ring", 64, 4, 1, 300, sync="barrier")
    found = rows([*points, timed("ring", 64, 2, 1, 100, **window), late])
    assert found[64, "ring", "4x1"]["sync"] == "barrier"
    assert found[64, "ring", "4x1"]["efficiency"] == pytest.approx(0.5)


def test_of_two_ways_to_start_that_of_most_points_of_a_shape_counts():
    def swept(sync: str, time_us: float, sizes) -> list:
        return [timed("ring", nbytes, nodes, 1, time_us, sync=sync) for nodes in (2, 4) for nbytes in sizes]

    for points in (
        (swept("window", 100, (8, 16)), swept("barrier", 300, (8,))),
        (swept("window", 100, (8,)), swept("barrier", 300, (8, 16))),
    ):
        most = max(points, key=len)
        found = rows([point for some in points for point in some])
        assert found[8, "ring", "2x1"]["sync"] == most[0].sync


def test_of_a_point_measured_twice_the_later_right_one_counts():
    again = [timed("ring", MB, 4, 1, 1500), timed("ring", MB, 4, 1, 9, status="failed", reason="late")]
    assert rows([*tiny(), *again])[MB, "ring", "4x1"]["time_us"] == 1500


def test_of_several_runs_each_shape_is_that_of_the_fullest_and_then_of_the_last_run():
    runs = {
        "two": loaded(tiny()[:4]),
        "short": loaded([timed("ring", MB, 4, 1, 1)]),
        "four": loaded(tiny()[4:]),
        "again": loaded([timed(point.algorithm, point.nbytes, 4, 1, 2500) for point in tiny()[4:]]),
    }
    assert rows(runs)[MB, "ring", "4x1"]["time_us"] == 2500


def test_settings_that_differ_in_more_than_ranks_have_tables_of_their_own():
    points = [*tiny(), *(timed("ring", MB, nodes, 1, 100, in_place=True) for nodes in (2, 4))]
    assert [scaling.setting.in_place for scaling in scalings(Runs.of(loaded(points)))] == [False, True]


def test_an_imported_mean_has_efficiency_without_an_interval():
    def stated(nodes: int, time_us: float):
        changes = {"kind": "imported", "stated": Stated(mean_us=time_us), "samples_ns": (), "sync": ""}
        return timed("mpi", MB, nodes, 1, 1, **changes)

    row = rows([stated(2, 1000), stated(4, 3000)])[MB, "mpi", "4x1"]
    assert (row["statistic"], row["efficiency"]) == ("mean", pytest.approx(0.5))
    assert math.isnan(row["efficiency_low"])


def test_predicted_times_scale_too_as_what_they_are():
    def told(nodes: int, time_us: float):
        changes = {"kind": "predicted", "model_us": time_us, "samples_ns": (), "sync": "model", "wrong": None}
        return timed("ring", MB, nodes, 1, 1, **changes)

    row = rows([told(2, 1000), told(1024, 4000)])[MB, "ring", "1024x1"]
    assert (row["statistic"], row["sync"]) == ("predicted", "model")
    assert row["efficiency"] == pytest.approx(1000 / 4000 * 2 * 1023 / 1024)


# The CSV


def test_the_csv_has_its_columns_with_their_units_and_cells_that_do_not_apply_are_empty():
    text = scaling_csv(scalings(Runs.of(loaded([*tiny(), timed("ring", MB, 1, 1, 5)]))))
    header, *lines = text.splitlines()
    assert header == HEADER
    assert lines[0] == (
        ",1,1000000,ring,float32,sum,false,cpu,warm,1,1,1,barrier,median,5.000,5.000,5.000,,,,,,0.005,,,2x1,"
        "one rank uses no link"
    )
    assert lines[2] == (
        ",1,1000000,ring,float32,sum,false,cpu,warm,4,1,4,barrier,median,2000.000,1980.000,2020.000,0.75,1.5,0.75,"
        "0.735149,0.765152,2,1200,1.66667,2x1,"
    )
    assert "nan" not in text


def test_the_csv_reads_back_as_the_table():
    points = tiny()
    found = pd.read_csv(io.StringIO(scaling_csv(scalings(Runs.of(loaded(points))))), keep_default_na=True)
    table = scaling_table(loaded(points))
    assert found["efficiency"].tolist() == pytest.approx(table["efficiency"].tolist(), rel=1e-5)
    assert list(found.columns) == list(table.columns) == HEADER.split(",")
