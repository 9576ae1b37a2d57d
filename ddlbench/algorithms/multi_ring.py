"""Multi-ring: several rings at once, over different rank orders, or one ring per dimension of a grid (PowerAI DDL).

    form "rings", 2 lanes                      form "grid", 4x2: X inside a node, Y across
      lane 0   0 ► 1 ► 2 ► 3 ► 0                 reduce-scatter along X    0 ► 1 ► 2 ► 3    4 ► 5 ► 6 ► 7
      lane 1   3 ► 2 ► 1 ► 0 ► 3                 reduce-scatter along Y    0 ► 4   1 ► 5   2 ► 6   3 ► 7
                                                 all-gather along Y, then along X

Rings: lane j works on its own share of the vector. Nodes are visited in order, or in reverse on odd lanes; inside a
node each lane takes the ranks in another order, so that it enters and leaves nodes at another rank and uses another
link. Grid: after X each rank has only n/X left to move across nodes. Each dimension has its own base algorithm. With
several lanes, lane j starts with dimension j, so that the links of all dimensions work at the same time.

                rings                          grid of dimensions p_1 x p_2 x …, one lane, base ring
rounds          2(p-1)                         2 sum (p_i - 1)
bytes per rank  2(p-1)/p n                     2(p-1)/p n
between nodes   N 2(p-1)/p n  for N > 1        p sum over i > 1 of 2 (p_i-1)/(p_1 … p_i) n  =  2(N-1) n
reduced         (p-1)/p n                      (p-1)/p n
time            2(p-1) a + 2(p-1)/p n b + …    2 sum(p_i-1) a + 2(p-1)/p n b + (p-1)/p n g

Lanes that start on other dimensions move more bytes between nodes and use links that would otherwise rest.
Source: Cho et al., PowerAI DDL, arXiv 1708.02188; Cho et al., BlueConnect, MLSys 2019.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.algorithms import direct, halving_doubling, ring
from ddlbench.schedule.algorithm import Algorithm, Costs, Halves, Parameter, chosen, counted
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Ints, Phase, at_once, join

BASES: dict[str, Halves] = {
    "ring": ring.HALVES,
    "halving-doubling": halving_doubling.HALVES,
    "direct": direct.HALVES,
}


def _parse_bases(text: str) -> tuple[str, ...]:
    names = tuple(text.split("/"))
    if not set(names) <= set(BASES):
        raise ValueError(text)
    return names


BASE = Parameter("base", _parse_bases, ("ring",), f"one of {', '.join(BASES)}; or one per dimension, joined by /")


def lane_order(grid: Grid, lane: int) -> Ints:
    """Return the rank at each position of the ring of `lane`: a permutation of all ranks, (size,).

    Inside a node the ranks are taken in strides that are units modulo X, from a start that moves with the lane.
    """
    x = grid.ranks_per_node
    units = [s for s in range(1, x + 1) if math.gcd(s, x) == 1]
    inside = (np.arange(x) * units[(lane // 2) % len(units)] + lane // 2) % x
    order = (np.arange(grid.nodes)[:, None] * x + inside).reshape(-1)
    return order[::-1].copy() if lane % 2 else order


def _rings(grid: Grid, ranks: npt.ArrayLike, lanes: int) -> Iterator[Phase]:
    for lane in range(lanes):
        world = Group.world(ranks, grid.size, grid.size, first_chunk=lane * grid.size, lane=lane)
        group = world.ordered(lane_order(grid, lane))
        yield join((ring.reduce_scatter(group), ring.all_gather(group)))


def _dimension_order(grid: Grid, lane: int) -> list[int]:
    start = lane % len(grid.dims)
    return [*range(start, len(grid.dims)), *range(start)]


def _base_of(base: tuple[str, ...], dimension: int) -> Halves:
    return BASES[base[dimension if len(base) > 1 else 0]]


def _grid_lane(grid: Grid, ranks: npt.ArrayLike, lane: int, base: tuple[str, ...]) -> Iterator[Phase]:
    """Reduce-scatter along each dimension on what the one before left over, then all-gather back."""
    world = Group.world(ranks, grid.size, grid.size, first_chunk=lane * grid.size, lane=lane)
    chunk, nchunks, done = world.chunk, grid.size, []
    for dimension in _dimension_order(grid, lane):
        halves, size = _base_of(base, dimension), grid.dims[dimension]
        group = world.along(grid, dimension, chunk, nchunks).in_pieces(size)
        yield halves.reduce_scatter(group)
        nchunks //= size
        chunk = chunk + halves.owned(group) * nchunks
        done.append((halves, group))
    for halves, group in reversed(done):
        yield halves.all_gather(group)


def is_grid_form(grid: Grid, form: str) -> bool:
    """Say whether the rings run along dimensions: when asked for, or when the grid has several dimensions."""
    return form == "grid" or (form == "auto" and len(grid.dims) > 1)


def lanes_of(grid: Grid, lanes: int, form: str) -> int:
    """Return the number of lanes: as given, else (0) one for a grid and two for rings over all ranks."""
    return lanes or (1 if is_grid_form(grid, form) else 2)


def phases(
    grid: Grid, ranks: npt.ArrayLike, lanes: int = 0, form: str = "auto", base: tuple[str, ...] = ("ring",)
) -> Iterator[Phase]:
    """Run all lanes at once."""
    count = lanes_of(grid, lanes, form)
    if is_grid_form(grid, form):
        yield at_once(join(_grid_lane(grid, ranks, lane, base)) for lane in range(count))
    else:
        yield at_once(_rings(grid, ranks, count))


def chunks(grid: Grid, lanes: int = 0, form: str = "auto", base: tuple[str, ...] = ("ring",)) -> int:
    """Return one chunk per rank and lane."""
    return grid.size * lanes_of(grid, lanes, form)


def costs(grid: Grid, lanes: int = 0, form: str = "auto", base: tuple[str, ...] = ("ring",)) -> Costs:
    """Return the closed form above."""
    if not is_grid_form(grid, form):
        return ring.costs(grid)
    p, count = grid.size, lanes_of(grid, lanes, form)
    sent = Fraction(2 * (p - 1), p)
    rounds = 2 * sum(_base_of(base, d).rounds(size) for d, size in enumerate(grid.dims))
    between = sum((_lane_between(grid, lane, base) for lane in range(count)), Fraction(0)) / count
    return Costs(rounds, sent, p * sent, between, sent / 2)


def _lane_between(grid: Grid, lane: int, base: tuple[str, ...]) -> Fraction:
    """Return the vectors that one lane moves between nodes: all that does not move along X."""
    left, between = Fraction(1), Fraction(0)
    for dimension in _dimension_order(grid, lane):
        size = grid.dims[dimension]
        if dimension > 0:
            between += grid.size * 2 * Fraction(size - 1, size) * left
        left /= size
    return between


def why_not(grid: Grid, lanes: int = 0, form: str = "auto", base: tuple[str, ...] = ("ring",)) -> str:
    """Say why this grid cannot be done with these base algorithms, or ""."""
    if not is_grid_form(grid, form):
        return "" if base == ("ring",) else "base is for the grid form; give a grid such as multi-ring:4x2"
    if len(base) not in (1, len(grid.dims)):
        return f"{len(base)} base algorithms for {len(grid.dims)} dimensions"
    reasons = (_base_of(base, d).why_not(size) for d, size in enumerate(grid.dims))
    return next((r for r in reasons if r), "")


PARAMETERS: tuple[Parameter, ...] = (counted("lanes", 0), chosen("form", "auto", ("auto", "rings", "grid")), BASE)
_LAYOUT: dict[str, Any] = {"chunks": chunks, "phases": phases, "costs": costs, "why_not": why_not}
ALGORITHM = Algorithm(
    "multi-ring",
    "several rings at once, or a ring per dimension of a grid (PowerAI DDL)",
    source="arXiv 1708.02188; BlueConnect, MLSys 2019",
    parameters=PARAMETERS,
    restriction="base=halving-doubling needs dimensions that are powers of two",
    **_LAYOUT,
)
