"""`sweep --resume DIR`: what it takes over, what it measures again, and what it refuses to go on with."""

import csv
import json
import sys
from pathlib import Path

import pytest

from nursery import SPARE, Nursery

FLAGS = ("--sizes", "8,16,1K", "-a", "ring,mpi", "-n", "3", "-w", "0", "--passes", "1", "--sync", "barrier")
SWEEP = ("sweep", *FLAGS)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("nursery")) as opened:
        yield opened


@pytest.fixture(scope="module")
def whole(nursery, tmp_path_factory):
    """Give the files of a finished run of six points."""
    folder = tmp_path_factory.mktemp("whole")
    done = nursery([*SWEEP, "--out", "out"], folder)
    assert done.status == 0, done.stderr
    return {path.name: path.read_bytes() for path in (folder / "out").iterdir()}


@pytest.fixture
def place(whole, tmp_path):
    """Give a directory with that run."""
    (tmp_path / "out").mkdir()
    for name, data in whole.items():
        (tmp_path / "out" / name).write_bytes(data)
    return tmp_path / "out"


@pytest.fixture
def resume(nursery, place):
    """Give `resume(*flags)`, which goes on with the run in `place`."""
    return lambda *flags: nursery(["sweep", *flags, "--resume", "out"], place.parent)


def lines(place: Path) -> list[bytes]:
    return (place / "points.jsonl").read_bytes().splitlines(keepends=True)


def points(place: Path, start: int = 0) -> list[dict]:
    return [json.loads(line) for line in lines(place)[start:]]


def cells(found: list[dict]) -> list[tuple]:
    return [(point["algorithm"], point["nbytes"]) for point in found]


def record(place: Path) -> dict:
    return json.loads((place / "run.json").read_text())


def rewrite(place: Path, **fields) -> None:
    (place / "run.json").write_text(json.dumps(record(place) | fields))


