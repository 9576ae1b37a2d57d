"""Ranks that stop, die, raise or hang: the run ends in time, says who and where, and can be gone on with.

Each test takes a few seconds, most of which are the time limit and the start of ranks.
"""

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch import command, environment, start, stop

LIMIT = 3.0
MOST_SECONDS = LIMIT + 10
"""No fault may take longer to be told, and the run to end."""
INTERRUPT_SECONDS = 3.0 + 4
"""Ctrl-C ends all ranks within 3 s; the rest is for a busy machine that ends processes slowly."""
HOST = socket.gethostname()
# Notes its process, runs what the test wants of it before, and is a rank of ddlbench; it may start slowly.
RANK = """
import os, sys
from pathlib import Path
import ddlbench.cli.faults as faults
faults.START_MARGIN_SECONDS = 60.0
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
Path(f"rank-{rank}").write_text(str(os.getpid()))
exec(sys.argv.pop(1))
from ddlbench.cli import main
status = main(sys.argv[1:])
exec(os.environ.get("AT_THE_END", ""))
sys.exit(status)
"""
LONG = ("--sizes", "64K", "-n", "1000000", "--max-seconds", "1000", "--passes", "1", "--out", "out")
QUICK = ("--sizes", "8", "-n", "5", "-w", "0", "--passes", "1", "--out", "out")


@dataclass(frozen=True)
class Ended:
    """How a run ended: status, seconds since the fault, standard error, and the processes of the ranks."""

    status: int
    seconds: float
    err: str
    pids: dict[int, int]

    @property
    def told(self) -> list[str]:
        """The lines of standard error that are ddlbench's own."""
        lines = self.err.replace("\0", "").splitlines()  # mpirun writes one when it aborts
        return [line for line in lines if line.startswith(("# ", "ddlbench:"))]


def until(true: Callable[[], object], seconds: float = 90) -> bool:
    limit = time.monotonic() + seconds
    while not (now := true()) and time.monotonic() < limit:
        time.sleep(0.02)
    return bool(now)


def record(folder: Path) -> dict:
    path = folder / "out" / "run.json"
    return json.loads(path.read_text()) if path.exists() else {}


def measuring(folder: Path) -> bool:
    """Say whether a sweep in `folder` has come to its points: links are stored just before."""
    return bool(record(folder).get("links"))


def pids_of(folder: Path) -> dict[int, int]:
    return {int(path.name[5:]): int(path.read_text() or 0) for path in folder.glob("rank-*")}


def run(
    folder: Path,
    ranks: int,
    *argv: str,
    fault: Callable[[dict[int, int], int], None] | None = None,
    when: Callable[[Path], object] = measuring,
    before: str = "",
    env: dict[str, str] | None = None,
) -> Ended:
    """Run a sweep on `ranks` ranks, bring `fault` about (given the ranks' processes and mpirun's) some time after
    `when`, and wait for the end; fails when that takes too long."""
    line = command(ranks, [sys.executable, "-c", RANK, before, "sweep", *argv])
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = start(line, out, err, env=environment({"OMPI_MCA_btl": "^ofi", **(env or {})}), cwd=folder)
        try:
            if fault:
                assert until(lambda: when(folder) or process.poll() is not None), (folder / "stderr").read_text()
                time.sleep(0.3)
            begin, pids = time.monotonic(), pids_of(folder)
            if fault:
                fault(pids, process.pid)
            # Without a fault from outside the start of the ranks counts too, which is slow on a busy machine.
            assert until(lambda: process.poll() is not None, MOST_SECONDS if fault else 90), (
                f"still there after {time.monotonic() - begin:.0f} s\n{(folder / 'stderr').read_text()}"
            )
        finally:
            for pid in pids_of(folder).values():
                _wake(pid, folder)
            stop(process)
    return Ended(process.returncode, time.monotonic() - begin, (folder / "stderr").read_text(), pids)


def _wake(pid: int, folder: Path) -> None:
    """Let a rank that was stopped be ended by mpirun, should it be there still."""
    place = Path(f"/proc/{pid}/cwd")
    if place.exists() and place.resolve() == folder:
        os.kill(pid, signal.SIGCONT)


