"""Results in the formats that people have parsers for: the parsers' own expressions find them."""

import csv
import io
import json
import re

import pytest

import synthetic
from ddlbench.errors import UsageError
from ddlbench.foreign import Given, points_of, read_lines
from ddlbench.records import Loaded, Point, Stated
from ddlbench.report import COLUMNS, results_table
from ddlbench.report.printed import FORMS, printed

RUN = synthetic.run()
REFRAME_SANITY = r"^8.*Pass"
REFRAME_LATENCY = r"^8\s+(\S+)"
RAMBLE = r"(?P<msg_size>[0-9.]+)+\s+(?P<fom>[0-9.]+)"
RAMBLE_DATATYPE = r"# Datatype: (?P<type>\S+)\."


def timed(nbytes: int, time_us: float, algorithm: str = "ring", **changes) -> Point:
    return synthetic.point(algorithm, nbytes, samples_ns=(round(time_us * 1000),) * 6, **changes)


def lines(form: str, *points: Point) -> list[str]:
    return printed(form, RUN, points).splitlines()


def rows(form: str, *points: Point) -> list[list[str]]:
    """The words of each line that is no comment."""
    return [line.split() for line in lines(form, *points) if line and not line.startswith("#")]


SWEEP = [timed(8, 1.51), timed(16, 1.6), timed(2**20, 187.24)]
SKIPPED = synthetic.point("ring", 64, status="skipped", reason="no\nbfloat16", samples_ns=(), wrong=None)


def test_an_unknown_format_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match="unknown format 'ncl': did you mean 'nccl'"):
        printed("ncl", RUN, SWEEP)


@pytest.mark.parametrize("form", FORMS)
def test_every_format_ends_its_lines_and_stands_a_run_without_points(form):
    assert printed(form, RUN, SWEEP).endswith("\n")
    assert printed(form, RUN, []) == ("" if form != "csv" else ",".join(COLUMNS) + "\n")


# CSV and JSON lines


def test_csv_is_the_file_of_results():
    (row, *_) = csv.DictReader(io.StringIO(printed("csv", RUN, SWEEP)))
    assert tuple(row) == COLUMNS
    assert (row["algorithm"], row["nbytes"], row["time_us_median"]) == ("ring", "8", "1.510")


def test_json_lines_have_the_same_columns_unrounded_and_null_for_what_does_not_apply():
    found = [json.loads(line) for line in lines("jsonl", *SWEEP, SKIPPED)]
    assert [tuple(row) for row in found] == [COLUMNS] * 4
    table = results_table(Loaded(RUN, tuple(SWEEP), []))
    assert [row["busbw_gb_per_s"] for row in found[:3]] == table["busbw_gb_per_s"].tolist()
    assert found[0]["time_us_p99"] is None
    assert found[3]["time_us_median"] is None
    assert (found[3]["wrong"], found[3]["reason"], found[0]["in_place"]) == (None, "no\nbfloat16", False)


# OSU


def test_reframes_check_of_osu_allreduce_passes_and_finds_the_latency():
    text = printed("osu", RUN, SWEEP)
    assert re.search(REFRAME_SANITY, text, re.MULTILINE)
    assert re.search(REFRAME_LATENCY, text, re.MULTILINE)[1] == "1.51"
    wrong = printed("osu", RUN, [timed(8, 1.51, status="wrong", wrong=3)])
    assert not re.search(REFRAME_SANITY, wrong, re.MULTILINE)
    assert re.search(r"^8.*Fail", wrong, re.MULTILINE)


@pytest.mark.parametrize("find", [re.match, re.search])
def test_ramble_finds_sizes_and_times_and_nothing_else(find):
    found = [find(RAMBLE, line) for line in lines("osu", *SWEEP, SKIPPED)]
    assert [(one["msg_size"], one["fom"]) for one in found if one] == [
        ("8", "1.51"),
        ("16", "1.60"),
        ("1048576", "187.24"),
    ]
    assert re.search(RAMBLE_DATATYPE, printed("osu", RUN, SWEEP))["type"] == "MPI_FLOAT"


