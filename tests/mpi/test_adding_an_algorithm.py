"""The part of docs/adding-an-algorithm.md that runs on ranks: the sweeps and the use from Python."""

import shlex
import sys
from pathlib import Path

import pytest

from page import blocks, commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-an-algorithm.md"
MEASURED, REFUSED = (command for command in reversed(list(commands(PAGE))) if command.line.startswith("mpirun -n 5 "))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with mine.py and bad.py."""
    (mine,) = (text for text in blocks(PAGE, "python") if "= flat_algorithm(" in text)
    before, after = (line[1:] for line in blocks(PAGE, "diff")[0].splitlines())
    (tmp_path / "mine.py").write_text(mine)
    (tmp_path / "bad.py").write_text(mine.replace(before, after))
    return tmp_path


def run(mpirun, folder, line):
    """Run a command of the page, which starts with `mpirun -n 5 ddlbench`."""
    launcher, option, ranks, program, *arguments = shlex.split(line)
    assert (launcher, option, program) == ("mpirun", "-n", "ddlbench")
    return mpirun(int(ranks), sys.executable, "-m", "ddlbench", *arguments, cwd=folder)


def untimed(table: str) -> list[list[str]]:
    """Return the fields of the table's lines without the three that are measured."""
    rows = (line.split() for line in table.splitlines() if line and not line.startswith("#"))
    return [[*row[:5], row[-1]] for row in rows]


def test_the_sweep_measures_and_checks_it(mpirun, folder):
    done = run(mpirun, folder, MEASURED.line)
    assert done.status == 0, done.stderr
    assert untimed(done.stdout) == untimed(MEASURED.output)
    assert [row[-1] for row in untimed(done.stdout)] == ["0"] * 4
    assert (folder / "bruck-5" / "report.html").exists()


def test_the_sweep_refuses_the_mistake_with_the_line_shown(mpirun, folder):
    done = run(mpirun, folder, REFUSED.line)
    assert done.status == 2
    assert done.stderr.splitlines()[0] == REFUSED.output.strip()
    assert done.stdout == ""


def test_python_uses_it_by_the_same_name(mpirun, folder):
    (text,) = (text for text in blocks(PAGE, "python") if "Communicator" in text)
    (folder / "use.py").write_text(text)
    done = mpirun(3, sys.executable, "use.py", cwd=folder)
    assert done.status == 0, done.stderr
    assert done.stdout.count("[3. 3. 3. 3. 3. 3. 3. 3. 3. 3.]") == 3
