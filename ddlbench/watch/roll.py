"""What a leading rank knows of all ranks: who was heard when, where each stands, and whether anything moves at all.

A run is stalled when no rank has made progress for the time limit. Allreduces take every rank, so one that hangs has
all of them waiting soon; one that works while the others wait for it is progress.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from ddlbench.watch.board import Beat
from ddlbench.watch.fault import Fault, Place

NOT_HEARD = "not heard from"


@dataclass(frozen=True)
class Member:
    """A rank of the job: its host and process, and a mark of the network stack that it shares with its neighbours."""

    host: str
    pid: int
    stack: str = ""


@dataclass
class _Entry:
    beat: Beat | None = None
    heard_at: float | None = None
    gone: Literal["", "left", "died"] = ""


@dataclass
class Roll:
    """The ranks `members` since the moment `began`; all moments are of one monotonic clock, in seconds.

    `numbers` are what people know the ranks by, where that is not their order here.
    """

    members: Sequence[Member]
    began: float
    numbers: Sequence[int] | None = None
    _entries: list[_Entry] = field(init=False)

    def __post_init__(self) -> None:
        self._entries = [_Entry() for _ in self.members]

    def heard(self, rank: int, beat: Beat, now: float) -> None:
        """Take in where `rank` stands."""
        entry = self._entries[rank]
        entry.beat, entry.heard_at = beat, now

    def left(self, rank: int) -> None:
        """Take in that `rank` said goodbye."""
        self._entries[rank].gone = "left"

    def died(self, rank: int) -> None:
        """Take in that the process of `rank` is no more, which said nothing."""
        self._entries[rank].gone = "died"

    def gone(self, rank: int) -> bool:
        """Say whether `rank` has left or died."""
        return self._entries[rank].gone != ""

    def idle_s(self, now: float) -> float:
        """Return for how long no rank has made progress."""
        return now - max((at - beat.idle_s for beat, at in self._awake()), default=self.began)

    def limit_s(self, otherwise: float) -> float:
        """Return how long that may be: what the rank at work says that was heard last, `otherwise` while none was.

        Not the longest of all: a rank that fell silent in an earlier step says what held there.
        """
        beats = sorted(self._awake(), key=lambda told: told[1])
        return beats[-1][0].limit_s if beats else otherwise

    def unheard(self, since: float) -> tuple[int, ...]:
        """Return the ranks that were not heard `since` then and are not known to have left."""
        return tuple(
            rank
            for rank, entry in enumerate(self._entries)
            if entry.gone != "left" and (entry.heard_at is None or entry.heard_at < since)
        )

    def there(self, rank: int, since: float) -> bool:
        """Say whether `rank` was heard `since` then and has not gone."""
        entry = self._entries[rank]
        return not entry.gone and entry.heard_at is not None and entry.heard_at >= since

    def stall(self, now: float, since: float, kind: str = "stalled") -> Fault:
        """Return what is to be told of a stall: ranks that were not heard `since` then are silent."""
        silent = self.unheard(since)
        shared = self._shared(silent)
        places = self._places(now, shared.what, silent)
        what = f"{kind}: {shared.what}: no progress for {self.idle_s(now):.0f} s"
        return Fault(what, found=True, point=shared.point, places=places, at=_utc())

    def death(self, rank: int, now: float) -> Fault:
        """Return what is to be told of the death of `rank`."""
        self.died(rank)
        shared = self._shared((rank,))
        place = self._place(rank, now, shared.what, silent=True)
        what = f"{place.name} died during {shared.what}: it was killed, or it crashed"
        places = self._places(now, shared.what, (rank,))
        return Fault(what, found=False, point=shared.point, places=places, at=_utc())

    def _awake(self) -> list[tuple[Beat, float]]:
        return [
            (entry.beat, entry.heard_at)
            for entry in self._entries
            if entry.beat is not None and entry.heard_at is not None and not entry.beat.asleep
        ]

    def _shared(self, silent: Collection[int]) -> Beat:
        """Return what most ranks tell that are at work and not `silent`, or else any."""
        told = [self._entries[rank].beat for rank in range(len(self.members)) if rank not in silent]
        beats = [beat for beat in told if beat and not beat.asleep] or [beat for beat, _ in self._awake()]
        common = Counter(beat.what for beat in beats).most_common(1)
        return next((beat for beat in beats if beat.what == common[0][0]), Beat("the start", NOT_HEARD, 0.0, 0.0))

    def _places(self, now: float, what: str, silent: Collection[int]) -> tuple[Place, ...]:
        """Return the places of all ranks in the order of their numbers."""
        ranks = range(len(self.members))
        return tuple(
            sorted(
                (self._place(rank, now, what, silent=rank in silent) for rank in ranks), key=lambda place: place.rank
            )
        )

    def _place(self, rank: int, now: float, what: str, *, silent: bool) -> Place:
        entry, member = self._entries[rank], self.members[rank]
        silence = now - (self.began if entry.heard_at is None else entry.heard_at)
        where = self._where(entry, what)
        number = self.numbers[rank] if self.numbers else rank
        return Place(number, member.host, member.pid, where, silence if silent else None, entry.heard_at is not None)

    def _where(self, entry: _Entry, what: str) -> str:
        """Return where a rank stands, and in what unless that is the same as for all."""
        if entry.gone == "left":
            return "gone: it ended on its own"
        if entry.beat is None:
            return NOT_HEARD
        if entry.beat.asleep:
            return "asleep, it has no part in this"
        return entry.beat.where if entry.beat.what == what else f"{entry.beat.where}, in {entry.beat.what}"


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
