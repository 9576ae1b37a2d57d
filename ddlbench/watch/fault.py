"""What is told of a fault: to people as lines, to the record as JSON."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MOST_LINES = 20
"""Lines of the table of ranks."""
MOST_HOSTS = 3


@dataclass(frozen=True)
class Place:
    """A rank: its number, host and process, what it last told of where it stands, and for how long it is silent.

    `silent_s` is None for a rank that answers; `heard` says whether it ever was heard.
    """

    rank: int
    host: str
    pid: int
    where: str
    silent_s: float | None = None
    heard: bool = True

    @property
    def name(self) -> str:
        """The rank as messages name it."""
        return f"rank {self.rank} ({self.host}, pid {self.pid})"


@dataclass(frozen=True)
class Fault:
    """Why a run ends early: what went wrong in words, in which point, where each rank stood, and when (ISO 8601, UTC).

    `found` says that it is a matter of time, and the ranks were looked at: a stall. It is not when a rank died.
    """

    what: str
    found: bool
    point: Mapping[str, Any] | None
    places: tuple[Place, ...]
    at: str

    @property
    def silent(self) -> tuple[Place, ...]:
        """The ranks that nobody hears from."""
        return tuple(place for place in self.places if place.silent_s is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the fault as it stands in the record."""
        ranks = [{"rank": place.rank, "host": place.host, "where": place.where} for place in self.places]
        silent = [place.rank for place in self.silent]
        return {"what": self.what, "point": self.point, "ranks": ranks, "silent": silent, "at": self.at}

    def lines(self) -> list[str]:
        """Return what to show of it, each line a comment to whoever reads the table by program."""
        answering = [place for place in self.places if place.silent_s is None]
        found = [*_table(answering), *self._silence()] if self.found else []
        return [f"# {line}" for line in (self.what, *found)]

    def _silence(self) -> Iterator[str]:
        """Yield who is not heard from; of many, the first ones."""
        if not self.silent:
            yield "every rank answers: they wait for each other, or their messages do not arrive"
        for place in self.silent[:MOST_LINES]:
            yield _silence(place)
        if len(self.silent) > MOST_LINES:
            yield f"and nobody heard from {len(self.silent) - MOST_LINES} more ranks"


def _silence(place: Place) -> str:
    if not place.heard:
        return f"nobody ever heard from {place.name}"
    return f"nobody heard from {place.name} for {place.silent_s:.0f} s; it was last {place.where}"


def _table(places: Sequence[Place]) -> list[str]:
    """Return a line for each rank, for ranks alike together, and where these are too many for ranks nearly alike."""
    lines = [*_grouped(places, lambda where: where)]
    if len(lines) > MOST_LINES:
        lines = [*_grouped(places, _without_peers)]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"  and {len(lines) - MOST_LINES + 1} lines more, all in run.json"]
    return lines


def _grouped(places: Iterable[Place], kind: Any) -> Iterator[str]:
    """Yield the lines of ranks whose `kind` of place is the same."""
    alike: dict[str, list[Place]] = defaultdict(list)
    for place in places:
        alike[kind(place.where)].append(place)
    for where, members in alike.items():
        yield f"  {_numbers([member.rank for member in members])} ({_hosts(members)}): {where}"


def _without_peers(where: str) -> str:
    return re.sub(r"\branks? \d+(, \d+)*", "other ranks", where)


def _hosts(places: Sequence[Place]) -> str:
    hosts = list(dict.fromkeys(place.host for place in places))
    return ", ".join(hosts) if len(hosts) <= MOST_HOSTS else f"{hosts[0]}, {hosts[1]} … {hosts[-1]}"


def _numbers(ranks: Sequence[int]) -> str:
    """Return ascending numbers as ranges: ranks 0-2, 5."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and spans[-1][-1] == rank - 1:
            spans[-1][1:] = [rank]
        else:
            spans.append([rank])
    text = ", ".join("-".join(map(str, span)) for span in spans)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"
