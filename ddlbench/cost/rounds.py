"""A schedule made ready to be priced: its rounds as arrays of messages, each different round once.

On a regular machine most ranks of a schedule are alike: in a ring over 1,024 nodes, rank r + 4 does what rank r does,
four ranks further on. Then the ranks of one *fold* stand for all: rank r + m is rank r, and a message to rank 4m + 3
goes to rank 3 over the link that it really takes. That is right when

* every rank's program is that of its rank of the fold, round by round, up to the peers' numbers beyond m, and
* peers that differ so are reached over links of the same level,

because then ranks that stand for each other begin alike, and by induction over rounds stay alike, and a resource is
shared by as many messages in the fold as on the machine. Which is checked: for every rank of small schedules, for a
sample of the ranks of large ones. Where it does not hold, all ranks are priced.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ddlbench.cost.network import Placement, Resources
from ddlbench.cost.sharing import Sharing
from ddlbench.errors import UsageError
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.lower import Bools, Schedule, lower
from ddlbench.schedule.move import ADD, COPY, LATE, SEND, Ints, Table
from ddlbench.schedule.segments import longest_message

CHECK_ALL_ROWS = 40_000
"""Schedules of up to so many steps are compared rank by rank before one fold stands for all."""
SAMPLE = 16
"""Folds that are compared otherwise, besides those where irregular schedules differ: the first, last and middle."""
MOST_ROWS = 80_000_000
"""More steps than this are not held in memory."""


@dataclass(frozen=True)
class Messages:
    """Messages of one round or of several at once, and what each rank of the fold does with them.

    source, target
        the ranks, int (S,), in the order in which each rank sends
    level
        where the two meet, int (S,)
    chunks
        how much of the vector each carries, int (S,)
    taken
        the arrivals of each rank, in the order in which it takes them, late ones last: which message it is, int (A,)
    taker
        the rank, ascending, int (A,)
    added
        the chunks it then adds, int (A,)
    late
        whether it waits for the rank's sends first, bool (A,)
    """

    source: Ints
    target: Ints
    level: Ints
    chunks: Ints
    taken: Ints
    taker: Ints
    added: Ints
    late: Bools

    @classmethod
    def at_once(cls, parts: "list[Messages]") -> "Messages":
        """Return the messages of several rounds as one, the first part's first."""
        if len(parts) == 1:
            return parts[0]
        shift = np.cumsum([0, *(len(part.source) for part in parts[:-1])])
        names = ("source", "target", "level", "chunks", "taker", "added", "late")
        whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        taken = np.concatenate([part.taken + by for part, by in zip(parts, shift, strict=True)])
        sends, arrivals = np.argsort(whole["source"], kind="stable"), np.lexsort((whole["late"], whole["taker"]))
        where = np.empty_like(sends)
        where[sends] = np.arange(len(sends))
        moved = {name: whole[name][sends] for name in ("source", "target", "level", "chunks")}
        kept = {name: whole[name][arrivals] for name in ("taker", "added", "late")}
        return cls(**moved, taken=where[taken[arrivals]], **kept)


@dataclass(frozen=True)
class Program:
    """A schedule on a placement, ready to be priced.

    period
        the ranks of a fold; all of them where no fewer can stand for all
    kinds
        the different rounds
    order
        which kind each round is, int (rounds,)
    message_chunks, steps
        the most chunks of a message and the most steps of a rank, by which the engine chooses its segments
    """

    name: str
    placement: Placement
    period: int
    chunks: int
    kinds: tuple[Messages, ...]
    order: Ints
    message_chunks: int
    steps: int

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.order)

    @cached_property
    def resources(self) -> Resources:
        """What the messages of a fold share."""
        return Resources(self.placement, self.period)

    @cached_property
    def _ticks(self) -> "dict[tuple[int, ...], tuple[Messages, Sharing]]":
        return {}

    def tick(self, kinds: tuple[int, ...]) -> tuple[Messages, Sharing]:
        """Return the messages of rounds of these kinds at once, one after the other in the ranks' order."""
        if kinds not in self._ticks:
            messages = Messages.at_once([self.kinds[kind] for kind in kinds])
            used = self.resources.used(messages.source, messages.target, messages.level)
            self._ticks[kinds] = messages, Sharing(used)
        return self._ticks[kinds]


