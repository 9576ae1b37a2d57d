"""What is read from the logs of each program, line by line."""

from dataclasses import replace
from pathlib import Path

import pytest

from ddlbench.errors import UsageError
from ddlbench.foreign import Given, points_of, read_lines, read_log
from ddlbench.foreign.log import NAMED
from ddlbench.records import Point, Stated

LOGS = Path(__file__).resolve().parents[1] / "logs"
GIVEN = Given(ranks=16, nodes=4)


def imported(name: str, given: Given = GIVEN):
    return points_of(read_log(LOGS / name), given)


def points(name: str, given: Given = GIVEN) -> list[Point]:
    return imported(name, given).points


def of_text(text: str, given: Given = GIVEN):
    return points_of(read_lines("a.log", text.encode().splitlines(keepends=True)), given)


def notices(found) -> list[str]:
    return [notice.removeprefix(f"{found.log.name}") for notice in found.notices]


def table(found: list[Point], *names: str) -> list[tuple[object, ...]]:
    return [tuple(getattr(point, name) for name in names) for point in found]


def means(found: list[Point]) -> list[float | None]:
    return [point.stated and point.stated.mean_us for point in found]


# OSU Micro-Benchmarks


def test_a_point_of_osu_says_all_that_its_log_does_and_no_more():
    assert points("osu-7.4.txt")[0] == Point(
        kind="imported",
        algorithm="osu_allreduce",
        nbytes=1,
        count=1,
        dtype="uint8",
        op="sum",
        in_place=False,
        nodes=4,
        ranks_per_node="4",
        ranks=16,
        device="cpu",
        transport="vendor",
        sync="",
        samples_ns=(),
        stated=Stated(mean_us=1.51, repetitions=1000, fastest_rank_us=1.4, slowest_rank_us=1.62),
        status="ok",
        wrong=None,
    )


def test_osu_before_datatypes_reduces_floats():
    found = points("osu-5.6.2.txt")
    assert table(found, "nbytes", "count", "dtype")[:2] == [(4, 1, "float32"), (8, 2, "float32")]
    assert means(found) == [4.08, 4.11, 4.15, 8.62, 112.4, 1530.27]
    assert found[0].stated == Stated(mean_us=4.08)
    assert not [notice for notice in notices(imported("osu-5.6.2.txt")) if "float32" in notice]


def test_osu_may_print_the_columns_before_the_datatype_and_percentiles_behind_the_validation():
    found = points("osu-7.1.txt")
    assert table(found, "dtype", "wrong", "status") == [
        ("float32", 0, "ok"),
        ("float32", 0, "ok"),
        ("float32", None, "wrong"),
    ]
    assert means(found) == [2.31, 2.35, 31.77]
    assert "validation failed" in found[2].reason


def test_osu_on_devices_with_one_table_per_datatype():
    found = points("osu-7.5-cuda.txt")
    assert table(found, "nbytes", "dtype", "device") == [
        (4, "int32", "cuda"),
        (8, "int32", "cuda"),
        (4, "float32", "cuda"),
        (8, "float32", "cuda"),
    ]


def test_a_line_in_between_is_named_with_its_number_and_the_rest_is_used():
    found = imported("osu-7.4.txt")
    assert len(found.points) == 5
    (notice,) = notices(found)
    assert notice.startswith(":8: not read: '[madeup02:41234] pml_ucx.c:419")


def test_omb_py_says_no_datatype_so_one_is_taken_and_told():
    found = imported("omb-py.txt")
    assert means(found.points) == [6.92, 6.95, 9.71]
    assert table(found.points, "algorithm", "dtype", "count")[0] == ("omb-py", "float32", 1)
    assert notices(found) == [": taken to be of float32, which the log does not say (--dtype does)"]
    assert imported("omb-py.txt", Given(ranks=2, nodes=1, dtype="uint8")).points[0].count == 4
    on_gpus = imported("omb-py.txt", Given(ranks=2, nodes=1, dtype="uint8", device="cuda"))
    assert (on_gpus.notices, on_gpus.points[0].device) == ([], "cuda")


OSU = "# OSU MPI Allreduce Latency Test v7.4\n# Datatype: MPI_FLOAT.\n"


