"""A proof that the programs of all ranks, of all nodes, have no race and cannot deadlock, in any order of events.

A `PUBLISH` happens before every `WAIT` that it satisfies; a rank's instructions happen in order. Two ranks that touch
the same bytes, one of them writing, must be ordered by that: it is what release and acquire promise on any machine,
however weakly it orders memory (C11, section 5.1.2.4). Vector clocks decide it (Mattern 1988; Flanagan and Freund's
FastTrack, PLDI 2009): a clock counts, for each rank, its publications that must have happened.

The order does not depend on luck: a wait is taken to be satisfied by the first publication that can satisfy it, and a
program has only one order in which its publications follow from each other. So one walk through the programs decides
for all interleavings, and a walk that cannot go on is a deadlock.

A message between nodes is touched by the MPI library from its `POST` until its `ARRIVE` or `SENT`: whoever else touches
those bytes must do so before the one or after the other, its own rank included. A receive ends once the sender has
posted it and a send once the receiver has; what they knew of others is not taken for known, which is on the safe side.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddlbench.errors import ProofError
from ddlbench.local.program import (
    ARRIVE,
    INPUT,
    OUTPUT,
    POST,
    PUBLISH,
    SENT,
    SLOT,
    STAGE,
    WAIT,
    Instruction,
    Place,
    Program,
    Request,
    accesses,
)
from ddlbench.local.ways import Layout

EXECUTIONS = 4
"""How many executions follow each other in the proof: both sets of slots are used twice."""
NAMES = ("input", "output", "slot", "stage")


@dataclass(frozen=True)
class Access:
    """Bytes that a rank reads or writes, when: `epoch` is its publications before, `clock` what it knows of others."""

    rank: int
    place: Place
    nbytes: int
    write: bool
    epoch: int
    clock: tuple[int, ...]
    what: str

    def after(self, other: "Access") -> bool:
        """Say whether this must happen after `other`, of another rank."""
        return self.clock[other.rank] > other.epoch

    def __str__(self) -> str:
        verb = "writes" if self.write else "reads"
        where = f"the {NAMES[self.place.space]} of rank {self.place.rank} from byte {self.place.offset}"
        return f"rank {self.rank} {verb} {self.nbytes} bytes of {where} ({self.what})"


@dataclass
class _UnderWay:
    """A message that has been posted: its number among those of the two ranks in this direction, and since when."""

    number: int
    request: Request
    place: Place
    since: tuple[int, ...]


class _Rank:
    """One rank on its way through its executions."""

    def __init__(self, rank: int, programs: Sequence[Program], layout: Layout) -> None:
        self.rank, self._program, self._layout = rank, programs[rank], layout
        self.clock = [0] * len(programs)
        self.accesses: list[Access] = []
        self.published: list[tuple[int, tuple[int, ...]]] = []
        self.receives: dict[int, list[int]] = defaultdict(list)
        self.sends: dict[int, list[int]] = defaultdict(list)
        """The elements of each message that was posted, by the other rank."""
        self._receiving: dict[int, _UnderWay] = {}
        self._sending: dict[int, _UnderWay] = {}
        self.left = list(self._events())[::-1]

    def _events(self) -> Iterator[tuple[int, Instruction | None]]:
        """Yield (execution, instruction), and None where the program's user has the buffers: before, between, after."""
        for execution in range(EXECUTIONS):
            yield execution, None
            yield from ((execution, one) for one in self._program.variant(execution))
        yield EXECUTIONS, None

    def step(self, others: Sequence["_Rank"]) -> bool:
        """Do the next instruction, unless it must wait; say whether it was done."""
        execution, one = self.left[-1]
        base = execution * self._program.span
        if one is None:
            self._use(execution)
        elif one.kind == PUBLISH:
            self.clock[self.rank] += 1
            self.published.append((base + one.value, tuple(self.clock)))
        elif one.kind == WAIT:
            if not self._waited(others[one.peer], base + one.value, base + self._program.span):
                return False
        elif one.kind == POST:
            self._post(one)
        elif one.kind in (ARRIVE, SENT):
            if not self._ended(one, others):
                return False
        else:
            for place, nbytes, write in accesses(one, self._layout.itemsize):
                self._access(place, nbytes, f"execution {execution}", write=write)
        self.left.pop()
        return True

    def _post(self, one: Instruction) -> None:
        posted = ((one.receives, self._program.receives, self.receives, self._receiving),
                  (one.sends, self._program.sends, self.sends, self._sending))  # fmt: skip
        for numbers, requests, all_of, under_way in posted:
            for at in numbers:
                if at in under_way:
                    raise ProofError(f"race: rank {self.rank} posts message {at} again while it is under way")
                request = requests[at]
                known = all_of[request.peer]
                under_way[at] = _UnderWay(len(known), request, self._meant(request.place), tuple(self.clock))
                known.append(request.elements)

    def _ended(self, one: Instruction, others: Sequence["_Rank"]) -> bool:
        """End receives or sends, unless one of them must wait for the other side; say whether they ended."""
        arrive = one.kind == ARRIVE
        numbers, under_way = (one.receives, self._receiving) if arrive else (one.sends, self._sending)
        for at in numbers:
            if at not in under_way:
                raise ProofError(f"deadlock: rank {self.rank} waits for message {at}, which it has not posted")
            message = under_way[at]
            peer = others[message.request.peer]
            known = (peer.sends if arrive else peer.receives)[self.rank]
            if len(known) <= message.number:
                return False
            if known[message.number] != message.request.elements:
                raise ProofError(f"rank {self.rank} and rank {peer.rank} have messages of different lengths in turn")
        for at in numbers:
            self._record(under_way.pop(at), write=arrive)
        return True

    def _record(self, message: _UnderWay, *, write: bool) -> None:
        """Note what MPI has read or written: begun at the post, over now."""
        nbytes = message.request.elements * self._layout.itemsize
        epoch, what = self.clock[self.rank], f"a message with rank {message.request.peer}"
        self.accesses.append(Access(self.rank, message.place, nbytes, write, epoch, message.since, what))

    def _meant(self, place: Place) -> Place:
        """Return the place; in place, input and output are one."""
        return place._replace(space=OUTPUT) if self._layout.in_place and place.space == INPUT else place

    def _use(self, execution: int) -> None:
        """Let the user write the input and read the output."""
        nbytes = self._layout.count * self._layout.itemsize
        for space in (INPUT, OUTPUT):
            self._access(Place(self.rank, space, 0), nbytes, f"as its user, before execution {execution}", write=True)

    def _waited(self, other: "_Rank", value: int, last: int) -> bool:
        """Take in what `other` knew when it published `value`, in this execution at the latest; say whether it has."""
        if value <= 0:
            return True
        clock = next((clock for published, clock in other.published if value <= published <= last), None)
        if clock is None:
            return False
        self.clock = list(map(max, self.clock, clock))
        return True

    def _access(self, place: Place, nbytes: int, what: str, *, write: bool) -> None:
        clock = tuple(self.clock)
        found = Access(self.rank, self._meant(place), nbytes, write, clock[self.rank], clock, what)
        self._check_messages(found)
        self.accesses.append(found)

    def _check_messages(self, access: Access) -> None:
        """Refuse what this rank itself does to bytes of a message under way."""
        receiving = [(message, True) for message in self._receiving.values()]
        sending = [(message, False) for message in self._sending.values()]
        for message, written in receiving + sending:
            begin, end = message.place.offset, message.place.offset + message.request.elements * self._layout.itemsize
            same = access.place[:2] == message.place[:2] and access.place.offset < end
            if same and begin < access.place.offset + access.nbytes and (written or access.write):
                raise ProofError(f"race: {access}, while a message with rank {message.request.peer} is under way")


