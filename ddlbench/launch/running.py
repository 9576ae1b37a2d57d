"""Running a job under watch: until it ends, is interrupted, or shows no sign of life; nothing of it is left then."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ddlbench.errors import UsageError
from ddlbench.launch.started import SIZE_AND_RANK

POLL_SECONDS = 0.1
LOOK_SECONDS = 1.0
GRACE_SECONDS = 2.0
"""How long a launcher that is told to end has for ending its ranks, here and on other hosts; and how long ranks have
whose launcher ended before them, to say and store what they know of it."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Watch = Callable[[], str | None]
"""Says why a job is to be ended, None while it may go on; asked once a second."""


@dataclass(frozen=True)
class Ended:
    """How a job ended: the launcher's exit status, the signal that asked for the end, or why it `stalled`."""

    status: int
    interrupted: int | None = None
    stalled: str | None = None


def run(command: Sequence[str], environ: Mapping[str, str], watch: Watch) -> Ended:
    """Run `command` to its end under `watch`; a signal that comes meanwhile ends it within three seconds.

    The command is given a session of its own, so that only this process decides who gets which signal, and whoever of
    it is left at the end can be found. Raises `UsageError` when it cannot be started.
    """
    with _caught() as signals:
        try:
            process = subprocess.Popen(command, stdin=_input(), env=dict(environ), start_new_session=True)
        except OSError as error:
            raise UsageError(f"{command[0]} cannot be started: {error.strerror}") from None
        try:
            stalled = _wait(process, watch, signals)
        finally:
            end(process, signal.SIGTERM, GRACE_SECONDS)
        return Ended(process.returncode, signals[0] if signals else None, stalled)


def _input() -> int | None:
    """Return no input in place of a terminal: only this process's group may read that."""
    return subprocess.DEVNULL if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty() else None


@contextmanager
def _caught() -> Iterator[list[int]]:
    """Give a list that the signals go into which would end this process."""
    signals: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        signals.append(number)

    with handled(SIGNALS, note):
        yield signals


@contextmanager
def handled(numbers: Iterable[int], handler: Any) -> Iterator[None]:
    """Have `handler` called for the signals `numbers` inside, but for those that are ignored, as nohup asks for."""
    theirs = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, handler) for number in theirs}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _wait(process: subprocess.Popen[bytes], watch: Watch, signals: list[int]) -> str | None:
    """Wait until `process` ends or a signal comes; return why when `watch` wants it ended."""
    look = time.monotonic() + LOOK_SECONDS
    while not signals:
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return None
        if time.monotonic() >= look:
            if stalled := watch():
                return stalled
            look = time.monotonic() + LOOK_SECONDS
    return None


def end(process: subprocess.Popen[bytes], number: int, grace: float) -> None:
    """End `process` if it still runs, by the signal `number`, and whatever of its session runs after `grace` seconds.

    It must have been started as the leader of a session.
    """
    deadline = time.monotonic() + grace
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    while any(map(_is_rank, session_of(process.pid))) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for member in session_of(process.pid):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(member, signal.SIGKILL)
    process.wait()


def _is_rank(process: int) -> bool:
    """Say whether a launcher has started this process as a rank; its own daemons are not waited for."""
    names = {f"{rank}=".encode() for _, rank in SIZE_AND_RANK if rank not in os.environ}
    with suppress(OSError):
        return any(text.startswith(tuple(names)) for text in Path(f"/proc/{process}/environ").read_bytes().split(b"\0"))
    return False


def session_of(leader: int) -> list[int]:
    """Return the processes of this machine in the session of `leader`, which may have ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            # pid (name) state ppid pgrp session: the name may hold anything, brackets and blanks too
            rest = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(rest[3]) == leader and rest[0] not in "ZX":
                found.append(int(path.parent.name))
    return found
