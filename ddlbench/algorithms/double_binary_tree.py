"""Double binary tree: two trees, each with half of the vector; a leaf of one is an inner rank of the other.

    tree 0, 8 ranks, the first half        tree 1: the same, with rank r in the place of 7-r
              0                            (with an odd number of ranks, in the place of r-1)
              │
              4               height       up:    in round h the ranks of height h send to their parent, which adds
         ┌────┴────┐             2         down:  the same edges backwards
         2         6             1
       ┌─┴─┐     ┌─┴─┐
       1   3     5   7           0

rounds          2 ceil(log2 p)
bytes per rank  half a vector for each parent and child it has in both trees: 2 n at most
between nodes   n for each edge between nodes, over both trees
reduced         half a vector for each child: n at most
time            2 log2 p a + 2 n b + n g   without segments; with enough of them the trees stream

For vectors of middle length on many ranks, where a ring has too many rounds. Segments make it stream.
Source: Sanders, Speck and Traff, Parallel Computing 35 (2009); NCCL 2.4 builds its trees the same way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ddlbench.schedule.algorithm import Costs, flat_algorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Ints, Phase, at_once, join


@dataclass(frozen=True)
class Tree:
    """Places in a tree over 0 … size-1, for the places asked: arrays of one shape; -1 where there is none.

    A place's height is its number of trailing zero bits; place 0 is the root, above all others.
    """

    parent: Ints
    height: Ints
    left: Ints
    right: Ints
    right_height: Ints


def levels(size: int) -> int:
    """Return the height of the root: ceil(log2 size)."""
    return (size - 1).bit_length()


def tree(place: Ints, size: int) -> Tree:
    """Return the tree's edges at each `place`."""
    low = np.where(place == 0, 1 << levels(size), place & -place)
    above = (place ^ low) | (low << 1)
    parent = np.where(place == 0, -1, np.where(above < size, above, place ^ low))
    # The right child is place + 2^k with the greatest k below the height that stays inside the tree.
    room = size - 1 - place
    reach = np.where(room > 0, np.frexp(room)[1] - 1, -1)
    right_height = np.minimum(np.frexp(low)[1] - 2, reach)
    right = np.where(right_height >= 0, place + (1 << np.maximum(right_height, 0)), -1)
    left = np.where((place > 0) & (low > 1), place - (low >> 1), -1)
    return Tree(parent, np.frexp(low)[1] - 1, left, right, right_height)


def _place(position: Ints, size: int, second: bool) -> Ints:
    """Return the place in the tree of each position; the second tree is mirrored or, for odd sizes, shifted by one."""
    if not second:
        return position
    return (position - 1) % size if size % 2 else size - 1 - position


def _position(place: Ints, size: int, second: bool) -> Ints:
    if not second:
        return place
    return (place + 1) % size if size % 2 else size - 1 - place


def _lane(group: Group, second: bool) -> Phase:
    """Up one tree and down again, for the piece that is the tree's."""
    p, top, piece = group.size, levels(group.size), int(second)
    t = tree(_place(group.position, p, second), p)
    edges = [(_position(child, p, second), height, child >= 0) for child, height in
             ((t.left, t.height - 1), (t.right, t.right_height))]  # fmt: skip
    parent = _position(t.parent, p, second)
    inner = t.parent >= 0
    up = [group.send(t.height, to=parent, piece=piece, where=inner)]
    up += [group.add(height, source=child, piece=piece, where=has) for child, height, has in edges]
    down = [group.keep(top - 1 - t.height, source=parent, piece=piece, where=inner)]
    down += [group.send(top - 1 - height, to=child, piece=piece, where=has) for child, height, has in edges]
    return join((Phase(top, tuple(up)), Phase(top, tuple(down))))


def allreduce(group: Group) -> Iterator[Phase]:
    """Both trees at once."""
    yield at_once((_lane(group, second=False), _lane(group.next_lane(), second=True)))


def costs(grid: Grid) -> Costs:
    """Return the closed form above, the edges counted one by one."""
    p, rank = grid.size, np.arange(grid.size)
    children, edges, across = np.zeros(p, int), np.zeros(p, int), 0
    for second in (False, True):
        t = tree(_place(rank, p, second), p)
        below = (t.left >= 0).astype(int) + (t.right >= 0)
        children, edges = children + below, edges + below + (t.parent >= 0)
        parent = _position(t.parent, p, second) // grid.ranks_per_node
        across += int(np.sum((t.parent >= 0) & (parent != rank // grid.ranks_per_node)))
    sent, reduced = Fraction(int(edges.max()), 2), Fraction(int(children.max()), 2)
    return Costs(2 * levels(p), sent, Fraction(2 * (p - 1)), Fraction(across), reduced)


ALGORITHM = flat_algorithm(
    "double-binary-tree",
    "two complementary trees: logarithmic rounds, streams with segments",
    source="Sanders, Speck and Traff 2009",
    pieces=lambda p: 2,
    allreduce=allreduce,
    costs=costs,
)