def prove(programs: Sequence[Program], layout: Layout) -> int:
    """Prove the programs of all ranks and return how many accesses were ordered.

    Raises `ProofError` for a race, with both sides, for a deadlock, and for what lies outside a buffer or slot.
    """
    ranks = [_Rank(rank, programs, layout) for rank in range(len(programs))]
    while any(one.left for one in ranks):
        if not sum(_advance(one, ranks) for one in ranks):
            stuck = ", ".join(str(one.rank) for one in ranks if one.left)
            raise ProofError(f"deadlock: ranks {stuck} wait for publications that never come")
    found = [access for one in ranks for access in one.accesses]
    for access in found:
        _check_inside(access, programs, layout)
    for space in {(access.place.rank, access.place.space) for access in found}:
        _check_space([access for access in found if (access.place.rank, access.place.space) == space])
    return len(found)


def _advance(one: _Rank, ranks: Sequence[_Rank]) -> int:
    """Let a rank go on until it waits; return how many instructions it did."""
    done = 0
    while one.left and one.step(ranks):
        done += 1
    return done


def _check_inside(access: Access, programs: Sequence[Program], layout: Layout) -> None:
    program = programs[access.place.rank]
    rooms = {SLOT: program.slot_nbytes, STAGE: program.stage_nbytes}
    room = rooms.get(access.place.space, layout.count * layout.itemsize)
    if access.place.offset < 0 or access.place.offset + access.nbytes > room:
        raise ProofError(f"{access}: it has {room} bytes")


def _check_space(accesses_: Sequence[Access]) -> None:
    """Check every pair of accesses to one buffer or slot of one rank."""
    begin = np.array([access.place.offset for access in accesses_])
    end = begin + np.array([access.nbytes for access in accesses_])
    rank = np.array([access.rank for access in accesses_])
    write = np.array([access.write for access in accesses_])
    for at, access in enumerate(accesses_):
        meets = (begin < end[at]) & (end > begin[at]) & (rank != access.rank) & (write | access.write)
        for other in np.flatnonzero(meets[:at]):
            first, second = accesses_[int(other)], access
            if not (second.after(first) or first.after(second)):
                raise ProofError(f"race: {first}, and {second}")
