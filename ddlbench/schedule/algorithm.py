"""What an algorithm is to the rest of ddlbench: a name, its rounds as code, its closed form, and its parameters."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.errors import UsageError
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.move import Ints, Phase, join


@dataclass(frozen=True)
class Costs:
    """The closed form of a schedule, exact. Amounts are in vectors: multiply by the vector's bytes.

    rounds
        how many rounds
    sent
        the most that any one rank sends
    total
        what all ranks send together
    between_nodes
        the part of `total` that goes from one node to another
    reduced
        the most that any one rank reduces
    """

    rounds: int
    sent: Fraction
    total: Fraction
    between_nodes: Fraction
    reduced: Fraction


@dataclass(frozen=True)
class Parameter:
    """A parameter of an algorithm, given after a colon: `multi-ring:4`, `hierarchical:across=ring`.

    `parse` turns the text into the value and raises ValueError; `expected` finishes the sentence "expected …".
    """

    name: str
    parse: Callable[[str], Any]
    default: Any
    expected: str


def counted(name: str, default: int, *, most: int = 1024) -> Parameter:
    """Return a parameter that is a whole number from 1 to `most`."""

    def parse(text: str) -> int:
        value = int(text)
        if not 1 <= value <= most:
            raise ValueError(text)
        return value

    return Parameter(name, parse, default, f"a whole number from 1 to {most}")


def chosen(name: str, default: str, choices: Iterable[str]) -> Parameter:
    """Return a parameter that is one of `choices`."""
    known = tuple(choices)

    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(text)
        return text

    return Parameter(name, parse, default, f"one of {', '.join(known)}")


@dataclass(frozen=True)
class Halves:
    """The two halves of an allreduce, where it has them; they are what the grid algorithms are put together from.

    `reduce_scatter(group)` and `all_gather(group)` work on a group of as many pieces as members. After the first,
    position q holds piece `owned(group)[q]`, reduced. `rounds(size)` is the rounds of one half. `why_not(size)` is ""
    or the reason a group of that size cannot be done.
    """

    reduce_scatter: Callable[[Group], Phase]
    all_gather: Callable[[Group], Phase]
    rounds: Callable[[int], int]
    owned: Callable[[Group], Ints] = lambda group: group.position
    why_not: Callable[[int], str] = lambda size: ""


@dataclass(frozen=True)
class Flat:
    """An algorithm over one group, whatever the group is: the pieces it cuts the range into, and its phases."""

    pieces: Callable[..., int]
    allreduce: Callable[..., Iterable[Phase]]


@dataclass(frozen=True)
class Algorithm:
    """An allreduce algorithm.

    chunks(grid, **parameters)
        how many chunks the vector is cut into
    phases(grid, ranks, **parameters)
        the phases, as seen by the ranks of interest
    costs(grid, **parameters)
        the closed form, or None where there is none
    why_not(grid, **parameters)
        "" or the reason why this grid cannot be done
    node_aware
        whether it needs to know which ranks share a node, and as many of them on each
    """

    name: str
    summary: str
    source: str
    chunks: Callable[..., int]
    phases: Callable[..., Iterable[Phase]]
    costs: Callable[..., Costs] | None = None
    parameters: tuple[Parameter, ...] = ()
    restriction: str = ""
    why_not: Callable[..., str] = lambda grid, **parameters: ""
    node_aware: bool = False
    flat: Flat | None = None
    halves: Halves | None = None


def flat_algorithm(
    name: str,
    summary: str,
    *,
    pieces: Callable[..., int],
    allreduce: Callable[..., Iterable[Phase]],
    source: str = "",
    costs: Callable[..., Costs] | None = None,
    parameters: tuple[Parameter, ...] = (),
    halves: Halves | None = None,
) -> Algorithm:
    """Return an algorithm whose ranks are all alike, from its phases over one group.

    `pieces(size, **parameters)` is the number of pieces the vector is cut into for `size` ranks, and
    `allreduce(group, **parameters)` yields the phases. Such an algorithm also serves inside `hierarchical` and
    `leader`.
    """

    def chunks(grid: Grid, **given: Any) -> int:
        return pieces(grid.size, **given)

    def phases(grid: Grid, ranks: npt.ArrayLike, **given: Any) -> Iterable[Phase]:
        return allreduce(Group.world(ranks, grid.size, pieces(grid.size, **given)), **given)

    return Algorithm(
        name, summary, source, chunks, phases, costs, parameters, flat=Flat(pieces, allreduce), halves=halves
    )  # fmt: skip


def from_halves(halves: Halves) -> Callable[[Group], Iterable[Phase]]:
    """Return the allreduce that is the two halves one after the other."""

    def allreduce(group: Group) -> Iterable[Phase]:
        return (halves.reduce_scatter(group), halves.all_gather(group))

    return allreduce


@dataclass(frozen=True)
class BoundAlgorithm:
    """An algorithm with its parameters, on a grid: all that is needed to make a schedule.

    `name` is what tables show. `algorithm` is None for a vendor's own allreduce (`vendor` is True): it has no schedule.
    So it is for `auto`, in whose place a plan takes another when it is made.
    """

    name: str
    grid: Grid
    algorithm: Algorithm | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    vendor: bool = False
    explore: tuple["BoundAlgorithm", ...] = ()
    auto: bool = False

    def __post_init__(self) -> None:
        if self.algorithm is not None:
            reason = self.algorithm.why_not(self.grid, **self.parameters)
            if reason:
                raise UsageError(f"algorithm {self.name!r} on grid {self.grid} ({self.grid.size} ranks): {reason}")

    @property
    def builder(self) -> Algorithm:
        """The algorithm; raises `UsageError` for a vendor's own, which has no schedule to look at, and for `auto`."""
        if self.auto:
            raise UsageError(
                f"algorithm {self.name!r} has no schedule of its own: it takes another's when it is planned"
            )
        if self.algorithm is None:
            raise UsageError(f"algorithm {self.name!r} has no schedule: it is the vendor's own code")
        return self.algorithm

    @property
    def chunks(self) -> int:
        """Number of chunks the vector is cut into."""
        return self.builder.chunks(self.grid, **self.parameters)

    def phase(self, ranks: npt.ArrayLike) -> Phase:
        """Return the whole algorithm as one phase, for the ranks of interest."""
        wanted = np.atleast_1d(np.asarray(ranks, dtype=np.int64))
        return join(self.builder.phases(self.grid, wanted, **self.parameters))

    def costs(self) -> Costs | None:
        """Return the closed form, or None where the algorithm states none."""
        form = self.algorithm.costs if self.algorithm is not None else None
        return None if form is None else form(self.grid, **self.parameters)