def test_osu_has_its_columns_where_osu_has_them():
    assert lines("osu", timed(8, 1.51))[-2:] == [
        "# Size    Median Latency(us)        Validation",
        "8                       1.51              Pass",
    ]


def test_osu_validates_only_what_was_checked():
    unchecked = timed(8, 1.51, wrong=None)
    assert lines("osu", unchecked)[-2:] == ["# Size    Median Latency(us)", "8                       1.51"]
    assert [row[2] for row in rows("osu", unchecked, timed(16, 1.6))] == ["N/A", "Pass"]


def test_osu_has_a_table_for_each_algorithm_and_setting_sorted_by_size():
    text = printed("osu", RUN, [timed(16, 2), timed(8, 1), timed(8, 3, "mpi"), timed(8, 4, in_place=True)])
    tables = text.split("\n\n")
    assert [table.splitlines()[0].split(": ")[1].split(",")[0] for table in tables] == ["ring", "mpi", "ring"]
    assert [line.split()[0] for line in tables[0].splitlines() if not line.startswith("#")] == ["8", "16"]
    assert "in place" in tables[2]


def test_of_a_point_measured_twice_the_later_is_printed():
    assert rows("osu", timed(8, 1), timed(8, 2)) == [["8", "2.00", "Pass"]]


def test_a_point_without_a_time_is_a_comment_with_its_reason():
    assert lines("osu", SKIPPED)[-1] == "# 64 B: skipped: no bfloat16"
    assert lines("nccl", *SWEEP, SKIPPED)[-4] == "# 64 B: skipped: no bfloat16"


def fallen_back(form: str) -> list[Point]:
    """A sweep by windows of which two points were timed after barriers, the first of them at the smallest size."""
    syncs = {8: "barrier", 16: "window", 32: "window", 64: "barrier", 128: "window"}
    return [timed(nbytes, nbytes, sync=sync, in_place=form == "nccl") for nbytes, sync in syncs.items()]


@pytest.mark.parametrize("form", ["osu", "nccl"])
def test_points_that_were_timed_otherwise_are_in_the_one_table_and_named_above_it(form):
    points = fallen_back(form)
    assert [row[0] for row in rows(form, *points)] == ["8", "16", "32", "64", "128"]
    (told,) = [line for line in lines(form, *points) if "barrier" in line]
    where = " in place" if form == "nccl" else ""
    assert told == f"# timed by barrier, all others by window: 8 B{where}, 64 B{where}"
    assert not [line for line in lines(form, *SWEEP) if "timed by" in line]


def test_a_reader_of_osus_format_passes_over_what_is_told_of_starts():
    assert [point.nbytes for point in read_back("osu", *fallen_back("osu"))] == [8, 16, 32, 64, 128]


def test_a_point_without_a_time_does_not_say_how_the_others_were_timed():
    points = [
        timed(8, 1, sync="window"),
        *(synthetic.point("ring", n, status="failed", samples_ns=()) for n in (16, 32)),
    ]
    assert not [line for line in lines("osu", *points) if "timed by" in line]


def test_ramble_finds_nothing_in_what_is_told_of_starts():
    found = [re.search(RAMBLE, line) for line in lines("osu", *fallen_back("osu"))]
    assert [one["msg_size"] for one in found if one] == ["8", "16", "32", "64", "128"]


def test_a_predicted_time_is_not_called_a_median():
    point = synthetic.point("ring", 8, kind="predicted", samples_ns=(), model_us=2.5, sync="model")
    head, _, _, title, row = lines("osu", point)[:5]
    assert "predicted: float32 sum" in head
    assert title.split() == ["#", "Size", "Model", "Latency(us)", "Validation"]
    assert row.split()[:2] == ["8", "2.50"]
    assert "time: what the model says" in lines("nccl", point)[1]