def prepare(algorithm: BoundAlgorithm, placement: Placement, *, fold: bool = True) -> Program:
    """Return the schedule of `algorithm` on `placement`, ready to be priced; without `fold`, all ranks of it.

    Raises `UsageError` for a vendor's algorithm, one on another number of ranks, and one too large to hold.
    """
    if algorithm.vendor:
        raise UsageError(f"algorithm {algorithm.name!r} is a vendor's own code: there is no schedule to price")
    algorithm.grid.check_size(placement.ranks)
    period = _period(algorithm, placement) if fold else None
    if period is None:
        period = placement.ranks
        _check_rows(algorithm)
    return _program(algorithm, placement, period)


def _check_rows(algorithm: BoundAlgorithm) -> None:
    ranks = algorithm.grid.size
    if ranks > 1024:
        rows = max(len(lower(algorithm, [rank]).table) for rank in (0, ranks // 2, ranks - 1)) * ranks
        if rows > MOST_ROWS:
            raise UsageError(
                f"{algorithm.name} on {ranks} ranks has about {rows:,} steps, and no few ranks of it stand for all; "
                f"at most {MOST_ROWS:,} can be priced: ask for fewer ranks"
            )


def _candidates(placement: Placement) -> Iterator[int]:
    """Yield the numbers of ranks that the machine itself allows to stand for all, fewest first."""
    x = placement.ranks_per_node
    if placement.together:
        return  # messages of all ranks wait for the same processors
    if placement.nodes == 1:
        # Island by island the ranks of a node are alike, if all islands are full.
        per_island = placement.devices // placement.islands
        yield from (1,) if placement.islands == 1 else ()
        yield from (per_island,) if x % per_island == 0 else ()
    elif placement.racks == 1:
        yield x
    elif placement.nodes % placement.rack == 0:
        yield x * placement.rack


def _period(algorithm: BoundAlgorithm, placement: Placement) -> int | None:
    """Return the fewest ranks that stand for all; None where it takes all."""
    for period in _candidates(placement):
        if period < placement.ranks and placement.ranks % period == 0 and _alike(algorithm, placement, period):
            return period
    return None


def _alike(algorithm: BoundAlgorithm, placement: Placement, period: int) -> bool:
    """Say whether the first `period` ranks stand for all, going by all of them or by a sample."""
    own = _by_rank(lower(algorithm, np.arange(period)))
    few = len(own) * (placement.ranks // period) <= CHECK_ALL_ROWS
    sample = np.arange(placement.ranks) if few else _sample(placement.ranks, period)
    others = _by_rank(lower(algorithm, sample))
    return _same(own[_rows_of(own, sample % period)], others, placement, period)


def _by_rank(schedule: Schedule) -> Table:
    """Return the steps that are not local, rank by rank, in the order of each rank's table."""
    table = schedule.table[schedule.table["kind"] != COPY]
    ordered: Table = table[np.argsort(table["rank"], kind="stable")]
    return ordered


def _rows_of(table: Table, ranks: Ints) -> Ints:
    """Return the rows of one of `ranks` after the other in a table that stands rank by rank."""
    first, after = (np.searchsorted(table["rank"], ranks, side) for side in ("left", "right"))
    count = after - first
    return np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())


def _sample(ranks: int, period: int) -> Ints:
    """Return ranks of a sample of folds: one of each, and all of the last; always those around halves and powers."""
    folds = ranks // period
    powers = 1 << np.arange(folds.bit_length())
    special = np.concatenate([powers, powers - 1, folds - powers, [folds // 2, folds - 1]])
    drawn = np.random.default_rng(1).integers(0, ranks, SAMPLE)
    inside = np.arange(len(special)) % period
    last = ranks - 1 - np.arange(min(period, SAMPLE))
    return np.unique(np.concatenate([np.clip(special, 0, folds - 1) * period + inside, drawn, last]))


def _same(own: Table, other: Table, placement: Placement, period: int) -> bool:
    """Say whether ranks' programs, one after the other, are those of their ranks of the fold up to whole folds."""
    if len(own) != len(other) or not np.array_equal(own["rank"], other["rank"] % period):
        return False
    plain = all(np.array_equal(own[name], other[name]) for name in ("round", "kind", "nchunks"))
    return (
        plain
        and np.array_equal(own["flags"] & LATE, other["flags"] & LATE)
        and np.array_equal(own["peer"] % period, other["peer"] % period)
        and np.array_equal(_levels(own, placement), _levels(other, placement))
    )


def _levels(table: Table, placement: Placement) -> Ints:
    return placement.level(table["rank"].astype(np.int64), table["peer"].astype(np.int64))


def _program(algorithm: BoundAlgorithm, placement: Placement, period: int) -> Program:
    schedule = lower(algorithm, np.arange(period))
    table = schedule.table[schedule.table["kind"] != COPY]
    bounds = np.searchsorted(table["round"], np.arange(schedule.rounds + 1))
    known: dict[bytes, int] = {}
    kinds: list[Messages] = []
    order = np.zeros(schedule.rounds, np.int64)
    for round_ in range(schedule.rounds):
        rows = table[bounds[round_] : bounds[round_ + 1]]
        key = _key(rows)
        if key not in known:
            known[key] = len(kinds)
            kinds.append(_messages(rows, placement, period))
        order[round_] = known[key]
    steps = int(np.bincount(schedule.table["rank"], minlength=1).max(initial=0))
    longest = longest_message(schedule)
    return Program(algorithm.name, placement, period, schedule.chunks, tuple(kinds), order, longest, steps)


def _key(rows: Table) -> bytes:
    """Return what two rounds must have in common to cost the same: all but the round and which chunks."""
    names = ("rank", "peer", "nchunks", "kind")
    return b"".join(rows[name].tobytes() for name in names) + (rows["flags"] & LATE).tobytes()


def _messages(rows: Table, placement: Placement, period: int) -> Messages:
    """Return the messages of a round: each send with its arrival."""
    sends, arrivals = rows[rows["kind"] == SEND], rows[rows["kind"] != SEND]
    late = arrivals["flags"] & LATE > 0
    arrivals = arrivals[by := np.lexsort((late, arrivals["rank"]))]
    source, target = (sends[name].astype(np.int64) for name in ("rank", "peer"))
    taker, giver = (arrivals[name].astype(np.int64) for name in ("rank", "peer"))
    return Messages(
        source=source,
        target=target % period,
        level=placement.level(source, target),
        chunks=sends["nchunks"].astype(np.int64),
        taken=_met(_ends(source, target, sends, placement, period), _ends(giver, taker, arrivals, placement, period)),
        taker=taker,
        added=np.where(arrivals["kind"] == ADD, arrivals["nchunks"], 0).astype(np.int64),
        late=late[by],
    )


def _ends(source: Ints, target: Ints, rows: Table, placement: Placement, period: int) -> tuple[Ints, ...]:
    """Return what a message's two ends agree on, the foremost first: ranks of the fold, link, size, how far it goes."""
    far = (target - source) % placement.ranks
    return source % period, target % period, placement.level(source, target), rows["nchunks"].astype(np.int64), far


def _met(sent: tuple[Ints, ...], arriving: tuple[Ints, ...]) -> Ints:
    """Return, per arrival, the number of the message that arrives.

    Messages between the same two ranks arrive in the order in which they were sent. Of those that folding made ones
    between the same two, the nearer partner's message meets the nearer's.
    """
    givers, takers = np.lexsort(sent[::-1]), np.lexsort(arriving[::-1])
    if any(not np.array_equal(a[givers], b[takers]) for a, b in zip(sent[:4], arriving[:4], strict=True)):
        raise UsageError("the schedule's sends and arrivals do not pair up; ddlbench verify says which")
    taken = np.empty(len(takers), np.int64)
    taken[takers] = givers
    return taken
