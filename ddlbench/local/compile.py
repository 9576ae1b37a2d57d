"""From the tables of all ranks of a node to the program of one of them.

As over messages, segment s does its round r in tick s + r. In a tick a rank puts what it sends where others can read
it, publishes the tick, and then takes in what others have put there for it, in the order of its table: so results are
the same bits as over messages.

What is sent is read from one of two places:

* the sender's buffer itself, where buffers are `registered`, which is to say that all ranks can address them. What must
  not be overwritten before it was read is waited for: a rank's counter tells how far it has read.
* a slot, to which the sender copies it. Slots are used in turn, so that a rank need not wait until what it has sent is
  read; small vectors have two sets of slots, of even and of odd executions.

Two things make a pass over the vector the only one. What a rank reduces and then sends is written to the slot by the
same instruction. And in registered buffers it is written straight to the output of those that would only store it (a
*push*), where nobody else uses that part of their output until then.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ddlbench.local.program import INPUT, OUTPUT, PUBLISH, REDUCE, SLOT, WAIT, Instruction, Place, Program
from ddlbench.schedule.lower import Schedule
from ddlbench.schedule.move import ADD, COPY, FROM_INPUT, KEEP, SEND
from ddlbench.schedule.segments import chunk_bounds, segment_bounds

COUNTER_NBYTES = 8
LINE_NBYTES = 64
SLOTS_BEGIN = 128
"""Slots begin two lines after the counter, since a processor may fetch lines in pairs; small ones share its line."""
MOST_BANKS = 4
"""How many segments of a round have slots at once."""
MOST_STREAMS = 31
"""Bits of an instruction's mask of targets that are written past the caches."""


@dataclass(frozen=True)
class Layout:
    """What a program is made for.

    `count` elements of `itemsize` bytes in `segments`; `registered` says that all ranks can address all buffers, and
    `in_place` that input and output are one. `stream`: results go past the caches.
    """

    count: int
    itemsize: int
    segments: int
    registered: bool
    in_place: bool
    stream: bool = False


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


def overlap(one: Step, other: Step) -> bool:
    """Say whether two steps are about a chunk in common."""
    return one.chunk < other.chunk + other.nchunks and other.chunk < one.chunk + one.nchunks


@dataclass
class Message:
    """A send and the arrival that takes it in, and how it gets there: by `slot`, by `push`, or from the buffer."""

    send: Step
    arrival: Step
    slot: bool = True
    push: bool = False


@dataclass
class Exchange:
    """All steps of a schedule, by rank and round; messages are matched as MPI would match them."""

    ranks: int
    rounds: int
    chunks: int
    copies: dict[tuple[int, int], list[Step]]
    sent: dict[tuple[int, int], list[Message]]
    arriving: dict[tuple[int, int], list[Message]]

    def messages(self) -> list[Message]:
        """Return all messages, in the order of those who take them in."""
        return [message for messages in self.arriving.values() for message in messages]


def exchange(schedule: Schedule) -> Exchange:
    """Return the steps of all ranks of `schedule`."""
    rows = [
        Step(rank, peer, round_, kind, chunk, nchunks, bool(flags & FROM_INPUT))
        for round_, rank, peer, chunk, nchunks, _, kind, flags in schedule.table.tolist()
    ]
    everywhere = list(product(range(schedule.ranks), range(-1, schedule.rounds + 1)))
    copies: dict[tuple[int, int], list[Step]] = {where: [] for where in everywhere}
    sent: dict[tuple[int, int], list[Message]] = {where: [] for where in everywhere}
    arriving: dict[tuple[int, int], list[Message]] = {where: [] for where in everywhere}
    found = Exchange(schedule.ranks, schedule.rounds, schedule.chunks, copies, sent, arriving)
    waiting: dict[tuple[int, int, int], list[Step]] = defaultdict(list)
    for step in rows:
        if step.kind == SEND:
            waiting[step.round, step.rank, step.peer].append(step)
        elif step.kind == COPY:
            found.copies[step.rank, step.round].append(step)
    for step in rows:
        if step.kind in (KEEP, ADD):
            message = Message(waiting[step.round, step.peer, step.rank].pop(0), step)
            found.arriving[step.rank, step.round].append(message)
    for message in found.messages():
        found.sent[message.send.rank, message.send.round].append(message)
    return found


