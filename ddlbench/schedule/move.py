"""What a schedule is made of: steps, seen from one rank, and the phases that hold them.

A *move* carries chunks from one rank to another in a round. Each side knows its half, a *step*: the source has a
`SEND`, the destination a `KEEP` (store what arrives) or an `ADD` (reduce it into what is there). `COPY` is local and
is put in by the lowering only. Algorithms make steps with numpy, for many rounds and ranks at once; nothing here knows
MPI or buffers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SEND, KEEP, ADD, COPY = 0, 1, 2, 3
KIND_NAMES = ("send", "keep", "add", "copy")
FROM_INPUT, LATE = 1, 2
"""Flags of a lowered step. FROM_INPUT: the rank's own value is read from the input buffer, because nothing has been
written to the output there. LATE: what arrives is written only after the round's sends are done, because they read
it."""

STEP = np.dtype(
    [
        ("round", np.int32),
        ("rank", np.int32),
        ("peer", np.int32),
        ("chunk", np.int32),
        ("nchunks", np.int32),
        ("lane", np.int16),
        ("kind", np.uint8),
        ("flags", np.uint8),
    ]
)
"""One row of a step table; `pyx/step.pxd` declares the same packed struct."""

Ints = npt.NDArray[np.int64]
Table = np.ndarray[Any, np.dtype[np.void]]


@dataclass(frozen=True)
class Phase:
    """Consecutive rounds of an algorithm, for the ranks of interest.

    `rounds` counts them; it is the same on every rank, whether the rank moves anything or not. `steps` holds `STEP`
    tables whose `round` counts from the start of the phase.
    """

    rounds: int
    steps: tuple[Table, ...]


def steps(
    kind: int,
    round_: npt.ArrayLike,
    rank: npt.ArrayLike,
    peer: npt.ArrayLike,
    chunk: npt.ArrayLike,
    nchunks: npt.ArrayLike,
    *,
    lane: int = 0,
    where: npt.ArrayLike = True,
) -> Table:
    """Return a flat `STEP` table; the arguments broadcast together and `where` selects.

    By convention axis 0 is the round and axis 1 the rank. The table is ordered by the broadcast arrays' C order.
    """
    *columns, mask = np.broadcast_arrays(round_, rank, peer, chunk, nchunks, where)
    everything = bool(mask.all())
    count = mask.size if everything else int(np.count_nonzero(mask))
    table = np.zeros(count, STEP)
    for name, column in zip(("round", "rank", "peer", "chunk", "nchunks"), columns, strict=True):
        table[name] = column.reshape(-1) if everything else column[mask]
    table["lane"], table["kind"] = lane, kind
    return table


def join(phases: Iterable[Phase]) -> Phase:
    """Return the phases one after the other as one phase."""
    rounds, tables = 0, []
    for phase in phases:
        tables += [_later(table, rounds) for table in phase.steps if len(table)]
        rounds += phase.rounds
    return Phase(rounds, tuple(tables))


def at_once(phases: Iterable[Phase]) -> Phase:
    """Return the phases side by side, all starting in the same round: lanes, or groups that work at the same time."""
    found = tuple(phases)
    return Phase(max((p.rounds for p in found), default=0), tuple(t for p in found for t in p.steps))


def _later(table: Table, rounds: int) -> Table:
    if rounds == 0:
        return table
    moved = table.copy()
    moved["round"] += rounds
    return moved
