"""The steps of the ranks of a node by rank and round, with both sides of each message between them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from ddlbench.schedule.lower import Schedule
from ddlbench.schedule.move import ADD, COPY, FROM_INPUT, KEEP, SEND


@dataclass(frozen=True)
class Step:
    """A step of one rank, and of a message the other side's step; chunks are those of every segment alike."""

    rank: int
    peer: int
    round: int
    kind: int
    chunk: int
    nchunks: int
    from_input: bool

    @property
    def range(self) -> tuple[int, int]:
        """What the step is about: the first chunk and the one after the last."""
        return self.chunk, self.chunk + self.nchunks

    def other_side(self) -> "Step":
        """Return a step of the peer that fits this one, as far as one can know it from here."""
        kind = KEEP if self.kind == SEND else SEND
        return Step(self.peer, self.rank, self.round, kind, self.chunk, self.nchunks, from_input=False)


def overlap(one: Step, other: Step) -> bool:
    """Say whether two steps are about a chunk in common."""
    return one.chunk < other.chunk + other.nchunks and other.chunk < one.chunk + one.nchunks


@dataclass
class Message:
    """A send and the arrival that takes it in, and how it gets there: by `slot`, by `push`, or from the buffer.

    Over the `wire`, which is to say to or from another node, it is a message of MPI; it `lands` in the output itself
    or, where it is not to be stored there at once, in the receiver's stage.
    """

    send: Step
    arrival: Step
    slot: bool = True
    push: bool = False
    wire: bool = False
    lands: bool = False


Where = tuple[int, int]
"""A rank and a round."""


@dataclass
class Exchange:
    """The steps of the ranks of one node, by rank and round; messages are matched as MPI would match them."""

    ranks: tuple[int, ...]
    rounds: int
    chunks: int
    copies: dict[Where, list[Step]]
    sent: dict[Where, list[Message]]
    arriving: dict[Where, list[Message]]

    def messages(self) -> list[Message]:
        """Return all messages that arrive, in the order of those who take them in."""
        return [message for messages in self.arriving.values() for message in messages]


def exchange(schedule: Schedule, node: Iterable[int] | None = None) -> Exchange:
    """Return the steps of the ranks of `node`, all of them when None; `schedule` holds their tables at least."""
    ranks = tuple(range(schedule.ranks)) if node is None else tuple(node)
    rows = [
        Step(rank, peer, round_, kind, chunk, nchunks, bool(flags & FROM_INPUT))
        for round_, rank, peer, chunk, nchunks, _, kind, flags in schedule.table.tolist()
        if rank in ranks
    ]
    everywhere = list(product(ranks, range(-1, schedule.rounds + 1)))
    copies: dict[Where, list[Step]] = {where: [] for where in everywhere}
    sent: dict[Where, list[Message]] = {where: [] for where in everywhere}
    arriving: dict[Where, list[Message]] = {where: [] for where in everywhere}
    waiting: dict[tuple[int, int, int], list[Step]] = defaultdict(list)
    for step in rows:
        if step.kind == COPY:
            copies[step.rank, step.round].append(step)
        elif step.kind == SEND and step.peer in ranks:
            waiting[step.round, step.rank, step.peer].append(step)
        elif step.kind == SEND:
            sent[step.rank, step.round].append(Message(step, step.other_side(), slot=False, wire=True))
    for step in rows:
        if step.kind in (KEEP, ADD):
            wire = step.peer not in ranks
            send = step.other_side() if wire else waiting[step.round, step.peer, step.rank].pop(0)
            message = Message(send, step, slot=not wire, wire=wire)
            arriving[step.rank, step.round].append(message)
            if not wire:
                sent[send.rank, send.round].append(message)
    return Exchange(ranks, schedule.rounds, schedule.chunks, copies, sent, arriving)
