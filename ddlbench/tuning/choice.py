"""What `auto` is: the algorithm that a measured table or else the closed forms give for a vector, on these ranks.

Rank 0 reads the table and works out the closed forms, once for a communicator, and tells the others: ranks never choose
differently, and only rank 0 has to see the file.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddlbench.algorithms import resolve
from ddlbench.dtypes import DType, dtype_named
from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.grid import Grid
from ddlbench.topology import Topology, processor
from ddlbench.tuning import places, priced, table
from ddlbench.tuning.table import Machine, Range, Rule, Shape

if TYPE_CHECKING:
    from mpi4py import MPI


class TuningWarning(UserWarning):
    """The table that DDLBENCH_TUNING names was measured on another machine; it is used all the same."""


@dataclass(frozen=True)
class Choice:
    """The algorithm for a vector, and why it is that one."""

    algorithm: BoundAlgorithm
    why: str


@dataclass(frozen=True)
class Found:
    """What rank 0 found: rules for these ranks, of what table, or why there are none; and the closed forms' ranges."""

    rules: tuple[Rule, ...]
    origin: str
    lacking: str
    priced: dict[str, tuple[Range, ...]]


def why_not(name: str, grid: str) -> str:
    """Return why an algorithm of a run cannot stand in a table, "" where it can: it is named there, and no more."""
    head = name.partition(":")[0]
    if head.endswith((".py", ".json")):
        return "its file is not found again by its name alone"
    try:
        bound = resolve(name, Grid.parse(grid))
    except UsageError as error:
        return str(error).partition(": expected one of")[0]
    return "it chooses among others itself" if bound.auto or bound.explore else ""


class Chooser:
    """Chooses algorithms for the ranks of a communicator, alike on all of them."""

    def __init__(self, grid: Grid, found: Found) -> None:
        self._grid = grid
        self._found = found

    @classmethod
    def of(cls, comm: "MPI.Comm", topology: Topology, grid: Grid) -> "Chooser":
        """Return the chooser for the ranks of `comm`; collective.

        Raises on all ranks what rank 0 met: `UsageError` for a table that cannot be read or does not fit,
        `DdlbenchError` for a file that cannot be opened.
        """
        outcome: Found | DdlbenchError | None = None
        if comm.rank == 0:
            try:
                outcome = look(topology, grid, _library())
            except DdlbenchError as error:
                outcome = error
        outcome = comm.bcast(outcome)
        if isinstance(outcome, Found):
            return cls(grid, outcome)
        raise outcome or DdlbenchError("rank 0 told nothing of its choice of algorithms")

    def choose(self, nbytes: int, dtype: DType, op: str, *, in_place: bool, transport: str) -> Choice:
        """Return the algorithm for a vector of `nbytes` over `transport`, and why."""
        lacking = self._found.lacking
        rule = nearest(self._found.rules, dtype, op, in_place=in_place, transport=transport)
        if rule is not None:
            name = rule.at(nbytes).algorithm
            bound = resolve(name, self._grid)
            if not bound.vendor or dtype.itemsize > 2 or not dtype.significand_bits:
                return Choice(bound, f"{self._found.origin}{_besides(rule, dtype, op, in_place=in_place)}")
            lacking = f"{self._found.origin} has {name}, which has no {dtype.name}"
        elif self._found.rules:
            lacking = f"{self._found.origin} has nothing over {transport}"
        return Choice(self._by_form(nbytes, transport), f"closed form: {lacking}")

    def _by_form(self, nbytes: int, transport: str) -> BoundAlgorithm:
        known = self._found.priced.get(family(transport), self._found.priced["p2p"])
        return resolve(next(one.algorithm for one in reversed(known) if one.from_nbytes <= nbytes), self._grid)

    def alternatives(self) -> tuple[BoundAlgorithm, ...]:
        """Return every algorithm that can be chosen here, those with a schedule last."""
        known = [rule.ranges for rule in self._found.rules] + list(self._found.priced.values())
        names = dict.fromkeys(one.algorithm for ranges in known for one in ranges)
        return tuple(sorted((resolve(name, self._grid) for name in names), key=lambda bound: not bound.vendor))


