"""What reports say: statistics, the CSV, who wins where, and the page that shows it."""

import io
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import synthetic
from ddlbench.errors import DdlbenchError
from ddlbench.records import Loaded, TrustFlag
from ddlbench.report import COLUMNS, results_table, write_csv, write_html
from ddlbench.report import html as html_module
from ddlbench.report.contest import contest_of, settings, verdicts, with_series
from ddlbench.report.facts import details, facts
from ddlbench.report.headline import PIECES, choice, headline, lede, pieces
from ddlbench.report.html import render
from ddlbench.report.notices import issues, notices
from ddlbench.report.runs import Runs
from ddlbench.report.units import interval_text, rate_text, ratio_text, size_text, time_text
from ddlbench.report.workload import workload_of
from ddlbench.statistics import bus_bandwidth, interval_rank, summarise
from report_page import Page

KIB, MIB = 2**10, 2**20
HEADER = (
    "algorithm,nbytes,count,dtype,op,in_place,nodes,ranks_per_node,ranks,device,transport,sync,samples,time_us_median,"
    "time_us_ci_low,time_us_ci_high,time_us_min,time_us_p99,algbw_gb_per_s,busbw_gb_per_s,bound_us,model_us,wrong,"
    "status,reason,statistic,limit"
)
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'&amp;<!--"


def loaded(points, problems=(), **changes) -> Loaded:
    return Loaded(synthetic.run(**changes), tuple(points), list(problems))


def timed(algorithm: str, nbytes: int, time_us: float, spread: float = 0.01, count: int = 20, **changes):
    """A point whose samples lie evenly within `spread` of `time_us`."""
    samples = np.linspace(time_us * (1 - spread), time_us * (1 + spread), count) * 1000
    return synthetic.point(algorithm, nbytes, samples_ns=tuple(round(value) for value in samples), **changes)


def contest(points):
    table = with_series(results_table(loaded(points)))
    ((_, rows),) = settings(table)
    return contest_of(rows)


def text(sentence) -> str:
    return "".join(sentence).replace("\u00a0", " ")


def answer(points) -> str:
    found = contest(points)
    return text(headline(found, verdicts(found)))


def below(points, ranks=4) -> list[str]:
    found = contest(points)
    return [text(sentence) for sentence in lede(found, verdicts(found), ranks)]


# Statistics


def miss(samples: int, rank: int) -> float:
    """The probability that the interval of this rank misses the median."""
    return 2 * sum(math.comb(samples, below) for below in range(rank)) / 2**samples


def test_the_interval_of_the_median_is_the_narrowest_that_covers_it_at_95_percent():
    for samples in range(6, 400):
        rank = interval_rank(samples)
        assert miss(samples, rank) <= 0.05 < miss(samples, rank + 1)


def test_under_six_samples_there_is_no_interval():
    assert [interval_rank(samples) for samples in range(8)] == [0, 0, 0, 0, 0, 0, 1, 1]
    assert math.isnan(summarise([5, 4, 3, 2, 1]).ci_low_us)


def test_the_interval_covers_the_true_median_of_skewed_samples_as_often_as_it_says():
    draws = np.random.default_rng(2).exponential(1000, (2000, 25)) * 1000
    covered = [s.ci_low_us <= 1000 * math.log(2) <= s.ci_high_us for s in map(summarise, draws.astype(int))]
    assert 0.94 < np.mean(covered) < 0.99


def test_samples_are_told_in_microseconds():
    summary = summarise([4000, 1000, 3000, 2000])
    assert (summary.samples, summary.median_us, summary.min_us) == (4, 2.5, 1.0)


def test_p99_is_told_from_100_samples_on_and_is_one_of_them():
    assert math.isnan(summarise(range(1, 100)).p99_us)
    assert summarise(range(1000, 101_000, 1000)).p99_us == 99.0


def test_a_point_without_samples_has_no_figures():
    summary = summarise([])
    assert summary.samples == 0
    assert math.isnan(summary.median_us)


def test_bus_bandwidth_counts_what_each_rank_must_send_and_receive():
    assert bus_bandwidth(10**9, 1e6, 2) == pytest.approx(1.0)
    assert bus_bandwidth(10**9, 1e6, 4) == pytest.approx(1.5)


