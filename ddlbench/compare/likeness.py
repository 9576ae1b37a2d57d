"""What differs between two runs: what makes their times incomparable, and what may be the very thing compared."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddlbench.records import Loaded, Run

LONGEST = 80
"""Characters of a value that a message shows."""

CONDITIONS = {
    "nodes": "nodes",
    "ranks_per_node": "ranks per node",
    "ranks": "ranks",
    "device": "device",
    "sync": "synchronisation",
    "cache": "cache",
}
"""Fields of a point that say how and where it was measured, and what they are called. Empty means unknown."""


@dataclass(frozen=True)
class Difference:
    """Something that is not the same in two runs."""

    what: str
    base: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: {self.base} in BASE, {self.new} in NEW"


@dataclass(frozen=True)
class Likeness:
    """What differs between two runs.

    `obstacles` make their times incomparable. `changes` do not: they are what may be compared. `apart` are the fields
    of `CONDITIONS` in which no two points of the runs agree, or that one of the runs does not know.
    """

    obstacles: tuple[Difference, ...]
    changes: tuple[Difference, ...]
    apart: tuple[str, ...]


def likeness(base: Loaded, new: Loaded) -> Likeness:
    """Return what differs between two runs."""
    conditions = [(field, _conditions(base, field), _conditions(new, field)) for field in CONDITIONS]
    apart = [(field, ours, theirs) for field, ours, theirs in conditions if not set(ours) & set(theirs)]
    obstacles = [
        Difference(CONDITIONS[field], _listed(ours), _listed(theirs))
        for field, ours, theirs in apart
        if ours and theirs
    ]
    return Likeness(
        obstacles=(*obstacles, *_differences(base.run, new.run, SHAPE)),
        changes=(*_differences(base.run, new.run, PROGRAMS), *_variables(base.run, new.run)),
        apart=tuple(field for field, _, _ in apart),
    )


def _conditions(loaded: Loaded, field: str) -> list[Any]:
    """Return the known values of a field, of all points of a run; of its topology where it has no points."""
    values: set[Any] = {getattr(point, field) for point in loaded.points}
    if not loaded.points and field in ("nodes", "ranks"):
        values = {loaded.run.topology.get(field, "")}
    return sorted(values - {""})


def _listed(values: Sequence[Any]) -> str:
    return _shortened(", ".join(map(str, values)))


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def _differences(base: Run, new: Run, traits: Mapping[str, Callable[[Run], Any]]) -> Iterator[Difference]:
    """Yield the traits that both runs know and that differ."""
    for what, trait in traits.items():
        ours, theirs = trait(base), trait(new)
        if ours and theirs and ours != theirs:
            yield Difference(what, _shortened(str(ours)), _shortened(str(theirs)))


def _library(run: Run) -> str:
    """Return the name of the MPI library without its version, which may stand behind it."""
    name = re.match(r"[^\d,;\n]*", str(run.mpi.get("library", "")))
    return name[0].removesuffix(" v").strip() if name else ""


def _integers(value: Any) -> list[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, Sequence) else []


def _placement(run: Run) -> str:
    """Return the number of each rank's node."""
    return " ".join(map(str, _integers(run.topology.get("node_of"))))


def _processors(run: Run) -> tuple[list[set[int]], list[int]]:
    """Return the processors each rank may run on, and the number of each rank's node; empty where not recorded."""
    cpus, nodes = run.topology.get("cpus"), _integers(run.topology.get("node_of"))
    if not isinstance(cpus, Sequence) or len(cpus) != len(nodes):
        return [], []
    return [set(_integers(one)) for one in cpus], nodes


def _per_rank(run: Run) -> str:
    """Return how many processors a rank may run on, as far as ranks agree."""
    return _counts(len(one) for one in _processors(run)[0])


def _per_node(run: Run) -> str:
    """Return how many processors the ranks of a node may use together, as far as nodes agree."""
    together: dict[int, set[int]] = {}
    for cpus, node in zip(*_processors(run), strict=True):
        together.setdefault(node, set()).update(cpus)
    return _counts(map(len, together.values()))


def _counts(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(numbers))))


def _hosts(run: Run) -> str:
    return ", ".join(dict.fromkeys(map(str, run.topology.get("hosts", ()))))


SHAPE: Mapping[str, Callable[[Run], Any]] = {
    "placement of ranks on nodes": _placement,
    "processors for the ranks of a node": _per_node,
    "processors for a rank": _per_rank,
    "processors of the first host": lambda run: run.environment.get("processors"),
    "processor": lambda run: run.environment.get("processor"),
    "architecture": lambda run: run.environment.get("machine"),
    "MPI library": _library,
}
"""What must be alike for two runs' times to be comparable."""

PROGRAMS: Mapping[str, Callable[[Run], Any]] = {
    "ddlbench": lambda run: run.ddlbench,
    "MPI version": lambda run: run.mpi.get("version"),
    "system": lambda run: run.environment.get("system"),
    "hosts": _hosts,
}
"""What two runs are free to differ in."""


def _variables(base: Run, new: Run) -> Iterator[Difference]:
    """Yield the environment variables that tune MPI and differ, those of one job apart."""
    ours, theirs = (_mapping(run.environment.get("variables")) for run in (base, new))
    for name in sorted({*ours, *theirs}):
        before, after = (str(variables.get(name, "not set")) for variables in (ours, theirs))
        if before != after and not name.endswith("_JOB_ID") and not name.endswith("JOBID"):
            yield Difference(name, _shortened(before), _shortened(after))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