def rows(place: Path) -> list[dict]:
    with (place / "results.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def spoil(place: Path, at: int, **fields) -> None:
    """Change fields of the line `at` of the file of points."""
    found = lines(place)
    found[at] = (json.dumps(json.loads(found[at]) | fields) + "\n").encode()
    (place / "points.jsonl").write_bytes(b"".join(found))


# ---- Going on ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [FLAGS, ()])
def test_what_is_missing_is_measured_and_what_is_there_stays_as_it_was(place, resume, flags):
    kept = lines(place)[:2] + lines(place)[4:]
    (place / "points.jsonl").write_bytes(b"".join(kept))
    rewrite(place, finished=False)
    done = resume(*flags)
    assert done.status == 0, done.stderr
    assert "# going on with out: 4 of 6 points are there" in done.stdout
    assert "# 2 points in" in done.stdout
    assert "4 were there: 6 ok" in done.stdout
    assert lines(place)[:4] == kept
    assert sorted(cells(points(place))) == sorted((name, size) for name in ("mpi", "ring") for size in (8, 16, 1024))
    assert len(rows(place)) == 6
    assert record(place)["finished"] is True
    table = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
    assert [(row[4], int(row[0])) for row in table] == [(row["algorithm"], int(row["nbytes"])) for row in rows(place)]


def test_the_record_says_that_it_was_gone_on_with_and_keeps_how_it_began(place, resume):
    began = record(place)
    (place / "points.jsonl").write_bytes(b"".join(lines(place)[:3]))
    rewrite(place, finished=False, trust=[{"flag": "busy", "detail": "then"}], created="2026-01-01T00:00:00+00:00")
    assert resume(*FLAGS).status == 0
    now = record(place)
    assert (now["command"], now["created"]) == (began["command"], "2026-01-01T00:00:00+00:00")
    assert now["trust"][0] == {"flag": "busy", "detail": "then"}
    (flag,) = [flag["detail"] for flag in now["trust"] if flag["flag"] == "resumed"]
    assert flag.endswith("when 3 points were there")


def test_nothing_is_missing_in_a_finished_run_and_its_reports_are_made_again(place, resume):
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    for name in ("results.csv", "report.html"):
        (place / name).unlink()
    done = resume()
    assert (done.status, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "# nothing is missing in out, its reports are made again; 6 points: 6 ok",
        "# results: out/results.csv   report: out/report.html",
    ]
    after = {path.name: path.read_bytes() for path in place.iterdir()}
    assert after.keys() == before.keys()
    assert [name for name in ("run.json", "points.jsonl", "results.csv") if after[name] != before[name]] == []


def test_a_run_that_was_killed_after_its_last_point_is_finished(place, resume):
    rewrite(place, finished=False)
    assert resume().stdout.startswith("# nothing is missing")
    assert record(place)["finished"] is True


def test_a_last_line_that_was_cut_off_is_measured_again(nursery, place, resume):
    kept = lines(place)[:4]
    (place / "points.jsonl").write_bytes(b"".join(kept) + lines(place)[4][:100])
    rewrite(place, finished=False)
    report = nursery(["report", "out"], place.parent)
    assert report.status == 0, "a kill cuts a line off: nothing that was finished is lost"
    assert "points.jsonl line 5: cut off" in report.stderr
    done = resume()
    assert done.status == 0
    assert "ddlbench: warning: out: points.jsonl line 5: cut off" in done.stderr
    assert lines(place)[:4] == kept
    assert len(points(place)) == len(rows(place)) == 6
    assert nursery(["report", "out"], place.parent).stderr == ""


def test_a_last_line_that_only_lacks_its_end_is_kept(place, resume):
    kept = b"".join(lines(place)[:4])
    (place / "points.jsonl").write_bytes(kept[:-1])
    assert resume().status == 0
    assert (place / "points.jsonl").read_bytes().startswith(kept)
    assert len(set(cells(points(place)))) == len(points(place)) == 6


def test_broken_lines_are_named_and_their_points_measured_again(nursery, place, resume):
    found = lines(place)
    kept = [found[0], b"mpirun: a warning\n", found[2], found[3][:50] + b"\n", *found[4:]]
    (place / "points.jsonl").write_bytes(b"".join(kept))
    done = resume()
    assert done.status == 0, done.stderr
    warnings = [line.split(": broken")[0] for line in done.errors]
    assert warnings == [f"ddlbench: warning: out: points.jsonl line {number}" for number in (2, 4)]
    assert lines(place)[:6] == kept
    assert sorted(cells(points(place, 6))) == sorted(cells([json.loads(found[1]), json.loads(found[3])]))
    assert len(rows(place)) == 6
    report = nursery(["report", "out"], place.parent)
    assert report.status == 1, "something did damage the file"
    assert report.errors[0].startswith(warnings[0])


def test_points_that_failed_are_measured_again_and_the_last_line_counts(nursery, place, resume):
    spoil(place, 1, status="failed", reason="out of memory", samples_ns=[], passes=[], wrong=None, stopped="")
    before = lines(place)
    done = resume()
    assert done.status == 0, done.stderr
    assert "# 1 point in" in done.stdout
    assert "5 were there: 6 ok" in done.stdout
    assert lines(place)[:6] == before
    assert cells(points(place, 6)) == [cells(points(place))[1]]
    assert [row["status"] for row in rows(place)] == ["ok"] * 6
    assert nursery(["report", "out"], place.parent).stderr == ""
    assert [row["status"] for row in rows(place)] == ["ok"] * 6
    assert resume().stdout.startswith("# nothing is missing")


@pytest.mark.parametrize(("status", "exit_status"), [("wrong", 1), ("skipped", 0)])
def test_wrong_and_skipped_points_stand(place, resume, status, exit_status):
    spoil(place, 1, status=status, reason="so it was")
    (place / "points.jsonl").write_bytes(b"".join(lines(place)[:4]))
    before = lines(place)
    done = resume()
    assert done.status == exit_status
    assert f"4 were there: 5 ok, 1 {status}" in done.stdout
    assert lines(place)[:4] == before
    assert [row["reason"] for row in rows(place) if row["status"] == status] == ["so it was"]


def test_ranks_start_as_they_did_for_the_points_that_are_there(place, resume):
    (place / "points.jsonl").write_bytes(b"".join(lines(place)[:2]))
    assert record(place)["clock"]["sync"] == "barrier"
    rewrite(place, clock=record(place)["clock"] | {"sync": "window", "why": "so it was"})
    assert resume().status == 0
    assert [point["sync"] for point in points(place)] == ["barrier"] * 2 + ["window"] * 4
    assert record(place)["clock"]["sync"] == "window"
    assert record(place)["clock"]["why"] == "so it was"


def test_a_resumed_run_is_printed_whole(place, resume):
    (place / "points.jsonl").write_bytes(b"".join(lines(place)[:2]))
    done = resume("--format", "csv")
    assert done.status == 0
    assert done.stdout == (place / "results.csv").read_text()


def test_what_a_kill_left_of_a_file_is_removed(place, resume):
    (place / ".report.html.4711.tmp").write_text("half")
    (place / ".mine.tmp").write_text("kept")
    assert resume().status == 0
    assert sorted(path.name for path in place.iterdir()) == sorted(
        [".mine.tmp", "points.jsonl", "report.html", "results.csv", "run.json"]
    )


def test_a_workload_is_gone_on_with_from_the_record(nursery, tmp_path):
    (tmp_path / "model.csv").write_text("index,name,numel,shape\n0,a,10,10\n1,b,10,10\n2,c,300,3x100\n")
    flags = ["--workload", "model.csv", "--fuse", "80", "-a", "ring,mpi", "-n", "1", "--in-place", "both"]
    assert nursery(["sweep", *flags, "--out", "out"], tmp_path).status == 0
    (tmp_path / "model.csv").unlink()
    place = tmp_path / "out"
    before = cells(points(place))
    (place / "points.jsonl").write_bytes(b"".join(lines(place)[:3]))
    assert nursery(["sweep", "--resume", "out"], tmp_path).status == 0
    assert sorted(cells(points(place))) == sorted(before)


# ---- Refusing ------------------------------------------------------------------------------------------------------


def refused(done, place: Path, before: dict[str, bytes], *parts: str) -> None:
    """See that a resume was refused in one line that has `parts`, and changed nothing."""
    assert (done.status, done.stdout) == (2, "")
    (line,) = done.errors
    assert [part for part in parts if part not in line] == [], line
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--seed", "7"], ["config.seed is 1 there and 7 here"]),
        (["--sizes", "8,16"], ["config.sizes is [8, 16, 1024] there and [8, 16] here"]),
        (["-a", "direct"], ["algorithms is ['ring', 'mpi'] there and ['ring', 'mpi', 'direct'] here"]),
        (["-n", "4", "--cache", "cold"], ["iterations is 3 there and 4 here", "cache is 'warm' there and 'cold' here"]),
    ],
)
def test_another_configuration_is_refused_with_both_values(whole, place, resume, flags, parts):
    refused(resume(*FLAGS, *flags), place, whole, "out cannot be gone on with: ", *parts)


