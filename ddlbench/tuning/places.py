"""Where tables lie: the file that DDLBENCH_TUNING names, else one for each machine and shape in the user's settings.

    ~/.config/ddlbench/tuning/amd-epyc-7543/open-mpi/2-nodes-of-4-ranks.json

A machine is the same when its processor and its MPI library are; the folder stands below XDG_CONFIG_HOME where set.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ddlbench.errors import UsageError
from ddlbench.tuning.table import Machine, Shape

VARIABLE = "DDLBENCH_TUNING"
NONE = "none"
"""What the variable says where no table is to be used."""


def named(environ: Mapping[str, str] = os.environ) -> str:
    """Return what the variable says, "" where it says nothing."""
    return environ.get(VARIABLE, "")


def default(machine: Machine, shape: Shape, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file for the ranks of `shape` on `machine`; its grid does not count.

    Raises `UsageError` where the user has no folder for settings.
    """
    folder = _settings(environ) / "ddlbench" / "tuning" / _slug(machine.processor) / _slug(machine.mpi)
    return folder / f"{_slug(shape.placed)}.json"


def _settings(environ: Mapping[str, str]) -> Path:
    """Return the folder of the user's settings; a relative XDG_CONFIG_HOME is to be ignored, says its specification."""
    given = Path(environ.get("XDG_CONFIG_HOME", ""))
    if given.is_absolute():
        return given
    try:
        return Path.home() / ".config"
    except RuntimeError:
        raise UsageError("there is no home directory for the table: say where with --out FILE") from None


def _slug(text: str) -> str:
    """Return `text` as the name of a file: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "unknown"
