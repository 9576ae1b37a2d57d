"""How a command ends: one line for a user's mistake, from one rank, and no rank left waiting for another.

    agreed error        all ranks raise it      rank 0 writes the line, then all leave
    error on one rank   others may wait for it  that rank writes the line and aborts the job
    anything else       a defect                that rank writes its traceback and aborts the job

A launcher ends the job at the first rank that leaves with a status other than 0, so rank 0 must have spoken before
that.
"""

import contextlib
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ddlbench import _deadline
from ddlbench.bench.agreement import AgreedError, describe
from ddlbench.cli.faults import ABORT_SECONDS, within
from ddlbench.errors import DdlbenchError
from ddlbench.launch.started import launcher

INTERRUPTED = 130
LINGER_SECONDS = 5.0
"""How long ranks that cannot talk to rank 0 give it to start and speak."""
BARRIER_SECONDS = 30.0
"""How long ranks that met the same error wait for each other, and so for rank 0 to speak."""
SPEAK_SECONDS = 1.0
"""How long ranks without MPI give rank 0 to tell of a defect that all have met, before each tells of its own."""
INTERRUPT_SECONDS = 1.0
"""How long ranks that are interrupted give rank 0 to say so."""


class Interrupted(Exception):  # noqa: N818 - it is no error
    """The user wants no more of a command; the text says what is left of it."""


def ended(action: Callable[[], int | None]) -> int:
    """Run `action` and return the exit status, after saying on standard error what went wrong, if anything did."""
    with _silent_unless_first():
        try:
            return action() or 0
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - others must not wait for this rank
            return next(end for kind, end in ENDINGS if isinstance(error, kind))(error)


def on_first_rank(action: Callable[[], int]) -> int:
    """Run the `action` of a verb that needs no MPI: under a launcher on the first rank alone, the others being done."""
    if launcher().rank > 0:
        return 0
    try:
        return action()
    except DdlbenchError as error:
        _say(f"ddlbench: error: {describe(error)}")
        return error.exit_status


@contextlib.contextmanager
def _silent_unless_first() -> Iterator[None]:
    """Drop what ranks other than the first write to standard output: their help, their tables."""
    if launcher().rank == 0:
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _mpi() -> Any:
    """Return mpi4py's MPI when this process takes part in a job of several ranks, else None."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.size == 1:
        return None
    return mpi


def _first() -> bool:
    mpi = _mpi()
    return (launcher() if mpi is None else mpi.COMM_WORLD).rank == 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _plain(error: click.ClickException) -> str:
    """Return click's message as one line."""
    return " ".join(error.format_message().split())


def _left(leave: click.exceptions.Exit) -> int:
    return leave.exit_code


def _misused(error: click.ClickException) -> int:
    return _refused_alike(_plain(error), error.exit_code)


def _agreed(error: AgreedError) -> int:
    return _refused_alike(str(error), error.exit_status)


def _refused_alike(message: str, status: int) -> int:
    """End a job in which every rank met the same error: rank 0 says so before any leaves."""
    if _first():
        _say(f"ddlbench: error: {message}")
    _wait_for_first()
    return status


def _wait_for_first() -> None:
    """Let rank 0 speak: by MPI where all ranks take part in it, by time where they do not.

    Nobody waits the whole time under a launcher that ends the job with its first failing rank. There is no barrier
    before MPI is in use, for which of the ranks would come to it?
    """
    mpi = _mpi()
    if mpi is not None:
        with within(BARRIER_SECONDS, "telling the other ranks of an error"):
            mpi.COMM_WORLD.Barrier()
    elif launcher().rank > 0:
        time.sleep(LINGER_SECONDS)


def _refused(error: DdlbenchError) -> int:
    """End after an error that only this rank may have met."""
    mpi = _mpi()
    if mpi is None:
        return _refused_alike(describe(error), error.exit_status)
    where = f"rank {mpi.COMM_WORLD.rank} on {platform.node()}"
    return _cut_short(f"ddlbench: error: {where}: {describe(error)}", error.exit_status)


def _cut_short(text: str, status: int) -> int:
    """Say `text` and end the whole job with `status`."""
    mpi = _mpi()
    if text:
        if mpi is None and not _first():
            time.sleep(SPEAK_SECONDS)
        _say(text)
    if mpi is not None:
        _deadline.arm(ABORT_SECONDS, "", status)
        mpi.COMM_WORLD.Abort(status)
    return status


def _interrupted(error: BaseException) -> int:
    """End at the user's wish; the ranks are told one by one, so that those after the first wait for it to speak."""
    detail = str(error)
    if not _first():
        time.sleep(INTERRUPT_SECONDS)
        return _cut_short("", INTERRUPTED)
    return _cut_short(f"ddlbench: interrupted{detail and ': '}{detail}", INTERRUPTED)


def _unread(_: BrokenPipeError) -> int:
    """End because nobody reads the output any more; Python must not find that out again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _cut_short("ddlbench: error: standard output was closed", 1)


def _defect(error: BaseException) -> int:
    trace = "".join(traceback.format_exception(error)).rstrip()
    text = " ".join(str(error).split())
    where = f"rank {launcher().rank} on {platform.node()}: " if launcher().size > 1 else ""
    return _cut_short(f"{trace}\nddlbench: error: {where}unexpected {type(error).__name__}: {text}", 1)


ENDINGS: tuple[tuple[Any, Callable[[Any], int]], ...] = (
    (click.exceptions.Exit, _left),
    ((click.Abort, KeyboardInterrupt, Interrupted), _interrupted),
    (click.ClickException, _misused),
    (AgreedError, _agreed),
    (DdlbenchError, _refused),
    (BrokenPipeError, _unread),
    (BaseException, _defect),
)
"""How each kind of error ends a command: the first kind that fits."""
