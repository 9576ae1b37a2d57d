"""docs/adding-an-algorithm.md, followed step by step: its code is proved, its commands print what it shows."""

import importlib
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ddlbench.algorithms import available, resolve
from ddlbench.cli import main
from ddlbench.dtypes import dtype_named
from ddlbench.errors import UsageError
from ddlbench.schedule import Grid, lower, stats, verify
from ddlbench.schedule.grid import grids_of
from ddlbench.schedule.reference import execute
from page import blocks, commands, timeless

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-an-algorithm.md"
COMMANDS = [command for command in commands(PAGE) if command.line.startswith("ddlbench ")]


def mine() -> str:
    """Return the file that the page has its reader write."""
    bruck, two_level = (
        text for text in blocks(PAGE, "python") if "= flat_algorithm(" in text or "= Algorithm(" in text
    )
    return f"{bruck}\n\n{two_level}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder with mine.py and, as the page's diff makes it, bad.py; commands run there."""
    (diff,) = blocks(PAGE, "diff")
    before, after = (line[1:] for line in diff.splitlines())
    assert mine().count(before) == 1
    (tmp_path / "mine.py").write_text(mine())
    (tmp_path / "bad.py").write_text(mine().replace(before, after))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    yield tmp_path
    for name in ("ddlbench_user_mine", "ddlbench_user_bad"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("command", COMMANDS, ids=[command.line for command in COMMANDS])
def test_every_command_prints_what_the_page_shows(folder, capsys, command):
    main(shlex.split(command.line)[1:])
    out, err = capsys.readouterr()
    assert timeless(out + err) == timeless(command.output)


def test_the_page_has_commands_that_succeed_are_refused_and_are_mistaken(folder, capsys):
    assert {main(shlex.split(command.line)[1:]) for command in COMMANDS} == {0, 1, 2}


def test_the_readers_own_test_passes_for_1_to_64_ranks(folder):
    (loop,) = (text for text in blocks(PAGE, "python") if "range(1, 65)" in text)
    (folder / "loop.py").write_text(loop)
    assert runpy.run_path("loop.py")["ranks"] == 64


@pytest.mark.parametrize("ranks", [1, 2, 6, 12, 30])
def test_it_is_proved_and_costs_its_closed_form_on_every_grid(folder, ranks):
    for grid in grids_of(ranks):
        bound = resolve("./mine.py:bruck", grid)
        verify(lower(bound))
        assert stats(lower(bound)) == bound.costs()
        for text in ("./mine.py:two_level", "./mine.py:two_level:ring"):
            verify(lower(resolve(text, grid)))


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 12])
def test_rounds_and_bytes_are_the_ones_promised(folder, ranks):
    counted = stats(lower(resolve("./mine.py:bruck", Grid((ranks,)))))
    assert counted.rounds == 2 * (ranks - 1).bit_length()
    assert counted.sent == counted.total / ranks
    assert counted.total == 2 * (ranks - 1)


@pytest.mark.parametrize("text", ["./mine.py:bruck", "./mine.py:two_level"])
def test_a_rank_lowers_alone_what_it_lowers_among_all(folder, text):
    bound = resolve(text, Grid((3, 4)))
    for rank in range(12):
        assert np.array_equal(lower(bound, [rank]).table, lower(bound).program(rank).table)


def test_it_adds_up(folder):
    inputs = [np.arange(11) * (rank + 1) for rank in range(5)]
    for result in execute(lower(resolve("./mine.py:bruck", Grid((5,)))), inputs, dtype_named("int64"), "sum", 3):
        assert np.array_equal(result, np.arange(11) * 15)


def test_the_mistake_passes_at_every_power_of_two_and_at_no_other_number(folder, capsys):
    passed = [ranks for ranks in range(1, 65) if main(["verify", "./bad.py:bruck", "--ranks", str(ranks)]) == 0]
    assert passed == [1, 2, 4, 8, 16, 32, 64]


def test_the_refused_schedule_can_be_drawn(folder, capsys):
    assert main(["show", "./bad.py:bruck", "--ranks", "3"]) == 1
    out, err = capsys.readouterr()
    assert "NOT an allreduce: at the end, rank 0, chunk 0: 2 of 3 contributions have arrived" in out
    assert " start  ▂▂▂" in out
    assert "./bad.py:bruck on 3 is refused" in err


def test_show_explains_in_the_words_of_the_file(folder, capsys):
    assert main(["show", "./mine.py:bruck", "--explain"]) == 0
    assert "Rank r counts the pieces from its own on" in capsys.readouterr().out


# ---- In a package ----------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the folder as a package with the page's entry point; give the folder of its metadata."""
    (toml,) = blocks(PAGE, "toml")
    points = tomllib.loads(toml)["project"]["entry-points"]["ddlbench.algorithms"]
    metadata = folder / "mine-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    offer(metadata, points)
    monkeypatch.syspath_prepend(folder)
    yield metadata
    sys.modules.pop("mine", None)


def offer(metadata: Path, points: dict[str, str]) -> None:
    """Let the package offer these algorithms."""
    lines = [f"{name} = {target}\n" for name, target in points.items()]
    (metadata / "entry_points.txt").write_text("[ddlbench.algorithms]\n" + "".join(lines))
    importlib.invalidate_caches()


def test_a_packages_algorithm_goes_by_its_entry_point(installed, capsys):
    assert [a.name for a in available()][-1] == "bruck"
    assert main(["verify", "bruck", "--ranks", "12"]) == 0
    assert "bruck: right on 12 ranks" in capsys.readouterr().out
    assert main(["list"]) == 0
    assert "\nbruck " in capsys.readouterr().out


def test_the_entry_points_name_is_what_counts(installed):
    offer(installed, {"circulant": "mine:bruck"})
    assert available()[-1].name == "circulant"
    verify(lower(resolve("circulant", Grid((5,)))))
    with pytest.raises(UsageError, match="unknown algorithm 'circulent': did you mean 'circulant'"):
        resolve("circulent", Grid((5,)))


@pytest.mark.parametrize("name", ["ring", "mpi"])
def test_a_name_that_is_taken_is_refused(installed, name):
    offer(installed, {name: "mine:bruck"})
    with pytest.raises(UsageError, match=f"package mine offers an algorithm '{name}', but so does ddlbench itself"):
        available()
    assert resolve("ring", Grid((2,))).algorithm is not None  # what is built in does not depend on what is installed


def test_two_packages_with_one_name_are_refused(installed, folder):
    other = folder / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    offer(other, {"bruck": "mine:bruck"})
    with pytest.raises(UsageError, match=r"package (mine|other) offers an algorithm 'bruck', but so does (mine|other)"):
        resolve("bruck", Grid((2,)))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            "nowhere:bruck",
            "algorithm 'bruck' of package mine fails to load: ModuleNotFoundError: No module named 'nowhere'",
        ),
        ("mine:brick", "algorithm 'bruck' of package mine fails to load: AttributeError"),
        ("mine:allreduce", "algorithm 'bruck' of package mine is a function, not an Algorithm"),
    ],
)
def test_a_package_that_is_broken_is_named_and_harms_no_other(installed, target, message):
    offer(installed, {"bruck": target})
    with pytest.raises(UsageError, match=message):
        resolve("bruck", Grid((2,)))
    with pytest.raises(UsageError, match=message):
        available()
    verify(lower(resolve("ring", Grid((2,)))))