def test_an_imported_mean_is_printed_as_one():
    point = synthetic.point("osu", 8, kind="imported", samples_ns=(), stated=Stated(mean_us=1.25), sync="")
    text = printed("osu", RUN, [point, timed(8, 2, "osu")])
    mean, median = text.split("\n\n")
    assert "time: mean as another program's log states it" in mean
    assert "Avg Latency(us)" in mean
    assert "Median Latency(us)" in median


# nccl-tests


def test_nccl_rows_have_the_thirteen_columns_with_both_halves():
    (row,) = rows("nccl", timed(2**20, 100.0), timed(2**20, 200.0, in_place=True, wrong=7, status="wrong"))
    assert row == [
        *("1048576", "262144", "float", "sum", "-1"),
        *("100.00", "10.49", "15.73", "0"),
        *("200.00", "5.24", "7.86", "7"),
    ]


def test_a_half_that_was_not_measured_is_not_made_up():
    assert rows("nccl", timed(8, 1.5))[0][9:] == ["N/A"] * 4
    assert rows("nccl", timed(8, 1.5, in_place=True))[0][5:9] == ["N/A"] * 4
    assert rows("nccl", timed(8, 1.5, wrong=None))[0][8] == "N/A"


def test_one_rank_has_no_bus_bandwidth_here_either():
    text = printed("nccl", RUN, [timed(2**20, 100.0, ranks=1, nodes=1)])
    assert text.splitlines()[-3].split()[6:8] == ["10.49", "N/A"]
    assert "Avg bus bandwidth" not in text


def test_the_closing_lines_are_those_that_scripts_look_for():
    text = printed("nccl", RUN, [timed(2**20, 100.0), timed(2**20, 200.0, in_place=True)])
    assert re.search(r"^# Out of bounds values : 0 OK$", text, re.MULTILINE)
    assert float(re.search(r"^# Avg bus bandwidth\s+:\s+(\S+)", text, re.MULTILINE)[1]) == pytest.approx(
        11.796, abs=1e-3
    )
    assert "# Out of bounds values : 1 FAILED" in printed("nccl", RUN, [timed(8, 1, wrong=2, status="wrong")])


@pytest.mark.parametrize(
    ("time_us", "printed_as"), [(1.234, "1.23"), (9999.994, "9999.99"), (123456.7, "123457"), (12345.67, "12345.7")]
)
def test_times_keep_their_column(time_us, printed_as):
    (line,) = [line for line in lines("nccl", timed(8, time_us)) if not line.startswith("#")]
    assert line.split()[5] == printed_as
    assert len(line) == len(lines("nccl", timed(8, 1.0))[4])


# Our reader of these formats, with the line taken off by which it knows tables of ours


def read_back(form: str, *points: Point) -> list[Point]:
    text = ["# OSU MPI Allreduce Latency Test v7.4\n"] if form == "osu" else []
    text += [f"{line}\n" for line in lines(form, *points) if not line.startswith("# ddlbench")]
    return points_of(
        read_lines("a.log", [line.replace("Median", "Avg").encode() for line in text]), Given(ranks=4)
    ).points


def test_a_reader_of_osus_format_reads_ours():
    found = read_back("osu", *SWEEP, timed(32, 2, status="wrong", wrong=1))
    assert [(point.nbytes, point.dtype, point.stated.mean_us, point.status) for point in found] == [
        (8, "float32", 1.51, "ok"),
        (16, "float32", 1.6, "ok"),
        (32, "float32", 2.0, "wrong"),
        (2**20, "float32", 187.24, "ok"),
    ]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64", "uint8"])
def test_a_reader_of_nccl_tests_format_reads_ours(dtype):
    size = {"float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "uint8": 1}.get(dtype, 4)
    pair = [timed(2**20, us, dtype=dtype, count=2**20 // size, in_place=us > 150) for us in (100.0, 200.0)]
    found = read_back("nccl", *pair)
    assert [(point.dtype, point.count, point.in_place, point.stated.mean_us, point.wrong) for point in found] == [
        (dtype, 2**20 // size, False, 100.0, 0),
        (dtype, 2**20 // size, True, 200.0, 0),
    ]