def choose_ways(of: Exchange, layout: Layout) -> None:
    """Decide how each message gets to its receiver: from registered buffers where nothing speaks against it."""
    if not layout.registered:
        return
    for (rank, round_), messages in of.sent.items():
        written = [message.arrival for message in of.arriving[rank, round_]]
        for message in messages:
            safe = message.send.from_input and not layout.in_place
            message.slot = not safe and any(overlap(message.send, arrival) for arrival in written)
    for message in of.messages():
        message.push = not message.slot and layout.segments == 1 and _may_push(of, message)


def _may_push(of: Exchange, message: Message) -> bool:
    """Say whether the sender may write to the receiver's output while it reduces, a round before it would send.

    It must reduce just that part in the round before; and until the message is taken in, nobody but the sender may
    touch that part of the receiver's output.
    """
    send, arrival = message.send, message.arrival
    if arrival.kind != KEEP or send.from_input or send.range != arrival.range:
        return False
    made = [one.arrival for one in of.arriving[send.rank, send.round - 1] if overlap(one.arrival, send)]
    if not made or any(one.range != send.range for one in made):
        return False
    return not any(overlap(step, arrival) for step in _touching(of, message))


def _touching(of: Exchange, message: Message) -> Iterator[Step]:
    """Yield the steps on the receiver's buffers up to the message's round, but for what the sender itself reads."""
    receiver, sender = message.arrival.rank, message.send.rank
    for round_ in range(message.send.round + 1):
        yield from of.copies[receiver, round_]
        yield from (one.arrival for one in of.arriving[receiver, round_] if one is not message)
        reads_itself = (message.send.round - 1,)
        for one in of.sent[receiver, round_]:
            if one.arrival.rank != sender or round_ not in reads_itself:
                yield one.send


