"""`ddlbench launch` from its words to its exit status, with doubles for launchers: nothing here starts MPI."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import synthetic
from ddlbench.cli import launching, main
from ddlbench.launch import commands, heartbeat, running
from ddlbench.launch.allocation import cores
from ddlbench.records import Store

SCHEDULERS = ("SLURM_", "LSB_", "PBS_", "OMPI_", "PMI_", "PMIX_", "PRTE_", "I_MPI_", "HYDRA_", "DDLBENCH_", "JSM_")
SLURM = {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n[0-3]", "SLURM_TASKS_PER_NODE": "2(x4)"}
EVERY_RANK = '#!/bin/sh\nwhile [ "$1" != env ]; do shift; done\nexec "$@"\n'
"""A launcher that starts one process of what stands behind `env`."""


@pytest.fixture(autouse=True)
def _nobody_s_job(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(SCHEDULERS) or name == "PYTHONPATH":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands, "is_root", lambda: False)


@pytest.fixture
def program(tmp_path):
    """Give a function that writes an executable file and returns its path."""

    def write(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def launch(monkeypatch):
    """Give a function that runs `ddlbench launch` with some words, as from a shell."""

    def run(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["ddlbench", "launch", *words])
        return main(["launch", *words])

    return run


def dry(capsys, launch, *words: str) -> list[str]:
    """Return the words of the command that a dry run prints."""
    assert launch("--dry-run", *words) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return shlex.split(out)


# ---- Dry runs ------------------------------------------------------------------------------------------------------


def test_a_dry_run_prints_the_command_of_a_job_and_its_host_file_is_there(launch, capsys, monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    words = dry(capsys, launch, "--mpi", "openmpi5", "--", "ddlbench", "sweep", "--out", "results")
    assert words[0] == "mpirun"
    assert Path(words[words.index("--hostfile") + 1]).read_text() == "".join(f"n{at} slots=2\n" for at in range(4))
    env = words.index("env")
    assert words[env : env + 3] == ["env", "DDLBENCH_EXPECT_RANKS=8", "DDLBENCH_EXPECT_NODES=4"]
    assert words[-3:] == ["sweep", "--out", "results"]
    assert not Path("results").exists()
    assert not Path("reports").exists()


@pytest.mark.parametrize(
    ("mpi", "start", "hostfile"),
    [
        ("openmpi4", ["mpirun", "--hostfile"], "n0 slots=2\n"),
        ("spectrum", ["mpirun", "--hostfile"], "n0 slots=2\n"),
        ("mpich", ["mpiexec.hydra", "-f"], "n0:2\n"),
        ("intel", ["env", "I_MPI_JOB_RESPECT_PROCESS_PLACEMENT=0", "mpiexec.hydra", "-machinefile"], "n0:2\n"),
    ],
)
def test_a_dry_run_knows_libraries_that_are_not_installed(launch, capsys, mpi, start, hostfile):
    words = dry(capsys, launch, "-H", "n0:2,n1:2", "--mpi", mpi, "--", "ddlbench", "sweep")
    assert words[: len(start)] == start
    assert Path(words[len(start)]).read_text().startswith(hostfile)


def test_a_dry_run_in_an_lsf_job_of_spectrum_mpi_uses_jsrun(launch, capsys, monkeypatch):
    monkeypatch.setenv("LSB_JOBID", "9")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "batch1 1 a 42 b 42")
    given = ("--mpi", "spectrum", "--gpus-per-node", "6", "--mode", "p:6x2")
    words = dry(capsys, launch, *given, "--", "ddlbench", "sweep")
    assert words[:7] == ["jsrun", "--nrs", "2", "--rs_per_host", "1", "--tasks_per_rs", "6"]
    assert words[words.index("-a") + 1] == "p:6x2,mpi"


def test_a_dry_run_in_a_pbs_job(launch, capsys, monkeypatch, tmp_path):
    (tmp_path / "nodes").write_text("a\na\nb\nb\n")
    monkeypatch.setenv("PBS_NODEFILE", str(tmp_path / "nodes"))
    words = dry(capsys, launch, "--mpi", "mpich", "--", "ddlbench", "sweep")
    assert words[words.index("-n") + 1] == "4"


def test_a_printed_command_is_one_that_a_shell_reads_back(launch, capsys, program, monkeypatch):
    strange = program("a dir/it's; $x", "#!/bin/sh\n")
    monkeypatch.setenv("NCCL_DEBUG", "a b;c")
    words = dry(capsys, launch, "-H", "n0:1,n1:1", "--mpi", "mpich", "--", strange, "$HOME", "a;b", "*")
    assert words[-4:] == [strange, "$HOME", "a;b", "*"]
    assert "NCCL_DEBUG=a b;c" in words


def test_a_printed_command_is_whole_and_runs_in_another_shell(launch, capsys, program, monkeypatch):
    monkeypatch.setattr(commands, "is_root", lambda: True)
    monkeypatch.setenv(commands.ROOT_VARIABLES[1], "2")
    double = program("mpirun", '#!/bin/sh\nenv | grep -o "_AS_ROOT.*" | sort\n' + EVERY_RANK.partition("\n")[2])
    assert launch("--dry-run", "--mpi", "openmpi5", "--launcher", double, "-n", "1", "--", "echo", "a  b") == 0
    done = subprocess.run(["sh", "-c", capsys.readouterr().out], capture_output=True, text=True, check=True)
    root = ["_AS_ROOT=1", "_AS_ROOT=1", "_AS_ROOT_CONFIRM=1", "_AS_ROOT_CONFIRM=2"]
    assert done.stdout.splitlines() == [*root, "a  b"]


def test_ranks_that_share_cores_are_not_pinned_may_be_more_than_cores_and_that_is_said(launch, capsys):
    ranks = cores() + 1
    options = ("-H", f"localhost:{ranks}", "--mpi", "openmpi5")
    assert launch("--dry-run", *options, "--", "ddlbench", "sweep") == 0
    out, err = capsys.readouterr()
    assert f" -n {ranks} --map-by slot:oversubscribe --bind-to none --mca mpi_yield_when_idle 1 " in out
    assert f"# launch: {ranks} ranks share the " in err
    assert launch("--dry-run", "-H", f"localhost:{cores()}", "--mpi", "openmpi5", "--", "ddlbench", "sweep") == 0
    assert "share" not in capsys.readouterr().err


@pytest.mark.parametrize("dashes", [["--"], []])
def test_options_of_the_command_are_the_command_s_with_or_without_dashes_before_it(launch, capsys, dashes):
    words = dry(capsys, launch, "-H", "n0:1", "--mpi", "mpich", *dashes, "ddlbench", "sweep", "-n", "5", "--out", "x")
    assert words[-5:] == ["sweep", "-n", "5", "--out", "x"]


# ---- The sweep that is started -------------------------------------------------------------------------------------


def test_a_sweep_without_a_place_for_its_results_is_given_one(launch, capsys):
    words = dry(capsys, launch, "-H", "n0:1", "--mpi", "mpich", "--", "ddlbench", "sweep")
    assert re.fullmatch(r"reports/sweep-\d{8}-\d{6}", words[-1])
    assert words[-2] == "--out"
    assert dry(capsys, launch, "-H", "n0:1", "--mpi", "mpich", "--", "ddlbench", "sweep", "--resume", "x")[-1] == "x"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["-a", "p:2x4,mpi", "--grid", "2x4"]),
        (["-a", "ring"], ["-a", "ring", "-a", "p:2x4", "--grid", "2x4"]),
        (["--grid", "4x2"], ["--grid", "4x2", "-a", "p:2x4,mpi"]),
    ],
)
def test_a_mode_is_measured_on_its_grid_beside_what_was_asked_for(launch, capsys, given, expected):
    options = ("-H", "n[0-3]:2", "--mpi", "mpich", "--mode", "p:2x4")
    words = dry(capsys, launch, *options, "--", "ddlbench", "sweep", *given, "--out", "x")
    begin = words.index("sweep") + 1
    assert [word for word in words[begin:] if word not in ("--out", "x")] == expected


def test_the_sweep_takes_what_a_mode_gives_it(launch, capsys):
    from ddlbench.cli.sweep import command

    words = dry(capsys, launch, "-H", "n[0-3]:2", "--mpi", "mpich", "--mode", "b:2x4", "--", "ddlbench", "sweep")
    given = command.make_context("sweep", words[words.index("sweep") + 1 :]).params
    assert (given["algorithms"], given["grid"]) == (("b:2x4,mpi",), "2x4")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--", "no-such-program"], ["'no-such-program'", "not a program"]),
        (["--", "ddlbench", "sweep", "--sizess", "8"], ["--sizess", "--sizes"]),
        (["-H", "a:2", "--mode", "p:2", "--", "python3", "train.py"], ["--mode p:2", "python3"]),
        (["--ranks-per-node", "0", "--", "ddlbench", "sweep"], ["--ranks-per-node", "0"]),
        (["-n", "abc", "--", "ddlbench", "sweep"], ["'-n'", "'abc'", "a whole number from 1"]),
        (["--nodes", "9" * 5000, "--", "ddlbench", "sweep"], ["'--nodes'", "a whole number from 1 to 999999999"]),
        (["--check-seconds", "nan", "--", "true"], ["'--check-seconds'", "'nan'", "seconds from 1 to 1,000,000"]),
        (["--check-seconds", "inf", "--", "true"], ["'--check-seconds'", "'inf'", "seconds from 1 to 1,000,000"]),
        (["--check-seconds", "1e7", "--", "true"], ["'--check-seconds'", "'1e7'", "seconds from 1 to 1,000,000"]),
        (["--check-seconds", "0.5", "--", "true"], ["'--check-seconds'", "'0.5'", "seconds from 1 to 1,000,000"]),
        (["--check-seconds", "soon", "--", "true"], ["'--check-seconds'", "'soon'", "seconds from 1 to 1,000,000"]),
        (["-H", "a:1,b:1", "--mode", "p:2x1", "--", "ddlbench", "sweep"], ["'p:2x1'", "1 on each of 2 nodes"]),
        (["-H", "a", "--hostfile", "f", "--", "ddlbench", "sweep"], ["-H a and --hostfile f both name the hosts"]),
        (["-H", "a;b", "--", "ddlbench", "sweep"], ["'a;b'"]),
        (["--hostfile", "gone", "--", "ddlbench", "sweep"], ["gone cannot be read"]),
        (["-H", "nowhere.invalid:1", "--mpi", "openmpi5", "--", "ddlbench", "sweep"], ["nowhere.invalid"]),
        (["--mpi", "openmp5", "--", "ddlbench", "sweep"], ["'openmp5'", "'openmpi5'"]),
        (["-n", "100000", "--", "ddlbench", "sweep"], ["100000", "--oversubscribe"]),
        (["--nodes", "2", "--", "ddlbench", "sweep"], ["--nodes 2", "this machine has 1"]),
        ([], ["COMMAND"]),
    ],
)
def test_a_mistake_is_one_line_and_status_2(launch, capsys, words, parts, monkeypatch):
    monkeypatch.setattr(running, "run", None)
    assert launch(*words) == 2
    out, err = capsys.readouterr()
    said = [line for line in err.splitlines() if not line.startswith("# ")]
    assert out == ""
    assert len(said) == 1
    assert said[0].startswith("ddlbench: error: ")
    assert [part for part in parts if part not in said[0]] == []


@pytest.mark.parametrize("name", ["DDLBENCH_EXPECT_RANKS", "DDLBENCH_EXPECT_NODES"])
def test_what_the_environment_expects_is_refused_by_the_name_of_its_variable(monkeypatch, capsys, name):
    monkeypatch.setenv(name, "abc")
    assert main(["sweep"]) == 2
    assert capsys.readouterr().err == (
        f"ddlbench: error: Invalid value for {name}: 'abc': expected a whole number from 1 to 999999999\n"
    )
    option = f"--{name.removeprefix('DDLBENCH_').lower().replace('_', '-')}"
    assert main(["sweep", option, "0"]) == 2
    assert f"Invalid value for '{option}': '0': expected a whole number" in capsys.readouterr().err


def test_the_help_of_a_sweep_starts_nothing(launch, capsys, monkeypatch):
    monkeypatch.setattr(running, "run", None)
    assert launch("--", "ddlbench", "sweep", "--help") == 0
    assert "Usage: ddlbench sweep" in capsys.readouterr().out


# ---- Runs, with a double of the launcher ---------------------------------------------------------------------------


def test_the_command_that_is_printed_is_the_one_that_runs(launch, capfd, program):
    double = program("launcher", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    assert launch("--launcher", double, "-n", "1", "--", "true", "a b") == 0
    out, err = capfd.readouterr()
    printed = next(line for line in err.splitlines() if double in line).removeprefix("# launch: ")
    assert shlex.split(printed)[1:] == out.splitlines()


def test_all_that_a_sweep_is_told_is_in_the_command_that_is_printed(launch, capfd, program, monkeypatch):
    monkeypatch.setattr(commands, "is_root", lambda: True)
    place = Path("environ").absolute()
    fake = program("ddlbench", f"#!/bin/sh\nenv >{place}\n")
    launch("--launcher", program("launcher", EVERY_RANK), "-n", "1", "--", fake, "sweep", "--out", "results")
    mine = {line for line in place.read_text().splitlines() if "=" in line and not line.startswith(("_=", "PWD="))}
    new = mine - {f"{name}={value}" for name, value in os.environ.items()}
    printed = next(line for line in capfd.readouterr().err.splitlines() if fake in line)
    assert "DDLBENCH_EXPECT_RANKS=1" in new
    assert new - set(shlex.split(printed)) - {"SHLVL=0", "SHLVL=1", "OLDPWD="} == set()


def test_another_program_has_the_status_that_its_launcher_says(launch, capfd, program):
    double = program("launcher", EVERY_RANK)
    assert launch("--launcher", double, "-n", "1", "--", "sh", "-c", "exit 7") == 7
    assert launch("--launcher", double, "-n", "1", "--", "sh", "-c", 'exit "$DDLBENCH_EXPECT_NODES"') == 1


SWEEP = """#!{python}
import sys
sys.path[:0] = {path!r}
import synthetic
from ddlbench.records import Store
with Store.create(sys.argv[-1], synthetic.run(finished={finished}), overwrite=True) as store:
    store.append(synthetic.point())
