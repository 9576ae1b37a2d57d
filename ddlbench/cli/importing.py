"""From logs to a run directory, with what could not be read told on standard error."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from ddlbench.cli import outputs
from ddlbench.dtypes import ALIASES
from ddlbench.errors import UsageError, unknown
from ddlbench.foreign import Given, Imported, points_of, read_log
from ddlbench.foreign.elements import ITEMSIZES
from ddlbench.foreign.points import repeated, run_of
from ddlbench.records import Store
from ddlbench.report.units import counted

MOST = 10**9
"""Ranks and nodes that a user may give."""


@dataclass(frozen=True)
class Request:
    """What the command line asks for, as it was typed."""

    logs: tuple[str, ...]
    command: tuple[str, ...]
    out: str | None = None
    overwrite: bool = False
    ranks: str | None = None
    nodes: str | None = None
    dtype: str | None = None
    device: str | None = None
    in_place: bool = False


def run(request: Request) -> int:
    """Read the logs and store their points; return 0 when there is one at least.

    Raises `UsageError` when nothing could be read, or not without options that are not given.
    """
    imported = [_imported(text, request) for text in request.logs]
    notices = [notice for one in imported for notice in one.notices] + repeated(imported)
    if not any(one.points for one in imported):
        _refuse(notices)
    place = _store(imported, request)
    sys.stderr.write("".join(f"ddlbench: warning: {notice}\n" for notice in notices))
    for one in imported:
        points = counted(len(one.points), "point")
        sys.stdout.write(f"# {one.log.name}: {points} of {', '.join(one.programs) or 'no program'}\n")
    return outputs.render(str(place))


def _imported(text: str, request: Request) -> Imported:
    """Return what the argument `text`, a LOG or NAME=LOG, holds."""
    name, equals, path = text.partition("=")
    if not (equals and name) or os.path.exists(text):  # noqa: PTH110 - Path.exists raises for a name that is too long
        name, path = "", text
    return points_of(read_log(Path(path)), _given(request, name or None))


def _given(request: Request, name: str | None) -> Given:
    return Given(
        ranks=_count("--ranks", request.ranks),
        nodes=_count("--nodes", request.nodes),
        dtype=_dtype(request.dtype),
        device=request.device,
        in_place=request.in_place,
        name=name,
    )


def _count(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MOST)) and 1 <= int(text) <= MOST):
        raise UsageError(f"{option} {text!r}: expected a whole number from 1 to {MOST}")
    return int(text)


def _dtype(text: str | None) -> str | None:
    name = None if text is None else ALIASES.get(text, text)
    if name is not None and name not in ITEMSIZES:
        raise unknown("dtype", name, ITEMSIZES)
    return name


def _refuse(notices: list[str]) -> NoReturn:
    """Say why nothing could be read: the last reason as the error."""
    sys.stderr.write("".join(f"ddlbench: warning: {notice}\n" for notice in notices[:-1]))
    raise UsageError(notices[-1])


def _store(imported: Sequence[Imported], request: Request) -> Path:
    started = datetime.now(UTC)
    place = Path(request.out) if request.out else Path("reports", f"import-{started:%Y%m%d-%H%M%S}")
    with Store.create(place, run_of(imported, request.command), overwrite=request.overwrite) as store:
        for one in imported:
            for point in one.points:
                store.append(point)
        store.finish()
    return place