def send(number: int, rank: int) -> Callable[[dict[int, int], int], None]:
    return lambda pids, _: os.kill(pids[rank], number)


@pytest.mark.parametrize(
    ("ranks", "victim", "algorithm"), [(3, 1, "ring"), (3, 0, "mpi"), (5, 4, "recursive-doubling")]
)
def test_a_rank_that_is_stopped_in_a_point_is_named_and_ends_the_run(tmp_path, ranks, victim, algorithm):
    fault = send(signal.SIGSTOP, victim)
    ended = run(tmp_path, ranks, *LONG, "-a", algorithm, "--timeout", str(LIMIT), fault=fault)
    assert ended.status == 3
    first, *table, silent, kept = ended.told
    what = rf"{algorithm}, 65536 bytes float32 sum on 1 node of {ranks} ranks, pass 1"
    assert re.fullmatch(rf"# stalled: {what}: no progress for \d+ s", first)
    named = re.escape(f"rank {victim} ({HOST}, pid {ended.pids[victim]})")
    assert re.match(rf"# nobody heard from {named} for \d+ s; it was last ", silent)
    assert kept == "# the points that were finished are kept, --resume out goes on with them"
    places = r"in the barrier before a sample|waits for the start of a sample"
    inside = "inside MPI_Allreduce" if algorithm == "mpi" else r"round \d+: waits (for|to send to) ranks? \d"
    assert all(re.match(rf"#   ranks? [\d, -]+ \({HOST}\): ({places}|{inside}|in Sweep)", line) for line in table), (
        table
    )
    fault = record(tmp_path)["fault"]  # of a deputy, where rank 0 is silent
    assert fault["silent"] == [victim]
    assert f"# {fault['what']}" == first
    assert [place["rank"] for place in fault["ranks"]] == list(range(ranks))
    assert {place["host"] for place in fault["ranks"]} == {HOST}
    assert (fault["point"]["algorithm"], fault["point"]["nbytes"]) == (algorithm, 65536)
    assert record(tmp_path)["finished"] is False


@pytest.mark.parametrize(("ranks", "victim", "algorithm"), [(3, 0, "ring"), (5, 1, "mpi")])
def test_a_rank_that_is_killed_is_named_before_the_launcher_blames_another(tmp_path, ranks, victim, algorithm):
    ended = run(tmp_path, ranks, *LONG, "-a", algorithm, fault=send(signal.SIGKILL, victim))
    assert ended.status != 0
    named = re.escape(f"rank {victim} ({HOST}, pid {ended.pids[victim]})")
    died, kept = ended.told
    # During what is as of its last word, up to a second old.
    assert re.fullmatch(rf"# {named} died during .+: it was killed, or it crashed", died)
    assert kept == "# the points that were finished are kept, --resume out goes on with them"
    stored = record(tmp_path)["fault"]
    # The launcher may end the deputy, who tells of rank 0, before that is stored.
    assert stored["silent"] == [victim] if victim else stored is None or stored["silent"] == [0]


ALGORITHM = """
import ctypes, os, signal, sys, time
from dataclasses import replace
from ddlbench.algorithms.ring import ALGORITHM as RING
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
def phases(grid, ranks, **given):
    if rank == int(os.environ["VICTIM"]):
        exec(os.environ["FAULT"])
    return RING.phases(grid, ranks, **given)
MINE = replace(RING, name="mine", phases=phases)
"""


def run_with_faulty_algorithm(folder: Path, ranks: int, victim: int, fault: str, *argv: str, before: str = "") -> Ended:
    """Run a sweep over an algorithm of one's own, in which `victim` runs the code `fault` before its proof."""
    (folder / "mine.py").write_text(ALGORITHM)
    env = {"VICTIM": str(victim), "FAULT": fault}
    return run(folder, ranks, *QUICK, "-a", "./mine.py:MINE", *argv, env=env, before=before)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise ZeroDivisionError('only here')", "unexpected ZeroDivisionError: only here"),
        ("sys.exit(7)", "SystemExit"),
    ],
)
def test_a_rank_that_raises_or_exits_leaves_nobody_hanging(tmp_path, victim, fault, said):
    ended = run_with_faulty_algorithm(tmp_path, 3, victim, fault)
    assert ended.status == 1
    (line,) = ended.told
    assert line.startswith(f"ddlbench: error: rank {victim} on {HOST}: ")
    assert said in line