@pytest.mark.parametrize(
    ("columns", "row", "why"),
    [
        ("# Size  Avg Latency(us)", "8 1.5 1.6", ""),
        ("# Size  Avg Latency(us)", "8", ""),
        ("# Size  Avg Latency(us)", "-8 1.5", "'-8' is no whole number"),
        ("# Size  Avg Latency(us)", "٨ 1.5", "'٨' is no whole number"),
        ("# Size  Avg Latency(us)", "8 nan", "'nan' is no number"),
        ("# Size  Avg Latency(us)", "8 -1.5", "'-1.5' is no number"),
        ("# Size  Avg Latency(us)", "8 1e999", "'1e999' is no number"),
        ("# Size  Avg Latency(us)", "9999999999999999999 1.5", "is no whole number"),
        ("# Size  Avg Latency(us)", "6 1.5", "6 bytes are no whole number of float32 elements"),
        ("# Size  Avg Latency(us)  Validation", "8 1.5 Maybe", ""),
        ("# Size  Avg Latency(us)  Transmit Size", "8 1.5 4", "derived datatype"),
    ],
)
def test_a_row_that_cannot_be_is_named_and_why(columns, row, why):
    found = of_text(f"{OSU}{columns}\n{row}\n")
    assert found.points == []
    named = [notice for notice in notices(found) if notice.startswith(":4: not read")]
    assert len(named) == 1
    assert why in named[0]


@pytest.mark.parametrize("titles", ["Overall(us)  Compute(us)", "Avg Latency(us)  Mood"])
def test_columns_of_another_kind_are_not_taken_for_times(titles):
    found = of_text(f"{OSU}# Size  {titles}\n8 1.5 1.4\n")
    assert found.points == []
    assert f":3: not read: '# Size  {titles}': these columns are not known" in notices(found)


def test_two_columns_of_another_kind_are_not_taken_for_sizes_and_times():
    found = of_text(f"{OSU}# Size  Bandwidth (MB/s)\n16 1510.0\n# Size  Avg Latency(us)\n16 1.5\n")
    assert means(found.points) == [1.5]
    assert ":4: not read: '16 1510.0': in the head above, these columns are not known" in notices(found)


IMB = "# Benchmarking Allreduce\n# #processes = 2\n#bytes #repetitions t_min[usec] t_max[usec] t_avg[usec]\n"


@pytest.mark.parametrize(
    ("text", "row", "known"),
    [
        (f"{OSU}# Datatype: MPI_2INT.\n", "8 1.5", "# Datatype: MPI_INT.\n"),
        (f"# MPI_Datatype for reductions : MPI_2INT\n{IMB}", "8 9 1.0 2.0 1.5", ""),
    ],
    ids=["osu", "imb"],
)
def test_rows_of_a_datatype_without_a_name_here_are_not_taken_for_those_of_another(text, row, known):
    title = "# Intel(R) MPI Benchmarks 2021.7\n" if "Benchmarking" in text else ""
    found = of_text(f"{title}{text}{row}\n{known}{row if known else ''}\n")
    assert [point.dtype for point in found.points] == (["int32"] if known else [])
    told = notices(found)
    assert any(f": not read: '{row}': in the head above, element type 'MPI_2INT' is not known" in one for one in told)


def test_another_osu_test_ends_the_table_and_is_left_out():
    text = f"{OSU}8 1.5\n# OSU MPI Broadcast Latency Test v7.4\n# Size  Avg Latency(us)\n8 0.5\n"
    found = of_text(text)
    assert means(found.points) == [1.5]
    assert notices(found) == [": left out: OSU MPI Broadcast Latency Test: only allreduce is read"]


# Intel MPI Benchmarks


def test_imb_says_the_ranks_and_small_counts_fill_the_nodes_one_after_the_other():
    found = points("imb-2021.txt", Given(nodes=4))
    assert table(found, "nbytes", "ranks", "nodes", "ranks_per_node") == [
        *((nbytes, 4, 1, "4") for nbytes in (0, 4, 2**20)),
        *((nbytes, 16, 4, "4") for nbytes in (0, 4, 2**20, 2**21, 2**22)),
    ]
    assert found[1].stated == Stated(mean_us=1.33, repetitions=1000, fastest_rank_us=1.21, slowest_rank_us=1.42)
    assert (found[1].dtype, found[1].op, found[1].algorithm) == ("float32", "sum", "imb")


def test_imb_rows_without_times_are_points_that_failed_with_the_reason():
    failed = points("imb-2021.txt")[-2:]
    assert table(failed, "nbytes", "status", "stated") == [(2**21, "failed", None), (2**22, "failed", None)]
    assert "needed X=   0.258 GB" in failed[0].reason
    assert failed[1].reason.startswith("time-out.; Time limit")


def test_imb_tables_of_other_benchmarks_are_left_out_and_told_once():
    assert notices(imported("imb-2021.txt")) == [": left out: IMB 'Bcast': only allreduce is read"]


def test_imb_built_to_check_says_whether_results_were_right():
    found = points("imb-2018-check.txt")
    assert table(found, "dtype", "op", "ranks", "wrong", "status") == [
        ("float64", "max", 8, 0, "ok"),
        ("float64", "max", 8, None, "wrong"),
    ]
    assert "defects of 0.50" in found[1].reason


