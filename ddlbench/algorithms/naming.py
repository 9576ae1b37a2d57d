"""From the text a user types to an algorithm on a grid.

ring                          by name
multi-ring:4                  parameters in their order, or as key=value, after colons
hierarchical:4x2:across=ring  a grid anywhere after the name replaces the launch's grid
r:4x2  b:4x2  n:4x2  p:4x2    PowerAI DDL mode strings; 4x2 alone is DDL's "no letter": one ring
./mine.py:bruck               an `Algorithm` in a file of your own
bruck                         one that an installed package offers under the entry point group `ddlbench.algorithms`
schedule.json                 a schedule file, for its number of ranks
mpi                           the vendor's MPI_Allreduce
"""

import importlib.util
import itertools
import re
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from ddlbench.algorithms import (
    direct,
    double_binary_tree,
    halving_doubling,
    hierarchical,
    leader,
    multi_ring,
    parameter_server,
    recursive_doubling,
    ring,
    swing,
)
from ddlbench.errors import UsageError, unknown
from ddlbench.schedule.algorithm import Algorithm, BoundAlgorithm
from ddlbench.schedule.format import load_algorithm
from ddlbench.schedule.grid import Grid

BUILT_IN = (
    ring.ALGORITHM,
    multi_ring.ALGORITHM,
    hierarchical.ALGORITHM,
    leader.ALGORITHM,
    recursive_doubling.ALGORITHM,
    halving_doubling.ALGORITHM,
    direct.ALGORITHM,
    double_binary_tree.ALGORITHM,
    swing.ALGORITHM,
    parameter_server.ALGORITHM,
)
VENDORS = {"mpi": "MPI_Allreduce of the MPI library in use"}
ENTRY_POINT_GROUP = "ddlbench.algorithms"
_GRID = re.compile(r"[0-9]+([xX][0-9]+)+")
_MODES = {
    "r": "ring in every dimension",
    "b": "NCCL where possible, else ring: ring on host memory",
    "n": "NCCL where possible, else ring: ring on host memory",
    "p": "explore: the fastest base algorithm per dimension",
}


def available() -> list[Algorithm]:
    """Return the built-in algorithms and those that installed packages offer, built-in ones first."""
    offered = entry_points(group=ENTRY_POINT_GROUP)
    return [*BUILT_IN, *(_checked(point.load(), f"entry point {point.name}") for point in offered)]


def resolve(text: str, grid: Grid) -> BoundAlgorithm:
    """Return the algorithm that `text` names, on `grid` unless the text holds a grid of its own.

    Raises `UsageError` with the nearest right spelling for an unknown name or parameter, and with both numbers when a
    grid does not hold as many ranks as `grid`.
    """
    head, *arguments = _split(text)
    if head in VENDORS:
        return _vendor(text, arguments, grid)
    if head in _MODES or _GRID.fullmatch(head) or head == "m":
        return _mode(text, head, arguments, grid)
    algorithm = _find(head)
    layout, parameters = _arguments(text, algorithm, arguments, grid)
    return BoundAlgorithm(_shown(text), layout, algorithm, parameters)


def explore(grid: Grid) -> Iterator[BoundAlgorithm]:
    """Yield the grid form of multi-ring on `grid` with every possible choice of base algorithm per dimension."""
    for names in itertools.product(multi_ring.BASES, repeat=len(grid.dims)):
        if not multi_ring.why_not(grid, form="grid", base=names):
            name = f"multi-ring:{grid}:base={'/'.join(names)}"
            yield BoundAlgorithm(name, grid, multi_ring.ALGORITHM, {"form": "grid", "base": names})


def _split(text: str) -> list[str]:
    """Split at colons, keeping `FILE.py:NAME` together."""
    found = re.match(r"(.*\.py:[^:]+|.*\.json)(?::(.*))?$", text)
    if found:
        return [found[1], *(found[2].split(":") if found[2] else [])]
    return text.split(":")


def _vendor(text: str, arguments: list[str], grid: Grid) -> BoundAlgorithm:
    if arguments:
        raise UsageError(f"algorithm {text!r}: a vendor's allreduce takes no parameters")
    return BoundAlgorithm(text, grid, vendor=True)


def _mode(text: str, head: str, arguments: list[str], grid: Grid) -> BoundAlgorithm:
    """Read a PowerAI DDL mode string: a letter, a colon and a grid; or the grid alone."""
    letter, shape = ("", head) if _GRID.fullmatch(head) else (head, ":".join(arguments))
    layout = Grid.parse(shape).check_size(grid.size) if shape else grid
    if letter == "m":
        raise UsageError(f"mode {text!r}: MPI's reduce_scatter and allgatherv are not built in; use mpi or r:{layout}")
    if letter == "p":
        return BoundAlgorithm(text, layout, explore=tuple(explore(layout)))
    if not letter:
        return BoundAlgorithm(text, layout, ring.ALGORITHM)
    return BoundAlgorithm(text, layout, multi_ring.ALGORITHM, {"form": "grid"})


def _find(head: str) -> Algorithm:
    if head.endswith(".json"):
        return load_algorithm(Path(head))
    if ".py:" in head:
        return _from_file(head)
    known = {a.name: a for a in available()}
    if head not in known:
        raise unknown("algorithm", head, [*known, *VENDORS])
    return known[head]


def _from_file(head: str) -> Algorithm:
    path, _, name = head.rpartition(":")
    file = Path(path).resolve()
    if not file.is_file():
        raise UsageError(f"algorithm {head!r}: there is no file {path!r}")
    module = _load(file, head)
    if not hasattr(module, name):
        offered = [k for k, v in vars(module).items() if isinstance(v, Algorithm)]
        raise unknown(f"algorithm in {path}", name, offered or ["(the file defines no algorithm)"])
    return _checked(getattr(module, name), head)


def _load(file: Path, head: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"ddlbench_user_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"algorithm {head!r}: {file} cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UsageError(f"algorithm {head!r}: {file.name} fails to load: {type(error).__name__}: {error}") from error
    return module


def _checked(found: object, head: str) -> Algorithm:
    if not isinstance(found, Algorithm):
        raise UsageError(f"{head} is a {type(found).__name__}, not an Algorithm; make it with flat_algorithm(…)")
    return found


def _arguments(text: str, algorithm: Algorithm, arguments: list[str], grid: Grid) -> tuple[Grid, dict[str, Any]]:
    """Read the parts after the name: a grid, key=value, or values in the parameters' order."""
    known = {p.name: p for p in algorithm.parameters}
    order, layout, values = iter(known), grid, {}
    for part in arguments:
        if _GRID.fullmatch(part):
            layout = Grid.parse(part).check_size(grid.size)
            continue
        key, equals, value = part.rpartition("=")
        if not equals:
            key = next(order, "")
        if key not in known:
            raise unknown(f"parameter of {algorithm.name}", key or part, known or ["(it takes none)"])
        values[key] = _value(text, known[key], value)
    return layout, values


def _value(text: str, parameter: Any, value: str) -> Any:
    try:
        return parameter.parse(value)
    except ValueError:
        wrong = f"algorithm {text!r}: {parameter.name} is {value!r}; expected {parameter.expected}"
        raise UsageError(wrong) from None


def _shown(text: str) -> str:
    """Return the name for tables: without the folders of a file's path."""
    return text.rsplit("/", 1)[-1] if ".py:" in text or text.endswith(".json") else text
