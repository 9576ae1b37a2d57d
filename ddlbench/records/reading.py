"""Reading a run directory back, whatever befell the run: what can be used is used, the rest is named."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from ddlbench.errors import UsageError
from ddlbench.records.disk import naming
from ddlbench.records.fields import NewerVersionError
from ddlbench.records.point import Point
from ddlbench.records.run import Run

RUN_FILE = "run.json"
POINTS_FILE = "points.jsonl"


@dataclass(frozen=True)
class Loaded:
    """A run as read back: `problems` names each line or file that could not be used, and why.

    `damaged` says whether anything that was whole once is among them: the last line that a kill cut off never was.
    """

    run: Run
    points: tuple[Point, ...]
    problems: list[str]
    damaged: bool = False


def read_run(directory: str | os.PathLike[str]) -> Run:
    """Return the run in `directory` without its points.

    Raises `UsageError` when there is no run, or `run.json` is broken or of a newer version.
    """
    path = Path(directory, RUN_FILE)
    with naming(path, "read"):
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"{directory} holds no run: there is no {RUN_FILE} in it") from None
    try:
        return Run.from_json(_loads(data), str(path))
    except ValueError as error:
        raise UsageError(f"{path}: broken JSON: {error}") from None


def load(directory: str | os.PathLike[str]) -> Loaded:
    """Read the run in `directory`, using every line that can be used and naming in `problems` those that cannot.

    A point that failed gives way to a later line of the same point: the sweep was gone on with. The points of a sweep
    finish in any order; they are returned in the order of its configuration, shape by shape, and of sizes. Raises as
    `read_run` does.
    """
    return read(Path(directory), newer=True)


def read(directory: Path, *, newer: bool) -> Loaded:
    """Read a run as `load` does; without `newer`, raise `UsageError` for lines of a newer version."""
    run = read_run(directory)
    lines = list(_lines(directory))
    problems = [line for line in lines if isinstance(line, _Problem)]
    if not newer and (refused := next((problem for problem in problems if problem.newer), None)):
        raise UsageError(f"{directory}: {refused.text}")
    points = _standing([line for line in lines if isinstance(line, Point)])
    texts = [problem.text for problem in problems]
    damaged = any(problem.damage or run.finished for problem in problems)
    return Loaded(run, _in_order(run, points), texts, damaged)


def _standing(points: list[Point]) -> tuple[Point, ...]:
    """Return the points without those that failed and were measured again."""
    last = {_cell(point): at for at, point in enumerate(points)}
    return tuple(point for at, point in enumerate(points) if not _to_repeat(point) or last[_cell(point)] == at)


def _to_repeat(point: Point) -> bool:
    return point.status == "failed" and point.kind == "measured"


def _cell(point: Point) -> tuple[Any, ...]:
    """Return what tells a point from the others of its run."""
    vector = (point.algorithm, point.count, point.dtype, point.op, point.in_place)
    return (*vector, point.nodes, point.ranks_per_node, point.ranks, point.device)


def _in_order(run: Run, points: tuple[Point, ...]) -> tuple[Point, ...]:
    names = [run.config.get(key) for key in ("dtypes", "ops", "algorithms")]
    if not all(isinstance(column, list) for column in names):
        return points
    dtypes, ops, algorithms = map(_numbered, names)
    nodes, each = (_numbered(run.config.get(key)) for key in ("nodes", "ranks_per_node"))

    def place(point: Point) -> tuple[int, ...]:
        shape = (nodes.get(str(point.nodes), len(nodes)), each.get(point.ranks_per_node, len(each)))
        kind = (dtypes.get(point.dtype, len(dtypes)), ops.get(point.op, len(ops)))
        return (*shape, *kind, point.count, point.in_place, algorithms.get(point.algorithm, len(algorithms)))

    return tuple(sorted(points, key=place))


def _numbered(column: Any) -> dict[str, int]:
    """Return the place of each value in a list of the configuration, none where there is no such list."""
    return {str(value): at for at, value in enumerate(column)} if isinstance(column, list) else {}


class _Problem(NamedTuple):
    """A line that cannot be used; `damage` unless it was cut off, as a kill leaves a line that never was whole."""

    text: str
    damage: bool = True
    newer: bool = False


def _lines(directory: Path) -> Iterator[Point | _Problem]:
    path = directory / POINTS_FILE
    with naming(path, "read"):
        try:
            file = path.open("rb")
        except FileNotFoundError:
            yield _Problem(f"{POINTS_FILE} is missing")
            return
        with file as lines:
            for number, line in enumerate(lines, 1):
                yield _read_line(line, f"{POINTS_FILE} line {number}")


def _read_line(line: bytes, where: str) -> Point | _Problem:
    try:
        return Point.from_json(_loads(line), where)
    except UsageError as error:
        return _Problem(str(error), newer=isinstance(error, NewerVersionError))
    except ValueError as error:
        cut_off = not line.endswith(b"\n")
        return _Problem(f"{where}: {'cut off' if cut_off else 'broken'}: {error}", damage=not cut_off)


def is_json(data: bytes) -> bool:
    """Say whether `data` is a whole JSON text."""
    try:
        json.loads(data.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _loads(data: bytes) -> Any:
    """Return the value of the JSON text `data`; raises `ValueError` for anything but JSON."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as an object; raises `ValueError` when a field stands there twice.

    JSON leaves open which of the two would count.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
