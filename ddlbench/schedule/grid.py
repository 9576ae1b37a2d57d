"""The ranks as dimensions, X inside a node first, written `4x8x2` as PowerAI DDL wrote it."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ddlbench.errors import UsageError

MOST_RANKS = (1 << 31) - 1
"""More than MPI can number."""


@dataclass(frozen=True)
class Grid:
    """Ranks laid out as `dims`, the fastest-varying dimension first: rank = x + X*(y + Y*z).

    The first dimension is what a node holds; `Grid((8,))` is one node of eight ranks and `Grid((1, 8))` eight nodes of
    one. Raises `UsageError` unless there is at least one dimension and all are at least 1.
    """

    dims: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.dims or min(self.dims) < 1:
            raise UsageError(f"grid {str(self)!r}: expected one or more dimensions of at least 1, such as 4x8x2")

    @classmethod
    def parse(cls, text: str) -> "Grid":
        """Read `4x8x2`; raises `UsageError` naming the text."""
        if not re.fullmatch(r"[0-9]{1,9}([xX][0-9]{1,9})*", text):
            raise UsageError(f"grid {text!r}: expected ranks per dimension joined by x, such as 4x2 or 4x8x2")
        dims = tuple(int(d) for d in re.split("[xX]", text))
        if math.prod(dims) > MOST_RANKS:
            raise UsageError(f"grid {text!r}: holds more than {MOST_RANKS} ranks")
        return cls(dims)

    def __str__(self) -> str:
        return "x".join(map(str, self.dims))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return math.prod(self.dims)

    @property
    def ranks_per_node(self) -> int:
        """The first dimension."""
        return self.dims[0]

    @property
    def nodes(self) -> int:
        """Number of nodes: the product of all dimensions but the first."""
        return self.size // self.dims[0]

    def stride(self, dimension: int) -> int:
        """Distance in ranks between neighbours along `dimension`."""
        return math.prod(self.dims[:dimension])

    def check_size(self, ranks: int) -> "Grid":
        """Return the grid itself; raises `UsageError` with both numbers when it does not hold `ranks` ranks."""
        if self.size != ranks:
            raise UsageError(f"grid {self} holds {self.size} ranks, but there are {ranks}")
        return self


def grids_of(ranks: int, max_dims: int = 3) -> Iterator[Grid]:
    """Yield every grid of `ranks` ranks with up to `max_dims` dimensions, dimensions of 1 included only to lead."""
    yield Grid((ranks,))
    if max_dims < 2:
        return
    for first in range(1, ranks):
        if ranks % first == 0:
            for rest in grids_of(ranks // first, max_dims - 1):
                if rest.dims[0] > 1:
                    yield Grid((first, *rest.dims))
