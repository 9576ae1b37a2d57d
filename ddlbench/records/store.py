"""Writing a run directory: one line on disk per finished point while the sweep goes on."""

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np

from ddlbench.errors import UsageError
from ddlbench.records.disk import naming, remove_leftovers, sync_directory, write_all, write_atomically
from ddlbench.records.point import Point
from ddlbench.records.reading import POINTS_FILE, RUN_FILE, Loaded, is_json, read, read_run
from ddlbench.records.run import FORMAT, Run

OURS = ("report.html", "results.csv", "scaling.csv", POINTS_FILE, RUN_FILE)
"""What ddlbench writes into a run directory."""


class Store:
    """The open run directory of a sweep; only the first rank has one. Use as a context manager, or call `close`.

    The file of points is locked until it is closed, however that comes about: of two sweeps into one directory the
    second is refused. Where the file system has no locks, only two that start there at once are told apart.
    """

    def __init__(self, directory: Path, run: Run, points: int) -> None:
        """Take over the open file descriptor `points`; callers use `Store.create` or `Store.resume`."""
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
        held = _held(place, overwrite)
        points = _open_points(place, new=not overwrite)
        store = cls(place, run, points)
        try:
            store._empty(points, held)
            store.update(run)
        except BaseException:
            store.close()
            (place / POINTS_FILE).unlink(missing_ok=True)
            raise
        return store

    @classmethod
    def resume(cls, directory: str | os.PathLike[str]) -> tuple["Store", Loaded]:
        """Open the run in `directory` to go on with it; return the store and what is there.

        A last line that was cut off is removed; `problems` still name it. Raises `UsageError` when there is no run,
        when another sweep is writing to it, or when lines of it are of a newer version; `DdlbenchError` naming path and
        errno when it cannot be opened.
        """
        place = Path(directory)
        read_run(place)
        points = _open_points(place, new=False)
        try:
            loaded = read(place, newer=False)
            _mend(points, place / POINTS_FILE)
            remove_leftovers(place, OURS)
            return cls(place, loaded.run, points), loaded
        except BaseException:
            os.close(points)
            raise

    def _empty(self, points: int, held: list[str]) -> None:
        """Remove the run that was in the directory, `run.json`, which says whose the files are, last."""
        with naming(self.directory / POINTS_FILE):
            os.ftruncate(points, 0)
        self._end = 0
        for name in held:
            with naming(self.directory / name, "remove"):
                (self.directory / name).unlink(missing_ok=True)
        remove_leftovers(self.directory, OURS)

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
        _replace(self.directory, run)
        self.run = run

    def finish(self, run: Run | None = None) -> None:
        """Mark the run, as it is known at its end, as finished; `DdlbenchError` as for `append`."""
        self.update(replace(run or self.run, finished=True))

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


def add_fault(directory: str | os.PathLike[str], created: str, fault: Mapping[str, Any]) -> None:
    """Store why the run of that moment in `directory` ended, where the rank that keeps it cannot; a fault there stays.

    Raises `UsageError` when another run, or none, is there, and `DdlbenchError` when it cannot be written.
    """
    run = read_run(directory)
    if run.created != created or run.finished:
        raise UsageError(f"the run in {directory} is another one")
    if run.fault is None:
        _replace(Path(directory), replace(run, fault=fault))


def _replace(directory: Path, run: Run) -> None:
    write_atomically(directory / RUN_FILE, _dumps(run.to_json(), indent=2) + "\n")


def _dumps(data: Any, indent: int | None = None) -> str:
    """Return `data` as ASCII JSON: a host name in any script cannot break a line."""
    return json.dumps(data, allow_nan=False, indent=indent, default=_plain)


def _plain(value: Any) -> Any:
    """Return the Python number of a numpy scalar."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a record cannot hold {value!r}")


def _make(directory: Path) -> None:
    with naming(directory, "create"):
        if directory.exists() and not directory.is_dir():
            raise UsageError(f"{directory} is a file; give a directory for the run")
        directory.mkdir(parents=True, exist_ok=True)


def _held(directory: Path, overwrite: bool) -> list[str]:
    """Return which files of a run `directory` holds; raises `UsageError` unless they may be removed."""
    found = [name for name in OURS if os.path.lexists(directory / name)]
    if found and not _is_ours(directory, found):
        raise UsageError(f"{directory} holds {', '.join(found)} of no run of ddlbench; give another directory")
    if found and not overwrite:
        _refuse(directory)
    return [name for name in found if name != POINTS_FILE]


def _refuse(directory: Path) -> NoReturn:
    raise UsageError(f"{directory} already holds a run; give another directory, or --overwrite to replace it")


def _is_ours(directory: Path, found: list[str]) -> bool:
    """Return whether the files `found` are of a run, or of a start that was killed before its first line."""
    if RUN_FILE not in found:
        return found == [POINTS_FILE] and _is_empty(directory / POINTS_FILE)
    try:
        data = json.loads((directory / RUN_FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


def _is_empty(path: Path) -> bool:
    """Return whether `path` is a file of no bytes, and no link that leads nowhere."""
    with naming(path, "read"):
        return path.is_file() and path.stat().st_size == 0


def _open_points(directory: Path, *, new: bool) -> int:
    """Open the file of points, which must not be there when it is to be `new`, and keep other sweeps out of it."""
    path = directory / POINTS_FILE
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (os.O_EXCL if new else 0)
    with naming(path, "open"):
        try:
            points = os.open(path, flags, 0o666)
        except FileExistsError:
            _refuse(directory)
    try:
        _lock(points, path)
    except BaseException:
        os.close(points)
        raise
    sync_directory(directory)
    return points


def _lock(points: int, path: Path) -> None:
    """Lock the open file; raises `UsageError` when another sweep has it, or has put another one in its place."""
    with suppress(OSError):  # a file system without locks
        try:
            fcntl.flock(points, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _refuse_second(path.parent)
    if not path.exists() or not os.path.samestat(os.fstat(points), path.stat()):
        _refuse_second(path.parent)


def _refuse_second(directory: Path) -> NoReturn:
    raise UsageError(f"another sweep is writing to {directory}; give another directory, or wait for its end")


def _mend(points: int, path: Path) -> None:
    """Give the last line its end, when it is whole without one; remove it when a kill cut it off."""
    with naming(path):
        data = path.read_bytes()
        start = data.rfind(b"\n") + 1
        if is_json(data[start:]):
            write_all(points, b"\n")
        else:
            os.ftruncate(points, start)