def family(transport: str) -> str:
    """Return the transport without its variant: "direct" of "direct-slots"."""
    return transport.partition("-")[0]


def nearest(rules: Sequence[Rule], dtype: DType, op: str, *, in_place: bool, transport: str) -> Rule | None:
    """Return the rule that comes nearest to what is asked, None where none ran over such a transport.

    What differs counts in this order: the variant of the transport, in or out of place, the size of an element, the
    dtype, the op; of equals the first.
    """

    def distance(rule: Rule) -> tuple[bool, ...]:
        return (
            rule.transport != transport,
            rule.in_place != in_place,
            dtype_named(rule.dtype).itemsize != dtype.itemsize,
            rule.dtype != dtype.name,
            rule.op != op,
        )

    known = [rule for rule in rules if rule.device == "cpu" and family(rule.transport) == family(transport)]
    return min(known, key=distance, default=None)


def _besides(rule: Rule, dtype: DType, op: str, *, in_place: bool) -> str:
    """Return in what the rule is not of the very thing asked for, in words."""
    same = (rule.dtype, rule.op, rule.in_place) == (dtype.name, op, in_place)
    return "" if same else f", measured for {rule.what}"


def look(topology: Topology, grid: Grid, library: str) -> Found:
    """Return what there is for these ranks, as this process sees it; raises `UsageError` for a table that is no use.

    Warns with `TuningWarning` of a table of another machine.
    """
    shape = _shape(topology, grid)
    transports = [name for name in priced.ASSUMED if name == "p2p" or topology.nodes == 1]
    forms = {name: priced.ranges(grid, nodes=topology.nodes, even=topology.even, transport=name) for name in transports}
    path = _file(Machine(processor=processor(), mpi=library), shape)
    if path is None:
        return Found((), "", "no measured table", forms)
    known = table.read(path)
    origin = f"measured table {path.name} of {known.created.partition('T')[0]}{_foreign(path, known, library)}"
    rules = tuple(rule for rule in known.rules if rule.shape == shape)
    for rule in rules:
        _check(path, rule, grid)
    return Found(rules, origin, "" if rules else f"{origin} has nothing for {shape}", forms)


def _shape(topology: Topology, grid: Grid) -> Shape:
    return Shape(
        nodes=topology.nodes,
        ranks_per_node=str(topology.ranks_per_node[0]) if topology.even else "",
        ranks=topology.ranks,
        grid=str(grid),
        virtual=len(topology.machines) < topology.nodes,
    )


def _file(machine: Machine, shape: Shape) -> Path | None:
    """Return the table to use: the one that the variable names, else the one of this machine if there is one."""
    named = places.named()
    if named == places.NONE:
        return None
    if named:
        return _existing(Path(named))
    try:
        path = places.default(machine, shape)
    except UsageError:
        return None
    return path if path.is_file() else None


def _existing(path: Path) -> Path:
    if path.is_file():
        return path
    name = f"{places.VARIABLE}={path}"
    raise UsageError(
        f"{name}: there is no such file; ddlbench tune DIR --out FILE makes one, {places.VARIABLE}={places.NONE} does "
        "without"
    )


def _foreign(path: Path, known: table.Table, library: str) -> str:
    """Return what the origin says of a table of another machine, after a warning; "" for one of this machine."""
    here = Machine(processor=processor(), mpi=library)
    if known.machine == here:
        return ""
    warnings.warn(
        f"{path} was measured on {known.machine}, this is {here}: it is used all the same", TuningWarning, stacklevel=2
    )
    return " of another machine"


def _check(path: Path, rule: Rule, grid: Grid) -> None:
    """Refuse a rule that cannot be followed here; raises `UsageError` naming it."""
    try:
        dtype_named(rule.dtype)
        for one in rule.ranges:
            resolve(one.algorithm, grid)
    except UsageError as error:
        raise UsageError(f"{path}: the rule for {rule.shape}, {rule.what}: {error}") from None


def _library() -> str:
    from mpi4py import MPI

    return MPI.get_vendor()[0]
