"""Programs of the direct transport: what one rank does, in order, on memory that the ranks of a node share.

    PUBLISH v     what this rank has read and written so far is done: its counter becomes base + v
    WAIT p v      until the counter of rank p is base + v or more
    REDUCE        targets = source 0 op source 1 op …, in one pass; a copy where there is one source
    POST          start receives and sends, messages from and to ranks of other nodes
    ARRIVE i      until receive i is done
    SENT          until sends are done

`base` grows by the program's `span` with each execution. A rank's memory has four spaces: its `INPUT` and `OUTPUT`
buffers, its `SLOT`, which begins with the counter and goes on with room for what it hands to others, and its `STAGE`,
where messages land that are to be added to something.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ddlbench.schedule.move import Table

INPUT, OUTPUT, SLOT, STAGE = 0, 1, 2, 3
PUBLISH, WAIT, REDUCE, POST, ARRIVE, SENT = 0, 1, 2, 3, 4, 5

INSTRUCTION = np.dtype(
    [
        ("kind", np.int32),
        ("peer", np.int32),
        ("sources", np.int32),
        ("targets", np.int32),
        ("operands", np.int32),
        ("stream", np.int32),
        ("shared", np.int32),
        ("unused", np.int32),
        ("value", np.int64),
        ("count", np.int64),
    ]
)
"""One row of an instruction table; `pyx/direct.h` declares the same struct."""


REQUEST = np.dtype(
    [
        ("address", np.uint64),
        ("nbytes", np.int64),
        ("peer", np.int32),
        ("round", np.int32),
        ("segment", np.int32),
        ("unused", np.int32),
    ]
)
"""One row of a table of messages; `pyx/engine.pyx` declares the same struct."""


class Place(NamedTuple):
    """Where something is: a rank's space, and bytes from its beginning."""

    rank: int
    space: int
    offset: int


class Request(NamedTuple):
    """A message to or from `peer`, of another node: `elements` at `place`."""

    peer: int
    place: Place
    elements: int
    round: int
    segment: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `count` is in elements. Of all but `kind`, a kind has its own.

    Bit i of `stream` says that target i is written past the caches, since nobody reads it soon; bit i of `shared` that
    another rank reads it next. `receives` and `sends` are of the program's requests.
    """

    kind: int
    peer: int = -1
    value: int = 0
    sources: tuple[Place, ...] = ()
    targets: tuple[Place, ...] = ()
    count: int = 0
    stream: int = 0
    shared: int = 0
    receives: range = range(0)
    sends: range = range(0)


@dataclass(frozen=True)
class Program:
    """One rank's program.

    `variants` are run in turn, one with each execution: one, or two that use different slots. `span` is by how much
    the rank's counter grows with each execution, and `slot_nbytes` what its slot takes, the counter included;
    `stage_nbytes` is for its stage. `receives` and `sends` are the messages of each execution.
    """

    variants: tuple[tuple[Instruction, ...], ...]
    span: int
    slot_nbytes: int
    stage_nbytes: int = 0
    receives: tuple[Request, ...] = ()
    sends: tuple[Request, ...] = ()

    def variant(self, execution: int) -> tuple[Instruction, ...]:
        """Return what runs in an execution, counted from 0."""
        return self.variants[execution % len(self.variants)]


def tabulate(instructions: tuple[Instruction, ...], first_operand: int) -> tuple[Table, list[Place]]:
    """Return the `INSTRUCTION` table of a variant, and the places of its operands, from index `first_operand` on."""
    rows, operands = [], list[Place]()
    for one in instructions:
        at = first_operand + len(operands)
        if one.kind in (POST, ARRIVE, SENT):
            row = (one.kind, -1, len(one.receives), len(one.sends), one.sends.start, 0, 0, 0, one.receives.start, 0)
        else:
            masks = one.stream, one.shared, 0
            row = (one.kind, one.peer, len(one.sources), len(one.targets), at, *masks, one.value, one.count)
        rows.append(row)
        operands += (*one.sources, *one.targets)
    return np.array(rows, INSTRUCTION), operands


def accesses(one: Instruction, itemsize: int) -> Iterator[tuple[Place, int, bool]]:
    """Yield (place, bytes, whether it is written) of what an instruction touches."""
    for place in one.sources:
        yield place, one.count * itemsize, False
    for place in one.targets:
        yield place, one.count * itemsize, True
