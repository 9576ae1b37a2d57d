"""Grids: reading, writing, strides, nodes, and what is refused."""

import math

import numpy as np
import pytest

from ddlbench.errors import UsageError
from ddlbench.schedule.grid import Grid, grids_of


@pytest.mark.parametrize(
    ("text", "dims"), [("8", (8,)), ("4x2", (4, 2)), ("4x8x2", (4, 8, 2)), ("1x8", (1, 8)), ("4X16X4", (4, 16, 4))]
)
def test_a_grid_is_read_and_written_as_powerai_ddl_wrote_it(text, dims):
    grid = Grid.parse(text)
    assert grid.dims == dims
    assert str(grid) == text.lower()
    assert Grid.parse(str(grid)) == grid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "4x",
        "x4",
        "4xx2",
        "4*2",
        "4x-2",
        "4 x 2",
        " 4x2",
        "4x2\n",
        "4.0x2",
        "a",
        "٤x٢",
        "4x" + "9" * 10,
        "9" * 10,
    ],
)
def test_what_is_no_grid_is_refused_by_its_text(text):
    with pytest.raises(UsageError) as refused:
        Grid.parse(text)
    assert str(refused.value) == f"grid {text!r}: expected ranks per dimension joined by x, such as 4x2 or 4x8x2"


def test_a_grid_of_more_ranks_than_there_can_be_is_refused_by_its_text():
    for text in ("46341x46341", "2" + "x999999999" * 500):
        with pytest.raises(UsageError, match=f"grid '{text}': holds more than 2147483647 ranks"):
            Grid.parse(text)


@pytest.mark.parametrize("dims", [(), (0,), (4, 0), (-1, 2)])
def test_a_grid_has_dimensions_of_at_least_1(dims):
    with pytest.raises(UsageError, match="expected one or more dimensions of at least 1"):
        Grid(dims)


def test_a_zero_in_the_text_is_refused_with_the_text():
    with pytest.raises(UsageError, match="grid '4x0'"):
        Grid.parse("4x0")


@pytest.mark.parametrize(
    ("dims", "size", "per_node", "nodes"),
    [((8,), 8, 8, 1), ((1, 8), 8, 1, 8), ((4, 8, 2), 64, 4, 16), ((1,), 1, 1, 1), ((3, 5), 15, 3, 5)],
)
def test_the_first_dimension_is_inside_a_node(dims, size, per_node, nodes):
    grid = Grid(dims)
    assert (grid.size, grid.ranks_per_node, grid.nodes) == (size, per_node, nodes)


@pytest.mark.parametrize("dims", [(8,), (4, 2), (4, 8, 2), (2, 3, 1, 5)])
def test_strides_are_those_of_ranks_laid_out_with_the_first_dimension_fastest(dims):
    grid = Grid(dims)
    ranks = np.arange(grid.size).reshape(dims, order="F")
    for dimension, size in enumerate(dims):
        if size > 1:
            assert (np.diff(ranks, axis=dimension) == grid.stride(dimension)).all()
    assert grid.stride(0) == 1


def test_a_grid_of_another_size_is_refused_with_both_numbers():
    assert Grid((4, 2)).check_size(8) == Grid((4, 2))
    with pytest.raises(UsageError, match=r"^grid 4x2 holds 8 ranks, but there are 9$"):
        Grid((4, 2)).check_size(9)


@pytest.mark.parametrize("ranks", [1, 2, 7, 12, 64])
@pytest.mark.parametrize("most", [1, 2, 3, 6])
def test_grids_of_are_all_of_them_once(ranks, most):
    found = [grid.dims for grid in grids_of(ranks, most)]
    assert len(found) == len(set(found))
    assert all(math.prod(dims) == ranks and len(dims) <= most and 1 not in dims[1:] for dims in found)
    assert set(found) == set(factorisations(ranks, most))


def factorisations(ranks: int, most: int, first: bool = True) -> list[tuple[int, ...]]:
    """Return the ordered products of up to `most` factors that are `ranks`; only the first factor may be 1."""
    whole = [(ranks,)] if first or ranks > 1 else []
    if most == 1:
        return whole
    heads = [head for head in range(1 if first else 2, ranks + 1) if ranks % head == 0 and head < ranks]
    return whole + [(head, *rest) for head in heads for rest in factorisations(ranks // head, most - 1, first=False)]
