"""Waiting for what other processes do, and seeing whether they are still there."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def eventually(holds: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait until `holds` returns something true and return that; what it returned last when it never does."""
    end = time.monotonic() + seconds
    while not (found := holds()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def ended(number: int | str) -> bool:
    """Say whether the process has ended; one that nobody has waited for yet has.

    A process that was killed may be seen running for a moment: ask `eventually`.
    """
    try:
        state = Path("/proc", str(number), "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state.rpartition(")")[2].split()[0] in "ZX"
