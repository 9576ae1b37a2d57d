"""Programs that are started for a comparison: their output in a log, ended in time, and the reason when they failed."""

import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from ddlbench.errors import DdlbenchError

GRACE_SECONDS = 5.0
"""How long a program that is told to end has for it."""
COMPLAINT = re.compile(r"\berror\b ?:", re.IGNORECASE)
LAST_LINES = 200
LONGEST = 300
PYTHON_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
"""What would lead a Python of another environment back to this one's packages."""


class PeerError(DdlbenchError):
    """One of those that are compared cannot take part; the others go on without it.

    `status` is that of its points: "skipped" for what cannot be had here, "failed" for what broke.
    """

    def __init__(self, text: str, status: Literal["skipped", "failed"] = "skipped") -> None:
        super().__init__(text)
        self.status = status


def environ(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `variables` over it and nothing of this Python's own."""
    kept = {name: value for name, value in os.environ.items() if name not in PYTHON_VARIABLES}
    return kept | dict(variables)


def run(command: Sequence[str], log: Path, variables: Mapping[str, str], *, seconds: float, cwd: Path) -> None:
    """Run `command` to its end in the folder `cwd`, its output added to `log`.

    Raises `PeerError` with the reason when it cannot be started, ends with a status other than 0, or is not done after
    `seconds`; then it and all it started are ended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        output.write(f"== {' '.join(command)}\n".encode())
        output.flush()
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environ(variables),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise PeerError(f"{command[0]} cannot be started: {error.strerror}") from error
        status = _status(process, seconds)
    if status is None:
        raise PeerError(f"{Path(command[0]).name} was not done after {seconds:g} s; see {log}", "failed")
    if status:
        raise PeerError(reason(log, f"{Path(command[0]).name} ended with status {status}"), "failed")


def _status(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Wait for the end of `process` and return its status; None when it had to be ended."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs: politely, so that a launcher ends its ranks, then all of its group for certain."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def reason(log: Path, otherwise: str) -> str:
    """Return the last line of the latest program's output in `log` that names an error, else its last line.

    Without any output it is `otherwise`.
    """
    with log.open(encoding="utf-8", errors="replace") as lines:
        last = deque(lines, maxlen=LAST_LINES)
    own = []
    for line in reversed(last):
        if line.startswith("== "):
            break
        own.append(" ".join(line.split()))
    complaints = (line for line in own if COMPLAINT.search(line))
    text = next(complaints, None) or next(filter(None, own), otherwise)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
