"""A real SLURM of four nodes: the job script, `ddlbench launch`, and every wrong way to start ranks in a job.

`make test-slurm` installs what is needed and runs this; it is no part of `make test`. Needs root, for SLURM's daemons.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddlbench.lab.start import missing
from ddlbench.launch.hosts import expanded

HERE = Path(__file__).parent
LISTS = "node[0-3]", "node[1-2,08-10]", "n[7,9],login1", "nid[00008-00011]", "node[099-101],a"
DDLBENCH = f"{sys.executable} -m ddlbench"
SHORT = "--sizes 8,4K -a ring,mpi -n 3 -w 1 --passes 1 --sync barrier"
LONG = "--sizes 8,4K -a ring,mpi -n 100000000 --passes 1 --sync barrier"
PATIENCE = 120


@dataclass(frozen=True)
class Finished:
    """How a command, or a job, ended: exit status, and what it wrote (a job: both as one)."""

    status: int
    stdout: str
    stderr: str = ""


class Slurm:
    """A SLURM that runs; commands run on its first node, in the folder `place`, which all nodes see."""

    def __init__(self, process: subprocess.Popen[str], place: Path) -> None:
        self.process, self.place = process, place

    def __call__(self, *argv: str, env: Mapping[str, str] | None = None) -> Finished:
        """Run a command to its end."""
        asked = {"argv": argv, "env": dict(env or {}), "cwd": str(self.place)}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return Finished(**json.loads(self.process.stdout.readline()))

    def batch(self, *words: str, env: Mapping[str, str] | None = None) -> int:
        """Submit a job with the words of sbatch and return its number."""
        done = self("sbatch", "--output", "job-%j.out", *words, env=env)
        assert done.status == 0, done.stderr
        return int(done.stdout.split()[-1])

    def ended(self, job: int) -> Finished:
        """Wait for the end of a job; ask squeue, as `sbatch -W` is slow to return."""
        deadline = time.monotonic() + PATIENCE
        while self("squeue", "-h", "-j", str(job)).stdout.strip():
            if time.monotonic() > deadline:
                self("scancel", str(job))
                pytest.fail(f"job {job} did not end\n{self.output(job)}")
            time.sleep(0.3)
        shown = self("scontrol", "show", "job", str(job)).stdout
        return Finished(int(re.search(r"ExitCode=(\d+):", shown)[1]), self.output(job))

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> Finished:
        """Submit a job and wait for its end."""
        return self.ended(self.batch(*words, env=env))

    def wrapped(self, line: str, *words: str) -> Finished:
        """Run a line of shell as a job of four nodes with two tasks each, or as `words` have it."""
        return self.run(*(words or ("-N4", "--ntasks-per-node=2")), "--wrap", line)

    def output(self, job: int) -> str:
        """Return what a job wrote."""
        path = self.place / f"job-{job}.out"
        return path.read_text() if path.exists() else ""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[Slurm]:
    """Give a SLURM of four nodes with two processors each."""
    if lacking := [name for name in ("slurmctld", "slurmd", "munged", "sbatch") if not shutil.which(name, path=SBIN)]:
        pytest.skip(f"no {', '.join(lacking)} here: make test-slurm installs them")
    if os.geteuid() != 0:
        pytest.skip("SLURM's daemons need root")
    if reason := missing():
        pytest.skip(f"no lab can run here: {reason}")
    place = tmp_path_factory.mktemp("slurm")
    argv = [sys.executable, str(HERE / "lab.py"), sys.executable, str(HERE / "cluster.py")]
    with (place / "cluster.err").open("wb") as errors:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"OMPI_MCA_osc": "^ucx", "PATH": SBIN},
            start_new_session=True,
        )
    try:
        if not process.stdout.readline():
            pytest.fail((place / "cluster.err").read_text())
        yield Slurm(process, place)
        process.stdin.close()
        assert process.wait(30) == 0, (place / "cluster.err").read_text()
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@pytest.fixture(autouse=True)
def _no_job_is_left(slurm) -> Iterator[None]:
    """End the jobs of a test that failed: the next one waits for the nodes."""
    yield
    slurm("scancel", "--user", "root")


SBIN = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def record(place: Path) -> dict:
    return json.loads((place / "run.json").read_text())


def hosts(place: Path) -> list[str]:
    return record(place)["topology"]["hosts"]


EVERYWHERE = ["node0", "node0", "node1", "node1", "node2", "node2", "node3", "node3"]


def test_the_job_script_leaves_a_finished_run_of_four_nodes_with_two_ranks_each(slurm, repository):
    env = {"DDLBENCH_DIR": str(repository), "VENV": sys.prefix, "OUT": str(slurm.place / "job")}
    done = slurm.run(str(repository / "configs" / "jobs" / "slurm.sh"), *SHORT.split(), env=env)
    assert done.status == 0, done.stdout
    place = slurm.place / "job"
    assert record(place)["finished"] is True
    assert hosts(place) == EVERYWHERE
    assert record(place)["topology"]["ranks_per_node"] == [2, 2, 2, 2]
    assert len((place / "results.csv").read_text().splitlines()) == 5
    assert (place / "report.html").exists()


def test_launch_takes_a_part_of_the_job(slurm):
    line = f"{DDLBENCH} launch --nodes 3 --ranks-per-node 1 -- ddlbench sweep {SHORT} --out part"
    done = slurm.wrapped(line)
    assert done.status == 0, done.stdout
    assert hosts(slurm.place / "part") == ["node0", "node1", "node2"]


def test_nodes_with_different_numbers_of_tasks_are_filled_one_after_the_other(slurm):
    line = f"{DDLBENCH} launch -- ddlbench sweep {SHORT} --out uneven"
    done = slurm.wrapped(line, "-N3", "-n5", "--distribution=block")
    assert done.status == 0, done.stdout
    assert hosts(slurm.place / "uneven") == ["node0", "node0", "node1", "node1", "node2"]


def test_launch_starts_ranks_by_srun_where_that_is_asked_for(slurm):
    line = f"{DDLBENCH} launch --no-check --launcher 'srun --mpi=pmix' -- ddlbench sweep {SHORT} --overwrite --out srun"
    for _ in range(3):  # PMIx of SLURM 22.05 ends one of 20 to 40 starts of Open MPI 5 in MPI_Init
        done = slurm.wrapped(line)
        if done.status == 0:
            break
        assert done.status != 0
        assert "complete" in done.stdout or "ddlbench: error" in done.stdout
    assert done.status == 0, done.stdout
    assert hosts(slurm.place / "srun") == EVERYWHERE


@pytest.mark.parametrize("mpi", ["none", "pmi2"])
def test_srun_that_starts_ranks_which_are_alone_is_refused_without_launch(slurm, mpi):
    done = slurm.wrapped(f"srun --mpi={mpi} -n8 {DDLBENCH} sweep {SHORT} --out alone")
    assert done.status == 2, done.stdout
    assert done.stdout.count("ddlbench: error: ") == 1
    variable = {"none": "SLURM_STEP_NUM_TASKS", "pmi2": "PMI_SIZE"}[mpi]
    assert f"the launcher says 8 ranks ({variable}=8) but MPI says 1" in done.stdout
    assert not (slurm.place / "alone").exists()


def test_srun_that_starts_ranks_which_are_alone_is_refused_by_launch_before_the_sweep(slurm):
    done = slurm.wrapped(f"{DDLBENCH} launch --launcher 'srun --mpi=none' -- ddlbench sweep {SHORT} --out alone")
    assert done.status == 2, done.stdout
    assert "the launcher started 4 ranks, but MPI says 1" in done.stdout


def test_one_rank_in_a_job_of_four_nodes_is_refused_where_eight_are_expected(slurm):
    line = f"srun -N1 -n1 mpirun {DDLBENCH} sweep {SHORT} --expect-ranks 8 --expect-nodes 4 --out one"
    done = slurm.wrapped(line)
    assert done.status != 0, done.stdout
    assert "expected 8 ranks (--expect-ranks or DDLBENCH_EXPECT_RANKS), but there is 1" in done.stdout
    assert not (slurm.place / "one").exists()


def test_one_rank_in_a_job_of_four_nodes_is_told_in_the_record_where_nothing_is_expected(slurm):
    done = slurm.wrapped(f"srun -N1 -n1 mpirun {DDLBENCH} sweep {SHORT} --out partial")
    assert done.status == 0, done.stdout
    flags = {flag["flag"]: flag["detail"] for flag in record(slurm.place / "partial")["trust"]}
    assert "1 of the 4 nodes" in flags["partial"]


def test_launch_under_srun_is_refused_with_the_way_out(slurm):
    done = slurm.wrapped(f"srun -N1 -n1 {DDLBENCH} launch -- ddlbench sweep {SHORT} --out under")
    assert done.status == 2
    assert "a step of SLURM on 1 of the 4 nodes" in done.stdout
    done = slurm.wrapped(f"srun -n8 {DDLBENCH} launch -- ddlbench sweep {SHORT} --out under")
    assert done.status == 2
    assert done.stdout.count("ddlbench: error: ddlbench launch was itself started 8 times") == 1


def test_a_run_that_loses_a_node_s_daemon_is_incomplete_and_can_be_gone_on_with(slurm):
    place = slurm.place / "lost"
    job = slurm.batch("-N4", "--ntasks-per-node=2", "--wrap", f"{DDLBENCH} launch -- ddlbench sweep {LONG} --out lost")
    deadline = time.monotonic() + PATIENCE
    while not (place / "points.jsonl").exists():
        assert time.monotonic() < deadline, slurm.output(job)
        time.sleep(0.2)
    time.sleep(1)
    assert slurm("pkill", "-9", "-n", "-x", "prted").status == 0
    done = slurm.ended(job)
    assert done.status == 3, done.stdout
    assert "the run is not complete" in done.stdout
    assert "--resume lost" in done.stdout
    assert record(place)["finished"] is False
    assert slurm("pgrep", "-f", "ddlbench sweep").stdout == ""


def test_make_bench_in_a_job_uses_all_of_it(slurm, repository):
    if Path(sys.prefix) != repository / ".venv":
        pytest.skip("not the environment that make uses")
    line = f"make -C {repository} bench OUT={slurm.place}/bench ARGS='{SHORT}'"
    done = slurm.wrapped(line)
    assert done.status == 0, done.stdout
    assert hosts(slurm.place / "bench") == EVERYWHERE


@pytest.mark.parametrize("text", LISTS)
def test_lists_of_hosts_are_written_out_as_scontrol_does(slurm, text):
    assert slurm("scontrol", "show", "hostnames", text).stdout.split() == expanded(text, "here")
