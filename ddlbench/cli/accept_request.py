"""What `ddlbench accept` is asked for, checked before minutes are spent on measuring."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ddlbench.accept import record
from ddlbench.accept import rules as ruling
from ddlbench.accept.rules import Rules
from ddlbench.cost import described
from ddlbench.cost.machine import Machine
from ddlbench.errors import UsageError

FILES = ("accept.html", "accept.csv", "accept.xml", "hosts", record.FILE)
"""The page, the figures, JUnit, the largest good group, and last the record: where it is, all of them are."""


@dataclass(frozen=True)
class Request:
    """What the command line asks for, as it was written."""

    topology: str | None
    baseline: str | None
    rules: str | None
    out: str | None
    overwrite: bool


@dataclass(frozen=True)
class Asked:
    """The same, checked: what is expected, what is demanded, and where the files go."""

    machine: Machine | None
    baseline: Mapping[str, Any] | None
    rules: Rules
    out: Path

    @property
    def against(self) -> str:
        """What figures are held against, in words."""
        if self.machine:
            return f"the topology {self.machine.name}; the peers' median where it says nothing"
        if self.baseline:
            return f"the acceptance of {self.baseline['created']}; the peers' median where it says nothing"
        return "the peers' median"


def checked(request: Request) -> Asked:
    """Return the request checked; raises `UsageError` naming what is wrong."""
    if request.topology is not None and request.baseline is not None:
        raise UsageError("--topology and --baseline: give one of them, figures cannot be expected from both")
    if find_spec("scipy") is None:
        raise UsageError("accept needs scipy, which this Python lacks: python -m pip install scipy")
    machine = None if request.topology is None else described.read(described.find(request.topology))
    baseline = None if request.baseline is None else record.read(Path(request.baseline))
    rules = Rules() if request.rules is None else ruling.read(Path(request.rules))
    out = Path(request.out or Path("reports", f"accept-{datetime.now(UTC):%Y%m%d-%H%M%S}"))
    _check_out(out, overwrite=request.overwrite)
    return Asked(machine, baseline, rules, out)


def _check_out(out: Path, *, overwrite: bool) -> None:
    """Make the folder `out`; refuse one that cannot be written, or holds an acceptance already."""
    there = [name for name in FILES if (out / name).exists()]
    if there and not overwrite:
        raise UsageError(f"--out {out}: {out / there[0]} exists; --overwrite replaces it")
    trial = out / f".accept.{os.getpid()}.tmp"
    try:
        out.mkdir(parents=True, exist_ok=True)
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise UsageError(f"--out {out}: cannot write there: {error.strerror}") from None
