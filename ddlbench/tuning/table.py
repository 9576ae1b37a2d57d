"""A tuning table: for each shape, dtype and op measured, ranges of sizes and the algorithm to use in each.

History of the format
    1   the first: the machine, the runs the rules come from, the rules.
"""

import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ddlbench.errors import UsageError
from ddlbench.records import TrustFlag
from ddlbench.records.disk import naming, write_atomically
from ddlbench.records.fields import read_fields, read_object, read_version

FORMAT = "ddlbench-tuning"
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What makes two machines the same for a table: the processor of the first host, and the MPI library's name."""

    processor: str
    mpi: str

    def __str__(self) -> str:
        return f"{self.processor or 'an unknown processor'} with {self.mpi or 'an unknown MPI'}"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A run that rules come from: its directory, and of its record what says how far to trust it."""

    directory: str
    created: str
    ddlbench: str
    mpi_version: str
    hosts: tuple[str, ...]
    finished: bool
    cache: str
    trust: tuple[TrustFlag, ...]

    @property
    def day(self) -> str:
        """The day the run began."""
        return self.created.partition("T")[0]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How many ranks on how many nodes, and the grid that node-aware algorithms take.

    `ranks_per_node` is "" where nodes hold different numbers of ranks. `virtual` nodes share a machine.
    """

    nodes: int
    ranks_per_node: str
    ranks: int
    grid: str
    virtual: bool = False

    @property
    def placed(self) -> str:
        """The ranks and their nodes, in words."""
        nodes = counted(self.nodes, "virtual node" if self.virtual else "node")
        each = counted(int(self.ranks_per_node), "rank") if self.ranks_per_node else ""
        return f"{nodes} of {each}" if each else f"{nodes} with {counted(self.ranks, 'rank')}"

    def __str__(self) -> str:
        usual = f"{self.ranks_per_node}x{self.nodes}" if self.nodes > 1 and self.ranks_per_node else f"{self.ranks}"
        return self.placed if self.grid == usual else f"{self.placed} as {self.grid}"


@dataclass(frozen=True, kw_only=True)
class Range:
    """Vectors from `from_nbytes` up to the next range's, and the algorithm for them.

    `measured` are the sizes it rests on, `clear` those of them at which the algorithm is the best for certain: at the
    others an interval overlaps its own, or another one is better by less than a change is worth.
    """

    from_nbytes: int
    algorithm: str
    measured: tuple[int, ...]
    clear: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The ranges for vectors of one dtype, op and placement on one shape, and the number of the run they come from.

    `transport` is what ddlbench's own algorithms ran over; a vendor's has its own.
    """

    nodes: int
    ranks_per_node: str
    ranks: int
    grid: str
    virtual: bool
    device: str
    transport: str
    dtype: str
    op: str
    in_place: bool
    run: int
    ranges: tuple[Range, ...]

    @property
    def shape(self) -> Shape:
        """The shape the rule is for."""
        return Shape(
            nodes=self.nodes,
            ranks_per_node=self.ranks_per_node,
            ranks=self.ranks,
            grid=self.grid,
            virtual=self.virtual,
        )

    @property
    def what(self) -> str:
        """All but the shape, in words."""
        place = "in place" if self.in_place else "out of place"
        device = "" if self.device == "cpu" else f", {self.device}"
        return f"{self.dtype} {self.op}, {place}, {self.transport}{device}"

    def at(self, nbytes: int) -> Range:
        """Return the range that a vector of `nbytes` lies in."""
        return self.ranges[bisect_right([one.from_nbytes for one in self.ranges], nbytes) - 1]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rules, the machine they hold on, and the runs they come from. `created` is when, in UTC (ISO 8601)."""

    ddlbench: str
    created: str
    processor: str
    mpi: str
    runs: tuple[Source, ...]
    rules: tuple[Rule, ...]

    @property
    def machine(self) -> Machine:
        """The machine the rules hold on."""
        return Machine(processor=self.processor, mpi=self.mpi)

    def shapes(self) -> tuple[Shape, ...]:
        """Return the shapes there are rules for, each once."""
        return tuple(dict.fromkeys(rule.shape for rule in self.rules))

    def only(self, nodes: int, ranks_per_node: str, ranks: int, *, virtual: bool) -> "Table":
        """Return the table with the rules of these nodes and ranks alone, and the runs they come from."""
        wanted = (nodes, ranks_per_node, ranks, virtual)
        kept = [rule for rule in self.rules if _ranks_of(rule) == wanted]
        used = sorted({rule.run for rule in kept})
        rules = tuple(replace(rule, run=used.index(rule.run)) for rule in kept)
        return replace(self, runs=tuple(self.runs[number] for number in used), rules=rules)

    def to_json(self) -> dict[str, Any]:
        """Return the table as the JSON object of its file."""
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    @classmethod
    def from_json(cls, data: Any, where: str) -> "Table":
        """Return the table that the JSON object `data` holds; `where` names the file in messages.

        Raises `UsageError` when it is no tuning table, is of a newer version, or has a field that is unknown, missing
        or wrong; the message names it.
        """
        given = read_object(data, where)
        if given.get("format") != FORMAT:
            raise UsageError(
                f"{where}: format is {given.get('format')!r}, expected {FORMAT!r}: no table of ddlbench tune"
            )
        read_version(given, VERSION, where)
        table = cls(**read_fields(cls, given, where, besides=("format", "version")))
        for complaint in table._faults():
            raise UsageError(f"{where}: {complaint}")
        return table

    def _faults(self) -> Iterator[str]:
        """Yield what is wrong with rules whose fields are right one by one."""
        for number, rule in enumerate(self.rules):
            if rule.ranks_per_node and not rule.ranks_per_node.isdecimal():
                yield f"rules[{number}]: ranks_per_node is {rule.ranks_per_node!r}, expected digits or nothing"
                return
            starts = [one.from_nbytes for one in rule.ranges]
            name = f"the rule for {rule.shape}, {rule.what}"
            if not starts or starts[0] != 0 or starts != sorted(set(starts)):
                yield f"{name}: from_nbytes is {starts}, expected 0 and then ever larger sizes"
            if rule.run >= len(self.runs):
                yield f"{name}: run is {rule.run}, but there are {len(self.runs)} runs, counted from 0"


def _ranks_of(rule: Rule) -> tuple[int, str, int, bool]:
    return rule.nodes, rule.ranks_per_node, rule.ranks, rule.virtual


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless there is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def read(path: Path) -> Table:
    """Return the table in the file `path`; raises `UsageError` when there is none, or one that cannot be used."""
    if not path.is_file():
        raise UsageError(f"tuning table {str(path)!r}: there is no such file; ddlbench tune DIR --out FILE makes one")
    with naming(path, "read"):
        data = path.read_bytes()
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: broken JSON: {error}; make it anew with ddlbench tune DIR") from None
    return Table.from_json(found, str(path))


def write(table: Table, path: Path) -> None:
    """Write the table to the file `path`, its folder made where there is none, in one step.

    Raises `UsageError` when something else than a tuning table is there, `DdlbenchError` when it cannot be written.
    """
    if path.exists() and not _is_table(path):
        raise UsageError(f"{path} is there, and no table of ddlbench tune: remove it, or give another file with --out")
    with naming(path.parent, "create"):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(table.to_json(), indent=1) + "\n")


def _is_table(path: Path) -> bool:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT
