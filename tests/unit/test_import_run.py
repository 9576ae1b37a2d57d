"""`ddlbench import`: the run it makes, how that reports, and how it says what it could not use."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

import synthetic
from ddlbench.cli import main
from ddlbench.errors import UsageError
from ddlbench.records import Loaded, Point, Stated, load
from ddlbench.report import html as html_module
from ddlbench.report import results_table
from ddlbench.report.contest import contest_of, settings, verdicts, with_series
from ddlbench.report.headline import headline, lede
from ddlbench.report.html import render
from ddlbench.report.notices import notices
from ddlbench.report.payload import payload
from ddlbench.report.runs import Runs

LOGS = Path(__file__).resolve().parents[1] / "logs"


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "JSM_NAMESPACE_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _light_plotly(monkeypatch):
    monkeypatch.setattr(html_module, "_plotly", lambda: "")


@pytest.fixture
def imports(tmp_path, capsys):
    """Give `imports(*arguments)`: the exit status, and what went to standard output and standard error."""

    def run(*arguments: str, out: Path = tmp_path / "out") -> tuple[int, str, str]:
        status = main(["import", *arguments, "--out", str(out)])
        return (status, *capsys.readouterr())

    return run


def log(name: str) -> str:
    return str(LOGS / name)


def stated(algorithm: str, nbytes: int, mean_us: float, **changes) -> Point:
    """An imported point."""
    values = {"kind": "imported", "samples_ns": (), "sync": "", "transport": "vendor", "wrong": None}
    return synthetic.point(algorithm, nbytes, stated=Stated(mean_us=mean_us), **(values | changes))


# The record


def test_an_imported_point_read_back_is_the_point():
    whole = Stated(mean_us=1.5, repetitions=20, fastest_rank_us=1.0, slowest_rank_us=2.0)
    for point in (stated("osu", 8, 0.0), replace(stated("osu", 8, 1.5), stated=whole), stated("osu", 8, 1)):
        assert Point.from_json(json.loads(json.dumps(point.to_json()))) == point


def test_a_line_of_version_1_is_still_read():
    line = {**synthetic.point().to_json(), "version": 1}
    del line["stated"]
    assert Point.from_json(line) == synthetic.point()
    with pytest.raises(UsageError, match="the field 'stated' is missing"):
        Point.from_json({**line, "version": 2})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"kind": "measured"}, "a measured point has samples, and an imported one stated times instead"),
        ({"samples_ns": [5]}, "a measured point has samples, and an imported one stated times instead"),
        ({"stated": 1.5}, "stated is 1.5, expected an object"),
        ({"stated": {"mean_us": 1.5}}, "stated: the field 'repetitions' is missing"),
        ({"stated": {**stated("a", 8, 1).to_json()["stated"], "mean_us": None}}, "mean_us is None, expected a number"),
        ({"stated": {**stated("a", 8, 1).to_json()["stated"], "median": 1}}, "unknown field 'median'"),
    ],
)
def test_an_imported_point_that_claims_what_it_is_not_is_refused(change, expected):
    with pytest.raises(UsageError) as refused:
        Point.from_json({**stated("osu", 8, 1.5).to_json(), **change}, "line 3")
    assert "line 3" in str(refused.value)
    assert expected in str(refused.value)


# The report


def test_a_mean_stands_in_the_tables_as_a_mean_without_samples_interval_or_tail():
    table = results_table(Loaded(synthetic.run(), (stated("osu", 1000, 2.0), synthetic.point()), []))
    row = table.iloc[0]
    assert (row["time_us_median"], row["samples"], row["statistic"], row["algbw_gb_per_s"]) == (2.0, 0, "mean", 0.5)
    assert row[["time_us_ci_low", "time_us_ci_high", "time_us_min", "time_us_p99"]].isna().all()
    assert table["statistic"].tolist() == ["mean", "median"]


def test_no_winner_is_called_between_means():
    points = [stated(name, nbytes, us) for nbytes in (8, 16) for name, us in (("osu", 1.0), ("imb", 50.0))]
    table = with_series(results_table(Loaded(synthetic.run(), tuple(points), [])))
    ((_, rows),) = settings(table)
    contest = contest_of(rows)
    wins = verdicts(contest)
    assert [win.outcome for win in wins] == ["unknown", "unknown"]
    assert "".join(headline(contest, wins)).startswith("No clear winner at any size")
    assert "At 2 of 2 sizes there is no interval to tell by: no winner called." in map("".join, lede(contest, wins, 4))


def test_the_notices_of_a_report_tell_means_from_too_few_samples():
    def titles(*points: Point) -> list[str]:
        loaded = Loaded(synthetic.run(), points, [])
        return [f"{n.title}: {n.detail}" for n in notices(Runs.of(loaded))]

    assert titles(stated("osu", 8, 1.0)) == ["Not checked: no result compared with the right one"]
    assert titles(synthetic.point(wrong=None)) == ["Not checked: no result compared with the right one (--check does)"]
    few = synthetic.point(samples_ns=(5, 6))
    assert titles(few, stated("osu", 8, 1.0, wrong=0))[0].startswith("Too few samples: 1 point of fewer than 6")


def test_the_page_labels_means_and_only_then():
    def page(*points: Point) -> str:
        return render(Loaded(synthetic.run(), points, []))

    assert "Imported</strong> points were read" in page(stated("osu", 8, 1.0))
    assert "the mean that an imported log states" in page(stated("osu", 8, 1.0), synthetic.point())
    assert '"statistic":["mean"]' in page(stated("osu", 8, 1.0))
    assert "mean that an imported" not in page(synthetic.point())
    assert '"statistic":null' in page(synthetic.point())


def test_logs_alone_have_the_colours_that_vendors_lack_beside_ours():
    def ours(*points: Point) -> int:
        loaded = Loaded(synthetic.run(), points, [])
        return payload(Runs.of(loaded))["ours"]

    assert ours(stated("osu", 8, 1.0), stated("imb", 8, 1.0)) == 2
    assert ours(stated("osu", 8, 1.0), synthetic.point("ring")) == 1


# The verb


def test_one_point_of_a_log_is_counted_as_one(imports, tmp_path):
    lines = (LOGS / "osu-7.4.txt").read_text().splitlines(keepends=True)
    sizes = [at for at, line in enumerate(lines) if line[:1].isdigit()]
    (tmp_path / "one.txt").write_text("".join(lines[: sizes[1]]))
    _, out, _ = imports(str(tmp_path / "one.txt"), "--ranks", "8", "--nodes", "2")
    assert "one.txt: 1 point of osu_allreduce" in out


def test_logs_become_a_run_that_is_whole_and_says_where_it_is_from(imports, tmp_path):
    status, out, err = imports(log("osu-7.4.txt"), log("nccl-2.16.txt"), "--ranks", "8", "--nodes", "2")
    assert status == 0
    assert "5 points of osu_allreduce 7.4" in out
    assert "8 points of nccl-tests" in out
    assert out.endswith(f"{tmp_path / 'out' / 'results.csv'}\n{tmp_path / 'out' / 'report.html'}\n")
    assert err.count("\n") == 1
    loaded = load(tmp_path / "out")
    assert (len(loaded.points), loaded.problems, loaded.run.finished) == (13, [], True)
    assert [flag.flag for flag in loaded.run.trust] == ["imported", "imported"]
    assert loaded.run.environment == loaded.run.mpi == {}
    sources = loaded.run.config["imported"]
    assert [(source["programs"], source["points"], source["unread_lines"]) for source in sources] == [
        (["osu_allreduce 7.4"], 5, 1),
        (["nccl-tests"], 8, 0),
    ]
    with (tmp_path / "out" / "results.csv").open() as file:
        assert {row["statistic"] for row in csv.DictReader(file)} == {"mean"}


def test_the_topology_is_what_the_logs_say(imports, tmp_path):
    assert imports(log("nccl-2.16.txt"))[0] == 0
    topology = load(tmp_path / "out").run.topology
    assert topology == {"ranks": 8, "nodes": 2, "hosts": ["madeup01"] * 4 + ["madeup02"] * 4}


def test_what_was_assumed_is_told_and_stays_in_the_record(imports, tmp_path):
    status, _, err = imports(log("omb-py.txt"), "--ranks", "4")
    assert status == 0
    (flag,) = load(tmp_path / "out").run.trust
    for text in (err, flag.detail):
        assert "taken to be of float32" in text
        assert "taken to be on 1 node" in text


def test_names_set_logs_apart_or_beside_our_own_mpi(imports, tmp_path, monkeypatch):
    assert imports(f"mpi={log('osu-7.4.txt')}", f"b={log('osu-5.6.2.txt')}", "--ranks", "8")[0] == 0
    assert {point.algorithm for point in load(tmp_path / "out").points} == {"mpi", "b"}
    monkeypatch.chdir(tmp_path)
    Path("a=b.txt").write_text(Path(log("osu-7.4.txt")).read_text())
    assert imports("a=b.txt", "--ranks", "8", out=tmp_path / "two")[0] == 0
    assert {point.algorithm for point in load(tmp_path / "two").points} == {"osu_allreduce"}


def test_the_same_points_twice_under_one_name_are_told(imports):
    _, _, err = imports(log("osu-7.4.txt"), log("osu-7.4.txt"), "--ranks", "8", "--nodes", "1")
    assert "points read before: 5; reports show the last (NAME=LOG tells apart)" in err


def test_a_log_that_cannot_be_used_does_not_stop_the_others(imports, tmp_path):
    (tmp_path / "notes.txt").write_text("not a log\n")
    status, _, err = imports(str(tmp_path / "notes.txt"), log("imb-2021.txt"), "--nodes", "1")
    assert status == 0
    assert "notes.txt: not a log of a known program" in err
    assert len(load(tmp_path / "out").points) == 8


def test_nothing_readable_is_status_2_with_the_reason_and_no_run(imports, tmp_path):
    (tmp_path / "notes.txt").write_text("not a log\n")
    status, out, err = imports(str(tmp_path / "notes.txt"))
    assert (status, out) == (2, "")
    assert "looked for a line that begins with '# OSU MPI Allreduce Latency Test'" in err
    assert not (tmp_path / "out").exists()
    status, _, err = imports(log("nccl-reduce-scatter.txt"))
    assert status == 2
    assert "ddlbench: error: " in err.splitlines()[-1]
    assert "not those of an allreduce" in err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["LOG"]),
        (["nowhere.log"], ["'nowhere.log'", "No such file"]),
        (["name=" + "a" * 300], ["'aaa", "File name too long"]),
        ([log("osu-7.4.txt")], ["osu-7.4.txt", "how many ranks", "--ranks N"]),
        ([log("osu-7.4.txt"), "--ranks", "0"], ["--ranks '0'", "1 to"]),
        ([log("osu-7.4.txt"), "--ranks", "8", "--nodes", "two"], ["--nodes 'two'", "1 to"]),
        ([log("osu-7.4.txt"), "--ranks", "8", "--dtype", "flot32"], ["'flot32'", "'float32'"]),
    ],
)
def test_a_mistake_is_one_line_and_status_2(imports, tmp_path, arguments, parts):
    status, out, err = imports(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert [part for part in parts if part not in err] == []
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_there_is_replaced_only_when_asked(imports):
    assert imports(log("oneccl.csv"))[0] == 0
    status, _, err = imports(log("oneccl.csv"))
    assert status == 2
    assert "--overwrite" in err
    assert imports(log("oneccl.csv"), "--overwrite")[0] == 0
