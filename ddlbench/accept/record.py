"""The file of an acceptance: every figure and what came of it, by host. JSON; a later acceptance may compare with it.

version 1    the first
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from ddlbench.accept.course import Outcome
from ddlbench.accept.rules import Rules
from ddlbench.errors import UsageError
from ddlbench.topology import Topology

FORMAT, VERSION = "ddlbench-acceptance", 1
FILE = "accept.json"
TRIP = ("median", "p99", "longest")


@dataclass(frozen=True)
class Report:
    """An acceptance and where and how it was made: `hosts` has the host of each node, `against` what it is held to."""

    outcome: Outcome
    hosts: tuple[str, ...]
    slots: tuple[int, ...]
    rules: Rules
    against: str
    created: str
    seconds: float
    program: str
    warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return self.outcome.passed

    def named(self, nodes: Sequence[int]) -> str:
        """Return the hosts of `nodes`, a few by name."""
        names = [self.hosts[node] for node in nodes]
        return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:7])} and {len(names) - 7} more"


def hosts_of(topology: Topology) -> tuple[str, ...]:
    """Return a name for each node: its host's, with a number where several nodes are on hosts of one name."""
    names = [topology.hosts[topology.ranks_of(node)[0]] for node in range(topology.nodes)]
    return tuple(name if names.count(name) == 1 else f"{name}#{at}" for at, name in enumerate(names))


def to_data(report: Report) -> dict[str, Any]:
    """Return the JSON value."""
    outcome, hosts = report.outcome, report.hosts
    rules = report.rules
    return {
        "format": FORMAT,
        "version": VERSION,
        "created": report.created,
        "program": report.program,
        "seconds": round(report.seconds, 3),
        "passed": report.passed,
        "against": report.against,
        "warnings": list(report.warnings),
        "hosts": list(hosts),
        "slots": list(report.slots),
        "sizes": {"node": rules.node.size, "pair": rules.pair.size, "group": rules.group.size},
        "rules": asdict(rules),
        "bad": [{"host": hosts[node], "why": [check.what for check in why]} for node, why in outcome.bad.items()],
        "spoilers": [hosts[node] for node in outcome.spoilers],
        "links": [[hosts[node] for node in pair] for pair in outcome.links],
        "left_out": [hosts[node] for node in outcome.left_out],
        "good": [hosts[node] for node in outcome.good],
        "stopped": outcome.stopped,
        "checks": [_check(report, at) for at in range(len(outcome.checks))],
        "round_trips_s": _trips(report),
    }


def _check(report: Report, at: int) -> dict[str, Any]:
    check = report.outcome.checks[at]
    numbers = {name: getattr(check, name) for name in ("measured", "expected", "limit")}
    return {
        "scope": check.scope,
        "hosts": [report.hosts[node] for node in check.nodes],
        "what": check.what,
        "unit": check.unit,
        **{name: _known(value) for name, value in numbers.items()},
        "basis": check.basis,
        "status": check.status,
        "note": check.note,
    }


def _trips(report: Report) -> list[dict[str, Any]]:
    """Return what messages of the last while took between each pair."""
    trips = report.outcome.vigil.trips if report.outcome.vigil else {}
    return [
        {"hosts": [report.hosts[node] for node in pair], **dict(zip(TRIP, map(_known, trip), strict=True))}
        for pair, trip in trips.items()
    ]


def _known(value: float) -> float | None:
    return value if isfinite(value) else None


def dumps(report: Report) -> str:
    """Return the text of the file."""
    return json.dumps(to_data(report), ensure_ascii=False, indent=1, allow_nan=False) + "\n"


def read(run: Path) -> dict[str, Any]:
    """Return what the file of the folder `run` holds; raises `UsageError` when it is none of an acceptance."""
    path = run / FILE if run.is_dir() else run
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"--baseline {run}: there is no {FILE}; expected what ddlbench accept --out wrote") from None
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"--baseline {run}: {error}") from None
    if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        raise UsageError(f"--baseline {run}: {path.name} is not of format {FORMAT!r}, version {VERSION}")
    _check_fields(data, f"--baseline {run}")
    return data


def _check_fields(data: Mapping[str, Any], where: str) -> None:
    """Refuse a file whose figures cannot be read."""
    checks, sizes = data.get("checks"), data.get("sizes")
    if not isinstance(checks, list) or not isinstance(sizes, dict):
        raise UsageError(f"{where}: checks or sizes are missing")
    for at, check in enumerate(checks):
        kinds = {"what": str, "hosts": list, "status": str, "measured": int | float | None}
        wrong = [
            name
            for name, kind in kinds.items()
            if not isinstance(check, dict) or name not in check or not isinstance(check[name], kind)
        ]
        if wrong or not all(isinstance(host, str) for host in check["hosts"]):
            raise UsageError(f"{where}: check {at} has no readable {wrong[0] if wrong else 'hosts'}")