STOP = "os.kill(os.getpid(), signal.SIGSTOP)"


def test_a_rank_that_is_stopped_between_points_is_named_with_the_step(tmp_path):
    victim = 2
    ended = run_with_faulty_algorithm(tmp_path, 3, victim, STOP, "--timeout", str(LIMIT))
    assert ended.status == 3
    assert re.match(r"# stalled: the proof of mine\.py:MINE for 3 ranks: no progress for \d s", ended.told[0])
    assert any(f"nobody heard from rank {victim} ({HOST}" in line for line in ended.told)
    assert ended.told[-1] == "# nothing was measured yet"
    assert not (tmp_path / "out").exists()


def test_a_rank_that_dies_between_points_is_named(tmp_path):
    victim = 1
    ended = run_with_faulty_algorithm(tmp_path, 3, victim, "os.kill(os.getpid(), signal.SIGSEGV)")
    assert ended.status not in (0, 1)
    (line,) = [line for line in ended.told if line.startswith("# rank")]
    assert re.match(rf"# rank {victim} \({HOST}, pid \d+\) died during the proof of mine", line)


def test_a_rank_that_hangs_in_python_answers_and_its_place_is_shown(tmp_path):
    ended = run_with_faulty_algorithm(tmp_path, 3, 1, "time.sleep(1000)", "--timeout", str(LIMIT))
    assert ended.status == 3
    assert any(re.match(rf"#   rank 1 \({HOST}\): in \S+ \(schedule/\w+\.py:\d+\)", line) for line in ended.told)
    assert "# every rank answers: they wait for each other, or their messages do not arrive" in ended.told


def test_a_rank_that_works_while_the_others_wait_is_no_fault(tmp_path):
    work = f"end = time.monotonic() + {1.5 * LIMIT}\nwhile time.monotonic() < end: sum(range(10000))"
    ended = run_with_faulty_algorithm(tmp_path, 3, 1, work, "--timeout", str(LIMIT))
    assert (ended.status, [line for line in ended.told if "stalled" in line]) == (0, [])


HOLD = "ctypes.PyDLL(None).pause()"


def test_a_rank_that_holds_the_interpreter_is_named_by_the_others(tmp_path):
    ended = run_with_faulty_algorithm(tmp_path, 3, 1, HOLD, "--timeout", str(LIMIT))
    assert ended.status == 3
    assert any(f"nobody heard from rank 1 ({HOST}" in line for line in ended.told), ended


def test_a_rank_alone_that_holds_the_interpreter_ends_all_the_same(tmp_path):
    soon = "faults.HELD_SECONDS, faults.START_MARGIN_SECONDS = 1.0, 0.0"
    ended = run_with_faulty_algorithm(tmp_path, 1, 0, HOLD, "--timeout", str(LIMIT), before=soon)
    assert ended.status == 3
    said = rf"# stalled: rank 0 on {HOST} \(pid \d+\): the .*: Python stood still for 4 s"
    assert re.fullmatch(said, ended.told[0])


def test_a_rank_that_is_stopped_before_the_ranks_have_met_ends_the_run(tmp_path):
    # It has started MPI, and never comes to the first exchange.
    before = (
        "import ddlbench.cli.session, signal\nfaults.START_MARGIN_SECONDS = 0.0\n"
        "if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)"
    )
    ended = run(tmp_path, 3, *QUICK, "--timeout", str(LIMIT), before=before)
    assert ended.status == 3
    assert len(ended.told) in (1, 2)  # one for each rank that was not ended before it spoke
    for line in ended.told:
        assert re.match(rf"# stalled: rank [02] on {HOST} \(pid \d+\): the first exchange between all ranks, in ", line)


