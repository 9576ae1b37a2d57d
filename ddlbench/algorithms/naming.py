"""From the text a user types to an algorithm on a grid.

ring                          by name
multi-ring:4                  parameters in their order, or as key=value, after colons
hierarchical:4x2:across=ring  a grid anywhere after the name replaces the launch's grid
r:4x2  b:4x2  n:4x2  p:4x2    PowerAI DDL mode strings; 4x2 alone is DDL's "no letter": one ring
./mine.py:bruck               an `Algorithm` in a file of your own
bruck                         one that an installed package offers under the entry point group `ddlbench.algorithms`
schedule.json                 a schedule file, for its number of ranks
mpi                           the vendor's MPI_Allreduce
nccl                          NVIDIA's ncclAllReduce, for buffers on GPUs
auto                          the best of these here, chosen when a plan is made: docs/tuning.md
"""

import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
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
from ddlbench.schedule.algorithm import Algorithm, BoundAlgorithm, Parameter
from ddlbench.schedule.format import load_algorithm, load_grid
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
_NAMED = {algorithm.name: algorithm for algorithm in BUILT_IN}
VENDORS = {
    "mpi": "MPI_Allreduce of the MPI library in use",
    "nccl": "NVIDIA's ncclAllReduce, with --device cuda",
}
CHOOSING = {"auto": "the best for the size, as ddlbench tune measured it, else by closed form"}
"""Names in whose place a plan takes another algorithm when it is made."""
ENTRY_POINT_GROUP = "ddlbench.algorithms"
_GRID = re.compile(r"[0-9]+([xX][0-9]+)+")
_MODES = {
    "r": "ring in every dimension",
    "b": "NCCL where possible, else ring: ring on host memory",
    "n": "NCCL where possible, else ring: ring on host memory",
    "p": "explore: the fastest base algorithm per dimension",
    "m": "MPI's reduce_scatter and allgatherv: not here",
}


def available() -> list[Algorithm]:
    """Return the built-in algorithms and those that installed packages offer, built-in ones first.

    Raises `UsageError` naming the package when what it offers cannot be loaded.
    """
    return [*BUILT_IN, *map(_from_package, _offered().values())]


def resolve(text: str, grid: Grid) -> BoundAlgorithm:
    """Return the algorithm that `text` names, on `grid` unless the text holds a grid of its own.

    Raises `UsageError` with the nearest right spelling for an unknown name or parameter, and with both numbers when a
    grid does not hold as many ranks as `grid`.
    """
    head, *arguments = _split(text)
    if head in VENDORS:
        return _vendor(text, arguments, grid)
    if head in CHOOSING:
        return _choosing(text, arguments, grid)
    if head in _MODES or _GRID.fullmatch(head):
        return _mode(text, head, arguments, grid)
    algorithm = _find(head)
    layout, parameters = _arguments(text, algorithm, arguments, grid)
    return BoundAlgorithm(_shown(text), layout, algorithm, parameters)


def written_grid(text: str) -> Grid | None:
    """Return the grid that `text` itself settles, as `multi-ring:4x2` or a schedule file do; None where it does not.

    Raises `UsageError` for a grid that is none, and for a schedule file that cannot be read.
    """
    head, *arguments = _split(text)
    shapes = [part for part in (head, *arguments) if _GRID.fullmatch(part)]
    if not shapes and head in _MODES:
        shapes = arguments
    if shapes:
        return Grid.parse(shapes[0])
    return load_grid(Path(head)) if head.endswith(".json") else None


def explore(grid: Grid) -> Iterator[BoundAlgorithm]:
    """Yield the grid form of multi-ring on `grid` with every possible choice of base algorithm per dimension."""
    for names in itertools.product(multi_ring.BASES, repeat=len(grid.dims)):
        if not multi_ring.why_not(grid, form="grid", base=names):
            name = f"multi-ring:{grid}:base={'/'.join(names)}"
            yield BoundAlgorithm(name, grid, multi_ring.ALGORITHM, {"form": "grid", "base": names})


def _split(text: str) -> list[str]:
    """Split at colons, keeping `FILE.py:NAME` together."""
    found = re.match(r"(.*?\.(?:py:[^:]+|py|json))(?::(.*))?$", text)
    if found:
        return [found[1], *(found[2].split(":") if found[2] else [])]
    return text.split(":")


def _vendor(text: str, arguments: list[str], grid: Grid) -> BoundAlgorithm:
    if arguments:
        raise UsageError(f"algorithm {text!r}: a vendor's allreduce takes no parameters")
    return BoundAlgorithm(text, grid, vendor=True)


def _choosing(text: str, arguments: list[str], grid: Grid) -> BoundAlgorithm:
    if arguments:
        raise UsageError(f"algorithm {text!r}: {text.partition(':')[0]} takes no parameters: it chooses them itself")
    return BoundAlgorithm(text, grid, auto=True)