def test_there_is_no_bus_bandwidth_with_one_rank_nor_for_an_empty_vector():
    assert math.isnan(bus_bandwidth(1024, 1.0, 1))
    assert math.isnan(bus_bandwidth(0, 1.0, 4))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (size_text(0), "0 B"),
        (size_text(8), "8 B"),
        (size_text(1023), "1023 B"),
        (size_text(1024), "1 KiB"),
        (size_text(4000), "3.91 KiB"),
        (size_text(1536 * KIB), "1.5 MiB"),
        (size_text(5 * 2**40), "5 TiB"),
        (time_text(0.53), "0.53 µs"),
        (time_text(12.345), "12.3 µs"),
        (time_text(1258), "1.26 ms"),
        (time_text(2.5e6), "2.5 s"),
        (rate_text(0.00418), "0.00418 GB/s"),
        (rate_text(123.4), "123 GB/s"),
        (ratio_text(1.4), "1.40×"),
        (ratio_text(21.34), "21.3×"),
    ],
)
def test_numbers_are_written_as_people_read_them(made, expected):
    assert made == expected.replace(" ", "\u00a0")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (9.95, 10, "9.95 – 10.0"),
        (9.996, 10.04, "10.0 – 10.0"),
        (5, 120.4, "5.00 – 120"),
        (99.5, 99.96, "99.5 – 100"),
        (0, 0.1, "0 – 0.100"),
        (1234.5, 20000, "1234 – 20000"),
    ],
)
def test_both_ends_of_an_interval_have_as_many_digits(low, high, expected):
    assert interval_text(low, high) == expected


# The table and the CSV


def test_the_table_has_the_columns_of_the_format_in_order():
    assert ",".join(COLUMNS) == HEADER
    assert list(results_table(loaded([])).columns) == HEADER.split(",")
    assert list(results_table(loaded([synthetic.point()])).columns) == HEADER.split(",")


def test_the_table_is_not_rounded():
    table = results_table(loaded([synthetic.point(nbytes=1000, samples_ns=(7001, 7002))]))
    assert table["time_us_median"][0] == 7.0015
    assert table["algbw_gb_per_s"][0] == 1000 / 7.0015 / 1e3


def written(points, tmp_path, **changes) -> list[str]:
    write_csv(loaded(points, **changes), tmp_path / "results.csv")
    return (tmp_path / "results.csv").read_text().splitlines()


def test_a_line_of_the_csv_is_as_documented(tmp_path):
    point = synthetic.point(
        "multi-ring:2",
        MIB,
        samples_ns=tuple(range(100_000, 120_000, 1000)),
        bound_us=81.25,
        limit="cards",
        model_us=95.123456789,
    )
    line = (
        "multi-ring:2,1048576,262144,float32,sum,false,2,2,4,cpu,p2p,barrier,20,109.500,105.000,114.000,100.000,,"
        "9.57604,14.3641,81.25,95.1235,0,ok,,median,cards"
    )
    assert written([point], tmp_path) == [HEADER, line]


def test_cells_that_do_not_apply_are_empty(tmp_path):
    point = synthetic.point(
        samples_ns=(), status="skipped", reason='no "bfloat16",\nsorry', wrong=None, ranks=1, ranks_per_node=""
    )
    assert written([point], tmp_path)[1:] == [
        'ring,1024,256,float32,sum,false,2,,1,cpu,p2p,barrier,0,,,,,,,,,,,skipped,"no ""bfloat16"", sorry",median,'
    ]


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({"transport": "p2p"}, 4.0),
        ({"transport": "vendor"}, 4.0),
        ({"transport": "direct"}, 4.0),
        ({"transport": "direct", "bound_us": None}, None),
        ({"nbytes": 0, "count": 0}, None),
    ],
)
def test_an_empty_vector_has_no_bound_and_others_have_theirs(changes, bound):
    (found,) = results_table(loaded([synthetic.point(**{"bound_us": 4.0} | changes)]))["bound_us"]
    assert found == bound or (bound is None and math.isnan(found))


def test_the_csv_reads_back_as_the_table(tmp_path):
    points = synthetic.rich_points()
    back = pd.read_csv(io.StringIO("\n".join(written(points, tmp_path))))
    table = results_table(loaded(points))
    assert list(back.columns) == list(COLUMNS)
    assert back["in_place"].tolist() == table["in_place"].tolist()
    for name in ("time_us_median", "busbw_gb_per_s", "bound_us"):
        np.testing.assert_allclose(back[name], table[name], rtol=1e-3)