def test_imb_groups_are_another_benchmark():
    text = "# Benchmarking Multi-Allreduce\n# #processes = 4\n Group #bytes #repetitions\n 0 4 1000 1.2 1.4 1.3\n"
    assert of_text(text).points == []


# nccl-tests


def test_nccl_tests_gives_two_points_a_row_and_the_hosts_the_nodes():
    found = points("nccl-2.16.txt", Given())
    assert table(found, "nbytes", "in_place", "wrong", "status") == [
        (8, False, 0, "ok"),
        (8, True, 0, "ok"),
        (1024, False, 0, "ok"),
        (1024, True, None, "ok"),
        (2**20, False, 0, "ok"),
        (2**20, True, 3, "wrong"),
        (2**27, False, 0, "ok"),
        (2**27, True, 0, "ok"),
    ]
    assert means(found)[-2:] == [1916.4, 1907.8]
    assert set(table(found, "algorithm", "dtype", "op", "ranks", "nodes", "ranks_per_node", "device")) == {
        ("nccl-tests", "float32", "sum", 8, 2, "4", "cuda")
    }
    assert found[0].stated == Stated(mean_us=20.11, repetitions=20)


def test_lines_of_nccl_itself_between_rows_are_expected():
    assert imported("nccl-2.16.txt").notices == []


def test_old_nccl_tests_has_no_root_and_a_deviation_that_is_judged_as_the_program_does():
    found = points("nccl-2.10.txt", Given())
    assert table(found, "nbytes", "wrong", "status") == [
        (2**20, 0, "ok"),
        (2**20, 0, "ok"),
        (2**24, 0, "ok"),
        (2**24, None, "wrong"),
        (2**27, 0, "ok"),
        (2**27, None, "ok"),
    ]
    assert "deviation of 0.2" in found[3].reason
    assert (found[0].ranks, found[0].dtype) == (4, "float16")


def test_tagged_lines_more_columns_and_time_stamps_change_nothing():
    found = points("nccl-2.18-tagged.txt", Given())
    assert means(found) == [60.1, 59.8, 188.3, 187.9]
    assert set(table(found, "dtype", "op", "ranks", "nodes", "device", "wrong")) == {
        ("bfloat16", "avg", 2, 2, "rocm", 0)
    }
    assert found[0].stated.repetitions == 80


def test_another_collective_is_told_by_its_bandwidths_or_its_name():
    (left_out, nothing) = notices(imported("nccl-reduce-scatter.txt"))
    assert "not those of an allreduce over 2 ranks" in left_out
    assert "no result" in nothing
    named = (LOGS / "nccl-2.16.txt").read_text().replace("all_reduce_perf", "./build/reduce_perf")
    assert any("'./build/reduce_perf': only allreduce" in notice for notice in notices(of_text(named)))
    assert of_text(named).points == []


def test_two_runs_in_one_log_have_each_their_own_ranks():
    text = "".join((LOGS / name).read_text() for name in ("nccl-2.16.txt", "nccl-2.10.txt"))
    found = of_text(text, Given())
    assert [point.ranks for point in found.points] == [8] * 8 + [4] * 6
    assert {point.nodes for point in found.points[8:]} == {1}
    table_alone = "".join((LOGS / "nccl-2.10.txt").read_text().splitlines(keepends=True)[8:])
    with pytest.raises(UsageError, match="--ranks"):
        of_text(text + table_alone, Given())


WITHOUT_RANKS = "\n".join(line for line in (LOGS / "nccl-2.16.txt").read_text().splitlines() if "#  Rank" not in line)


def test_without_its_list_of_ranks_nccl_tests_is_of_one_process_or_the_ranks_must_be_given():
    with pytest.raises(UsageError, match="does not say how many ranks there were: give --ranks N"):
        of_text(WITHOUT_RANKS, Given())
    assert {point.ranks for point in of_text(WITHOUT_RANKS, Given(ranks=8)).points} == {8}
    one_process = WITHOUT_RANKS.replace("nThread 1 nGpus 1", "nThread 2 nGpus 4")
    assert {point.ranks for point in of_text(one_process, Given()).points} == {8}


def test_the_time_of_the_processor_is_not_that_of_the_allreduce():
    text = (LOGS / "nccl-2.16.txt").read_text().replace("    time ", " cputime ")
    found = of_text(text)
    assert found.points == []
    assert any("is not that of the allreduce" in notice for notice in notices(found))


def test_a_size_that_is_not_that_of_the_count_is_no_allreduce():
    text = (
        (LOGS / "nccl-2.16.txt")
        .read_text()
        .replace("         262144 ", "         131072 ")
        .replace("262144 ", "131072 ")
    )
    assert any("size and count are not those of an allreduce" in notice for notice in notices(of_text(text)))


# oneCCL


