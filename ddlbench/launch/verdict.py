"""What came of a job: its record says so, not the exit status of its launcher, which may be 0 when a host was lost."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddlbench.errors import UsageError
from ddlbench.launch.running import Ended

INCOMPLETE = 3
INTERRUPTED = 130
REFUSED = 2
"""What ddlbench's verbs end with when they refuse a request, after they have said why."""
RUN_FILE, POINTS_FILE = "run.json", "points.jsonl"


@dataclass(frozen=True)
class Expected:
    """The run directory that a job is to leave, and what was there before it.

    `goes_on` says that a run which is there already is gone on with, `again` is the command that goes on with this one.
    """

    directory: Path
    goes_on: bool
    again: tuple[str, ...]
    before: tuple[int, int] | None

    @classmethod
    def of(cls, directory: Path, again: tuple[str, ...], *, goes_on: bool) -> "Expected":
        """Return what to expect of a job that is about to start."""
        return cls(directory, goes_on, again, _stamp(directory / RUN_FILE))

    @property
    def began(self) -> bool:
        """Whether the job has opened its run: a record that was there before is another run's."""
        return _stamp(self.directory / RUN_FILE) not in (None, self.before)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return when the file was written and which one it is; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


@dataclass(frozen=True)
class Verdict:
    """The exit status, and what to say; "" when there is nothing to say."""

    status: int
    text: str = ""


def points_kept(directory: Path) -> str:
    """Return how many points of the run in `directory` are stored, in words."""
    points = directory / POINTS_FILE
    stored = points.read_bytes().count(b"\n") if points.exists() else 0
    return f"{stored} {'point is' if stored == 1 else 'points are'} kept in {directory}"


def judged(ended: Ended, expected: Expected | None, kept: Callable[[Path], str] = points_kept) -> Verdict:
    """Return what came of a job that `ended`, from the record it was `expected` to leave; None for other programs.

    The status is 0 only for a run that its record calls finished. What the ranks refused with 2 stays: the request was
    wrong, and nothing began.
    `kept` says what is there of a run that is not, and what is missing.
    """
    if ended.interrupted is not None:
        return Verdict(INTERRUPTED, f"interrupted; {_left(expected, kept)}")
    if expected is None:
        return _without_record(ended)
    finished = _finished(expected)
    if finished and ended.stalled is None:
        return Verdict(_status(ended.status), "")
    if ended.stalled is None and not expected.began and ended.status == REFUSED:
        return Verdict(ended.status)
    why = ended.stalled or _ending(ended.status)
    return Verdict(INCOMPLETE, f"the run is not complete: {why}; {_left(expected, kept)}")


def _without_record(ended: Ended) -> Verdict:
    if ended.stalled is not None:
        return Verdict(INCOMPLETE, ended.stalled)
    return Verdict(_status(ended.status))


def _status(status: int) -> int:
    """Return an exit status for a launcher's, which is negative when a signal ended it."""
    return 128 - status if status < 0 else status


def _ending(status: int) -> str:
    if status < 0:
        return f"the launcher was ended by signal {-status}"
    return f"the launcher ended with status {status}" + (", which says nothing" if status == 0 else "")


def _finished(expected: Expected) -> bool:
    """Say whether the record is this job's and says that the run came to its end."""
    from ddlbench.records import read_run

    if not (expected.goes_on or expected.began):
        return False
    try:
        return read_run(expected.directory).finished
    except UsageError:
        return False


def _left(expected: Expected | None, kept: Callable[[Path], str]) -> str:
    """Return what is there of a run, and how to go on with it."""
    if expected is None:
        return "all ranks were ended"
    if not (expected.goes_on or expected.began):
        return f"nothing was written to {expected.directory}"
    return f"{kept(expected.directory)}; the rest is measured by: {shlex.join(expected.again)}"
