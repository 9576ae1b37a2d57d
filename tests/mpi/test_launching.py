"""`ddlbench launch` with real ranks on this machine: what it starts, and what it says of jobs that went wrong."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlbench.launch import libraries
from launch import NO_MPIRUN, environment, find_mpirun, stop

DDLBENCH = (sys.executable, "-m", "ddlbench")
SHORT = ("--sizes", "8,1K", "-a", "ring,mpi", "-n", "3", "-w", "1", "--passes", "1", "--sync", "barrier")
LONG = ("--sizes", "8,1K", "-a", "ring,mpi", "-n", "100000000", "--passes", "1", "--sync", "barrier")
PATIENCE = 60


@dataclass(frozen=True)
class Launched:
    """How a launch ended: status, standard output and error."""

    status: int
    out: str
    err: str

    @property
    def command(self) -> list[str]:
        """The words that were run."""
        lines = [line.removeprefix("# launch: ") for line in self.err.splitlines() if line.startswith("# launch: ")]
        return shlex.split(lines[-1])


@pytest.fixture(autouse=True)
def _mpirun():
    if find_mpirun() is None:
        pytest.skip(NO_MPIRUN)


@pytest.fixture
def launch(tmp_path):
    """Give a function that runs `ddlbench launch WORDS`; `when` is told the process, and may do something to it."""

    def run(*words: str, when=None, env: Mapping[str, str] | None = None) -> Launched:
        files = [tmp_path / name for name in ("launch.out", "launch.err")]
        everything = environment({"XDG_CACHE_HOME": str(tmp_path / "cache"), **(env or {})})
        for name in libraries_own(everything):
            del everything[name]
        with files[0].open("wb") as out, files[1].open("wb") as err:
            argv = [*DDLBENCH, "launch", "--oversubscribe", *words]
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=everything,
                cwd=tmp_path,
                start_new_session=True,
            )
            try:
                if when:
                    when(process)
                process.wait(PATIENCE)
            finally:
                stop(process)  # politely first: killed, it could not end the launcher that it started
        return Launched(process.returncode, files[0].read_text(), files[1].read_text())

    return run


def libraries_own(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that say where ranks go: launch says that itself."""
    return [name for name in environ if "mapping_policy" in name or "oversubscribe" in name]


def record(place: Path) -> dict:
    return json.loads((place / "run.json").read_text())


