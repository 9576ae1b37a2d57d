"""What ended a run early, and where each rank stood then, as the record has it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddlbench.records import Run
from ddlbench.report.placement import spans
from ddlbench.report.units import size_text

ROWS = 40
"""Rows of the table; run.json has all ranks."""
HOSTS = 3
"""Hosts that are named before the rest are only counted."""


@dataclass(frozen=True)
class Standing:
    """Ranks that stood at the same place; `silent` when nobody heard from them."""

    ranks: str
    hosts: str
    where: str
    silent: bool


def fault_text(run: Run) -> str:
    """Say what ended a run early, in which point, and whom nobody heard from; "" where nothing did."""
    if run.fault is None:
        return ""
    what, silent = str(run.fault.get("what") or "not recorded"), [one for one in standings(run) if one.silent]
    parts = [what, _point(run.fault.get("point"), what)]
    parts += [f"nobody heard from {_counted(standing)}" for standing in silent[:HOSTS]]
    parts += ["nor from more ranks, listed below"] if len(silent) > HOSTS else []
    return "; ".join(filter(None, parts))


def _counted(standing: Standing) -> str:
    noun = "rank" if standing.ranks.isdecimal() else "ranks"
    return f"{noun} {standing.ranks} ({standing.hosts})"


def _point(point: Any, what: str) -> str:
    """Return the point that was measured in words, unless `what` names it."""
    algorithm = str(point.get("algorithm") or "") if isinstance(point, Mapping) else ""
    if not algorithm or algorithm in what:
        return ""
    size = size_text(point["nbytes"]) if isinstance(point.get("nbytes"), int) else ""
    words = [algorithm, size, *(str(point.get(name) or "") for name in ("dtype", "op"))]
    return f"while it measured {' '.join(filter(None, words))}"


def standings(run: Run) -> list[Standing]:
    """Return where the ranks stood when the fault was found, those nobody heard from first, alike ones together."""
    fault = run.fault or {}
    silent = {rank for rank in _list(fault.get("silent")) if isinstance(rank, int)}
    alike: dict[tuple[bool, str], list[Mapping[str, Any]]] = {}
    for told in _list(fault.get("ranks")):
        if isinstance(told, Mapping) and isinstance(told.get("rank"), int):
            alike.setdefault((told["rank"] in silent, str(told.get("where", ""))), []).append(told)
    ordered = sorted(alike.items(), key=lambda item: (not item[0][0], item[1][0]["rank"]))
    return [Standing(spans([one["rank"] for one in of]), _hosts(of), where, quiet) for (quiet, where), of in ordered]


def _hosts(told: Sequence[Mapping[str, Any]]) -> str:
    hosts = list(dict.fromkeys(str(one.get("host", "?")) for one in told))
    return ", ".join(hosts) if len(hosts) <= HOSTS else f"{hosts[0]}, {hosts[1]} … {hosts[-1]} ({len(hosts):,} hosts)"


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
