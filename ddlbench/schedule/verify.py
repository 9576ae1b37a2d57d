"""Proof that a schedule is an allreduce, for its number of ranks, from the tables that run.

The tables of all ranks are raised back to moves and followed round by round, with the set of contributions that each
rank holds of each chunk. Refused are: steps out of range; sends and receives that do not pair up in order; a chunk
used by two lanes; two writers of a chunk in a round, unless all of them add; a contribution added twice; a read of an
output that nobody wrote, or of an input that is out of date; a write to a chunk whose send is still under way; a chunk
that does not end complete, on any rank. The results are also proved equal bit for bit on all ranks: they are sums of
the same pairs, up to the order of the two operands, which no operation of ddlbench depends on.

Sets are kept as bits and are exact. Sums of pairs are compared by a 64-bit fingerprint.
"""

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from ddlbench.errors import ProofError
from ddlbench.schedule.lower import Schedule, arrivals, spread
from ddlbench.schedule.move import ADD, COPY, FROM_INPUT, LATE, SEND, Ints, Table
from ddlbench.schedule.rules import check_ranges, describe, refuse

POOL_BYTES = 1 << 29
"""Memory that the sets of one pass may take; a larger schedule is proved in several passes over ranges of chunks."""

Bits = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Proof:
    """What was proved: the schedule `name` on `ranks` ranks, with its size."""

    name: str
    ranks: int
    chunks: int
    rounds: int
    moves: int


@dataclass(frozen=True)
class Moves:
    """Matched moves in the order of the receivers' tables; `send` and `receive` are rows of the table."""

    send: Ints
    receive: Ints


def verify(schedule: Schedule) -> Proof:
    """Prove `schedule`, the tables of all ranks; raises `ProofError` naming the round, the rank and the move."""
    table = schedule.table
    check_ranges(table, schedule.ranks, schedule.chunks, schedule.rounds)
    _check_lanes(schedule)
    moves = raise_moves(table, schedule.ranks)
    width = _chunks_per_pass(schedule)
    for first in range(0, schedule.chunks, width):
        _Pass(schedule, moves, first, min(first + width, schedule.chunks)).run()
    return Proof(schedule.name, schedule.ranks, schedule.chunks, schedule.rounds, len(moves.send))


def raise_moves(table: Table, ranks: int) -> Moves:
    """Match each send with the receive it meets.

    The k-th send from a rank to another in a round meets the k-th receive that the other expects from it. That is how
    MPI matches them, whose messages between two ranks do not overtake each other.
    """
    sends, receives = np.flatnonzero(table["kind"] == SEND), np.flatnonzero(arrivals(table))
    sends = sends[np.argsort(_pair_key(table, sends, "rank", "peer", ranks), kind="stable")]
    receives = receives[np.argsort(_pair_key(table, receives, "peer", "rank", ranks), kind="stable")]
    _check_pairs(table, sends, receives, ranks)
    partner = np.full(len(table), -1)
    partner[receives] = sends
    receives = np.flatnonzero(partner >= 0)
    return Moves(partner[receives], receives)


def _pair_key(table: Table, rows: Ints, source: str, target: str, ranks: int) -> Ints:
    key = table["round"][rows].astype(np.int64)
    for column in (source, target):
        key *= ranks
        key += table[column][rows]
    return key


def _check_pairs(table: Table, sends: Ints, receives: Ints, ranks: int) -> None:
    count = min(len(sends), len(receives))
    same = _equal(table, sends[:count], receives[:count], (("round", "round"), ("rank", "peer"), ("peer", "rank")))
    if not same.all():
        at = int(np.argmin(same))
        order = [_pair_key(table, rows[at : at + 1], *names, ranks)[0] for rows, names in
                 ((sends, ("rank", "peer")), (receives, ("peer", "rank")))]  # fmt: skip
        refuse(table, sends[at] if order[0] < order[1] else receives[at], "has no counterpart")
    if len(sends) != len(receives):
        longer = sends if len(sends) > count else receives
        refuse(table, longer[count], "has no counterpart")
    equal = _equal(table, sends, receives, (("chunk", "chunk"), ("nchunks", "nchunks"), ("lane", "lane")))
    if not equal.all():
        at = int(np.argmin(equal))
        refuse(table, sends[at], f"but the receiver expects {describe(table[receives[at]])}")


def _equal(table: Table, a: Ints, b: Ints, columns: tuple[tuple[str, str], ...]) -> Bools:
    """Say for each pair of rows whether the columns agree."""
    same = np.ones(len(a), bool)
    for left, right in columns:
        same &= table[left][a] == table[right][b]
    return same


