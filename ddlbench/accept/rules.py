"""What is demanded of nodes, pairs and groups: a TOML file over defaults; what it misspells is refused by name."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any

from ddlbench.bench.axes import format_size, parse_size
from ddlbench.cost.quantity import TIME
from ddlbench.errors import UsageError, unknown

LEAST_SIZE, LARGEST_SIZE = 64 << 10, 64 << 20
"""Bytes of what bandwidths are measured with."""
MOST_COUNT = 1000
LONGEST_SECONDS = 3600.0


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
        raise UsageError(f"{value!r}: expected a share above 0, up to 1")
    return float(value)


def _factor(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (isfinite(value) and value >= 1):
        raise UsageError(f"{value!r}: expected a factor of 1 or more")
    return float(value)


def _seconds(value: object) -> float:
    found = TIME.parse(value)
    if not 0 < found <= LONGEST_SECONDS:
        raise UsageError(f"{value!r}: expected more than nothing and an hour at most")
    return found


def _size(value: object) -> int:
    if not isinstance(value, str):
        raise UsageError(f'{value!r}: expected a size as a text, such as "1M"')
    found = parse_size(value)
    if not LEAST_SIZE <= found <= LARGEST_SIZE:
        raise UsageError(f"{value!r}: expected {format_size(LEAST_SIZE)} to {format_size(LARGEST_SIZE)}")
    return found


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_COUNT:
        raise UsageError(f"{value!r}: expected a whole number from 1 to {MOST_COUNT}")
    return value


def _read_by(parse: Callable[[object], Any]) -> Mapping[str, Any]:
    return {"parse": parse}


@dataclass(frozen=True, kw_only=True)
class NodeRules:
    """A node alone: the least share of the expected speed, and in how many windows of how many seconds it is measured.

    `size` is the vector that a node's ranks add up among themselves, bytes.
    """

    min_fraction: float = field(default=0.7, metadata=_read_by(_share))
    windows: int = field(default=3, metadata=_read_by(_count))
    window: float = field(default=0.1, metadata=_read_by(_seconds))
    size: int = field(default=4 << 20, metadata=_read_by(_size))


@dataclass(frozen=True, kw_only=True)
class PairRules:
    """Two nodes: the least share of the expected bandwidth, and by how much a latency may be longer than expected.

    `size` is the message that bandwidths are measured with, bytes; `partners` how many others each node meets at most.
    """

    min_fraction: float = field(default=0.7, metadata=_read_by(_share))
    max_latency_factor: float = field(default=2.0, metadata=_read_by(_factor))
    size: int = field(default=1 << 20, metadata=_read_by(_size))
    partners: int = field(default=8, metadata=_read_by(_count))


@dataclass(frozen=True, kw_only=True)
class WatchRules:
    """All nodes at once over `seconds`, a small message to each of `partners` others every `interval` seconds.

    late, max_late_share
        a process that did not run for so many seconds is late; the share of the time that it may be, beyond its peers
    stall, max_stalled
        an answer that takes so many seconds, without a process being late, is a stall of the link; the seconds of
        stalls that a link may have
    """

    seconds: float = field(default=6.0, metadata=_read_by(_seconds))
    interval: float = field(default=0.01, metadata=_read_by(_seconds))
    partners: int = field(default=4, metadata=_read_by(_count))
    late: float = field(default=0.005, metadata=_read_by(_seconds))
    max_late_share: float = field(default=0.15, metadata=_read_by(_share))
    stall: float = field(default=0.15, metadata=_read_by(_seconds))
    max_stalled: float = field(default=0.25, metadata=_read_by(_seconds))


@dataclass(frozen=True, kw_only=True)
class GroupRules:
    """Groups of nodes: the least share of the expected bus bandwidth, the vector in bytes, how often it is reduced."""

    min_fraction: float = field(default=0.6, metadata=_read_by(_share))
    size: int = field(default=4 << 20, metadata=_read_by(_size))
    samples: int = field(default=7, metadata=_read_by(_count))


@dataclass(frozen=True, kw_only=True)
class Rules:
    """All that is demanded; `looks` are how often in all a suspect is measured before it is blamed."""

    node: NodeRules = NodeRules()
    pair: PairRules = PairRules()
    watch: WatchRules = WatchRules()
    group: GroupRules = GroupRules()
    looks: int = field(default=3, metadata=_read_by(_count))


def read(path: Path) -> Rules:
    """Return the rules of the TOML file `path`; raises `UsageError` naming the key that is wrong."""
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"rules {str(path)!r}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # no TOML, no text, a number of thousands of digits
        raise UsageError(f"rules {str(path)!r} is not TOML: {error}") from None
    try:
        return from_data(data)
    except (UsageError, ValueError) as error:  # ValueError: a number that is too long to be shown
        raise UsageError(f"rules {str(path)!r}: {error}") from None


def from_data(data: Mapping[str, Any]) -> Rules:
    """Return the rules that the TOML value `data` says; raises `UsageError` naming the key."""
    known = [one.name for one in fields(Rules)]
    if extra := [name for name in data if name not in known]:
        raise unknown("key", extra[0], known)
    given = {name: _part(name, getattr(Rules(), name), value) for name, value in data.items() if name != "looks"}
    if "looks" in data:
        given["looks"] = _parsed("looks", _count, data["looks"])
    return Rules(**given)


def _part(name: str, part: Any, data: object) -> Any:
    """Return the section `part` with what `data` says of it."""
    if not isinstance(data, Mapping):
        raise UsageError(f"{name} = {data!r}: expected a section, [{name}]")
    of = {one.name: one.metadata["parse"] for one in fields(part)}
    if extra := [key for key in data if key not in of]:
        raise unknown(f"key of [{name}]", extra[0], of)
    return replace(part, **{key: _parsed(f"{name}.{key}", of[key], value) for key, value in data.items()})


def _parsed(name: str, parse: Callable[[object], Any], value: object) -> Any:
    try:
        return parse(value)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