sys.exit({status})
"""


def sweep(program, **values) -> str:
    """Write a double of ddlbench whose sweep leaves a run in the folder of its last word."""
    return program("ddlbench", SWEEP.format(python=sys.executable, path=sys.path, **values))


@pytest.mark.parametrize(
    ("finished", "status", "expected"), [(True, 0, 0), (True, 1, 1), (False, 0, 3), (False, 14, 3), (False, 1, 3)]
)
def test_a_sweep_is_judged_by_the_record_it_leaves(launch, capfd, program, finished, status, expected):
    double, fake = program("launcher", EVERY_RANK), sweep(program, finished=finished, status=status)
    assert launch("--launcher", double, "-n", "1", "--", fake, "sweep", "--out", "results") == expected
    err = capfd.readouterr().err
    again = f"ddlbench launch --launcher {double} -n 1 -- ddlbench sweep --resume results"
    assert (again in err) == (expected == 3)


def test_a_sweep_that_leaves_nothing_is_incomplete_though_an_older_run_is_there(launch, capfd, program):
    with Store.create("results", synthetic.run(finished=True)):
        pass
    double, fake = program("launcher", EVERY_RANK), program("ddlbench", "#!/bin/sh\n")
    assert launch("--launcher", double, "-n", "1", "--", fake, "sweep", "--overwrite", "--out", "results") == 3
    assert "nothing was written to results" in capfd.readouterr().err


def test_a_sweep_that_shows_no_sign_of_life_any_more_is_ended(launch, capfd, program, monkeypatch):
    monkeypatch.setattr(heartbeat, "GRACE_SECONDS", 0.5)
    monkeypatch.setattr(running, "GRACE_SECONDS", 0.2)
    double = program("launcher", EVERY_RANK)
    fake = program("ddlbench", '#!/bin/sh\necho \'{"limit_s": 0}\' >"$DDLBENCH_HEARTBEAT"\nsleep 60\n')
    assert launch("--launcher", double, "-n", "1", "--", fake, "sweep", "--out", "there/results") == 3
    assert re.search(r"not complete: no sign of life for \d+ s", capfd.readouterr().err)
    assert list(Path("there").iterdir()) == []


def test_several_hosts_are_asked_before_they_are_used_unless_that_is_not_wanted(launch, monkeypatch, capfd, program):
    asked = []
    monkeypatch.setattr(launching, "check_resolve", lambda _: None)
    monkeypatch.setattr(launching, "_check", lambda job, seconds: asked.append((len(job.layout.hosts), seconds)))
    double = program("launcher", EVERY_RANK)
    start = ("--launcher", double)
    assert launch(*start, "-H", "n0:1,n1:1", "--", "true") == 0
    assert launch(*start, "-H", "n0:1,n1:1", "--check-seconds", "5", "--", "true") == 0
    assert launch(*start, "-H", "n0:1,n1:1", "--no-check", "--", "true") == 0
    assert launch(*start, "-n", "1", "--", "true") == 0
    assert launch(*start, "-H", "localhost:1", "--", "true") == 0
    assert launch(*start, "-H", "n0:1", "--", "true") == 0  # the one host is not this one
    assert asked == [(2, 60.0), (2, 5.0), (1, 60.0)]


def test_hosts_that_do_not_answer_keep_a_job_from_starting_and_the_launcher_s_words_are_shown(
    launch, monkeypatch, capfd, program
):
    monkeypatch.setattr(launching, "check_resolve", lambda _: None)
    monkeypatch.setattr(running, "run", None)
    double = program("launcher", "#!/bin/sh\necho 'launcher: no way to n1'\nexit 5\n")
    assert launch("--launcher", double, "-H", "n0:1,n1:1", "--", "true") == 2
    err = capfd.readouterr().err
    assert "# launch: | launcher: no way to n1" in err
    assert "ddlbench: error: no answer from n0, n1 (the launcher ended with status 5)" in err


def test_a_launch_under_a_launcher_is_refused_once(launch, monkeypatch, capfd):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    assert launch("--", "true") == 2
    assert "itself started 4 times" in capfd.readouterr().err