class Slots:
    """Where in a rank's slot each of its sends lies.

    Every round has room for its regions, `banks` times over: segment s uses bank s mod `banks`. `sets` sets of all
    that are used in turn by executions.
    """

    def __init__(self, of: Exchange, layout: Layout, rank: int) -> None:
        self.banks = min(MOST_BANKS, layout.segments)
        self.sets = 2 if layout.segments == 1 else 1
        self._places: dict[tuple[int, tuple[int, int], bool], int] = {}
        self._room: dict[int, int] = {}
        end = 0
        for round_ in range(of.rounds):
            begin = end
            for message in of.sent[rank, round_]:
                key = (round_, message.send.range, message.send.from_input)
                if message.slot and key not in self._places:
                    self._places[key] = end
                    end += _room(of, layout, message.send)
            self._room[round_] = end - begin
            end = begin + (end - begin) * self.banks
        self._set_nbytes = end
        small = COUNTER_NBYTES + end * self.sets <= LINE_NBYTES
        self._begin = COUNTER_NBYTES if small else SLOTS_BEGIN
        if small:
            return
        self._set_nbytes = _whole_lines(end)

    @property
    def nbytes(self) -> int:
        """Bytes of the slot with the counter, in whole pairs of lines."""
        return -(-(self._begin + self._set_nbytes * self.sets) // SLOTS_BEGIN) * SLOTS_BEGIN

    def place(self, send: Step, segment: int, execution: int) -> Place:
        """Return where a send of a segment lies in the executions that are `execution` modulo `sets`."""
        at = self._places[send.round, send.range, send.from_input]
        bank = (segment % self.banks) * self._room[send.round]
        return Place(send.rank, SLOT, self._begin + self._set_nbytes * (execution % self.sets) + at + bank)


def _room(of: Exchange, layout: Layout, send: Step) -> int:
    """Return the most bytes that a send takes in any segment; whole lines, unless it is a few bytes."""
    segment = layout.count // layout.segments + (layout.count % layout.segments > 0)
    most = min(segment, segment * send.nchunks // of.chunks + 1) * layout.itemsize
    return most if most <= LINE_NBYTES // 4 else _whole_lines(most)


def _whole_lines(nbytes: int) -> int:
    return -(-nbytes // LINE_NBYTES) * LINE_NBYTES


def compile_rank(of: Exchange, layout: Layout, rank: int) -> Program:
    """Return the program of `rank`, after `choose_ways`."""
    slots = {one: Slots(of, layout, one) for one in _partners(of, rank)}
    sets = slots[rank].sets
    ends = any(not message.slot for message in of.messages()) or layout.segments > 1
    span = of.rounds + layout.segments - 1 + ends if of.rounds else 0
    variants = [_Writer(of, layout, rank, slots, span, execution).write(ends=ends) for execution in range(sets)]
    return Program(tuple(tuple(variant) for variant in variants), span, slots[rank].nbytes)


def _partners(of: Exchange, rank: int) -> set[int]:
    """Return `rank` and those it gets something from."""
    return {rank} | {message.send.rank for round_ in range(of.rounds) for message in of.arriving[rank, round_]}


class _Writer:
    """Writes one variant of a rank's program."""

    def __init__(
        self, of: Exchange, layout: Layout, rank: int, slots: dict[int, Slots], span: int, execution: int
    ) -> None:
        self._of, self._layout, self._rank, self._slots = of, layout, rank, slots
        self._span, self._execution = span, execution
        self._known: dict[int, int] = {}
        self._out: list[Instruction] = []
        self._filled: set[tuple[int, Place]] = set()
        """Slots that hold what is sent, by segment."""
        self._read_by: list[tuple[int, int, int, int]] = []
        """Of what others read from this rank's buffers: elements, the tick, the reader."""

    def write(self, *, ends: bool) -> list[Instruction]:
        """Return the instructions; `ends` says that others wait for the end of an execution."""
        of, layout = self._of, self._layout
        ticks = of.rounds + layout.segments - 1 if of.rounds else 0
        for tick in range(ticks):
            under_way = [(tick - r, r) for r in range(of.rounds) if 0 <= tick - r < layout.segments]
            for segment, round_ in under_way:
                self._copies(segment, round_)
            for segment, round_ in under_way:
                self._sends(segment, round_, tick)
            self._out.append(Instruction(PUBLISH, value=tick + 1))
            for segment, round_ in under_way:
                self._arrivals(segment, round_, tick)
        if not ticks:
            for segment in range(layout.segments):
                self._copies(segment, 0)
        if ticks and ends:
            self._out.append(Instruction(PUBLISH, value=ticks + 1))
            for _, _, tick, reader in self._read_by:
                self._wait(reader, tick + 2)
        return self._out

    # ---- Steps ---------------------------------------------------------------------------------------------------

    def _copies(self, segment: int, round_: int) -> None:
        for step in self._of.copies[self._rank, round_]:
            self._copy(step, segment)

    def _copy(self, step: Step, segment: int) -> None:
        first, last = self._elements(step, segment)
        if not self._layout.in_place:
            self._wait_for_readers(first, last)
            self._reduce([self._own(INPUT, first)], [self._own(OUTPUT, first)], first, last)

    def _sends(self, segment: int, round_: int, tick: int) -> None:
        """Fill the slots of a round that no reduction has filled, and note what is read from the buffers."""
        for message in self._of.sent[self._rank, round_]:
            first, last = self._elements(message.send, segment)
            if first == last:
                continue
            if message.slot:
                place = self._slot(message.send, segment)
                if (segment, place) not in self._filled:
                    self._filled.add((segment, place))
                    self._wait_for_slot(message.send, segment)
                    space = INPUT if message.send.from_input else OUTPUT
                    self._reduce([self._own(space, first)], [place], first, last)
            elif not message.push and not (message.send.from_input and not self._layout.in_place):
                self._read_by.append((first, last, tick, message.arrival.rank))
            elif not message.push:
                self._read_by.append((0, 0, tick, message.arrival.rank))

    def _arrivals(self, segment: int, round_: int, tick: int) -> None:
        groups = list(_grouped(self._of.arriving[self._rank, round_]))
        for at, group in enumerate(groups):
            done = not any(overlap(group[0].arrival, later[0].arrival) for later in groups[at + 1 :])
            self._arrival(group, segment, tick, done=done)

    def _arrival(self, group: Sequence[Message], segment: int, tick: int, *, done: bool) -> None:
        """Take in messages about one range of chunks; `done` says that the round brings no more to it."""
        step = group[0].arrival
        first, last = self._elements(step, segment)
        if first == last:
            return
        for message in group:
            self._wait(message.send.rank, tick + 1)
        if group[0].push:
            return
        own = [self._own(INPUT if step.from_input else OUTPUT, first)] if step.kind == ADD else []
        sources = own + [self._source(message, segment, first) for message in group]
        self._wait_for_readers(first, last)
        targets = [self._own(OUTPUT, first), *(self._handed_on(step, segment, first) if done else ())]
        self._reduce(sources, targets, first, last)

    def _source(self, message: Message, segment: int, first: int) -> Place:
        send = message.send
        if message.slot:
            return self._slots[send.rank].place(send, segment, self._execution)
        return Place(send.rank, INPUT if send.from_input else OUTPUT, first * self._layout.itemsize)

    def _handed_on(self, step: Step, segment: int, first: int) -> Iterator[Place]:
        """Yield where else what is made of a range is written, since it is sent in the next round just so."""
        for message in self._of.sent[self._rank, step.round + 1]:
            send = message.send
            if send.range != step.range or send.from_input or self._made_later(step, send):
                continue
            if message.push:
                self._wait(message.arrival.rank, 1)
                yield Place(message.arrival.rank, OUTPUT, first * self._layout.itemsize)
            elif message.slot:
                place = self._slot(send, segment)
                if (segment, place) not in self._filled:
                    self._wait_for_slot(send, segment)
                    self._filled.add((segment, place))
                    yield place

    def _made_later(self, step: Step, send: Step) -> bool:
        """Say whether a part of what is sent is written by more than the steps of this range in the round before."""
        before = [one.arrival for one in self._of.arriving[self._rank, step.round]]
        copied = self._of.copies[self._rank, send.round]
        return any(overlap(one, send) and one.range != send.range for one in before) or any(
            overlap(one, send) for one in copied
        )

    # ---- Waiting -------------------------------------------------------------------------------------------------

    def _wait(self, peer: int, value: int) -> None:
        if peer != self._rank and self._known.get(peer, -self._span) < value:
            self._known[peer] = value
            self._out.append(Instruction(WAIT, peer=peer, value=value))

    def _wait_for_readers(self, first: int, last: int) -> None:
        """Wait until others have read what is in this part of the buffers."""
        for begin, end, tick, reader in self._read_by:
            if begin < last and first < end:
                self._wait(reader, tick + 2)

    def _wait_for_slot(self, send: Step, segment: int) -> None:
        """Wait until a slot is free: its readers have read what was in it before."""
        slots = self._slots[self._rank]
        before = segment - slots.banks
        for message in self._of.sent[self._rank, send.round]:
            if message.slot and message.send.range == send.range:
                reader = message.arrival.rank
                if slots.sets == 2:
                    self._wait(reader, 1 - self._span)
                else:
                    self._wait(reader, before + send.round + 2 if before >= 0 else 0)

    # ---- Memory --------------------------------------------------------------------------------------------------

    def _elements(self, step: Step, segment: int) -> tuple[int, int]:
        bounds = segment_bounds(self._layout.count, self._layout.segments, segment)
        return chunk_bounds(*bounds, self._of.chunks, step.chunk, step.nchunks)

    def _own(self, space: int, first: int) -> Place:
        return Place(self._rank, space, first * self._layout.itemsize)

    def _slot(self, send: Step, segment: int) -> Place:
        return self._slots[self._rank].place(send, segment, self._execution)

    def _reduce(self, sources: Iterable[Place], targets: Iterable[Place], first: int, last: int) -> None:
        whole = tuple(targets)
        outputs = sum(1 << at for at, place in enumerate(whole[:MOST_STREAMS]) if place.space == OUTPUT)
        stream = outputs if self._layout.stream else 0
        self._out.append(Instruction(REDUCE, -1, 0, tuple(sources), whole, last - first, stream))


def _grouped(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield runs of messages about the same chunks that one pass can take in, in their order."""
    group: list[Message] = []
    for message in messages:
        same = bool(group) and message.arrival.range == group[0].arrival.range
        if not (same and message.arrival.kind == ADD and not group[0].push and not message.arrival.from_input):
            if group:
                yield group
            group = []
        group.append(message)
    if group:
        yield group
