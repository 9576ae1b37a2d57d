"""The job scripts: each starts `ddlbench launch` once, in the right folder, and its exit status is launch's."""

import os
import subprocess
from pathlib import Path

import pytest

JOBS = {
    "slurm.sh": ({"SLURM_JOB_ID": "7", "SLURM_SUBMIT_DIR": "{}"}, "reports/slurm-7"),
    "lsf.sh": ({"LSB_JOBID": "8", "LS_SUBCWD": "{}"}, "reports/lsf-8"),
    "pbs.sh": ({"PBS_JOBID": "9.pbs01", "PBS_O_WORKDIR": "{}"}, "reports/pbs-9"),
}
DOUBLE = '#!/bin/sh\npwd\nprintf "%s\\n" "$0" "$@"\nexit 3\n'


@pytest.fixture(params=JOBS)
def job(request, repository, tmp_path):
    """Give a function that runs a job script as its scheduler does, with variables of the user's over its own."""
    variables, out = JOBS[request.param]
    for folder in (".venv", "other"):
        program = tmp_path / folder / "bin" / "ddlbench"
        program.parent.mkdir(parents=True)
        program.write_text(DOUBLE)
        program.chmod(0o755)

    def run(*arguments, **given):
        theirs = {name: value.format(tmp_path) for name, value in variables.items()}
        return subprocess.run(
            ["bash", str(repository / "configs" / "jobs" / request.param), *arguments],
            env={"PATH": os.environ["PATH"], **theirs, **given},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )

    run.out, run.name = out, request.param
    return run


def launched(done) -> list[str]:
    """Return the words that launch was called with, without a number of ranks that the script gives."""
    words = done.stdout.splitlines()[2:]
    at = words.index("--")
    return ["launch", *words[at - len(words) :]] if words[0] == "launch" else words


def test_a_job_script_launches_a_sweep_where_it_was_submitted_and_ends_as_launch_does(job, tmp_path):
    done = job()
    assert (done.returncode, done.stderr) == (3, "")
    folder, program = done.stdout.splitlines()[:2]
    assert (folder, tmp_path / program) == (str(tmp_path), tmp_path / ".venv" / "bin" / "ddlbench")
    assert launched(done) == ["launch", "--", "ddlbench", "sweep", "configs/sweeps/quick.toml", "--out", job.out]


def test_folder_environment_sweep_and_place_are_variables_and_options_go_on_to_the_sweep(job, tmp_path):
    given = {
        "DDLBENCH_DIR": str(tmp_path / "other"),
        "VENV": str(tmp_path / "other"),
        "SWEEP": "my sweep",
        "OUT": "my out",
    }
    done = job("--sizes", "8", "a b", **given)
    assert done.stdout.splitlines()[:2] == [str(tmp_path / "other"), f"{tmp_path}/other/bin/ddlbench"]
    expected = ["launch", "--", "ddlbench", "sweep", "my sweep", "--out", "my out", "--sizes", "8", "a b"]
    assert launched(done) == expected


def test_launch_has_options_of_its_own(job):
    words = job(LAUNCH="--nodes 2 --no-check").stdout.splitlines()[2:]
    assert words[words.index("--") - 3 : words.index("--")] == ["--nodes", "2", "--no-check"]


def test_ranks_of_a_node_under_lsf_are_a_variable(repository, job):
    if job.name == "lsf.sh":
        words = job(PER_NODE="6").stdout.splitlines()
        assert words[2:5] == ["launch", "--gpus-per-node", "6"]


def test_a_script_that_finds_no_folder_fails(job):
    done = job(DDLBENCH_DIR="/nonexistent")
    assert done.returncode != 0
    assert done.stdout == ""


def test_every_job_script_is_tested(repository):
    assert sorted(path.name for path in Path(repository, "configs", "jobs").iterdir()) == sorted(JOBS)
