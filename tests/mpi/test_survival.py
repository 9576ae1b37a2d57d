"""Kills at random moments: no stored point is lost, the directory is readable, and `--resume` measures what is missing.

DDLBENCH_KILLS=1000 kills as many sweeps of one rank, for a longer look than every test run takes.
"""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from ddlbench.cli import main
from launch import command, environment, start, stop
from nursery import SPARE, Nursery

KILLS = int(os.environ.get("DDLBENCH_KILLS", "88"))
KILLS_UNDER_MPIRUN = 12
IN_A_ROW = 5
SIZES = [str(4 * count) for count in range(1, 17)]
ALGORITHMS = ["ring", "mpi"]
FLAGS = ["--sizes", ",".join(SIZES), "-a", ",".join(ALGORITHMS), "-n", "1", "-w", "0", "--passes", "1"]
FLAGS += ["--sync", "barrier"]  # on a machine with other work to do all samples of a window may be late: no point
EVERY_POINT = sorted((algorithm, int(size)) for algorithm, size in product(ALGORITHMS, SIZES))


@pytest.fixture(autouse=True)
def _quick_reports(monkeypatch):
    """Write the reports made in this process without waiting for the disk; the sweeps are processes of their own."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("nursery")) as opened:
        yield opened


def stored(place: Path) -> list[bytes]:
    """Return the whole lines of the file of points."""
    path = place / "points.jsonl"
    return path.read_bytes().split(b"\n")[:-1] if path.exists() else []


def keys(lines: list[bytes]) -> list[tuple[str, int]]:
    return sorted((point["algorithm"], point["nbytes"]) for point in map(json.loads, lines))


def printed(text: str) -> list[tuple[str, int]]:
    """Return the points whose rows stand in the table, whole."""
    rows = [line.split() for line in text.split("\n")[:-1] if line and not line.startswith("#")]
    return sorted((row[4], int(row[0])) for row in rows)


def rows(place: Path) -> list[tuple[str, int]]:
    with (place / "results.csv").open(newline="") as file:
        return sorted((row["algorithm"], int(row["nbytes"])) for row in csv.DictReader(file))


def check_killed(place: Path, before: list[bytes], stdout: str, capsys) -> list[bytes]:
    """See that a killed sweep kept all it had stored or shown, and that its directory can be read; return the lines."""
    lines = stored(place)
    assert lines[: len(before)] == before
    assert len(set(keys(lines))) == len(lines)
    assert set(printed(stdout)) <= set(keys(lines))
    status = main(["report", str(place)])
    said = capsys.readouterr().err
    if (place / "run.json").exists():
        assert (status, said) == (0, "")
        assert rows(place) == keys(lines)
        page = place / "report.html"
        assert page.read_bytes().rstrip().endswith(b"</html>")
        page.unlink()  # 100 of them are much to keep
    else:
        assert (status, lines) == (2, [])
        assert said == f"ddlbench: error: {place} holds no run: there is no run.json in it\n"
    return lines


def check_whole(place: Path, before: list[bytes]) -> None:
    """See that a run came to its end, each point once, and those that were there as they were."""
    lines = stored(place)
    assert lines[: len(before)] == before
    assert keys(lines) == rows(place) == EVERY_POINT
    assert json.loads((place / "run.json").read_text())["finished"] is True
    assert sorted(path.name for path in place.iterdir()) == ["points.jsonl", "report.html", "results.csv", "run.json"]


def going_on(place: Path, moments: random.Random) -> list[str]:
    """Return the arguments that begin or go on with the run in `place`: with its flags, or as its record says."""
    if not (place / "run.json").exists():
        return ["sweep", *FLAGS, "--out", str(place), "--overwrite"]
    return ["sweep", *moments.choice(([], FLAGS)), "--resume", str(place)]


def lifetime(nursery, place: Path) -> float:
    """Return the seconds that a sweep takes that is left alone."""
    begin = time.monotonic()
    assert nursery(["sweep", *FLAGS, "--out", str(place)], place.parent).status == 0
    check_whole(place, [])
    return time.monotonic() - begin


def test_no_kill_of_a_sweep_loses_a_point_that_was_stored(nursery, tmp_path, capsys):
    life = min(lifetime(nursery, tmp_path / f"whole-{turn}") for turn in range(3))
    moments, kills, amid_points = random.Random(20), 0, 0
    while kills < KILLS:
        place, lines = tmp_path / f"after-{kills}", []
        for attempt in range(IN_A_ROW + 1):
            growing, most = moments.choice(((None, life), (place / "points.jsonl", life / 8)))
            delay = moments.uniform(0, most) if attempt < IN_A_ROW else None
            done = nursery(going_on(place, moments), tmp_path, kill_after=delay, growing=growing)
            if done.status != -signal.SIGKILL:
                assert done.status == 0, done.stderr
                check_whole(place, lines)
                shutil.rmtree(place)
                break
            kills += 1
            there = len(lines)
            lines = check_killed(place, lines, done.stdout, capsys)
            amid_points += there < len(lines) < len(EVERY_POINT)
    assert amid_points >= KILLS // 10, "the kills came too early or too late to hit the measuring itself"


# ---- Under mpirun --------------------------------------------------------------------------------------------------

RANK = (
    "import os, sys; from pathlib import Path; rank = os.environ.get('OMPI_COMM_WORLD_RANK') or os.environ['PMI_RANK'];"
    "Path(f'rank-{rank}').write_text(str(os.getpid())); from ddlbench.cli import main; sys.exit(main(sys.argv[1:]))"
)


def ranks_of(folder: Path) -> dict[str, int]:
    """Return the processes of the ranks of a sweep in `folder` that run, by the names of their files."""
    found = {}
    for path in folder.glob("rank-*"):
        status = Path("/proc", path.read_text() or "0", "cmdline")
        if status.exists() and str(folder).encode() in status.read_bytes():
            found[path.name] = int(path.read_text())
    return found


def until(true, seconds: float = 30) -> bool:
    """Wait until `true()`, for some seconds at most; return whether it came to that."""
    limit = time.monotonic() + seconds
    while not (now := true()) and time.monotonic() < limit:
        time.sleep(0.01)
    return bool(now)


def run_and_kill(argv: list[str], folder: Path, victim: str, delay: float, when) -> tuple[int, str]:
    """Start `argv` on two ranks and kill `victim` some time after `when()`; return status and what was written."""
    for path in folder.glob("rank-*"):
        path.unlink()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = start(command(2, [sys.executable, "-c", RANK, *argv]), out, err, env=environment(SPARE), cwd=folder)
        try:
            until(lambda: when() or process.poll() is not None)
            time.sleep(delay)
            rank = ranks_of(folder).get(victim)
            process.kill() if rank is None else os.kill(rank, signal.SIGKILL)
            status = process.wait(30)
        finally:
            stop(process)
    assert until(lambda: not ranks_of(folder)), "ranks went on without mpirun"
    return status, (folder / "stdout").read_text()


def test_no_kill_of_a_rank_or_of_mpirun_loses_a_point_that_was_stored(tmp_path, capsys):
    begin = time.monotonic()
    assert run_and_kill(["sweep", *FLAGS, "--out", "first"], tmp_path, "none", 0, lambda: False)[0] == 0
    life = time.monotonic() - begin
    moments, kills = random.Random(21), Counter()
    while kills.total() < KILLS_UNDER_MPIRUN:
        place, lines = tmp_path / f"after-{kills.total()}", []
        for attempt in range(IN_A_ROW + 1):
            argv = going_on(place, moments)
            victim = moments.choice(("rank-0", "rank-1", "mpirun"))
            at_once, more_points = moments.choice((True, False)), partial(more_than, place, len(lines))
            delay = moments.uniform(0, life if at_once else 0.1)
            if attempt == IN_A_ROW:
                victim, at_once, more_points = "none", False, lambda: False
            status, said = run_and_kill(argv, tmp_path, victim, delay, (lambda: True) if at_once else more_points)
            if status == 0:
                check_whole(place, lines)
                shutil.rmtree(place)
                break
            kills[victim] += 1
            lines = check_killed(place, lines, said, capsys)
    assert len(kills) == 3, kills


def more_than(place: Path, lines: int) -> bool:
    return len(stored(place)) > lines


# ---- Two at once, full disks, secrets ------------------------------------------------------------------------------


@pytest.fixture
def busy(tmp_path):
    """Give a directory that a long sweep is writing to."""
    argv = [sys.executable, "-m", "ddlbench", "sweep", "-b", "8", "-e", "16K", "-i", "8", "-n", "5", "--passes", "1"]
    with (tmp_path / "busy.log").open("wb") as log:
        process = start([*argv, "--out", "out"], log, env=environment(SPARE), cwd=tmp_path)
        try:
            assert until(lambda: stored(tmp_path / "out")), (tmp_path / "busy.log").read_text()
            yield tmp_path / "out"
            assert process.poll() is None
        finally:
            stop(process)


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (["--out"], "out already holds a run; give another directory, or --overwrite to replace it"),
        (["--overwrite", "--out"], "another sweep is writing to out; give another directory, or wait for its end"),
        (["--resume"], "another sweep is writing to out; give another directory, or wait for its end"),
    ],
    ids=["new", "overwrite", "resume"],
)
def test_a_second_sweep_into_a_directory_is_refused(nursery, busy, way, said):
    record, lines = (busy / "run.json").read_bytes(), stored(busy)
    refused = nursery(["sweep", *FLAGS, *way, "out"], busy.parent)
    assert (refused.status, refused.stdout) == (2, "")
    assert refused.errors == [f"ddlbench: error: {said}"]
    assert (busy / "run.json").read_bytes() == record
    assert nursery(["report", "out"], busy.parent).status == 0
    assert stored(busy)[: len(lines)] == lines != stored(busy)


def test_a_sweep_that_found_the_disk_full_says_so_and_is_gone_on_with(nursery, tmp_path):
    full = nursery(["sweep", *FLAGS, "--out", "out"], tmp_path, most_nbytes=5000)
    assert full.status == 1
    lines = stored(tmp_path / "out")
    (said,) = full.errors
    assert said.startswith("ddlbench: error: cannot write out/points.jsonl: File too large (errno 27, EFBIG); the ")
    assert said.endswith(f"the {len(lines)} points before it are kept, --resume out goes on with them")
    assert 5 < len(lines) < len(EVERY_POINT)
    assert (tmp_path / "out" / "points.jsonl").read_bytes().endswith(b"\n")
    assert nursery(["report", "out"], tmp_path).status == 0
    assert nursery(["sweep", "--resume", "out"], tmp_path).status == 0
    check_whole(tmp_path / "out", lines)


FULL_ON_RANK_0 = (
    "import resource, sys; from mpi4py import MPI; from ddlbench.cli import main;"
    "MPI.COMM_WORLD.rank or resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)); sys.exit(main(sys.argv[1:]))"
)


def test_a_full_disk_ends_all_ranks(mpirun, nursery, tmp_path):
    done = mpirun(
        2, sys.executable, "-c", FULL_ON_RANK_0, "sweep", *FLAGS, "--out", "out", cwd=tmp_path, env=SPARE, timeout=30
    )
    assert done.status == 1
    (said,) = [line for line in done.stderr.splitlines() if line.startswith("ddlbench")]
    assert "cannot write out/points.jsonl: File too large" in said
    assert f"the {len(stored(tmp_path / 'out'))} points before it are kept" in said
    assert nursery(["report", "out"], tmp_path).status == 0


@pytest.mark.parametrize(("most_nbytes", "name"), [(500, "run.json"), (100_000, "report.html")])
def test_a_file_that_does_not_fit_is_named_and_costs_no_points(nursery, tmp_path, most_nbytes, name):
    full = nursery(["sweep", *FLAGS, "--out", "out"], tmp_path, most_nbytes=most_nbytes)
    assert full.status == 1
    (said,) = full.errors
    assert said.startswith(f"ddlbench: error: cannot write out/{name}: File too large")
    if name == "run.json":
        assert list((tmp_path / "out").iterdir()) == []
    else:
        assert nursery(["sweep", "--resume", "out"], tmp_path).stdout.startswith("# nothing is missing in out")
        check_whole(tmp_path / "out", [])


def test_an_output_that_is_full_is_named_and_costs_no_points(tmp_path):
    argv = [sys.executable, "-m", "ddlbench", "sweep", *FLAGS, "--out", "out"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path, env=environment(SPARE)
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["ddlbench: error: cannot write to standard output: No space left on device"]


SECRETS = (
    *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "HF_TOKEN", "PGPASSWORD", "SLURM_JWT", "DDLBENCH_TOKEN", "HTTP_PROXY"),
    *("OMPI_MCA_secret", "OMPI_MCA_orte_hnp_uri", "MPIR_CVAR_SECRET", "I_MPI_SECRET", "UCX_SECRET", "NCCL_SECRET"),
    *("PMIX_SECURITY_MODE_KEY", "SLURM_SECRET", "SSH_AUTH_SOCK", "NOTHING_IN_PARTICULAR"),
)


def test_nothing_of_the_environment_outside_the_list_is_stored(mpirun, tmp_path):
    planted = {name: f"s3cret-{number}-value" for number, name in enumerate(SECRETS)}
    extra = SPARE | planted | {"OMP_NUM_THREADS": "1", "NCCL_ALGO": "seen-as-it-is-listed"}
    sweep = (sys.executable, "-m", "ddlbench", "sweep", *FLAGS, "--per-rank", "1", "--out", "out")
    assert mpirun(2, *sweep, cwd=tmp_path, env=extra).status == 0
    report = [sys.executable, "-m", "ddlbench", "report", "out"]
    done = subprocess.run(report, capture_output=True, check=True, cwd=tmp_path, env=environment(extra))
    written = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert len(written) == 4
    everything = [*written.items(), *((path.name, path.read_bytes()) for path in mpirun.directory.iterdir())]
    everything += [("report", done.stdout + done.stderr)]
    assert [name for name, text in everything if b"s3cret" in text] == []
    assert [Path(name).name for name, text in everything if b"seen-as-it-is-listed" in text] != []
    variables = json.loads(written[str(tmp_path / "out" / "run.json")])["environment"]["variables"]
    assert variables.keys() & set(SECRETS) == set()
    assert variables["NCCL_ALGO"] == "seen-as-it-is-listed"
