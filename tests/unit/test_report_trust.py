"""Whether a run may be trusted: clock, starts, late samples and ends of points, in words."""

import numpy as np
import pytest

import synthetic
from ddlbench.records import Loaded, Stated, TrustFlag
from ddlbench.report.notices import notices
from ddlbench.report.runs import Runs
from ddlbench.report.trust import late_share, trust_table
from ddlbench.report.units import percent_text

HCA = {"method": "hca", "error_before_us": 0.31, "error_after_us": 0.524, "drift_ppm": [0.0, -3.14], "sync": "window"}


def runs_of(points, **changes) -> Runs:
    return Runs.of(Loaded(synthetic.run(**changes), tuple(points), []))


def told(points, **changes) -> dict[str, str]:
    found = trust_table(runs_of(points, **changes))
    assert all(len(texts) == 1 for _, texts in found)
    return {label: texts[0].replace("\u00a0", " ") for label, texts in found}


def test_the_late_share_of_a_point_is_of_the_samples_taken():
    assert late_share(synthetic.point(late=5)) == 5 / 25
    assert late_share(synthetic.point(samples_ns=(), late=0)) == 0


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.0001, "< 0.1 %"),
        (0.0123, "1.2 %"),
        (0.0994, "9.9 %"),
        (0.0996, "10 %"),
        (0.5, "50 %"),
        (1.04, "104 %"),
    ],
)
def test_shares_are_told_as_per_cent(share, text):
    assert percent_text(share).replace("\u00a0", " ") == text


def test_late_samples_are_told_with_the_point_that_lost_most():
    points = [synthetic.point("ring", late=5), synthetic.point("mpi", 4096, late=20), synthetic.point("swing")]
    assert told(points)["Left out as late"] == "29 % of 85 samples, at most 50 % (mpi at 4 KiB)"
    assert told([synthetic.point()])["Left out as late"] == "none"


def test_how_much_lay_in_huge_pages_is_told_where_they_were_asked_for():
    tallies = {"windows": {"nbytes": 8 << 20, "huge_nbytes": 6 << 20}, "arrays": {"nbytes": 0, "huge_nbytes": 0}}
    assert told([synthetic.point()], huge_pages=tallies)["Huge pages"] == "75 % of 8 MiB of windows"
    assert told([synthetic.point()], huge_pages={"page_nbytes": 2 << 20})["Huge pages"] == "asked for"
    assert "Huge pages" not in told([synthetic.point()])


def test_what_ended_the_points_is_counted():
    stops = ["interval"] * 3 + ["time", "samples", ""]
    assert (
        told([synthetic.point(stopped=stop) for stop in stops])["Points ended"]
        == "3 by interval, 1 by time, 1 by samples"
    )
    assert "Points ended" not in told([synthetic.point()])


def test_clocks_of_several_nodes_are_told_with_their_errors_and_drift():
    assert told([synthetic.point()], clock=HCA)["Clock"] == (
        "of each node, by hca: known to 0.31 µs before the run, 0.52 µs off after it, drift up to 3.14 ppm"
    )
    cut_short = HCA | {"error_after_us": None}
    assert "not measured again after it" in told([synthetic.point()], clock=cut_short)["Clock"]


def test_one_node_has_one_clock_and_an_older_run_has_none_recorded():
    shared = {"method": "shared", "error_before_us": 0.0, "error_after_us": 0.0, "drift_ppm": [0.0]}
    assert told([synthetic.point()], clock=shared)["Clock"] == "one for all ranks, which are on one node"
    assert told([synthetic.point()])["Clock"] == "not recorded"


def test_a_clock_of_another_shape_is_shown_as_far_as_it_is_understood():
    assert told([synthetic.point()], clock={"method": [1], "error_before_us": "x", "drift_ppm": {"a": 1}})["Clock"]


def test_starts_are_told_with_the_reason_for_them():
    why = {"clock": HCA | {"why": "ranks share processors"}}
    assert told([synthetic.point(sync="barrier")], **why)["Starts"] == "after a barrier: ranks share processors"
    window = told([synthetic.point(sync="window")], clock=HCA)["Starts"]
    assert window == "at agreed moments of a common clock (window)"


def test_passes_and_seed_are_told_where_there_were_passes():
    config = {"passes": 5, "seed": 7}
    assert told([synthetic.point(passes=(20,))], config=config)["Order"] == "5 passes, in orders from seed 7"
    assert "Order" not in told([synthetic.point()], config=config)


def test_the_widest_interval_is_told_with_its_point():
    wide = tuple(np.linspace(5000, 15_000, 20).astype(int).tolist())
    points = [synthetic.point(), synthetic.point("mpi", 8, samples_ns=wide), synthetic.point("swing")]
    # n = 20: from the 6th to the 15th of 20 even steps, 9/19 of a range that is as wide as the median
    assert told(points)["Width of intervals"] == "0.9 % of the median at half of the points, at most 47 % (mpi at 8 B)"


def test_checks_proofs_caches_and_doubts_are_told():
    points = [synthetic.point(wrong=None), synthetic.point(status="wrong", wrong=3), synthetic.point(cache="cold")]
    found = told(points, trust=synthetic.flags())
    assert found["Results checked"] == "2 of 3, 1 wrong"
    assert found["Proved"] == "2 schedules, before they ran"
    assert found["Caches"] == "cold, emptied before each sample or warm, as the last sample left them"
    assert found["Doubts recorded"].startswith("oversubscribed (4 ranks on 2 cores); ")


def test_imported_points_leave_out_what_no_log_says():
    point = synthetic.point(kind="imported", sync="", samples_ns=(), stated=Stated(mean_us=5), wrong=None)
    assert set(told([point], proofs=(), config={})) == {"Doubts recorded", "Results checked"}


def test_an_empty_run_has_hardly_anything_to_judge_by():
    assert set(told([], proofs=())) == {"Doubts recorded"}


# What is told on top


def titles(points, **changes) -> list[str]:
    return [notice.title for notice in notices(runs_of(points, **changes))]


def test_many_late_samples_are_a_doubt():
    assert titles([synthetic.point(late=7), synthetic.point("mpi", late=1)]) == ["Late samples"]
    assert titles([synthetic.point(late=6)]) == ["Nothing recorded speaks against these figures"]
    assert titles([synthetic.point(late=7)], trust=(TrustFlag("late", "30% of all"),)) == ["Late"], "told once"


def test_clocks_that_are_not_known_well_enough_for_the_shortest_point_are_a_doubt():
    short = synthetic.point(sync="window", samples_ns=(2000,) * 20)
    long = synthetic.point("mpi", sync="window", samples_ns=(9000,) * 20)
    (notice,) = notices(runs_of([short, long], clock=HCA))
    assert notice.detail.replace("\u00a0", " ") == "known to 0.52 µs, and the shortest point takes 2 µs"
    assert titles([long], clock=HCA) == ["Nothing recorded speaks against these figures"]


def test_a_barrier_does_not_rest_on_the_clocks():
    short = synthetic.point(sync="barrier", samples_ns=(2000,) * 20)
    assert titles([short], clock=HCA) == ["Nothing recorded speaks against these figures"]
