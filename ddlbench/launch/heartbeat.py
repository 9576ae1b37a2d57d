"""The sign of life of a sweep that `ddlbench launch` started: a file that its first rank renews while it runs.

The sweep finds out itself when it stalls. This is for the case that nobody of it can: the first rank's host is lost, or
the launcher hangs after its ranks are gone.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

VARIABLE = "DDLBENCH_HEARTBEAT"
"""Names the file to the ranks."""
GRACE_SECONDS = 10.0
"""How much longer than the sweep's own time limit nobody need be heard."""


class Heartbeat:
    """Watches the file `path`: call it now and then, it says why the job is to be ended, or None.

    What counts is when the file was last seen to change, by this process's clock: hosts may not agree on the time.
    Nothing is said before the file is there.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._seen: tuple[int, int] | None = None
        self._changed_at = clock()
        self._limit_s: float | None = None

    def __call__(self) -> str | None:
        """Return why the job is to be ended."""
        now = self._clock()
        with suppress(OSError):
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_ino)
            if stamp != self._seen:
                self._seen, self._changed_at, self._limit_s = stamp, now, self._read()
        silent = now - self._changed_at
        if self._seen is None or self._limit_s is None or silent <= self._limit_s + GRACE_SECONDS:
            return None
        return f"no sign of life for {silent:.0f} s, with a time limit of {self._limit_s:g} s"

    def _read(self) -> float | None:
        """Return the time limit that holds now; the one before when the file is not whole, None for none."""
        try:
            told = json.loads(self._path.read_bytes())["limit_s"]
        except (OSError, ValueError, KeyError, TypeError):
            return self._limit_s
        return float(told) if isinstance(told, int | float) else None

    def remove(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


def beat(limit_s: float | None, environ: "os._Environ[str] | dict[str, str]" = os.environ) -> None:
    """Renew the file, where one is asked for: the first rank lives, and nothing may stand still longer than `limit_s`.

    None stands for no limit. A file that cannot be written is no reason to end a sweep.
    """
    if path := environ.get(VARIABLE):
        with suppress(OSError):
            Path(path).write_text(json.dumps({"limit_s": limit_s}), encoding="ascii")
