"""The command line without MPI: what it loads, what it says, and how it ends."""

import json
import os
import subprocess
import sys

import pytest

from ddlbench import __version__
from ddlbench.cli import VERBS, main
from ddlbench.cli.catalogue import proof
from ddlbench.errors import UsageError

LAUNCHED = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "JSM_NAMESPACE_SIZE", "SLURM_STEP_NUM_TASKS"):
        monkeypatch.delenv(name, raising=False)


def loaded(*arguments):
    """Return the top-level modules that a fresh `ddlbench` with these arguments has loaded when it ends."""
    program = (
        "import sys, json; from ddlbench.cli import main; main(sys.argv[1:]); "
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [("--help",), ("sweep", "--help"), ("--version",), ("swep",)])
def test_help_and_mistakes_load_nothing_heavy(arguments):
    assert loaded(*arguments) & {"numpy", "mpi4py", "pandas", "rich", "plotly", "jinja2"} == set()


def test_the_help_names_every_verb(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert [verb for verb in VERBS if f"\n  {verb} " not in text] == []


def test_without_a_verb_there_is_help(capsys):
    assert main([]) == 0
    assert "Usage: ddlbench" in capsys.readouterr().out


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ddlbench {__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb, capsys):
    assert main([verb, "--help"]) == 0
    assert f"Usage: ddlbench {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["swep"], ["'swep'", "'sweep'"]),
        (["sweep", "--sizess", "8"], ["--sizess", "--sizes"]),
        (["sweep", "a.toml", "b.toml"], ["b.toml"]),
        (["verify"], ["ALGORITHM"]),
        (["verify", "rnig"], ["'rnig'", "'ring'"]),
        (["verify", "ring", "--ranks", "none"], ["--ranks", "'none'"]),
        (["list", "--ranks", "9" * 5000], ["--ranks", "a whole number from 1 to 65536"]),
        (["verify", "ring", "--grid", "4y2"], ["'4y2'", "4x2"]),
        (["verify", "ring", "--grid", "4x2", "--ranks", "9"], ["8", "9"]),
        (["verify", "mpi"], ["'mpi'", "vendor"]),
        (["verify", "./nowhere.py:ring"], ["'./nowhere.py'"]),
        (["list", "--grid", "0x2"], ["'0x2'"]),
        (["report", "no-such-folder"], ["no-such-folder"]),
    ],
)
def test_a_mistake_is_one_line_on_standard_error_and_status_2(arguments, parts, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ddlbench: error: ")
    assert err.count("\n") == 1
    assert [part for part in parts if part not in err] == [], err


def test_a_rank_that_is_not_the_first_says_nothing(monkeypatch, capsys):
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("ddlbench.cli.ending.LINGER_SECONDS", 0)
    assert main(["list"]) == 0
    assert main(["--help"]) == 0
    assert main(["verify", "rnig"]) == 0
    assert main(["swep"]) == 2
    assert capsys.readouterr() == ("", "")


def test_the_list_has_a_line_for_every_algorithm_with_its_cost(capsys):
    from ddlbench.algorithms import available

    assert main(["list", "--grid", "4x2"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert {algorithm.name for algorithm in available()} | {"mpi"} <= set(lines)
    assert lines["ring"].split()[1:4] == ["14", "1.75", "3.5"]


def test_a_proof_is_one_line_of_figures(capsys):
    assert main(["verify", "hierarchical", "--grid", "4x64"]) == 0
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    for part in ("256 ranks", "4x64", "rounds", "moves", "1.992 vectors", "s\n"):
        assert part in line


def test_a_grid_in_the_algorithm_says_for_how_many_ranks_it_is_proved(capsys):
    assert main(["verify", "multi-ring:4x8x2"]) == 0
    assert "64 ranks" in capsys.readouterr().out


BROKEN = """
from dataclasses import replace
from ddlbench.algorithms.ring import ALGORITHM
from ddlbench.schedule.move import Phase

def phases(grid, ranks, **parameters):
    for phase in ALGORITHM.phases(grid, ranks, **parameters):
        yield Phase(phase.rounds, phase.steps[:-1])

LOSSY = replace(ALGORITHM, name="lossy", phases=phases, costs=None)
"""


def test_a_refused_algorithm_is_told_with_the_round_and_the_rank(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(BROKEN)
    assert main(["verify", f"{tmp_path / 'mine.py'}:LOSSY", "--ranks", "4"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "refused" in err
    assert "round 0" in err
    assert "rank" in err


def test_an_unexpected_error_has_its_traceback_and_status_1(monkeypatch, capsys):
    def broken(*_):
        raise ZeroDivisionError("of mine")

    monkeypatch.setattr("ddlbench.cli.catalogue.listing", broken)
    assert main(["list"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.splitlines()[-1] == "ddlbench: error: unexpected ZeroDivisionError: of mine"


def test_an_interrupt_has_no_traceback_and_status_130(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ddlbench.cli.catalogue.listing", interrupted)
    assert main(["list"]) == 130
    assert capsys.readouterr().err.strip() == "ddlbench: interrupted"


def test_a_terminal_without_unicode_still_gets_the_list():
    environ = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "ddlbench", "list"], capture_output=True, check=False, env=environ)
    assert done.returncode == 0, done.stderr


def test_a_proof_too_large_for_memory_is_refused_with_both_amounts(monkeypatch):
    monkeypatch.setattr("ddlbench.cli.catalogue.available_nbytes", lambda: 1 << 20)
    with pytest.raises(UsageError, match=r"ring on 512 ranks takes about 0 GiB, 0 are free here"):
        proof("ring", "512", None)


def test_a_grid_of_too_many_ranks_is_refused():
    with pytest.raises(UsageError, match="--grid 512x512: 262144 ranks, expected at most 65536"):
        proof("ring", None, "512x512")
