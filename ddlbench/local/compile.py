"""From the steps of the ranks of a node to the program of one of them.

As over messages, segment s does its round r in tick s + r. In a tick a rank puts what it sends within the node where
others can read it, publishes the tick, starts the tick's messages to and from other nodes, and then takes in what has
come, in the order of its table: so results are the same bits as over messages alone.

A rank that waits for another's counter lets MPI work on its messages meanwhile. So every wait is for what another rank
does without this one: a counter for the same tick is published before anything of that tick is waited for, and a
message goes once both sides have started it, in the same tick.
"""

from collections.abc import Iterable, Iterator, Sequence

from ddlbench.local.exchange import Exchange, Message, Step, overlap
from ddlbench.local.program import (
    ARRIVE,
    INPUT,
    OUTPUT,
    POST,
    PUBLISH,
    REDUCE,
    SENT,
    SLOT,
    STAGE,
    WAIT,
    Instruction,
    Place,
    Program,
    Request,
)
from ddlbench.local.slots import Slots, whole_lines
from ddlbench.local.ways import Layout
from ddlbench.schedule.move import ADD
from ddlbench.schedule.segments import chunk_bounds, segment_bounds

MOST_STREAMS = 31
"""Bits of an instruction's mask of targets that are written past the caches."""


def compile_rank(of: Exchange, layout: Layout, rank: int) -> Program:
    """Return the program of `rank`, after `choose_ways`."""
    slots = {one: Slots(of, layout, one) for one in _partners(of, rank)}
    sets = slots[rank].sets
    ends = any(not (message.slot or message.wire) for message in of.messages()) or layout.segments > 1
    span = of.rounds + layout.segments - 1 + ends if of.rounds else 0
    writers = [_Writer(of, layout, rank, slots, span, execution) for execution in range(sets)]
    variants = tuple(tuple(writer.write(ends=ends)) for writer in writers)
    one = writers[0]
    return Program(
        variants, span, slots[rank].nbytes, one.stage_nbytes, tuple(one.receives), tuple(one.sends)
    )  # the same messages in each variant


def _partners(of: Exchange, rank: int) -> set[int]:
    """Return `rank` and those of its node that it gets something from."""
    arriving = (message for round_ in range(of.rounds) for message in of.arriving[rank, round_])
    return {rank} | {message.send.rank for message in arriving if not message.wire}


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
        self.receives: list[Request] = []
        self.sends: list[Request] = []
        self.stage_nbytes = 0
        self._receive_of: dict[tuple[int, int], int] = {}
        """Of messages that land, by identity and segment: which receive."""
        self._sending = range(0)
        """Sends of this tick that may be under way."""

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
            self._post(under_way)
            for segment, round_ in under_way:
                self._arrivals(segment, round_, tick)
            self._wait_for_sends()
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
            if first == last or message.wire:
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
            if message.wire:
                self._out.append(Instruction(ARRIVE, receives=self._receive(message, segment)))
            else:
                self._wait(message.send.rank, tick + 1)
        if group[0].push or group[0].lands:
            return
        own = [self._own(INPUT if step.from_input else OUTPUT, first)] if step.kind == ADD else []
        sources = own + [self._source(message, segment, first) for message in group]
        self._wait_for_readers(first, last)
        if self._is_being_sent(step, segment):
            self._wait_for_sends()
        targets = [self._own(OUTPUT, first), *(self._handed_on(step, segment, first) if done else ())]
        self._reduce(sources, targets, first, last)

    def _source(self, message: Message, segment: int, first: int) -> Place:
        send = message.send
        if message.wire:
            return self.receives[self._receive(message, segment).start].place
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

    # ---- Messages to and from other nodes ------------------------------------------------------------------------

    def _post(self, under_way: Sequence[tuple[int, int]]) -> None:
        """Start the messages of a tick: what arrives lands in the output or in the stage, which each tick has anew."""
        receives, sends, staged = len(self.receives), len(self.sends), 0
        for segment, round_ in under_way:
            for message in self._of.arriving[self._rank, round_]:
                first, last = self._elements(message.arrival, segment)
                if not message.wire or first == last:
                    continue
                place = self._own(OUTPUT, first) if message.lands else Place(self._rank, STAGE, staged)
                if message.lands:
                    self._wait_for_readers(first, last)
                else:
                    staged += whole_lines((last - first) * self._layout.itemsize)
                self._receive_of[id(message), segment] = len(self.receives)
                self.receives.append(Request(message.send.rank, place, last - first, round_, segment))
            for message in self._of.sent[self._rank, round_]:
                first, last = self._elements(message.send, segment)
                if message.wire and first < last:
                    place = self._own(INPUT if message.send.from_input else OUTPUT, first)
                    self.sends.append(Request(message.arrival.rank, place, last - first, round_, segment))
        self.stage_nbytes = max(self.stage_nbytes, staged)
        self._sending = range(sends, len(self.sends))
        received = range(receives, len(self.receives))
        if received or self._sending:
            self._out.append(Instruction(POST, receives=received, sends=self._sending))

    def _receive(self, message: Message, segment: int) -> range:
        at = self._receive_of[id(message), segment]
        return range(at, at + 1)

    def _is_being_sent(self, step: Step, segment: int) -> bool:
        """Say whether a message under way may still read what a step is going to write."""
        first, last = self._elements(step, segment)
        spaces = (INPUT, OUTPUT) if self._layout.in_place else (OUTPUT,)
        begin, end = first * self._layout.itemsize, last * self._layout.itemsize
        sends = (self.sends[at] for at in self._sending)
        return any(
            one.place.space in spaces
            and one.place.offset < end
            and begin < one.place.offset + one.elements * self._layout.itemsize
            for one in sends
        )

    def _wait_for_sends(self) -> None:
        if self._sending:
            self._out.append(Instruction(SENT, sends=self._sending))
        self._sending = range(0)

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
        outputs = _mask(place.space == OUTPUT for place in whole)
        shared = _mask(place.space == SLOT or place.rank != self._rank for place in whole)
        stream = outputs if self._layout.stream else 0
        self._out.append(Instruction(REDUCE, -1, 0, tuple(sources), whole, last - first, stream, shared))


def _mask(bits: Iterable[bool]) -> int:
    """Return a number with the bits that are true; those that a mask of an instruction has no room for are left out."""
    return sum(1 << at for at, bit in enumerate(bits) if bit and at < MOST_STREAMS)


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