def test_oneccl_rows_of_one_buffer_are_read():
    found = imported("oneccl.csv", Given(nodes=1))
    assert table(found.points, "algorithm", "nbytes", "count", "dtype", "op", "ranks") == [
        ("oneccl", 4, 1, "float32", "sum", 4),
        ("oneccl", 2**21, 2**20, "bfloat16", "sum", 4),
    ]
    assert found.points[1].stated == Stated(
        mean_us=420.05, repetitions=20, fastest_rank_us=402.15, slowest_rank_us=437.9
    )
    unread, left_out = notices(found)
    assert unread.startswith(":4: not read: '4,allreduce,")
    assert "'16' buffers at once" in unread
    assert left_out == ": left out: oneCCL 'bcast': only allreduce is read"


# Any log


def test_the_output_of_a_job_may_hold_several_programs():
    found = imported("job.txt")
    assert table(found.points, "algorithm", "nbytes", "ranks") == [
        ("osu_allreduce", 1, 16),
        ("osu_allreduce", 2, 16),
        ("imb", 4, 8),
    ]
    assert ": passed over before the first title: 2 lines" in notices(found)
    assert found.programs == ["osu_allreduce 7.4", "imb"]


def test_what_the_log_says_goes_before_what_the_user_says():
    given = Given(ranks=5, nodes=99, dtype="int64", device="moon", in_place=True, name="mine")
    (point, in_place) = points("nccl-2.16.txt", given)[:2]
    assert (point.ranks, point.nodes, point.dtype, point.device, point.in_place) == (8, 2, "float32", "cuda", False)
    assert in_place.in_place
    assert point.algorithm == "mine"
    assert points("oneccl.csv", replace(given, nodes=1))[0].device == "moon"
    assert points("osu-5.6.2.txt", replace(given, nodes=5))[1].dtype == "int64"


@pytest.mark.parametrize(
    ("nodes", "ranks", "placed"), [(1, 16, (1, "16")), (4, 16, (4, "4")), (3, 16, (3, "")), (16, 16, (16, "1"))]
)
def test_ranks_are_spread_over_the_nodes_given(nodes, ranks, placed):
    (point, *_) = points("osu-7.4.txt", Given(ranks=ranks, nodes=nodes))
    assert (point.nodes, point.ranks_per_node) == placed


def test_more_nodes_than_ranks_cannot_be():
    with pytest.raises(UsageError, match=r"--nodes 5: .*osu-7.4.txt is of 4 ranks"):
        points("osu-7.4.txt", Given(ranks=4, nodes=5))


def test_one_node_is_taken_where_nobody_says_and_told():
    found = imported("osu-5.6.2.txt", Given(ranks=4))
    assert {point.nodes for point in found.points} == {1}
    assert ": taken to be on 1 node, which the log does not say (--nodes does)" in notices(found)


def test_a_file_of_no_known_program_is_told_what_was_looked_for():
    (notice,) = notices(of_text("size time\n8 1.5\n"))
    assert "not a log of a known program" in notice
    for title in ("OSU MPI Allreduce", "OMB Python", "# Benchmarking Allreduce", "redop", "#ranks,collective"):
        assert title in notice


def test_many_lines_that_cannot_be_read_are_named_up_to_a_number_and_counted():
    found = of_text(OSU + "mumble\n" * (NAMED + 7))
    assert len(found.log.unread) == NAMED
    assert ": not read, besides: 7 lines" in notices(found)


def test_what_is_named_cannot_command_a_terminal():
    (notice, _) = notices(of_text(OSU + "\x1b[2J\x1b]0;owned\x07" + "x" * 500))
    assert notice.isprintable()
    assert len(notice) < 120


def test_lines_without_end_windows_ends_and_bytes_that_are_no_text_are_survived(tmp_path):
    (tmp_path / "a.log").write_text(OSU.replace("\n", "\r\n") + "8 1.5\r\n" + "9" * 300_000)
    log = read_log(tmp_path / "a.log")
    assert means(points_of(log, GIVEN).points) == [1.5]
    assert all(len(unread.text) <= 1 << 16 for unread in log.unread)
    log = read_lines("a.log", [b"# OSU MPI Allreduce Latency Test\n", b"\xff\xfe\x00\n", b"8 1.5\n"])
    assert len(log.sections[0].rows) == 1
    assert len(log.unread) == 1


def test_tables_of_ddlbench_itself_do_not_come_back_as_those_of_another_program():
    found = of_text("# ddlbench 0.1.0: ring, float32 sum\n# in the format of OSU MPI Allreduce Latency Test\n8 1.5\n")
    assert found.points == []
    assert "a table of ddlbench" in notices(found)[0]


def test_a_file_that_cannot_be_opened_is_named():
    with pytest.raises(UsageError, match=r"cannot read '.*nothing.txt': No such file"):
        read_log(LOGS / "nothing.txt")
    with pytest.raises(UsageError, match="Is a directory"):
        read_log(LOGS)
