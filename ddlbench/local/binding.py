"""From a schedule and buffers to what the direct transport runs: the program of this rank with all its addresses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.local.compile import compile_rank
from ddlbench.local.exchange import exchange
from ddlbench.local.program import REQUEST, Place, Program, Request, tabulate
from ddlbench.local.ways import Layout, choose_ways
from ddlbench.schedule.lower import Schedule
from ddlbench.schedule.move import Table

EAGER_NBYTES = 1 << 13
"""Vectors up to this many bytes go through slots even where buffers are registered: there is one wait less."""
PIECE_NBYTES = 1 << 18
"""About how many bytes a message through slots has. On two ranks 256 KiB was faster than 16 to 128 KiB from 512 KiB
on (at 16 MiB 1.8 ms, and 3.3 with pieces of 16 KiB), and 512 KiB was slower from 4 MiB on."""
STREAM_NBYTES = 1 << 23
"""Vectors from this many bytes on are written past the caches: they would not stay there. On two ranks plain stores
took half the time at 4 MiB, and as long at 8."""


def layout_for(
    schedule: Schedule,
    message_chunks: int,
    count: int,
    itemsize: int,
    *,
    registered: bool,
    in_place: bool,
    piece_nbytes: int | None = None,
    between_nodes: int = 0,
) -> Layout:
    """Return how a vector is cut and carried; `message_chunks` is the most that one message of any rank has.

    `piece_nbytes` bounds a message's bytes; None leaves that to the transport. Where there are messages between nodes
    they decide: the vector is cut into `between_nodes` segments. In a network of 1 Gbit/s smaller pieces for the sake
    of the caches made `leader` a third slower at 4 MiB.
    """
    nbytes = count * itemsize
    zero_copy = registered and nbytes > EAGER_NBYTES
    whole = nbytes * message_chunks // schedule.chunks
    most = piece_nbytes or (whole if zero_copy or nbytes <= EAGER_NBYTES else PIECE_NBYTES)
    segments = between_nodes or max(1, -(-whole // max(1, most)))
    return Layout(count, itemsize, segments, zero_copy, in_place, nbytes >= STREAM_NBYTES)


def program_for(schedule: Schedule, layout: Layout, rank: int, node: Iterable[int] | None = None) -> Program:
    """Return the program of `rank`, on a node with the ranks `node` (None: all), whose tables `schedule` holds."""
    of = exchange(schedule, node)
    choose_ways(of, layout)
    return compile_rank(of, layout, rank)


@dataclass(frozen=True)
class Bound:
    """A program with addresses, as the engine takes it."""

    variants: tuple[Table, ...]
    operands: npt.NDArray[np.uint64]
    counters: npt.NDArray[np.uint64]
    receives: Table
    sends: Table


def bind(program: Program, addresses: Sequence[Sequence[int]], itemsize: int) -> Bound:
    """Return `program` with the addresses of [input, output, slot, stage][rank]; 0 for what no process here has."""
    tables, places = [], list[Place]()
    for variant in program.variants:
        table, more = tabulate(variant, len(places))
        tables.append(table)
        places += more

    def address(of: Place) -> int:
        return addresses[of.space][of.rank] + of.offset

    def messages(requests: Iterable[Request]) -> Table:
        rows = [(address(one.place), one.elements * itemsize, one.peer, one.round, one.segment, 0) for one in requests]
        return np.array(rows, REQUEST)

    operands: Any = np.array([address(one) for one in places], np.uint64)
    counters: Any = np.array(addresses[2], np.uint64)
    return Bound(tuple(tables), operands, counters, messages(program.receives), messages(program.sends))
