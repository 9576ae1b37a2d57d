"""A run directory: one line on disk per finished point while the sweep goes on, read back whatever befell it."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from ddlbench.errors import UsageError
from ddlbench.records.disk import naming, sync_directory, write_all, write_atomically
from ddlbench.records.point import Point
from ddlbench.records.run import FORMAT, Run

RUN_FILE = "run.json"
POINTS_FILE = "points.jsonl"
OURS = ("report.html", "results.csv", POINTS_FILE, RUN_FILE)
"""What ddlbench writes into a run directory, in the order of removal: `run.json`, which says whose it is, goes last."""


@dataclass(frozen=True)
class Loaded:
    """A run as read back: `problems` names each line or file that could not be used, and why."""

    run: Run
    points: tuple[Point, ...]
    problems: list[str]


class Store:
    """The open run directory of a sweep; only the first rank has one. Use as a context manager, or call `close`."""

    def __init__(self, directory: Path, run: Run, points: int) -> None:
        """Take over the open file descriptor `points`; callers use `Store.create`."""
        self.directory = directory
        self.run = run
        self._points: int | None = points
        self._end = os.fstat(points).st_size

    @classmethod
    def create(cls, directory: str | os.PathLike[str], run: Run, *, overwrite: bool = False) -> "Store":
        """Make `directory` (and its parents) and store `run` in it.

        With `overwrite`, a run that is there already is removed first: the files ddlbench wrote, and no others.
        Raises `UsageError` when there is a run and `overwrite` is not asked for, or when files of these names are there
        that belong to no run of ddlbench; `DdlbenchError` naming path and errno when the directory cannot be written.
        """
        place = Path(directory)
        _make(place)
        _clear(place, overwrite)
        store = cls(place, run, _create_points(place))
        try:
            store.update(run)
        except BaseException:
            store.close()
            (place / POINTS_FILE).unlink(missing_ok=True)
            raise
        return store

    @classmethod
    def resume(cls, directory: str | os.PathLike[str]) -> tuple["Store", Loaded]:
        """Open the run in `directory` to go on with it; return the store and what is there.

        A last line that was cut off is removed. Raises `UsageError` when there is no run, or when another sweep is
        writing to it; `DdlbenchError` naming path and errno when it cannot be opened.
        """
        place = Path(directory)
        loaded = load(place)
        path = place / POINTS_FILE
        with naming(path, "open"):
            points = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        _lock(points, place)
        with naming(path):
            whole = path.read_bytes().rfind(b"\n") + 1
            os.ftruncate(points, whole)
        return cls(place, loaded.run, points), loaded

    def append(self, point: Point) -> None:
        """Store one finished point; it is on disk on return.

        Raises `DdlbenchError` naming path and errno when it cannot be; the points before it stay, whole.
        """
        if self._points is None:
            raise ValueError("the store is closed")
        line = (_dumps(point.to_json()) + "\n").encode()
        with naming(self.directory / POINTS_FILE):
            try:
                write_all(self._points, line)
            except OSError:
                self._cut_off()
                raise
        self._end += len(line)

    def _cut_off(self) -> None:
        """Remove what a failed write left of its line."""
        if self._points is not None:
            with suppress(OSError):
                os.ftruncate(self._points, self._end)

    def update(self, run: Run) -> None:
        """Replace `run.json`, in one step, by what is known of the run now (trust flags, links, proofs)."""
        write_atomically(self.directory / RUN_FILE, _dumps(run.to_json(), indent=2) + "\n")
        self.run = run

    def finish(self) -> None:
        """Mark the run as finished and close the store; `DdlbenchError` as for `append`."""
        try:
            self.update(replace(self.run, finished=True))
        finally:
            self.close()

    def close(self) -> None:
        """Close the file of points; a run that was not finished stays marked so."""
        if self._points is not None:
            os.close(self._points)
            self._points = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(directory: str | os.PathLike[str]) -> Loaded:
    """Read the run in `directory`, using every line that can be used and naming in `problems` those that cannot.

    The points of a sweep finish in any order; they are returned in the order of its configuration and sizes.
    Raises `UsageError` when there is no run, or `run.json` is broken or of a newer version.
    """
    place = Path(directory)
    run = _load_run(place)
    problems: list[str] = []
    points = tuple(_load_points(place, problems))
    return Loaded(run, _in_order(run, points), problems)


def _in_order(run: Run, points: tuple[Point, ...]) -> tuple[Point, ...]:
    names = [run.config.get(key) for key in ("dtypes", "ops", "algorithms")]
    if not all(isinstance(column, list) for column in names):
        return points
    dtypes, ops, algorithms = ({str(name): at for at, name in enumerate(column or ())} for column in names)

    def place(point: Point) -> tuple[int, ...]:
        kind = (dtypes.get(point.dtype, len(dtypes)), ops.get(point.op, len(ops)))
        return (*kind, point.count, point.in_place, algorithms.get(point.algorithm, len(algorithms)))

    return tuple(sorted(points, key=place))


def _dumps(data: Any, indent: int | None = None) -> str:
    """Return `data` as ASCII JSON: a host name in any script cannot break a line."""
    return json.dumps(data, allow_nan=False, indent=indent, default=_plain)


def _plain(value: Any) -> Any:
    """Return the Python number of a numpy scalar."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a record cannot hold {value!r}")


