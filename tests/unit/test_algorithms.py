"""Every built-in algorithm is an allreduce, at every size asked of it, and costs exactly what its file says."""

import numpy as np
import pytest

from ddlbench.algorithms import available, explore, resolve
from ddlbench.errors import UsageError
from ddlbench.schedule import Grid, lower, stats, verify
from ddlbench.schedule.grid import grids_of
from ddlbench.schedule.stats import differences

NAMES = [a.name for a in available()]
FLAT = [a.name for a in available() if a.flat]
VARIANTS = [
    "multi-ring:1",
    "multi-ring:3",
    "multi-ring:form=rings",
    "multi-ring:lanes=3:form=grid",
    "multi-ring:form=grid:base=direct",
    "hierarchical:across=recursive-doubling",
    "hierarchical:across=double-binary-tree:inside=direct",
    "hierarchical:across=swing",
    "leader:across=ring",
    "leader:double-binary-tree",
    "parameter-server:3",
]


def check(text: str, grid: Grid) -> None:
    """Prove one algorithm on one grid, and hold its figures against the closed form."""
    bound = resolve(text, grid)
    schedule = lower(bound)
    proof = verify(schedule)
    counted, stated = stats(schedule), bound.costs()
    assert stated is not None
    assert differences(counted, stated) == []
    assert counted.rounds == schedule.rounds == proof.rounds


@pytest.mark.parametrize("ranks", range(1, 65))
def test_every_algorithm_is_proved_and_costs_its_closed_form(ranks: int) -> None:
    for text in NAMES:
        check(text, Grid((ranks,)))
        check(text, Grid((1, ranks)))


@pytest.mark.parametrize("ranks", [1, 2, 3, 6, 8, 12, 16, 30])
@pytest.mark.parametrize("text", [*NAMES, *VARIANTS])
def test_variants_are_proved_on_all_grids(text: str, ranks: int) -> None:
    for grid in grids_of(ranks):
        check(text, grid)


@pytest.mark.parametrize("grid", list(grids_of(64, max_dims=7)), ids=str)
def test_all_grids_of_64(grid: Grid) -> None:
    for text in NAMES:
        check(text, grid)


@pytest.mark.parametrize("text", NAMES)
@pytest.mark.parametrize("grid", [Grid((256,)), Grid((4, 64)), Grid((4, 8, 8)), Grid((4, 16, 4))], ids=str)
def test_256_ranks(text: str, grid: Grid) -> None:
    check(text, grid)


@pytest.mark.parametrize("text", [n for n in NAMES if n != "multi-ring"])
def test_1024_ranks_flat(text: str) -> None:
    check(text, Grid((1024,)))


@pytest.mark.parametrize("text", ["multi-ring", "hierarchical", "leader", "multi-ring:base=halving-doubling"])
def test_1024_ranks_on_a_grid(text: str) -> None:
    check(text, Grid((8, 128)))


@pytest.mark.parametrize("ranks", [1000, 1023])
def test_sizes_that_are_no_power_of_two_at_scale(ranks: int) -> None:
    for text in ("recursive-doubling", "halving-doubling", "swing", "double-binary-tree", "parameter-server:7"):
        check(text, Grid((ranks,)))


@pytest.mark.parametrize("text", [*NAMES, *VARIANTS])
@pytest.mark.parametrize("grid", [Grid((7,)), Grid((3, 4)), Grid((2, 2, 3)), Grid((16,))], ids=str)
def test_a_rank_lowers_alone_what_it_lowers_among_all(text: str, grid: Grid) -> None:
    bound = resolve(text, grid)
    whole = lower(bound)
    for rank in range(grid.size):
        alone = lower(bound, [rank])
        assert np.array_equal(alone.table, whole.program(rank).table)
        assert alone.rounds == whole.rounds


def test_a_rank_of_4096_makes_only_its_own_steps() -> None:
    for text in NAMES:
        program = lower(resolve(text, Grid((4096,))), [4095])
        assert set(program.table["rank"].tolist()) == {4095}
        assert len(program.table) <= 4 * 2 * 4096


@pytest.mark.parametrize("text", NAMES)
def test_no_algorithm_sends_less_than_the_lower_bound(text: str) -> None:
    for ranks in (2, 3, 8, 13):
        costs = resolve(text, Grid((ranks,))).costs()
        assert costs is not None
        assert costs.total >= 2 * (ranks - 1)
        assert costs.sent >= costs.total / ranks


def test_a_grid_that_does_not_halve_is_refused_with_the_reason() -> None:
    with pytest.raises(UsageError, match="3 is not a power of two"):
        resolve("multi-ring:3x2:base=halving-doubling", Grid((6,)))
    with pytest.raises(UsageError, match="3 base algorithms for 2 dimensions"):
        resolve("multi-ring:3x2:base=ring/ring/direct", Grid((6,)))
    with pytest.raises(UsageError, match="base is for the grid form"):
        resolve("multi-ring:base=direct:form=rings", Grid((6,)))


def test_exploring_tries_every_possible_base_of_every_dimension() -> None:
    assert len(list(explore(Grid((4, 2))))) == 9
    assert len(list(explore(Grid((3, 2))))) == 6
    for bound in explore(Grid((4, 2))):
        verify(lower(bound))


def test_lanes_of_a_multi_ring_use_different_links() -> None:
    schedule = lower(resolve("multi-ring:4", Grid((8,))))
    links = [{(int(s["rank"]), int(s["peer"])) for s in schedule.table if s["lane"] == lane and s["kind"] == 0}
             for lane in range(4)]  # fmt: skip
    assert all(len(used) == 8 for used in links)
    assert links[0] == {(b, a) for a, b in links[1]}
    assert links[2] != links[0]


def test_grid_lanes_start_on_different_dimensions() -> None:
    schedule = lower(resolve("multi-ring:2x4:lanes=2", Grid((8,))))
    first = schedule.table[(schedule.table["round"] == 0) & (schedule.table["kind"] == 0)]
    same_node = first["rank"] // 2 == first["peer"] // 2
    assert same_node[first["lane"] == 0].all()
    assert not same_node[first["lane"] == 1].any()


def test_swing_partners_stay_nearer_than_those_of_halving() -> None:
    def farthest(name: str) -> int:
        table = lower(resolve(name, Grid((64,)))).table
        away = np.abs(table["rank"] - table["peer"])
        return int(np.minimum(away, 64 - away).max())

    assert farthest("swing") == 21
    assert farthest("halving-doubling") == 32
