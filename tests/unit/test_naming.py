"""What a user may type for an algorithm, and what is said about what is none."""

from pathlib import Path

import numpy as np
import pytest

from ddlbench.algorithms import available, explore, resolve
from ddlbench.algorithms.naming import BUILT_IN, VENDORS, written_grid
from ddlbench.errors import UsageError
from ddlbench.schedule import Grid, lower, verify
from ddlbench.schedule.format import to_text

EIGHT = Grid((8,))
MINE = """
from dataclasses import replace
from ddlbench.algorithms.multi_ring import ALGORITHM as rings
from ddlbench.algorithms.ring import ALGORITHM as ring
NUMBER = 7
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a file ./mine.py with the algorithms `ring` and `rings`, and make its folder the current one."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def refusal(text: str, grid: Grid = EIGHT) -> str:
    """Return what is said about `text`, which is one line."""
    with pytest.raises(UsageError) as refused:
        resolve(text, grid)
    message = str(refused.value)
    assert "\n" not in message
    return message


# ---- Names, parameters and grids -------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", BUILT_IN, ids=lambda algorithm: algorithm.name)
def test_every_built_in_algorithm_goes_by_its_name(algorithm):
    bound = resolve(algorithm.name, EIGHT)
    assert (bound.name, bound.grid, bound.algorithm, bound.vendor) == (algorithm.name, EIGHT, algorithm, False)
    assert bound.parameters == {}
    assert algorithm in available()


@pytest.mark.parametrize(
    ("text", "grid", "parameters"),
    [
        ("multi-ring:4", EIGHT, {"lanes": 4}),
        ("multi-ring:lanes=4", EIGHT, {"lanes": 4}),
        ("multi-ring:4:rings", EIGHT, {"lanes": 4, "form": "rings"}),
        ("multi-ring:form=grid:lanes=3", EIGHT, {"lanes": 3, "form": "grid"}),
        ("multi-ring:4:base=direct:form=grid", EIGHT, {"lanes": 4, "base": ("direct",), "form": "grid"}),
        ("multi-ring:4x2", Grid((4, 2)), {}),
        ("multi-ring:2X2x2:3", Grid((2, 2, 2)), {"lanes": 3}),
        ("multi-ring:3:4x2", Grid((4, 2)), {"lanes": 3}),
        ("multi-ring:4x2:base=ring/direct", Grid((4, 2)), {"base": ("ring", "direct")}),
        ("multi-ring:2:grid:halving-doubling", EIGHT, {"lanes": 2, "form": "grid", "base": ("halving-doubling",)}),
        ("hierarchical:4x2:across=ring", Grid((4, 2)), {"across": "ring"}),
        ("hierarchical:across=swing:4x2:inside=direct", Grid((4, 2)), {"across": "swing", "inside": "direct"}),
        ("hierarchical:swing:direct", EIGHT, {"across": "swing", "inside": "direct"}),
        ("leader:1x8:ring", Grid((1, 8)), {"across": "ring"}),
        ("parameter-server:3", EIGHT, {"servers": 3}),
        ("ring:2x4", Grid((2, 4)), {}),
    ],
)
def test_parameters_by_order_or_by_name_with_a_grid_anywhere(text, grid, parameters):
    bound = resolve(text, EIGHT)
    assert (bound.name, bound.grid, bound.parameters) == (text, grid, parameters)
    verify(lower(bound))


def test_parameters_change_the_schedule():
    assert lower(resolve("multi-ring:3", EIGHT)).chunks == 24
    assert not np.array_equal(
        lower(resolve("multi-ring:4x2", EIGHT)).table, lower(resolve("multi-ring:1", EIGHT)).table
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rnig", "unknown algorithm 'rnig': did you mean 'ring'?"),
        ("Ring", "unknown algorithm 'Ring': did you mean 'ring'?"),
        ("halving_doubling", "unknown algorithm 'halving_doubling': did you mean 'halving-doubling'?"),
        ("mpy", "unknown algorithm 'mpy': did you mean 'mpi'?"),
        ("zzz", "unknown algorithm 'zzz': expected one of: ring, multi-ring, "),
        ("", "unknown algorithm '': expected one of: ring, "),
        (":4", "unknown algorithm '': expected one of: ring, "),
        ("multi-ring:lane=4", "unknown parameter of multi-ring 'lane': did you mean 'lanes'?"),
        ("multi-ring:=4", "unknown parameter of multi-ring '=4': expected one of: lanes, form, base"),
        ("multi-ring:2:grid:ring:9", "unknown parameter of multi-ring '9': expected one of: lanes, form, base"),
        ("ring:4", "ring takes no parameters; found '4'"),
        ("ring:", "ring takes no parameters; found ''"),
        ("ring:lanes=4", "ring takes no parameters; found 'lanes'"),
        ("multi-ring:0", "algorithm 'multi-ring:0': lanes is '0'; expected a whole number from 1 to 1024"),
        ("multi-ring:1025", "lanes is '1025'; expected a whole number from 1 to 1024"),
        ("multi-ring:-2", "lanes is '-2'; expected a whole number"),
        ("multi-ring:two", "lanes is 'two'; expected a whole number"),
        ("multi-ring:", "lanes is ''; expected a whole number"),
        ("multi-ring:" + "9" * 5000, "expected a whole number from 1 to 1024"),
        ("multi-ring:4x", "lanes is '4x'; expected a whole number"),
        ("multi-ring:form=a=b", "form is 'a=b'; expected one of auto, rings, grid"),
        ("multi-ring:form=ring", "form is 'ring'; expected one of auto, rings, grid"),
        ("multi-ring:4x2:base=ring/bruck", "base is 'ring/bruck'; expected one of ring, halving-doubling, direct; or"),
        ("hierarchical:across=hierarchical", "across is 'hierarchical'; expected one of ring, "),
        ("multi-ring:lanes=2:lanes=3", "algorithm 'multi-ring:lanes=2:lanes=3': lanes is given twice"),
        ("multi-ring:lanes=2:3", "algorithm 'multi-ring:lanes=2:3': lanes is given twice"),
        ("multi-ring:4x2:2x4", "algorithm 'multi-ring:4x2:2x4': two grids, 4x2 and 2x4"),
        ("multi-ring:4x3", "grid 4x3 holds 12 ranks, but there are 8"),
        ("multi-ring:4x0", "grid '4x0': expected one or more dimensions of at least 1"),
        ("multi-ring:4x9999999999", "grid '4x9999999999': expected ranks per dimension"),
        ("multi-ring:8x1:base=direct:form=rings", "base is for the grid form"),
        ("mpi:4", "algorithm 'mpi:4': a vendor's allreduce takes no parameters"),
    ],
)
def test_a_mistake_is_named_with_the_way_out(text, message):
    assert message in refusal(text)


def test_what_a_grid_cannot_do_is_refused_with_the_name_and_the_grid():
    message = refusal("hierarchical:inside=halving-doubling:3x2", Grid((6,)))
    assert message.startswith(
        "algorithm 'hierarchical:inside=halving-doubling:3x2' on grid 3x2 (6 ranks): 3 is not a power"
    )


@pytest.mark.parametrize("name", VENDORS)
def test_a_vendors_own_has_no_schedule(name):
    bound = resolve(name, EIGHT)
    assert (bound.name, bound.grid, bound.algorithm, bound.vendor) == (name, EIGHT, None, True)
    assert bound.costs() is None
    with pytest.raises(UsageError, match="no schedule: it is the vendor's own code"):
        lower(bound)


# ---- PowerAI DDL's mode strings --------------------------------------------------------------------------------------


@pytest.mark.parametrize("letter", ["r", "b", "n"])
@pytest.mark.parametrize(("shape", "grid"), [("4x2", Grid((4, 2))), ("2x2x2", Grid((2, 2, 2))), ("8", EIGHT)])
def test_letters_r_b_and_n_are_a_ring_per_dimension(letter, shape, grid):
    bound = resolve(f"{letter}:{shape}", EIGHT)
    same = resolve(f"multi-ring:form=grid:{shape}" if "x" in shape else "multi-ring:form=grid", EIGHT)
    assert (bound.name, bound.grid) == (f"{letter}:{shape}", grid)
    assert np.array_equal(lower(bound).table, lower(same).table)


def test_a_letter_alone_takes_the_grid_of_the_launch():
    assert resolve("r", Grid((4, 2))).grid == Grid((4, 2))
    assert lower(resolve("r", Grid((4, 2)))).rounds == 8


def test_a_grid_alone_is_one_ring():
    bound = resolve("4x2", EIGHT)
    assert (bound.name, bound.grid) == ("4x2", Grid((4, 2)))
    assert np.array_equal(lower(bound).table, lower(resolve("ring", EIGHT)).table)


def test_letter_p_explores_every_base_of_every_dimension():
    bound = resolve("p:4x2", EIGHT)
    assert (bound.name, bound.grid, bound.algorithm) == ("p:4x2", Grid((4, 2)), None)
    assert [one.name for one in bound.explore] == [one.name for one in explore(Grid((4, 2)))]
    assert len(bound.explore) == 9


def test_what_exploring_found_can_be_typed():
    for bound in explore(Grid((4, 2))):
        assert np.array_equal(lower(resolve(bound.name, EIGHT)).table, lower(bound).table)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m:4x2", "mode 'm:4x2': MPI's reduce_scatter and allgatherv are not built in; use mpi or r:4x2"),
        ("m", "use mpi or r:8"),
        ("r:4x3", "grid 4x3 holds 12 ranks, but there are 8"),
        ("p:4x3", "grid 4x3 holds 12 ranks, but there are 8"),
        ("4x3", "grid 4x3 holds 12 ranks, but there are 8"),
        ("r:9", "grid 9 holds 9 ranks, but there are 8"),
        ("r:4y2", "grid '4y2': expected ranks per dimension joined by x"),
        ("r:", "grid '': expected ranks per dimension joined by x"),
        ("r:4x2:3", "mode 'r:4x2:3': '3' is more than a letter and a grid, such as r:4x2"),
        ("4x2:3", "mode '4x2:3': '3' is more than a letter and a grid"),
        ("R:4x2", "unknown algorithm 'R'"),
    ],
)
def test_a_wrong_mode_string_is_refused(text, message):
    assert message in refusal(text)


# ---- Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["./mine.py", "mine.py", "ABSOLUTE"])
def test_an_algorithm_in_a_file_goes_by_file_and_name(mine, path):
    path = str(mine) if path == "ABSOLUTE" else path
    bound = resolve(f"{path}:ring", EIGHT)
    assert bound.name == "mine.py:ring"
    assert np.array_equal(lower(bound).table, lower(resolve("ring", EIGHT)).table)


@pytest.mark.parametrize(
    ("parameters", "grid"),
    [(":3", EIGHT), (":lanes=2:4x2", Grid((4, 2))), (":4x2:base=ring/direct", Grid((4, 2))), (":2:form=grid", EIGHT)],
)
def test_a_file_s_algorithm_takes_parameters_and_its_name_keeps_them(mine, parameters, grid):
    """The slash in base=ring/direct is not one of a path."""
    bound, same = (resolve(f"{name}{parameters}", EIGHT) for name in ("./mine.py:rings", "multi-ring"))
    assert (bound.name, bound.grid) == (f"mine.py:rings{parameters}", grid)
    assert np.array_equal(lower(bound).table, lower(same).table)


def test_a_file_is_read_again_each_time(mine):
    resolve("./mine.py:ring", EIGHT)
    mine.write_text(MINE + "other = replace(ring, name='other')\n")
    assert resolve("./mine.py:other", EIGHT).builder.name == "other"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("./nowhere.py:ring", "algorithm './nowhere.py:ring': there is no file './nowhere.py'"),
        ("./nowhere.py", "algorithm './nowhere.py': there is no file './nowhere.py'"),
        ("./mine.py", "algorithm './mine.py': say which of mine.py, such as ./mine.py:rings"),
        ("./mine.py:", "algorithm './mine.py': say which of mine.py, such as ./mine.py:rings"),
        ("./mine.py:rnig", "unknown algorithm in ./mine.py 'rnig': did you mean 'ring'?"),
        ("./mine.py:zzz", "unknown algorithm in ./mine.py 'zzz': expected one of: rings, ring"),
        ("./mine.py:NUMBER", "./mine.py:NUMBER is a int, not an Algorithm; make it with flat_algorithm(…)"),
        ("./mine.py:replace", "./mine.py:replace is a function, not an Algorithm"),
        ("./mine.py:ring:4", "ring takes no parameters; found '4'"),
        ("./mine.py:rings:lane=4", "unknown parameter of multi-ring 'lane': did you mean 'lanes'?"),
        ("./mine.py:rings:4x3", "grid 4x3 holds 12 ranks, but there are 8"),
    ],
)
def test_a_file_that_does_not_have_it_is_named(mine, text, message):
    assert message in refusal(text)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = ", "algorithm './bad.py:a': bad.py fails to load: SyntaxError: invalid syntax"),
        ("import nowhere_at_all", "bad.py fails to load: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("raise RuntimeError('no luck')", "bad.py fails to load: RuntimeError: no luck"),
        ("import sys\nsys.exit('enough')", "bad.py fails to load: SystemExit: enough"),
        ("a = 1", "algorithm './bad.py:a': bad.py defines no Algorithm; make one with flat_algorithm(…)"),
    ],
)
def test_a_file_that_does_not_load_is_named_with_the_reason(tmp_path, monkeypatch, source, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text(source)
    assert message in refusal("./bad.py:a")


def test_a_folder_is_no_file(tmp_path):
    assert "there is no file" in refusal(f"{tmp_path}/x.py:ring")


def test_a_link_that_leads_to_itself_is_no_file(tmp_path):
    (tmp_path / "round.py").symlink_to("round.py")
    assert "there is no file" in refusal(f"{tmp_path}/round.py:ring")


# ---- Schedule files --------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a file six.json with a schedule for a grid of 3x2, in the current folder."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "six.json"
    path.write_text(to_text(lower(resolve("hierarchical", Grid((3, 2))))))
    return path


def test_a_schedule_file_is_an_algorithm_for_its_number_of_ranks(stored):
    bound = resolve(str(stored), Grid((6,)))
    assert (bound.name, bound.grid) == ("six.json", Grid((6,)))
    verify(lower(bound))
    assert resolve("six.json:2x3", Grid((6,))).grid == Grid((2, 3))


def test_a_schedule_file_is_refused_for_another_number_of_ranks(stored):
    message = refusal("six.json")
    assert message == "algorithm 'six.json' on grid 8 (8 ranks): the file holds a schedule for 6 ranks"
    assert "takes no parameters" in refusal("six.json:4", Grid((6,)))


@pytest.mark.parametrize(
    ("text", "grid"),
    [
        ("six.json", Grid((3, 2))),
        ("six.json:2x3", Grid((2, 3))),
        ("multi-ring:4x8x2", Grid((4, 8, 2))),
        ("hierarchical:across=ring:4x2", Grid((4, 2))),
        ("r:4x2", Grid((4, 2))),
        ("r:8", Grid((8,))),
        ("4X2", Grid((4, 2))),
        ("./mine.py:bruck:4x2", Grid((4, 2))),
        ("r", None),
        ("ring", None),
        ("multi-ring:4", None),
        ("./mine.py:bruck", None),
        ("mpi", None),
    ],
)
def test_the_grid_that_a_text_settles_itself(stored, text, grid):
    assert written_grid(text) == grid


def test_a_grid_that_is_none_and_a_file_that_is_not_there_are_refused_there_too(stored):
    with pytest.raises(UsageError, match="grid '4y2'"):
        written_grid("r:4y2")
    with pytest.raises(UsageError, match=r"schedule file 'seven\.json': No such file"):
        written_grid("seven.json")