def _make(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory} is a file; give a directory for the run")
    with naming(directory, "create"):
        directory.mkdir(parents=True, exist_ok=True)


def _clear(directory: Path, overwrite: bool) -> None:
    """See that `directory` holds no run, by removing the one there when `overwrite` says so."""
    found = [name for name in OURS if os.path.lexists(directory / name)]
    if not found:
        return
    if not _is_ours(directory, found):
        raise UsageError(f"{directory} holds {', '.join(found)} of no run of ddlbench; give another directory")
    if not overwrite:
        _refuse(directory)
    for name in found:
        with naming(directory / name, "remove"):
            (directory / name).unlink(missing_ok=True)


def _refuse(directory: Path) -> NoReturn:
    raise UsageError(f"{directory} already holds a run; give another directory, or --overwrite to replace it")


def _is_ours(directory: Path, found: list[str]) -> bool:
    """Return whether the files `found` are of a run, or of a start that was killed before its first line."""
    if RUN_FILE not in found:
        return found == [POINTS_FILE] and (directory / POINTS_FILE).stat().st_size == 0
    try:
        data = json.loads((directory / RUN_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


def _create_points(directory: Path) -> int:
    """Open the file of points; of two runs that start in one directory at once, one is refused here."""
    path = directory / POINTS_FILE
    with naming(path, "create"):
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            _refuse(directory)
    _lock(descriptor, directory)
    sync_directory(directory)
    return descriptor


def _lock(points: int, directory: Path) -> None:
    """Keep other sweeps out until the file of points is closed, however that comes about."""
    try:
        fcntl.flock(points, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(points)
        raise UsageError(f"another sweep is writing to {directory}; give another directory") from None
    except OSError:
        return  # a file system without locks


def _load_run(directory: Path) -> Run:
    path = directory / RUN_FILE
    if not path.exists():
        raise UsageError(f"{directory} holds no run: there is no {RUN_FILE} in it")
    with naming(path, "read"):
        data = path.read_bytes()
    try:
        return Run.from_json(_loads(data), str(path))
    except ValueError as error:
        raise UsageError(f"{path}: broken JSON: {error}") from None


def _load_points(directory: Path, problems: list[str]) -> Iterator[Point]:
    path = directory / POINTS_FILE
    if not path.exists():
        problems.append(f"{POINTS_FILE} is missing")
        return
    with naming(path, "read"), path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            where = f"{POINTS_FILE} line {number}"
            try:
                yield Point.from_json(_loads(line), where)
            except UsageError as error:
                problems.append(str(error))
            except ValueError as error:
                fault = "broken" if line.endswith(b"\n") else "cut off"
                problems.append(f"{where}: {fault}: {error}")


def _loads(data: bytes) -> Any:
    """Return the value of the JSON text `data`; raises `ValueError` for anything but JSON."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
