"""What a run was made on, in the words a page shows."""

import json
import shlex
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from ddlbench.records import Loaded
from ddlbench.report.placement import virtual
from ddlbench.report.units import SPACE, counted, digits, rate_text, size_text, time_text

SHOWN = 8
"""Hosts named before the rest are only counted."""
LONGEST = 400
"""Characters of a text that a page shows."""
MOST = 1000
"""Lines that could not be read, named before the rest are only counted."""


def facts(loaded: Loaded) -> list[tuple[str, str]]:
    """Return what the run was made on, as pairs of a label and a text."""
    run = loaded.run
    pairs = [
        ("Ranks", _ranks(loaded)),
        ("Hosts", _hosts(run.topology)),
        ("MPI", _mpi(run.mpi)),
        ("Date", date_text(run.created)),
        ("Program", f"ddlbench {run.ddlbench}"),
        ("Command", shlex.join(run.command)),
    ]
    return [(label, text) for label, text in pairs if text]


def _ranks(loaded: Loaded) -> str:
    """Return how many ranks there were, on how many nodes; from the points where the topology does not say."""
    topology = loaded.run.topology
    ranks = _number(topology.get("ranks")) or max((point.ranks for point in loaded.points), default=0)
    nodes = _number(topology.get("nodes")) or max((point.nodes for point in loaded.points), default=0)
    kind = virtual(loaded.run)
    return f"{counted(ranks, 'rank')} on {counted(nodes, 'node')}{f', {kind}' if kind else ''}" if ranks else ""


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _hosts(topology: Mapping[str, Any]) -> str:
    hosts = list(dict.fromkeys(_texts(topology.get("hosts"))))
    if len(hosts) <= SHOWN:
        return ", ".join(hosts)
    return f"{hosts[0]}, {hosts[1]} … {hosts[-1]} ({len(hosts):,} hosts)"


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else []


def _mpi(mpi: Mapping[str, Any]) -> str:
    """Return the name and version of the MPI library: of its own text, what stands before the first comma or break.

    A text that names no version ("Open MPI") is followed by the recorded one.
    """
    library = str(mpi.get("library", "")).partition("\n")[0].partition(",")[0].strip()
    if any(character.isdigit() for character in library):
        return library
    return f"{library} {mpi.get('version', '')}".strip()


def date_text(created: str) -> str:
    """Return an ISO 8601 time as a date in words, in UTC; as it is when it is no such time."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    moment = moment.astimezone(UTC) if moment.tzinfo else moment
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC".replace(" ", SPACE, 1)


def details(loaded: Loaded) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the tables of the page's small print: a title and its pairs of name and value."""
    run = loaded.run
    tables = [
        ("Parts of the record that could not be read", _problems(loaded.problems)),
        ("Probed links", [_link(name, value) for name, value in _flat(run.links or {})]),
        ("Clock", _pairs(run.clock or {})),
        ("Proofs", [(str(proof.get("algorithm", "?")), _proof(proof)) for proof in run.proofs]),
        ("Configuration", _pairs(run.config)),
        ("Topology", _pairs(run.topology)),
        ("MPI", _pairs(run.mpi)),
        ("Environment", _pairs(run.environment)),
    ]
    return [(title, pairs) for title, pairs in tables if pairs]


def _problems(problems: list[str]) -> list[tuple[str, str]]:
    """Return where each problem is and what it is; of very many, the first and how many more there are."""
    pairs = [(where, shortened(why)) for where, _, why in (problem.partition(": ") for problem in problems[:MOST])]
    more = len(problems) - MOST
    return [*pairs, ("", f"and {more:,} more")] if more > 0 else pairs


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the names and values of a JSON object, those of objects in it under both names; nothing for null."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name} ")
        elif value is not None:
            yield f"{above}{name}", value


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, shortened(_value(value))) for name, value in _flat(values)]


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _link(name: str, value: Any) -> tuple[str, str]:
    """Return a figure of the probed links with its unit, which its name ends in; another value as it is."""
    if isinstance(value, (int, float)) and value > 0:
        if name.endswith("bytes_per_s"):
            words = name.removesuffix("bytes_per_s").strip("_").replace("_", " ").strip()
            return f"{words} bandwidth".strip(), rate_text(value / 1e9)
        if name.endswith("_s"):
            return name.removesuffix("_s").replace("_", " "), time_text(value * 1e6)
        if name.endswith("_nbytes"):
            return name.removesuffix("_nbytes").replace("_", " "), size_text(round(value))
    if isinstance(value, list | tuple) and value and all(isinstance(item, float) for item in value):
        ends = dict.fromkeys(_link(name, item)[1] for item in (min(value), max(value)))
        return _link(name, value[0])[0], " – ".join(ends)
    return name, shortened(_value(value))


def _proof(proof: Mapping[str, Any]) -> str:
    """Return what one proof covered."""
    parts = [f"{proof[name]:,} {name}" for name in ("ranks", "rounds", "moves") if isinstance(proof.get(name), int)]
    if isinstance(seconds := proof.get("seconds"), (int, float)):
        parts.append(f"proved in {digits(seconds * 1e3)}{SPACE}ms")
    return ", ".join(parts)


def shortened(text: str) -> str:
    """Return `text`, cut where it is longer than a page shows."""
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