def _mode(text: str, head: str, arguments: list[str], grid: Grid) -> BoundAlgorithm:
    """Read a PowerAI DDL mode string: a letter, a colon and a grid; or the grid alone."""
    letter, shapes = ("", [head, *arguments]) if _GRID.fullmatch(head) else (head, arguments)
    if len(shapes) > 1:
        raise UsageError(f"mode {text!r}: {shapes[1]!r} is more than a letter and a grid, such as r:4x2")
    layout = Grid.parse(shapes[0]).check_size(grid.size) if shapes else grid
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
    if head.endswith(".py") or ".py:" in head:
        return _from_file(head)
    if head in _NAMED:
        return _NAMED[head]
    offered = _offered()
    if head not in offered:
        raise unknown("algorithm", head, [*_NAMED, *offered, *VENDORS, *CHOOSING])
    return _from_package(offered[head])


def _offered() -> dict[str, EntryPoint]:
    """Return what installed packages offer, by name, not loaded yet; raises `UsageError` for a name that is taken."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        if point.name in {*_NAMED, *VENDORS, *CHOOSING, *found}:
            owner = _package(found[point.name]) if point.name in found else "ddlbench itself"
            raise UsageError(f"package {_package(point)} offers an algorithm {point.name!r}, but so does {owner}")
        found[point.name] = point
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.module


def _from_package(point: EntryPoint) -> Algorithm:
    """Load what a package offers, under the name that its entry point gives it."""
    where = f"algorithm {point.name!r} of package {_package(point)}"
    try:
        found = point.load()
    except Exception as error:
        raise UsageError(f"{where} fails to load: {type(error).__name__}: {error}") from error
    return replace(_checked(found, where), name=point.name)


def _from_file(head: str) -> Algorithm:
    path, colon, name = head.rpartition(":")
    if not colon:
        path, name = head, ""
    file = Path(os.path.realpath(path))  # unlike resolve() it does not mind links that lead round in a circle
    if not file.is_file():
        raise UsageError(f"algorithm {head!r}: there is no file {path!r}")
    module = _load(file, head)
    offered = [key for key, value in vars(module).items() if isinstance(value, Algorithm)]
    if not offered:
        raise UsageError(f"algorithm {head!r}: {file.name} defines no Algorithm; make one with flat_algorithm(…)")
    if not name:
        raise UsageError(f"algorithm {head!r}: say which of {file.name}, such as {path}:{offered[0]}")
    if not hasattr(module, name):
        raise unknown(f"algorithm in {path}", name, offered)
    return _checked(getattr(module, name), head)


def _load(file: Path, head: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"ddlbench_user_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UsageError(f"algorithm {head!r}: {file} cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        raise UsageError(f"algorithm {head!r}: {file.name} fails to load: {type(error).__name__}: {error}") from error
    return module


def _checked(found: object, where: str) -> Algorithm:
    if not isinstance(found, Algorithm):
        raise UsageError(f"{where} is a {type(found).__name__}, not an Algorithm; make it with flat_algorithm(…)")
    return found


def _arguments(text: str, algorithm: Algorithm, arguments: list[str], grid: Grid) -> tuple[Grid, dict[str, Any]]:
    """Read the parts after the name: a grid, key=value, or values in the parameters' order."""
    known = {p.name: p for p in algorithm.parameters}
    order, values = iter(known), {}
    shapes = [part for part in arguments if _GRID.fullmatch(part)]
    if len(shapes) > 1:
        raise UsageError(f"algorithm {text!r}: two grids, {' and '.join(shapes)}")
    for part in arguments:
        if part in shapes:
            continue
        key, equals, value = part.partition("=")
        if not equals:
            key, value = next(order, ""), part
        if key in values:
            raise UsageError(f"algorithm {text!r}: {key} is given twice")
        values[key] = _value(text, _parameter(algorithm, key or part), value)
    return Grid.parse(shapes[0]).check_size(grid.size) if shapes else grid, values


def _parameter(algorithm: Algorithm, key: str) -> Parameter:
    known = {p.name: p for p in algorithm.parameters}
    if not known:
        raise UsageError(f"{algorithm.name} takes no parameters; found {key!r}")
    if key not in known:
        raise unknown(f"parameter of {algorithm.name}", key, known)
    return known[key]


def _value(text: str, parameter: Parameter, value: str) -> Any:
    try:
        return parameter.parse(value)
    except ValueError:
        wrong = f"algorithm {text!r}: {parameter.name} is {value!r}; expected {parameter.expected}"
        raise UsageError(wrong) from None


def _shown(text: str) -> str:
    """Return the name for tables: without the folders of a file's path."""
    head, *arguments = _split(text)
    return ":".join([head.rsplit("/", 1)[-1] if ".py:" in head or head.endswith(".json") else head, *arguments])