def test_a_rank_that_never_starts_mpi_ends_the_run(tmp_path):
    before = "import signal\nfaults.START_SECONDS = 3.0\nif rank == 1: os.kill(os.getpid(), signal.SIGSTOP)"
    ended = run(tmp_path, 3, *QUICK, before=before)
    assert ended.status == 3
    said = (
        rf"ddlbench: error: rank [02] on {HOST}: starting MPI did not come to an end within 3 s;"
        " where ranks start slowly, give --timeout more"
    )
    assert ended.told
    assert all(re.fullmatch(said, line) for line in ended.told)


def test_a_rank_that_never_ends_mpi_ends_the_run_and_the_results_are_there(tmp_path):
    before = "faults.START_MARGIN_SECONDS = 0.0"
    at_the_end = "import signal\nif rank == 1: os.kill(os.getpid(), signal.SIGSTOP)"
    ended = run(tmp_path, 3, *QUICK, "--timeout", str(LIMIT), before=before, env={"AT_THE_END": at_the_end})
    assert ended.status == 3
    assert any(re.fullmatch(r"ddlbench: error: rank [02] .*: ending MPI did not .* 3 s", line) for line in ended.told)
    assert record(tmp_path)["finished"] is True


def test_a_run_that_stalled_is_gone_on_with(mpirun, tmp_path):
    several = ("-b", "8", "-e", "1K", "-i", "8", "-a", "ring", "-n", "100", "--passes", "1", "--out", "out")
    points = tmp_path / "out" / "points.jsonl"
    ended = run(
        tmp_path, 3, *several, "--timeout", str(LIMIT), fault=send(signal.SIGSTOP, 2),
        when=lambda _: points.exists() and points.read_text().count("\n") > 2,
    )  # fmt: skip
    there = points.read_bytes()
    assert ended.status == 3
    assert record(tmp_path)["fault"]["silent"] == [2]
    assert 2 < there.count(b"\n") < 128
    done = mpirun(
        3, sys.executable, "-m", "ddlbench", "sweep", "--resume", "out", "--timeout", "30", cwd=tmp_path, timeout=120
    )
    assert done.status == 0, done.stderr
    assert points.read_bytes().startswith(there)
    assert points.read_bytes().count(b"\n") == 128
    assert (record(tmp_path)["fault"], record(tmp_path)["finished"]) == (None, True)


def test_ranks_that_sleep_are_not_taken_for_stuck(tmp_path):
    ended = run(
        tmp_path, 3, "-a", "ring", "--sizes", "8", "--ranks-per-node", "2", "--ci", "0.000001", "--max-seconds", "5",
        "--passes", "1", "--out", "out", "--timeout", str(LIMIT),
    )  # fmt: skip
    assert (ended.status, ended.told) == (0, [])


def test_an_interrupt_ends_ranks_that_are_stuck_in_mpi(tmp_path):
    def fault(pids: dict[int, int], mpirun: int) -> None:
        os.kill(pids[1], signal.SIGSTOP)
        time.sleep(1)
        os.kill(mpirun, signal.SIGINT)

    ended = run(tmp_path, 3, *LONG, "-a", "ring", "--timeout", "none", fault=fault)
    assert ended.status != 0
    assert ended.seconds - 1 < INTERRUPT_SECONDS


LIBRARY = """
import sys
import numpy as np
import ddlbench
with ddlbench.Communicator() as comm:
    comm.allreduce(np.ones(4))
    if comm.rank == 1:
        {fault}
    comm.allreduce(np.ones(4))
"""


@pytest.mark.parametrize("fault", ["raise ValueError('mine')", "sys.exit(7)"])
def test_a_program_of_ones_own_is_ended_by_mpi4py_when_a_rank_raises(mpirun, tmp_path, fault):
    (tmp_path / "program.py").write_text(LIBRARY.format(fault=fault))
    done = mpirun(3, sys.executable, "-m", "mpi4py", "program.py", cwd=tmp_path, timeout=30)
    assert done.status not in (0, None)
