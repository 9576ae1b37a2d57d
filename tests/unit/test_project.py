"""What holds for the repository as a whole."""

import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import ddlbench

TOP = Path(__file__).resolve().parents[2]
# Written so that this file does not match itself.
OF_ONE_MACHINE = re.compile(r"/(?:[w]ork|[f]arm|[r]oot|[h]ome|[U]sers)/\w|[p]ypi[.]org|[d]eb[.]debian|[n]pmjs")
FOLDERS = {".ci", "configs", "cuda", "ddlbench", "docs", "pyx", "reports", "tests"}
DRAWERS = {"common", "helpers", "misc", "util", "utils"}


def files() -> list[Path]:
    """Return the files of the repository, tracked or about to be; skips outside a git checkout."""
    if not (TOP / ".git").exists():
        pytest.skip("not a git checkout")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, cwd=TOP, capture_output=True, text=True, check=True)
    return [path for name in done.stdout.split("\0") if name and (path := TOP / name).is_file()]


def test_no_file_names_a_path_of_one_machine_or_a_registry():
    texts = {path: path.read_text(errors="ignore") for path in files()}
    assert {
        str(path.relative_to(TOP)): found[0] for path, text in texts.items() if (found := OF_ONE_MACHINE.search(text))
    } == {}


def test_the_top_level_stays_as_it_is():
    assert {path.relative_to(TOP).parts[0] for path in files() if path.parent != TOP} <= FOLDERS


def test_no_file_is_a_drawer_of_leftovers():
    assert [path for path in files() if path.stem in DRAWERS] == []


def test_the_version_stands_in_one_place():
    stated = re.compile(r"^(?:__version__|version)\s*[:=]\s*[\"']", re.MULTILINE)
    places = [path for path in files() if path.suffix in (".py", ".toml") and stated.search(path.read_text())]
    assert places == [TOP / "ddlbench" / "__init__.py"]
    assert importlib.metadata.version("ddlbench") == ddlbench.__version__


def test_the_changelog_tells_of_this_version_or_the_next():
    headings = re.findall(r"^## \[(.+?)\]", (TOP / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] in ("Unreleased", ddlbench.__version__)


def test_every_cython_source_is_built_and_typed():
    setup = (TOP / "setup.py").read_text()
    for source in (TOP / "pyx").glob("*.pyx"):
        assert f'"pyx/{source.name}"' in setup
        assert (TOP / "ddlbench" / f"_{source.stem}.pyi").exists()


def test_the_public_names_load_when_they_are_used():
    program = (
        "import ddlbench, sys; ddlbench.Communicator; import ddlbench.comm as c; sys.exit(ddlbench.Plan is not c.Plan)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    assert {"Communicator", "Plan"} <= set(dir(ddlbench))
    with pytest.raises(AttributeError, match="Comunicator"):
        _ = ddlbench.Comunicator


def test_the_ddlbench_command_exists():
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="ddlbench")
    assert callable(entry.load())


# ---- The Makefile ----------------------------------------------------------------------------------------------------


def make(*arguments: str, folder: Path = TOP, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run make on this repository's Makefile in `folder`, dry, as if from a shell of its own."""
    ours = ("MAKE", "MFLAGS", "MPI", "NP", "VENV", "PYTHON", "LAUNCH", "SLURM_", "LSB_", "PBS_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | environment
    argv = ["make", "-n", "-f", str(TOP / "Makefile"), *arguments]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["NP=none"], "NP=none: expected a number of ranks"),
        (["NP=0"], "NP=0: expected a number of ranks"),
        (["MPI=sytem"], "MPI=sytem: expected system, wheel or auto"),
        (["MPICC=no-such-mpicc"], "MPICC=no-such-mpicc is not a program"),
    ],
)
def test_make_refuses_a_wrong_value_before_it_does_anything(tmp_path, arguments, said):
    done = make("bench", *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_make_mpi_system_without_mpicc_says_what_to_do(tmp_path):
    bare = tmp_path / "bin"
    bare.mkdir()
    for program in ("sh", "make", "id", "cat", "env", "nproc"):
        found = subprocess.run(["sh", "-c", f"command -v {program}"], capture_output=True, text=True, check=True)
        (bare / program).symlink_to(found.stdout.strip())
    done = make("bench", "MPI=system", folder=tmp_path, PATH=str(bare))
    assert done.returncode == 2
    assert "there is no mpicc on PATH" in done.stderr
    assert "MPI=wheel" in done.stderr


def test_make_leaves_an_environment_of_the_users_own_alone(tmp_path):
    (tmp_path / ".venv").mkdir()
    done = make("bench", folder=tmp_path)
    assert done.returncode == 2
    assert ".venv was not made by this Makefile" in done.stderr


def test_make_makes_an_environment_of_another_clone_anew(tmp_path):
    for file in ("pyproject.toml", "setup.py", "ddlbench/__init__.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / ".made-for").write_text("/somewhere/else/.venv /somewhere/else/.venv/bin/mpicc\n")
    for stamp in ("mpi", "extensions", "package", "test"):
        (tmp_path / ".venv" / f".stamp-{stamp}").touch()
    steps = re.findall(r"set-up: ([\w.]+ [\w.]+ ?\w*)", make("test", folder=tmp_path).stdout)
    assert steps[0] == "making .venv anew"
    assert {"compiling the extensions", "installing ddlbench in", "installing the tools"} <= set(steps)


@pytest.mark.parametrize(
    ("given", "job", "expected"),
    [
        ([], {}, ["--oversubscribe", "-n", "2"]),
        (["NP=4"], {}, ["--oversubscribe", "-n", "4"]),
        ([], {"SLURM_JOB_ID": "7"}, []),
        ([], {"LSB_JOBID": "7"}, []),
        ([], {"PBS_NODEFILE": "/x"}, []),
        (["NP=4"], {"SLURM_JOB_ID": "7"}, ["-n", "4"]),
        (["MPIRUN=srun --mpi=pmix"], {}, ["--oversubscribe", "-n", "2", "--launcher", "srun --mpi=pmix"]),
        (["LAUNCH=--nodes 2"], {"SLURM_JOB_ID": "7"}, ["--nodes", "2"]),
    ],
)
def test_make_bench_goes_through_launch_which_knows_the_job(tmp_path, given, job, expected):
    done = make("bench", "MPI=wheel", *given, **job)
    words = shlex.split(next(line for line in done.stdout.splitlines() if " launch " in line))
    at = words.index("--")
    assert [words[1], *words[2:at]] == ["launch", *expected]
    assert words[at + 1 : at + 3] == ["ddlbench", "sweep"]


def test_make_help_lists_the_targets():
    done = subprocess.run(["make", "-s", "-C", str(TOP), "help"], capture_output=True, text=True, check=True)
    targets = ("bench", "check", "clean", "distclean", "microbench", "report", "test", "test-slurm")
    assert [target for target in targets if f"make {target} " not in done.stdout] == []


def test_a_source_distribution_has_what_the_tests_read():
    (line,) = (line for line in (TOP / "MANIFEST.in").read_text().splitlines() if "-include tests " in line)
    kinds = {path.suffix for path in files() if path.relative_to(TOP).parts[0] == "tests"} - {".md"}
    assert {f"*{kind}" for kind in kinds} == set(line.split()[2:])