@pytest.mark.parametrize("write", [write_csv, write_html])
def test_a_report_that_cannot_be_written_is_named_and_the_old_one_stays(tmp_path, monkeypatch, write):
    with pytest.raises(DdlbenchError, match=r"cannot write .*missing/out: .*ENOENT"):
        write(loaded([]), tmp_path / "missing" / "out")
    (tmp_path / "out").write_text("old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DdlbenchError, match="ENOSPC"):
        write(loaded([]), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "old"


# Who wins


def test_the_verdict_is_clear_only_where_no_interval_overlaps_the_winners():
    found = contest(
        [
            timed("ring", 8, 10), timed("mpi", 8, 12), timed("swing", 8, 13, spread=0.6),
            timed("ring", 16, 10), timed("mpi", 16, 12), timed("swing", 16, 13),
            timed("ring", 32, 10, count=5), timed("mpi", 32, 12),
            timed("ring", 64, 10),
        ]
    )  # fmt: skip
    wins = verdicts(found)
    assert [win.outcome for win in wins] == ["alike", "clear", "unknown", "alone"]
    assert [found.names[win.winner] for win in wins] == ["ring"] * 4
    assert [found.names[rival] for rival in wins[0].rivals] == ["swing"]
    assert found.names[wins[0].runner_up] == "mpi"
    assert wins[0].lead == pytest.approx(1.2)


def test_wrong_failed_and_skipped_points_never_win():
    points = [timed("ring", 8, 10), timed("mpi", 8, 1, status="wrong"), timed("swing", 8, 1, status="failed")]
    assert contest(points).names == ("ring",)


def test_of_a_point_measured_twice_the_later_counts():
    assert contest([timed("ring", 8, 10), timed("ring", 8, 20)]).median.tolist() == [[20.0]]


def test_an_algorithm_over_two_transports_is_two_competitors():
    found = contest([timed("ring", 8, 10), timed("ring", 8, 5, transport="direct"), timed("mpi", 8, 7)])
    assert found.names == ("mpi", "ring (direct)", "ring (p2p)")


def test_an_algorithm_over_another_transport_on_another_shape_is_the_same_competitor():
    elsewhere = {"nodes": 2, "ranks_per_node": "1", "ranks": 2}
    points = [timed("ring", 8, 10, transport="direct"), timed("ring", 8, 50, transport="p2p", **elsewhere)]
    assert set(with_series(results_table(loaded(points)))["series"]) == {"ring"}


def test_a_point_that_was_skipped_before_it_had_a_transport_is_of_the_same_competitor():
    points = [timed("mpi", 8, 7), synthetic.point("mpi", 16, transport="", status="skipped", samples_ns=())]
    assert set(with_series(results_table(loaded(points)))["series"]) == {"mpi"}


def test_points_of_different_settings_are_not_compared():
    points = [timed("ring", 8, 10), timed("mpi", 8, 9, ranks=8), timed("mpi", 8, 9, in_place=True)]
    table = with_series(results_table(loaded(points)))
    assert [len(rows) for _, rows in settings(table)] == [1, 1, 1]


def crossing(small: str, large: str, at: int, sizes, factor: float = 1.4):
    """Two algorithms of which `small` is faster below `at` and `large` from there on."""
    return [
        timed(name, nbytes, 10 * (1 if (nbytes < at) == (name == small) else factor))
        for nbytes in sizes
        for name in (small, large)
    ]


SWEEP = [2**power for power in range(3, 27)]


def test_the_headline_says_who_wins_where():
    assert answer(crossing("mpi", "ring", 16 * KIB, SWEEP)) == "mpi wins up to 8 KiB, ring from 16 KiB."
    assert answer(crossing("mpi", "ring", 0, SWEEP)) == "ring wins at every size from 8 B to 64 MiB."
    assert answer(crossing("mpi", "ring", 0, [MIB])) == "ring wins at 1 MiB."


def test_the_headline_says_when_there_is_no_winner():
    even = [timed(name, nbytes, 10, spread=0.2) for nbytes in SWEEP for name in ("mpi", "ring", "swing")]
    assert answer(even) == "mpi, ring and swing are on a par at every size from 8 B to 64 MiB."
    few = [timed(name, nbytes, time, count=3) for nbytes in SWEEP for name, time in (("mpi", 10), ("ring", 20))]
    assert answer(few) == "No clear winner at any size from 8 B to 64 MiB."
    assert answer([timed("ring", 8, 10)]) == "Only ring gave results, so there is nothing to compare it with."
    assert answer([synthetic.point(status="failed")]) == "No algorithm gave a right result here."


def test_a_pair_on_a_par_is_named_after_a_winner():
    points = crossing("mpi", "ring", MIB, SWEEP) + [
        timed("swing", nbytes, 10.05 if nbytes >= MIB else 30) for nbytes in SWEEP
    ]
    assert answer(points) == "mpi wins up to 512 KiB, ring and swing are on a par from 1 MiB."


def test_one_odd_size_does_not_make_a_range_of_its_own():
    points = crossing("mpi", "ring", 0, SWEEP, factor=1.1)
    points[0] = timed("mpi", SWEEP[0], 10.5)
    points[1] = timed("ring", SWEEP[0], 11.2)
    assert answer(points) == "ring mostly wins from 8 B to 64 MiB."
    assert "That choice is at its worst at 8 B: mpi is 1.07× as fast there." in below(points)


@pytest.mark.parametrize("length", [1, 5])
def test_the_headline_has_few_ranges_however_the_winners_alternate(length):
    points = [
        timed(name, nbytes, 10 if (place // length % 2 == 0) == (name == "ring") else 30)
        for place, nbytes in enumerate(SWEEP)
        for name in ("ring", "mpi")
    ]
    found = contest(points)
    assert len(pieces(found, verdicts(found))) <= PIECES


def test_the_choice_is_the_cheapest_of_all_choices():
    """Against every possible choice, for contests of three sizes that lack a point."""
    random = np.random.default_rng(4)
    for _ in range(30):
        points = [timed(name, 8 << size, float(random.uniform(1, 2)), spread=0) for size in range(3) for name in "abc"]
        points.pop(int(random.integers(len(points))))
        found = contest(points)

        def cost(path, found=found):
            behind = np.log(found.median[range(3), path] / np.nanmin(found.median, axis=1))
            return np.where(np.isnan(behind), np.inf, behind).sum() + math.log(1.1) * np.count_nonzero(np.diff(path))

        assert cost(choice(found)) == pytest.approx(min(map(cost, np.ndindex(3, 3, 3))))


def test_the_speed_up_is_the_geometric_mean_over_large_sizes():
    points = crossing("mpi", "ring", 16 * KIB, SWEEP)
    points = [timed(p.algorithm, p.nbytes, 40) if (p.algorithm, p.nbytes) == ("mpi", 64 * MIB) else p for p in points]
    mean = (1.4**6 * 4) ** (1 / 7)
    assert below(points)[0] == f"ring is {mean:.2f}× as fast as mpi (geometric mean, 1 MiB and above)."


def test_where_mpi_wins_it_is_compared_with_the_next_best():
    points = crossing("ring", "mpi", 0, SWEEP) + [timed("swing", nbytes, 20) for nbytes in SWEEP]
    assert below(points)[0] == "mpi is 1.40× as fast as ring, the next best (geometric mean, 1 MiB and above)."


def test_no_speed_up_is_told_where_the_intervals_overlap_or_are_not_known():
    wide = [timed(name, nbytes, time, spread=0.9) for nbytes in SWEEP for name, time in (("mpi", 10), ("ring", 15))]
    assert not [sentence for sentence in below(wide) if "as fast as" in sentence]
    few = [timed(name, nbytes, time, count=3) for nbytes in SWEEP for name, time in (("mpi", 10), ("ring", 15))]
    assert not [sentence for sentence in below(few) if "as fast as" in sentence]


def test_overlaps_and_the_distance_from_the_bound_are_told():
    points = [timed(name, nbytes, 10, bound_us=8.0) for nbytes in (8, 16) for name in ("ring", "mpi")]
    assert below(points) == [
        "At 2 of 2 sizes the best intervals overlap: no clear winner there.",
        "At 16 B mpi takes 1.25× the lower bound.",
    ]


def test_a_bound_that_was_clearly_beaten_is_told_to_be_none():
    (_, said) = below([timed("ring", 16, 10, bound_us=12.0)])
    assert said == "At 16 B ring takes 0.83× the lower bound, which is none, then."
    (_, said) = below([timed("ring", 16, 10, bound_us=10.02)])
    assert said == "At 16 B ring takes 1.00× the lower bound."


def test_over_memory_that_was_not_measured_there_is_no_bound_to_be_told_against():
    points = [timed("ring", 16, 10, bound_us=None, transport="direct-slots"), timed("mpi", 16, 20, bound_us=8.0)]
    assert not [sentence for sentence in below(points) if "bound" in sentence]
    slower = [points[0], timed("mpi", 16, 5, bound_us=4.0)]
    assert below(slower)[-1] == "At 16 B mpi takes 1.25× the lower bound."


def test_a_size_at_which_the_choice_is_hardly_behind_is_not_told():
    points = crossing("mpi", "ring", 0, SWEEP)
    points += [timed("swing", nbytes, 9.93 if nbytes == 8 else 20) for nbytes in SWEEP]
    assert answer(points) == "ring wins at every size from 8 B to 64 MiB."
    assert not [sentence for sentence in below(points) if "worst" in sentence]
    apart = [timed(p.algorithm, 8, 9.3) if (p.algorithm, p.nbytes) == ("swing", 8) else p for p in points]
    assert "That choice is at its worst at 8 B: swing is 1.08× as fast there." in below(apart)
    assert answer(apart) == "ring mostly wins from 8 B to 64 MiB."


def test_the_only_algorithm_is_told_with_what_it_reaches():
    assert below([timed("ring", MIB, 100)]) == ["It takes 100 µs at 1 MiB, a bus bandwidth of 15.7 GB/s."]
    assert below([timed("ring", MIB, 100, ranks=1)], ranks=1) == ["It takes 100 µs at 1 MiB."]


def test_a_workload_is_the_sum_over_its_tensors():
    points = [
        timed("ring", 8, 10),
        timed("ring", 16, 20),
        timed("mpi", 8, 5),
        timed("mpi", 16, 50),
        timed("swing", 8, 1),
    ]
    found = workload_of(contest(points), {8: 3, 16: 2})
    assert (found.parts, found.nbytes) == (5, 56)
    assert [(total.name, total.missing) for total in found.totals] == [("ring", 0), ("mpi", 0), ("swing", 1)]
    np.testing.assert_allclose([total.time_us for total in found.totals], [70, 115, np.nan])
    assert found.best_us == pytest.approx(3 * 1 + 2 * 20)


def test_the_bound_of_a_workload_is_that_of_the_transport_that_each_algorithm_used():
    points = [timed(name, nbytes, 10, bound_us=4.0) for name in ("mpi", "swing") for nbytes in (8, 16)]
    points += [timed("ring", nbytes, time, bound_us=None, transport="direct") for nbytes, time in ((8, 5), (16, 20))]
    found = workload_of(contest(points), {8: 3, 16: 2})
    bounds = {total.name: total.bound_us for total in found.totals}
    assert (bounds["mpi"], bounds["swing"]) == (20, 20)
    assert math.isnan(bounds["ring"])
    assert math.isnan(found.best.bound_us), "ring is the best of one of the sizes"


def test_a_workload_with_a_size_nobody_managed_has_no_totals():
    found = workload_of(contest([timed("ring", 8, 10)]), {8: 3, 16: 2})
    assert math.isnan(found.best_us)
    assert math.isnan(found.totals[0].time_us)
    assert [total.missing for total in found.totals] == [1]


@pytest.mark.usefixtures("light_plotly")
def test_the_page_says_why_an_algorithm_has_no_bound():
    points = [timed("ring", 8, 10, bound_us=None, transport="direct"), timed("mpi", 8, 20, bound_us=8.0)]
    page = Page(render(loaded(points)))
    data = page.data()
    assert [data["algorithms"][at] for at in data["unbound"]] == ["ring"]
    assert data["settings"][0]["rows"]["bound"] == [8.0, None]
    assert "n/a: what memory that ranks share allows was not measured" in page.text
    page = Page(render(loaded([points[1]])))
    assert page.data()["unbound"] == []
    assert "n/a" not in page.text


@pytest.mark.usefixtures("light_plotly")
def test_one_point_is_counted_as_one():
    assert "1 point, ddlbench" in Page(render(loaded([timed("ring", 8, 10)]))).text
    assert "2 points, ddlbench" in Page(render(loaded([timed("ring", 8, 10)] * 2))).text


@pytest.mark.usefixtures("light_plotly")
def test_a_sweep_of_single_vectors_is_no_workload():
    data = Page(render(loaded([timed("ring", 8, 10)]))).data()
    assert data["settings"][0]["workload"] is None


@pytest.mark.usefixtures("light_plotly")
@pytest.mark.parametrize(("fuse", "parts"), [(None, "3 tensors"), (64 * MIB, "3 buffers")])
def test_a_workload_is_named_and_its_parts_counted(fuse, parts):
    config = {"workload": {"name": "resnet50", "tensors": 161}, "fuse": fuse}
    data = Page(render(loaded([timed("ring", 8, 10, multiplicity=3)], config=config))).data()
    assert data["settings"][0]["workload"]["name"] == "resnet50"
    assert data["settings"][0]["workload"]["parts"] == parts


@pytest.mark.usefixtures("light_plotly")
def test_a_workload_of_which_vectors_are_missing_is_not_called_whole():
    config = {"workload": {"name": "resnet50", "numels": [2, 2, 2, 4]}}
    points = [timed("ring", 8, 10, multiplicity=3)]
    workload = Page(render(loaded(points, config=config))).data()["settings"][0]["workload"]
    assert not workload["whole"]
    points.append(timed("ring", 16, 10, count=4))
    assert Page(render(loaded(points, config=config))).data()["settings"][0]["workload"]["whole"]


# Trust


def notices_of(points, **changes):
    problems = changes.pop("problems", ())
    run = loaded(points, problems, **changes)
    return notices(Runs.of(run))


def test_a_clean_run_says_that_nothing_speaks_against_it():
    (notice,) = notices_of([timed("ring", 8, 10)])
    assert notice.weight == "fine"


@pytest.mark.parametrize(
    ("points", "changes", "title"),
    [
        ([timed("ring", 8, 10)], {"finished": False}, "Not finished"),
        ([timed("ring", 8, 10)], {"trust": (TrustFlag("oversubscribed", "4 ranks on 2 cores"),)}, "Oversubscribed"),
        (
            [timed("ring", 8, 10)],
            {"problems": ["points.jsonl line 2: broken"]},
            "Parts of the record could not be read",
        ),
        ([timed("ring", 8, 10, wrong=None)], {}, "Not checked"),
        ([timed("ring", 8, 10, count=3)], {}, "Too few samples"),
        ([timed("ring", 8, 10, status="wrong", wrong=3)], {}, "Wrong results"),
        ([synthetic.point(status="failed", samples_ns=())], {}, "Failed"),
        ([synthetic.point(status="skipped", samples_ns=())], {}, "Skipped"),
    ],
)
def test_each_reason_for_doubt_is_told_on_top(points, changes, title):
    assert [notice.title for notice in notices_of(points, **changes)] == [title]


WINDOW = {"clock": {"sync": "window", "why": "", "method": "shared"}}


@pytest.mark.parametrize(("number", "said"), [(1, "1 point after a barrier"), (2, "2 points after a barrier")])
def test_points_that_were_not_timed_as_the_run_are_counted_and_told_to_be_apart(number, said):
    points = [timed("ring", 2**size, 10, sync="barrier") for size in range(number)]
    (notice,) = notices_of([*points, timed("mpi", 8, 10, sync="window")], **WINDOW)
    assert (notice.weight, notice.title) == ("doubt", "Timed otherwise")
    assert notice.detail == (
        f"{said}, the others at agreed moments of a common clock (window): "
        "not compared with each other, so a winner may be called without the former"
    )


@pytest.mark.parametrize("changes", [{}, {"clock": {"sync": "barrier"}}, {"clock": {}}, WINDOW])
def test_nothing_is_said_where_all_points_were_timed_alike(changes):
    points = [timed("ring", 8, 10), synthetic.point("ring", 16, sync="window", samples_ns=(), status="failed")]
    assert "Timed otherwise" not in [notice.title for notice in notices_of(points, **changes)]


@pytest.mark.parametrize(("number", "said"), [(1, "1 point of ring"), (2, "2 points of ring, mpi")])
def test_points_clearly_faster_than_their_bound_are_counted_with_what_that_says(number, said):
    faster = [timed(name, 8, 10, bound_us=10.2) for name in ("ring", "mpi")[:number]]
    within = [timed("swing", 8, 10, bound_us=10.01), timed("swing", 16, 10, bound_us=9.0), timed("swing", 32, 10)]
    unknown = [timed("swing", 64, 10, count=6, spread=0.5, bound_us=11.0)]
    elsewhere = [timed("direct", 8, 1, bound_us=None, transport="direct"), timed("empty", 0, 1, bound_us=10.0)]
    (notice,) = notices_of([*faster, *within, *unknown, *elsewhere])
    assert (notice.weight, notice.title) == ("doubt", "Faster than the lower bound")
    assert notice.detail.startswith(f"{said}: the probe was disturbed, or the data went another way")


def test_the_gravest_notice_comes_first():
    points = [timed("ring", 8, 10), synthetic.point(status="skipped"), synthetic.point(status="failed")]
    assert [notice.weight for notice in notices_of(points, finished=False)] == ["alarm", "doubt", "doubt"]


def test_points_that_are_not_ok_are_listed_by_reason():
    points = [synthetic.point("mpi", nbytes, status="skipped", reason="no bfloat16") for nbytes in (8, 16, 32, 64)]
    points += [synthetic.point("ring", 8, status="wrong", wrong=3, reason="3 of 8 elements are wrong")]
    points += [synthetic.point("ring", 8, status="failed")]
    listed, rest = issues(with_series(results_table(loaded(points))))
    assert rest == 0
    assert [(issue.status, issue.algorithm, issue.reason) for issue in listed] == [
        ("skipped", "mpi", "no bfloat16"),
        ("wrong", "ring", "3 of 8 elements are wrong"),
        ("failed", "ring", "no reason given"),
    ]
    assert listed[0].sizes.replace("\u00a0", " ") == "8 B to 64 B (4 sizes)"


def test_one_reason_in_many_settings_is_one_line():
    points = [
        synthetic.point("mpi", dtype=dtype, op=op, status="skipped", reason="no such type")
        for dtype in ("float16", "bfloat16")
        for op in ("sum", "max")
    ]
    (issue,), _ = issues(with_series(results_table(loaded(points))))
    assert issue.setting == "4 settings (float16, bfloat16; sum, max)"


def test_the_facts_name_hosts_mpi_and_command():
    topology = {"hosts": [f"node{number // 2}" for number in range(128)], "ranks": 128, "nodes": 64}
    found = dict(facts(loaded([], topology=topology, command=("ddlbench", "sweep", "--out", "my dir"))))
    assert found["Ranks"] == "128 ranks on 64 nodes"
    assert found["Hosts"] == "node0, node1 … node63 (64 hosts)"
    assert found["MPI"] == "Open MPI 5.0.11"
    assert found["Command"] == "ddlbench sweep --out 'my dir'"


def test_the_small_print_has_units_for_the_links_and_names_what_is_inside():
    found = {title: dict(pairs) for title, pairs in details(loaded([]))}
    assert found["Probed links"]["within latency"] == "0.4\u00a0µs"
    assert found["Probed links"]["between exchange bandwidth"] == "10.8\u00a0GB/s"
    assert found["Environment"]["variables OMP_NUM_THREADS"] == "1"
    assert found["Proofs"]["ring"] == "4 ranks, 6 rounds, 24 moves, proved in 0.7\u00a0ms"


def test_the_small_print_tells_the_slowest_and_the_fastest_link_of_all_nodes():
    links = {"nodes": 3, "node_bytes_per_s": [119.6e6, 12e6, 119.6e6], "burst_nbytes": 250e3}
    found = {title: dict(pairs) for title, pairs in details(loaded([], links=links))}["Probed links"]
    assert found == {"nodes": "3", "node bandwidth": "0.012\u00a0GB/s – 0.12\u00a0GB/s", "burst": "244\u00a0KiB"}


def test_the_facts_survive_a_record_that_says_little():
    found = dict(facts(loaded([synthetic.point()], topology={}, mpi={}, created="lately")))
    assert (found["Ranks"], found["Date"]) == ("4 ranks on 2 nodes", "lately")
    assert "MPI" not in found


# The page


@pytest.fixture
def light_plotly(monkeypatch):
    """Pages without the weight of the chart library, for tests that only read them."""
    monkeypatch.setattr(html_module, "_plotly", lambda: "")


@pytest.mark.usefixtures("light_plotly")
def test_everything_from_a_record_is_escaped_wherever_it_stands():
    plain = Page(render(loaded([synthetic.point(status="failed"), synthetic.point()], trust=(TrustFlag("a", "b"),))))
    evil = [
        synthetic.point(HOSTILE, dtype=HOSTILE, op=HOSTILE, ranks_per_node=HOSTILE, device=HOSTILE, reason=HOSTILE),
        synthetic.point(HOSTILE, dtype=HOSTILE, op=HOSTILE, ranks_per_node=HOSTILE, device=HOSTILE, status="failed"),
    ]
    run = loaded(
        evil,
        problems=(HOSTILE,),
        ddlbench=HOSTILE,
        created=HOSTILE,
        command=(HOSTILE,),
        config={HOSTILE: HOSTILE},
        environment={HOSTILE: [HOSTILE]},
        mpi={"library": HOSTILE},
        topology={"hosts": [HOSTILE]},
        links={HOSTILE: HOSTILE},
        trust=(TrustFlag(HOSTILE, HOSTILE),),
        proofs=({"algorithm": HOSTILE},),
    )
    page = Page(render(run))
    assert page.tags["script"] == plain.tags["script"]
    assert page.tags["img"] == 0
    assert page.data()["algorithms"] == [HOSTILE]
    assert sum(HOSTILE in text for text in page.texts) > 10


def test_the_page_is_one_file_that_loads_nothing():
    source = render(loaded(synthetic.rich_points()))
    page = Page(source)
    assert page.links == []
    assert "default-src 'none'" in source
    assert len(source.encode()) < 6e6


def test_a_page_of_ten_thousand_points_stays_under_six_megabytes():
    dtypes, ranks = ("float16", "float32", "float64", "int32"), (2, 4, 8, 16)
    points = [
        replace(point, dtype=dtype, ranks=many)
        for dtype in dtypes
        for many in ranks
        for point in synthetic.points([f"algorithm-{number}" for number in range(26)] + ["mpi"])[:625]
    ]
    assert len(points) == 10_000
    assert len(render(loaded(points)).encode()) < 6e6


@pytest.mark.usefixtures("light_plotly")
def test_an_empty_run_makes_a_page_that_says_so():
    assert any("This run holds no points." in text for text in Page(render(loaded([]))).texts)


@pytest.mark.usefixtures("light_plotly")
def test_a_run_of_failures_makes_a_page_that_says_so_with_the_reasons():
    points = [synthetic.point(status="failed", reason="rank 3 died", samples_ns=(), wrong=None)]
    texts = "".join(Page(render(loaded(points))).texts)
    assert "No algorithm gave a right result here." in texts
    assert "rank 3 died" in texts


@pytest.mark.usefixtures("light_plotly")
def test_the_headline_and_the_doubts_stand_in_the_page_itself():
    run = loaded(crossing("mpi", "ring", 16 * KIB, SWEEP), trust=(TrustFlag("oversubscribed", "4 ranks on 2 cores"),))
    texts = "".join(Page(render(run)).texts).replace("\u00a0", " ")
    assert "mpi wins up to 8 KiB, ring from 16 KiB." in texts
    assert "4 ranks on 2 cores" in texts


@pytest.mark.usefixtures("light_plotly")
def test_the_page_opens_with_the_setting_that_has_most_right_results():
    points = [synthetic.point(status="failed", dtype="float16")] + [timed("ring", nbytes, 10) for nbytes in SWEEP]
    data = Page(render(loaded(points))).data()
    assert data["settings"][data["first"]]["label"].startswith("float32")


def test_a_missing_chart_library_is_named_with_the_way_out(monkeypatch):
    html_module._plotly.cache_clear()
    monkeypatch.setattr(html_module, "find_spec", lambda _: None)
    with pytest.raises(DdlbenchError, match="pip install plotly"):
        render(loaded([]))
    html_module._plotly.cache_clear()
