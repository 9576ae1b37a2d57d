"""A proof that the programs of all ranks have no race and cannot deadlock, in any order in which they may run.

A `PUBLISH` happens before every `WAIT` that it satisfies; a rank's instructions happen in order. Two ranks that touch
the same bytes, one of them writing, must be ordered by that: it is what release and acquire promise on any machine,
however weakly it orders memory (C11, section 5.1.2.4). Vector clocks decide it (Mattern 1988; Flanagan and Freund's
FastTrack, PLDI 2009): a clock counts, for each rank, its publications that must have happened.

The order does not depend on luck: a wait is taken to be satisfied by the first publication that can satisfy it, and a
program has only one order in which its publications follow from each other. So one walk through the programs decides
for all interleavings, and a walk that cannot go on is a deadlock.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ddlbench.errors import ProofError
from ddlbench.local.compile import Layout
from ddlbench.local.program import INPUT, OUTPUT, PUBLISH, SLOT, WAIT, Instruction, Place, Program, accesses

EXECUTIONS = 4
"""How many executions follow each other in the proof: both sets of slots are used twice."""
NAMES = ("input", "output", "slot")


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


class _Rank:
    """One rank on its way through its executions."""

    def __init__(self, rank: int, programs: Sequence[Program], layout: Layout) -> None:
        self.rank, self._program, self._layout = rank, programs[rank], layout
        self.clock = [0] * len(programs)
        self.accesses: list[Access] = []
        self.published: list[tuple[int, tuple[int, ...]]] = []
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
        else:
            for place, nbytes, write in accesses(one, self._layout.itemsize):
                self._access(place, nbytes, f"execution {execution}", write=write)
        self.left.pop()
        return True

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
        if self._layout.in_place and place.space == INPUT:
            place = place._replace(space=OUTPUT)
        clock = tuple(self.clock)
        self.accesses.append(Access(self.rank, place, nbytes, write, clock[self.rank], clock, what))


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
    room = programs[access.place.rank].slot_nbytes if access.place.space == SLOT else layout.count * layout.itemsize
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
