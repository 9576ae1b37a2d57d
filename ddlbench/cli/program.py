"""The command that a launch or a lab runs on every rank, and what came of it where that is a sweep."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.launch import verdict
from ddlbench.launch.layout import grid_of
from ddlbench.launch.running import Ended
from ddlbench.launch.verdict import Expected
from ddlbench.records import read_run


@dataclass(frozen=True)
class Program:
    """The words to run on every rank, and the run directory they are to leave; None for other programs than a sweep."""

    words: tuple[str, ...]
    directory: Path | None = None
    goes_on: bool = False

    def expected(self, own: tuple[str, ...]) -> Expected | None:
        """Return what to expect of the job that is about to start; `own` are the words before the program's."""
        if self.directory is None:
            return None
        again = (*own, "--", "ddlbench", "sweep", "--resume", str(self.directory))
        return Expected.of(self.directory, again, goes_on=self.goes_on)


def program_of(words: tuple[str, ...], mode: str | None = None) -> Program:
    """Return what to run: of a sweep the options are checked here, once, and it is told where to put its results.

    Raises `UsageError` for a mode that only a sweep understands.
    """
    at = _sweep_at(words)
    if at is None:
        if mode is not None:
            raise UsageError(f"--mode {mode} is for ddlbench sweep, the command is {words[0]}")
        return Program(words)
    from ddlbench.cli.sweep import command as sweep

    given = sweep.make_context("ddlbench sweep", [*words[at + 1 :]]).params
    if given["resume"] is not None:
        return Program(words, Path(given["resume"]), goes_on=True)
    more = _of_mode(mode, given)
    out = given["out"] or str(Path("reports", f"sweep-{datetime.now(UTC):%Y%m%d-%H%M%S}"))
    more += [] if given["out"] else ["--out", out]
    return Program((*words, *more), Path(out))


def _sweep_at(words: tuple[str, ...]) -> int | None:
    """Return where the verb `sweep` of ddlbench stands, whatever is before ddlbench; None when it is not there."""
    pairs = enumerate(pairwise(words), 1)
    return next((at for at, (word, verb) in pairs if Path(word).name == "ddlbench" and verb == "sweep"), None)


def _of_mode(mode: str | None, given: Mapping[str, object]) -> list[str]:
    """Return the options of a sweep that measures a mode, beside the algorithms it was given or the MPI library's."""
    if mode is None:
        return []
    grid = grid_of(mode)
    algorithms = [mode] if given["algorithms"] else [mode, "mpi"]
    return ["-a", ",".join(algorithms), *(["--grid", str(grid)] if grid and given["grid"] is None else [])]


def own_words(words: tuple[str, ...], arguments: list[str], otherwise: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of the command line `arguments` before those of the program, `otherwise` if it is not behind."""
    own = arguments[: len(arguments) - len(words)] if tuple(arguments[-len(words) :]) == words else otherwise
    return ("ddlbench", *(word for word in own if word != "--"))


def judged(ended: Ended, expected: Expected | None) -> int:
    """Return the exit status of a job that `ended`, after saying what is to be said of it."""
    came = verdict.judged(ended, expected, lambda directory: "; ".join(_left(directory, expected)))
    if came.text:
        sys.stderr.write(f"ddlbench: {'' if came.status == verdict.INTERRUPTED else 'error: '}{came.text}\n")
    return came.status


def _left(directory: Path, expected: Expected | None) -> Iterator[str]:
    """Yield what ended a run that is not finished, what is there of it, and what is missing.

    Ranks tell the first themselves, but not where they write by way of a launcher that is gone.
    """
    from ddlbench.cli.missing import missing
    from ddlbench.report.fault import fault_text

    try:
        if expected is not None and expected.began and (fault := fault_text(read_run(directory))):
            yield fault
        yield missing(directory)
    except DdlbenchError:
        yield verdict.points_kept(directory)