def _check_lanes(schedule: Schedule) -> None:
    """Every chunk belongs to one lane."""
    table = schedule.table
    if not table["lane"].any():
        return
    moving = table[table["kind"] != COPY]
    cells = spread(np.zeros(len(moving), np.int64), moving, schedule.chunks)
    owner = np.zeros(schedule.chunks, np.int16)
    owner[cells.cell] = moving["lane"][cells.row]
    other = owner[cells.cell] != moving["lane"][cells.row]
    if other.any():
        at = cells.row[np.argmax(other)]
        refuse(
            moving, at, f"is on lane {moving['lane'][at]}, but lane {owner[cells.cell[np.argmax(other)]]} uses it too"
        )


def _chunks_per_pass(schedule: Schedule) -> int:
    per_chunk = (schedule.ranks * 8) * (-(-schedule.ranks // 64))
    return max(1, min(schedule.chunks, POOL_BYTES // per_chunk))


class _Pass:
    """Follows the contributions to chunks first … last-1 through all rounds.

    A set of contributions is a row of `bits`; `state` holds, per cell (rank and chunk), the row's number, so that
    storing a chunk elsewhere copies a number. Rows 0 … ranks-1 are the ranks' own values.
    """

    def __init__(self, schedule: Schedule, moves: Moves, first: int, last: int) -> None:
        self.table, self.ranks, self.width, self.first = schedule.table, schedule.ranks, last - first, first
        self._spread(schedule, moves, first, last)
        words, adds = -(-self.ranks // 64), int(np.count_nonzero(self.adds))
        self.used = self.ranks
        self.bits = np.empty((self.ranks + adds, words), np.uint64)
        self.size = np.empty(self.ranks + adds, np.int32)
        self.mark = np.empty(self.ranks + adds, np.uint64)
        own = np.arange(self.ranks)
        self.bits[: own.size] = 0
        self.bits[own, own // 64] = np.uint64(1) << (own % 64).astype(np.uint64)
        self.size[: own.size] = 1
        self.mark[: own.size] = _mix(own.astype(np.uint64) + np.uint64(1))
        cells = self.ranks * self.width
        self.state = np.repeat(own, self.width)
        self.written = np.zeros(cells, bool)
        self.sent_in = np.full(cells, -1, np.int32)
        self.seen = np.empty(cells, np.int64)

    def _spread(self, schedule: Schedule, moves: Moves, first: int, last: int) -> None:
        """Make the arrays of all rounds: one element per move and chunk, late arrivals of a round after the others."""
        table = schedule.table
        send, receive = _late_last(table, moves)
        if self.width == schedule.chunks and int(table["nchunks"].max(initial=1)) == 1:
            chunk = table["chunk"][receive].astype(np.int64)
        else:
            cells = spread(np.zeros(len(receive), np.int64), table[receive], schedule.chunks)
            inside = (cells.cell >= first) & (cells.cell < last)
            row, chunk = cells.row[inside], cells.cell[inside] - first
            send, receive = send[row], receive[row]
        self.send, self.receive = send, receive
        self.target = table["rank"][receive] * self.width + chunk
        self.source = table["peer"][receive] * self.width + chunk
        flags = table["flags"]
        self.adds, self.late = table["kind"][receive] == ADD, flags[receive] & LATE > 0
        self.source_input, self.target_input = flags[send] & FROM_INPUT > 0, flags[receive] & FROM_INPUT > 0
        rounds = np.arange(max(1, schedule.rounds) + 1)
        self.bound = np.searchsorted(table["round"][receive], rounds)
        copies = np.flatnonzero(table["kind"] == COPY)
        self.copies = copies[(table["chunk"][copies] < last) & (table["chunk"][copies] >= first)]
        self.copy_bound = np.searchsorted(table["round"][self.copies], rounds)

    def run(self) -> None:
        """Follow all rounds, then look at what every rank ended with."""
        for round_ in range(len(self.bound) - 1):
            if self.copy_bound[round_] < self.copy_bound[round_ + 1]:
                self._copy(self.copies[self.copy_bound[round_] : self.copy_bound[round_ + 1]])
            if self.bound[round_] < self.bound[round_ + 1]:
                self._round(round_, slice(self.bound[round_], self.bound[round_ + 1]))
        self._check_end()

    def _copy(self, rows: Ints) -> None:
        for row in rows:
            step = self.table[row]
            for chunk in range(step["chunk"] - self.first, step["chunk"] - self.first + step["nchunks"]):
                cell = step["rank"] * self.width + chunk
                if self.written[cell]:
                    refuse(self.table, row, "would overwrite what has arrived there")
                self.written[cell] = True

    def _round(self, round_: int, part: slice) -> None:
        source, target = self.source[part], self.target[part]
        stale = self.written[source] == self.source_input[part]
        if stale.any():
            self._refuse_at(self.send, part, stale, "reads the buffer that does not hold the chunk's value")
        self.sent_in[source] = round_
        early = (self.sent_in[target] == round_) & ~self.late[part]
        if early.any():
            self._refuse_at(self.receive, part, early, "overwrites a chunk whose send is still under way")
        arriving = self.state[source]
        self.seen[target] = np.arange(len(target))
        if (self.seen[target] == np.arange(len(target))).all():
            self._write(part, target, arriving, np.arange(len(target)))
        else:
            self._write_in_turn(part, target, arriving)

    def _write_in_turn(self, part: slice, target: Ints, arriving: Ints) -> None:
        """Several arrivals for one chunk: all must be adds, and are done in the order of the table."""
        order = np.argsort(target, kind="stable")
        new = np.concatenate(([True], np.diff(target[order]) != 0))
        start = np.flatnonzero(new)
        turn = np.empty(len(target), np.int64)
        turn[order] = np.arange(len(target)) - np.repeat(start, np.diff(np.append(start, len(target))))
        shared = np.zeros(self.state.size, bool)
        shared[target[turn > 0]] = True
        clash = shared[target] & ~self.adds[part]
        if clash.any():
            self._refuse_at(self.receive, part, clash, "is one of several writers of that chunk in that round")
        by_turn = np.argsort(turn, kind="stable")
        for these in np.split(by_turn, np.flatnonzero(np.diff(turn[by_turn])) + 1):
            self._write(part, target[these], arriving[these], these)

    def _write(self, part: slice, target: Ints, arriving: Ints, these: Ints) -> None:
        adds = self.adds[part][these]
        if adds.all():
            self._add(part, target, arriving, these)
        elif adds.any():
            self.state[target[~adds]] = arriving[~adds]
            self._add(part, target[adds], arriving[adds], these[adds])
        else:
            self.state[target] = arriving
        self.written[target] = True

    def _add(self, part: slice, target: Ints, arriving: Ints, these: Ints) -> None:
        stale = self.written[target] == self.target_input[part][these]
        if stale.any():
            self._refuse_at(self.receive, part, these[stale], "adds to the buffer that does not hold the chunk's value")
        own = self.state[target]
        a, b = self.bits[own], self.bits[arriving]
        if np.bitwise_and(a, b).any():
            twice = (a & b).any(axis=1)
            self._refuse_at(self.receive, part, these[twice], "adds a contribution that is there already")
        fresh = slice(self.used, self.used + len(target))
        np.bitwise_or(a, b, out=self.bits[fresh])
        self.size[fresh] = self.size[own] + self.size[arriving]
        self.mark[fresh] = _pair(self.mark[own], self.mark[arriving])
        self.state[target] = np.arange(fresh.start, fresh.stop)
        self.used = fresh.stop

    def _refuse_at(self, rows: Ints, part: slice, which: Bools | Ints, why: str) -> NoReturn:
        at = int(np.flatnonzero(which)[0]) if which.dtype == bool else int(which[0])
        refuse(self.table, rows[part][at], why)

    def _check_end(self) -> None:
        short = self.size[self.state] != self.ranks
        if short.any():
            cell = int(np.argmax(short))
            where, have = (
                f"rank {cell // self.width}, chunk {cell % self.width + self.first}",
                self.size[self.state[cell]],
            )
            raise ProofError(f"at the end, {where}: {have} of {self.ranks} contributions have arrived")
        if not self.written.all():
            cell = int(np.argmin(self.written))
            raise ProofError(
                f"at the end, rank {cell // self.width} has no result for chunk {cell % self.width + self.first}"
            )
        marks = self.mark[self.state].reshape(self.ranks, self.width)
        differ = marks != marks[0]
        if differ.any():
            rank, chunk = np.argwhere(differ)[0]
            raise ProofError(
                f"at the end, ranks 0 and {rank} have added chunk {chunk + self.first} up in different orders, so "
                "their results would not be equal bit for bit"
            )


def _late_last(table: Table, moves: Moves) -> tuple[Ints, Ints]:
    """Return the moves with the late arrivals of each round after the others."""
    late = table["flags"][moves.receive] & LATE > 0
    if not late.any():
        return moves.send, moves.receive
    order = np.argsort(table["round"][moves.receive] * 2 + late, kind="stable")
    return moves.send[order], moves.receive[order]


def _mix(x: Bits) -> Bits:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _pair(a: Bits, b: Bits) -> Bits:
    """Return a fingerprint of the unordered pair {a, b}."""
    return _mix(_mix(a) + _mix(b) + np.uint64(0x9E3779B97F4A7C15))