def test_another_number_of_ranks_is_refused(mpirun, whole, place):
    argv = (sys.executable, "-m", "ddlbench", "sweep", "--resume", "out")
    done = mpirun(2, *argv, cwd=place.parent, env=SPARE)
    assert done.status == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ddlbench")]
    assert line == "ddlbench: error: out cannot be gone on with: ranks is 1 there and 2 here"
    assert {path.name: path.read_bytes() for path in place.iterdir()} == whole


def test_another_host_or_library_is_refused(place, resume):
    now = record(place)
    rewrite(place, topology=now["topology"] | {"hosts": ["elsewhere"]}, mpi={"library": "MPICH", "version": "4.2.3"})
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    host = now["topology"]["hosts"]
    refused(
        resume(), place, before, f"hosts is ['elsewhere'] there and {host} here",
        f"MPI library is 'MPICH' there and {now['mpi']['library']!r} here",
        f"MPI version is '4.2.3' there and {now['mpi']['version']!r} here",
    )  # fmt: skip


def test_other_tuning_is_refused(place, resume):
    now = record(place)
    variables = now["environment"]["variables"] | {"OMP_NUM_THREADS": "77", "SLURM_JOB_ID": "4"}
    rewrite(place, environment=now["environment"] | {"variables": variables})
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    refused(resume(), place, before, "gone on with: OMP_NUM_THREADS is '77' there and ")


def test_a_configuration_that_cannot_be_read_back_is_refused_without_flags(place, resume):
    rewrite(place, config=record(place)["config"] | {"colour": "red"})
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    refused(resume(), place, before, "out does not say exactly what was to be measured")
    refused(resume(*FLAGS), place, before, "config.colour is 'red' there and nothing here")


def test_lines_of_a_newer_version_are_refused(place, resume):
    spoil(place, 2, version=99)
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    refused(resume(), place, before, "points.jsonl line 3: format version 99 is newer", "update ddlbench")


@pytest.mark.parametrize("flags", [FLAGS, ()])
def test_a_directory_without_a_run_is_refused_and_not_made(nursery, tmp_path, flags):
    done = nursery(["sweep", *flags, "--resume", "nowhere"], tmp_path)
    assert (done.status, done.stdout) == (2, "")
    assert done.errors == ["ddlbench: error: nowhere holds no run: there is no run.json in it"]
    assert list(tmp_path.iterdir()) == []


def test_imported_results_are_refused(nursery, tmp_path):
    (tmp_path / "log").write_text("# OSU MPI Allreduce Latency Test v7.4\n# Size       Avg Latency(us)\n4      1.5\n")
    assert nursery(["import", "log", "--out", "out", "--ranks", "2"], tmp_path).status == 0
    for flags in ((), FLAGS):
        done = nursery(["sweep", *flags, "--resume", "out"], tmp_path)
        assert done.status == 2
        assert done.errors == ["ddlbench: error: out holds no run of ddlbench sweep: there is nothing to go on with"]


@pytest.mark.parametrize("option", [("--out", "other"), ("--overwrite",)])
def test_resume_names_the_directory_by_itself(nursery, tmp_path, option):
    done = nursery([*SWEEP, "--resume", "out", *option], tmp_path)
    assert done.status == 2
    assert done.errors == ["ddlbench: error: --resume DIR names the run to go on with: leave out --out and --overwrite"]
