"""From an algorithm to the tables that run: one per rank, made without building anyone else's.

Lowering sorts a rank's steps by round and works out two things that an algorithm need not care about:

* which steps read the rank's own value from the input buffer, because nothing has been written to the output yet
  (`FROM_INPUT`); an out-of-place allreduce then needs no copy of the vector first. Where a message mixes written and
  unwritten chunks, and for chunks nobody ever sends, a local `COPY` step is put in;
* which arrivals must wait until the round's sends are done, because those read the same chunks (`LATE`): a round's
  reads come before its writes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.move import ADD, COPY, FROM_INPUT, KEEP, LATE, SEND, STEP, Ints, Phase, Table, steps
from ddlbench.schedule.rules import check_ranges

NEVER = np.iinfo(np.int64).max
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Schedule:
    """The lowered tables of all ranks, or of the ranks of interest, in one `STEP` table ordered by round and rank.

    `rounds` is what the algorithm says; a table of one rank may end earlier.
    """

    name: str
    grid: Grid
    chunks: int
    rounds: int
    table: Table

    @property
    def ranks(self) -> int:
        """Number of ranks of the schedule."""
        return self.grid.size

    def program(self, rank: int) -> "Schedule":
        """Return the part of one rank."""
        return Schedule(self.name, self.grid, self.chunks, self.rounds, self.table[self.table["rank"] == rank])


def lower(algorithm: BoundAlgorithm, ranks: npt.ArrayLike | None = None) -> Schedule:
    """Lower `algorithm` for the `ranks` of interest, all of them when None.

    Raises `ProofError` for a step that is on no rank, in no round or of no chunk there is.
    """
    of = np.arange(algorithm.grid.size) if ranks is None else np.atleast_1d(np.asarray(ranks, dtype=np.int64))
    phase = algorithm.phase(of)
    chunks = algorithm.chunks
    for part in phase.steps:
        check_ranges(part, algorithm.grid.size, chunks, phase.rounds)
    table = lower_phase(phase, of, chunks)
    return Schedule(algorithm.name, algorithm.grid, chunks, phase.rounds, table)


def lower_phase(phase: Phase, of: Ints, chunks: int) -> Table:
    """Return the sorted table of a phase with its flags set and its copies put in."""
    table = _sorted(np.concatenate([np.zeros(0, STEP), *phase.steps]))
    table["flags"] = np.where(_overlaps_a_send(table, chunks), LATE, 0)
    return _with_input_flags(table, np.sort(of), chunks)


@dataclass(frozen=True)
class Spread:
    """A table's steps spread out to one element per chunk.

    `row` is the row of the table, `cell` is unique per rank and chunk, `start` is where each row begins.
    """

    row: Ints
    cell: Ints
    start: Ints


def spread(rank_index: Ints, table: Table, chunks: int) -> Spread:
    """Spread out `table`; cell = rank_index * chunks + chunk."""
    first, count = rank_index * chunks + table["chunk"], table["nchunks"].astype(np.int64)
    if len(table) == 0 or int(count.max()) == 1:
        every = np.arange(len(table))
        return Spread(every, first, every)
    start = np.cumsum(count) - count
    row = np.repeat(np.arange(len(table)), count)
    return Spread(row, first[row] + np.arange(len(row)) - start[row], start)


def _sorted(table: Table) -> Table:
    key = table["round"].astype(np.int64) << 32 | table["rank"]
    if np.all(key[1:] >= key[:-1]):
        return table
    words = table.view(np.int64).reshape(len(table), -1)  # numpy gathers plain rows several times as fast as structs
    return words[np.argsort(key, kind="stable")].view(STEP).reshape(-1)


def _overlaps_a_send(table: Table, chunks: int) -> Bools:
    """Say for each arrival whether its chunks are also sent by the same rank in the same round.

    A range [a, b) overlaps one of the sent ranges when more of them start before b than end by a.
    """
    key = (table["round"].astype(np.int64) << 31 | table["rank"]) * chunks + table["chunk"]
    sends = table["kind"] == SEND
    if not sends.any():
        return np.zeros(len(table), bool)
    starts, ends = np.sort(key[sends]), np.sort((key + table["nchunks"])[sends])
    late = np.zeros(len(table), bool)
    a, b = key[~sends], (key + table["nchunks"])[~sends]
    late[~sends] = np.searchsorted(starts, b, "left") > np.searchsorted(ends, a, "right")
    return late


def _with_input_flags(table: Table, of: Ints, chunks: int) -> Table:
    cells = spread(np.searchsorted(of, table["rank"]), table, chunks)
    arrival = table["kind"] != SEND
    order = _execution_order(table, arrival)
    first = _first_writer(cells, order, len(of) * chunks)
    first_round = np.full(len(first), NEVER)
    first_round[first != NEVER] = table["round"][first[first != NEVER]]
    own = np.where(arrival[cells.row], first[cells.cell] == cells.row,
                   first_round[cells.cell] >= table["round"][cells.row])  # fmt: skip
    copied = _settle_mixed(table, cells, own, len(first))
    table["flags"] |= np.where(_all_own(table, cells, own, copied) & (table["kind"] != KEEP), FROM_INPUT, 0).astype(
        "u1"
    )
    copied[(first == NEVER) & (copied == NEVER)] = max(0, int(table["round"].max(initial=0)))
    return _with_copies(table, copied, of, chunks)


def _execution_order(table: Table, arrival: Bools) -> Ints:
    """Return the rows of the arrivals in the order in which they are done: by round, late ones after the others."""
    rows = np.flatnonzero(arrival)
    late = table["flags"][rows] & LATE > 0
    return rows[np.argsort(table["round"][rows] * 2 + late, kind="stable")] if late.any() else rows


def _first_writer(cells: Spread, order: Ints, count: int) -> Ints:
    """Return, per cell, the row of the first arrival that writes it, NEVER where none does."""
    first = np.full(count, NEVER)
    backwards = order[::-1]
    if len(cells.row) == len(cells.start):
        first[cells.cell[backwards]] = backwards  # the last assignment, the earliest arrival, stands
        return first
    length = np.diff(np.append(cells.start, len(cells.row)))[backwards]
    begin = np.repeat(cells.start[backwards], length)
    at = begin + np.arange(len(begin)) - np.repeat(np.cumsum(length) - length, length)
    first[cells.cell[at]] = cells.row[at]
    return first


def _all_own(table: Table, cells: Spread, own: Bools, copied: Ints) -> Bools:
    """Say for each row whether all its chunks still hold the rank's own value in the input only."""
    if len(table) == 0:
        return np.zeros(0, bool)
    unwritten = own & (copied[cells.cell] > table["round"][cells.row])
    if len(cells.row) == len(cells.start):
        return unwritten
    return np.logical_and.reduceat(unwritten, cells.start)


def _settle_mixed(table: Table, cells: Spread, own: Bools, count: int) -> Ints:
    """Return, per cell, the round in which it must be copied so that no message mixes input and output, else NEVER."""
    copied = np.full(count, NEVER)
    if len(cells.row) == len(cells.start):
        return copied
    reads = (table["kind"] != KEEP)[cells.row]
    while True:
        unwritten = own & (copied[cells.cell] > table["round"][cells.row])
        some = np.logical_or.reduceat(unwritten, cells.start) & ~np.logical_and.reduceat(unwritten, cells.start)
        mixed = unwritten & some[cells.row] & reads
        if not mixed.any():
            break
        np.minimum.at(copied, cells.cell[mixed], table["round"][cells.row[mixed]])
    return copied


def _with_copies(table: Table, copied: Ints, of: Ints, chunks: int) -> Table:
    where = np.flatnonzero(copied != NEVER)
    if not len(where):
        return table
    rank = of[where // chunks]
    return _sorted(np.concatenate([steps(COPY, copied[where], rank, rank, where % chunks, 1), table]))


def arrivals(table: Table) -> Bools:
    """Say which steps receive."""
    found: Bools = (table["kind"] == KEEP) | (table["kind"] == ADD)
    return found