def until(there) -> None:
    deadline = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def ranks_of(place: Path) -> list[int]:
    """Return the processes that run a sweep into `place` as ranks: those that a launcher told which rank they are."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words, environ = (path / "cmdline").read_bytes().split(b"\0"), (path / "environ").read_bytes()
        except OSError:
            continue
        if str(place).encode() in words and (b"OMPI_COMM_WORLD_RANK=" in environ or b"PMI_RANK=" in environ):
            found.append(int(path.name))
    return found


def test_a_sweep_is_started_on_all_ranks_and_its_table_is_all_that_stdout_gets(launch, tmp_path):
    done = launch("-n", "2", "--", "ddlbench", "sweep", *SHORT, "--format", "csv", "--out", "results")
    assert done.status == 0, done.err
    assert "algorithm" in done.out.splitlines()[0].split(",")
    assert len(done.out.splitlines()) == 5
    assert record(tmp_path / "results")["topology"]["ranks"] == 2
    assert record(tmp_path / "results")["finished"] is True
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_the_command_that_is_printed_does_the_same_when_it_is_copied(launch, tmp_path):
    done = launch("-n", "2", "--", "ddlbench", "sweep", *SHORT, "--out", "results")
    assert done.status == 0, done.err
    again = subprocess.run(
        [*done.command, "--overwrite"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert "4 points" in again.stdout


def test_a_launcher_that_starts_fewer_ranks_than_were_asked_for_is_found_out(launch, tmp_path):
    double = tmp_path / "fewer"
    double.write_text('#!/bin/sh\nwhile [ "$1" != env ]; do shift; done\nexec "$@"\n')
    double.chmod(0o755)
    done = launch("-n", "2", "--launcher", str(double), "--", "ddlbench", "sweep", *SHORT, "--out", "results")
    assert done.status == 2
    assert "expected 2 ranks (--expect-ranks or DDLBENCH_EXPECT_RANKS), but there is 1" in done.err
    assert not (tmp_path / "results").exists()


def test_a_wrong_number_of_nodes_is_found_out_by_all_ranks_together(launch, mpirun, tmp_path):
    done = mpirun(2, *DDLBENCH, "sweep", *SHORT, "--expect-nodes", "2", "--out", str(tmp_path / "results"))
    assert done.status == 2
    assert done.stderr.count("expected 2 nodes (--expect-nodes or DDLBENCH_EXPECT_NODES), but there is 1") == 1


def test_expectations_that_are_met_pass(mpirun, tmp_path):
    met = ("--expect-ranks", "2", "--expect-nodes", "1")
    assert mpirun(2, *DDLBENCH, "sweep", *SHORT, *met, "--out", str(tmp_path / "results")).status == 0


def test_a_mistake_in_the_sweep_has_the_sweep_s_status_and_line(launch):
    done = launch("-n", "2", "--", "ddlbench", "sweep", *SHORT, "-a", "rnig", "--out", "results")
    assert done.status == 2
    assert done.err.count("ddlbench: error: ") == 1
    assert "'rnig'" in done.err


def kill_a_rank(place: Path):
    def kill(_: subprocess.Popen) -> None:
        until(lambda: (place / "points.jsonl").exists() and len(ranks_of(place)) == 2)
        time.sleep(0.5)
        os.kill(max(ranks_of(place)), signal.SIGKILL)

    return kill


def test_a_run_that_lost_a_rank_is_3_and_the_line_that_is_said_goes_on_with_it(launch, tmp_path):
    place = tmp_path / "results"
    done = launch("-n", "2", "--", "ddlbench", "sweep", *LONG, "--out", str(place), when=kill_a_rank(place))
    assert done.status == 3
    assert "the run is not complete" in done.err
    assert (
        f"0 of 4 points are kept in {place}, the first that is missing is ring (2 x float32, sum) on 1 node" in done.err
    )
    assert ranks_of(place) == []
    assert record(place)["finished"] is False
    line = next(line for line in done.err.splitlines() if "the rest is measured by: " in line)
    again = shlex.split(line.partition("the rest is measured by: ")[2])
    assert again[:2] == ["ddlbench", "launch"]
    assert again[-4:] == ["ddlbench", "sweep", "--resume", str(place)]


def test_a_launcher_that_says_0_though_a_rank_was_lost_is_not_believed(launch, tmp_path):
    place, double = tmp_path / "results", tmp_path / "liar"
    launcher = libraries.launcher_of(libraries.of_this_python(), "", None, must_be_there=True).words[0]
    double.write_text(f'#!/bin/sh\n{launcher} "$@"\nexit 0\n')
    double.chmod(0o755)
    words = ("-n", "2", "--launcher", str(double), "--", "ddlbench", "sweep", *LONG, "--out", str(place))
    done = launch(*words, when=kill_a_rank(place))
    assert done.status == 3
    assert "the launcher ended with status 0, which says nothing" in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_ranks_and_says_how_to_go_on(launch, tmp_path, number):
    place = tmp_path / "results"

    def interrupt(process: subprocess.Popen) -> None:
        until(lambda: (place / "points.jsonl").exists() and len(ranks_of(place)) == 2)
        time.sleep(0.5)
        process.send_signal(number)

    done = launch("-n", "2", "--", "ddlbench", "sweep", *LONG, "--out", str(place), when=interrupt)
    assert done.status == 130
    assert "ddlbench: interrupted; " in done.err
    assert f"--resume {place}" in done.err
    assert ranks_of(place) == []


def test_what_is_gone_on_with_comes_to_its_end(launch, tmp_path):
    done = launch("-n", "2", "--", "ddlbench", "sweep", *SHORT, "--out", "results")
    assert done.status == 0, done.err
    place = tmp_path / "results"
    run = record(place)
    (place / "run.json").write_text(json.dumps(run | {"finished": False}))
    lines = (place / "points.jsonl").read_text().splitlines(keepends=True)
    (place / "points.jsonl").write_text("".join(lines[:2]))
    again = launch("-n", "2", "--", "ddlbench", "sweep", "--resume", "results")
    assert again.status == 0, again.err
    assert record(place)["finished"] is True
    assert len((place / "points.jsonl").read_text().splitlines()) == 4


def test_the_hosts_are_asked_by_ranks_that_meet(launch, tmp_path):
    mpirun = libraries.launcher_of(libraries.of_this_python(), "", None, must_be_there=True).words
    token = "a-token"
    argv = [*mpirun, "-n", "2", sys.executable, "-m", "ddlbench.launch.probe", token]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False, timeout=PATIENCE)
    from ddlbench.launch.checks import heard

    answer = heard(done.stdout, token, done.returncode)
    assert set(answer.facts) == {0, 1}
    assert answer.sizes == {0: 2, 1: 2}
    assert answer.facts[0]["MPI"] == libraries.of_this_python().name
