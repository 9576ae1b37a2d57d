"""The proof refuses what is wrong: planted faults, and random single edits judged by an executor of its own."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from ddlbench.algorithms import available, resolve
from ddlbench.errors import ProofError
from ddlbench.schedule import BoundAlgorithm, Grid, Group, Schedule, flat_algorithm, lower, verify
from ddlbench.schedule.lower import lower_phase
from ddlbench.schedule.move import ADD, COPY, FROM_INPUT, KEEP, LATE, SEND, STEP, Phase, steps

MUTANTS = 20_000


def schedule_of(text: str, ranks: int) -> Schedule:
    return lower(resolve(text, Grid((ranks,))))


def edited(schedule: Schedule, row: int, **fields: int) -> Schedule:
    table = schedule.table.copy()
    for name, value in fields.items():
        table[name][row] = value
    return replace(schedule, table=table)


def first(schedule: Schedule, kind: int, round_: int = 0) -> int:
    return int(np.flatnonzero((schedule.table["kind"] == kind) & (schedule.table["round"] == round_))[0])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"chunk": 2}, "but the receiver expects"),
        ({"peer": 3}, "has no counterpart"),
        ({"peer": 0}, "goes to the rank itself"),
        ({"peer": 4}, r"has a peer outside 0 … 3"),
        ({"peer": -1}, r"has a peer outside 0 … 3"),
        ({"nchunks": 9}, "leaves the 4 chunks"),
        ({"nchunks": 0}, "leaves the 4 chunks"),
        ({"round": 99}, "is outside the 6 rounds"),
        ({"lane": 1}, "lane"),
        ({"kind": 7}, "is of no known kind"),
        ({"flags": 0}, "reads the buffer that does not hold the chunk's value"),
        ({"rank": 4}, r"is on a rank outside 0 … 3"),
    ],
)
def test_an_edit_of_a_send_is_refused_by_its_reason(fields: dict[str, int], message: str) -> None:
    ring = schedule_of("ring", 4)
    row = first(ring, SEND)
    with pytest.raises(ProofError, match=message):
        verify(edited(ring, row, **fields))


def test_the_message_names_round_rank_and_move() -> None:
    ring = schedule_of("ring", 4)
    with pytest.raises(ProofError, match="round 0, rank 1: add of chunk 3 from rank 0 has no counterpart"):
        verify(edited(ring, first(ring, SEND), peer=2))


def test_storing_instead_of_adding_is_refused() -> None:
    ring = schedule_of("ring", 4)
    with pytest.raises(ProofError, match=r"at the end, rank 0, chunk [0-9]: [1-3] of 4 contributions have arrived"):
        verify(edited(ring, first(ring, ADD, 2), kind=KEEP, flags=0))


def test_adding_twice_is_refused() -> None:
    ring = schedule_of("ring", 4)
    with pytest.raises(ProofError, match="adds a contribution that is there already"):
        verify(edited(ring, first(ring, KEEP, 4), kind=ADD))


def test_a_write_under_a_pending_send_is_refused() -> None:
    doubling = schedule_of("recursive-doubling", 4)
    row = first(doubling, ADD, 1)
    assert doubling.table["flags"][row] & LATE
    with pytest.raises(ProofError, match="overwrites a chunk whose send is still under way"):
        verify(edited(doubling, row, flags=0))


def test_two_stores_of_a_chunk_in_a_round_are_refused() -> None:
    """Rank 0 adds all up and sends the result to ranks 1 and 2, and then both it and rank 1 send it to rank 2."""
    moves = [(0, 1, 0, ADD), (0, 2, 0, ADD), (1, 0, 1, KEEP), (1, 0, 2, KEEP), (2, 0, 2, KEEP), (2, 1, 2, KEEP)]
    sends = [steps(SEND, round_, source, target, 0, 1) for round_, source, target, _ in moves]
    arrivals = [steps(kind, round_, target, source, 0, 1) for round_, source, target, kind in moves]
    table = lower_phase(Phase(3, (*sends, *arrivals)), np.arange(3), 1)
    with pytest.raises(ProofError, match="is one of several writers of that chunk"):
        verify(Schedule("twice", Grid((3,)), 1, 3, table))


def test_a_chunk_on_two_lanes_is_refused() -> None:
    rings = schedule_of("multi-ring:2", 4)
    swapped = replace(rings, table=rings.table.copy())
    rows = np.flatnonzero((rings.table["round"] == 1) & (rings.table["lane"] == 1))
    swapped.table["lane"][rows] = 0
    with pytest.raises(ProofError, match="uses it too"):
        verify(swapped)


def test_different_orders_of_addition_are_refused() -> None:
    """Everyone sends all to everyone and adds in the order of arrival: right sums, not the same bits."""
    other = (np.arange(4) + 1 + np.arange(3)[:, None]) % 4
    everyone = np.arange(4)
    sends, adds = steps(SEND, 0, everyone, other, 0, 1), steps(ADD, 0, everyone, other, 0, 1)
    table = lower_phase(Phase(1, (sends, adds)), everyone, 1)
    with pytest.raises(ProofError, match="different orders"):
        verify(Schedule("gather and add", Grid((4,)), 1, 1, table))


def test_the_null_schedule_is_refused_and_the_empty_one_of_one_rank_is_not() -> None:
    with pytest.raises(ProofError, match="1 of 2 contributions"):
        verify(Schedule("null", Grid((2,)), 1, 0, np.zeros(0, STEP)))
    verify(schedule_of("ring", 1))


def test_a_schedule_of_no_chunks_is_refused() -> None:
    with pytest.raises(ProofError, match="has 0 chunks; expected at least 1"):
        verify(Schedule("none", Grid((2,)), 0, 0, np.zeros(0, STEP)))


def test_an_algorithm_that_leaves_its_chunks_is_refused_before_it_is_lowered() -> None:
    def allreduce(group: Group) -> list[Phase]:
        return [Phase(1, (group.send(0, to=(group.position + 1) % group.size, piece=group.size),))]

    wild = flat_algorithm("wild", "", pieces=lambda p: p, allreduce=allreduce)
    with pytest.raises(ProofError, match="round 0, rank 0: send of chunk 3 to rank 1 leaves the 3 chunks"):
        lower(BoundAlgorithm("wild", Grid((3,)), wild))


def test_an_output_nobody_writes_is_refused() -> None:
    with pytest.raises(ProofError, match="has no result for chunk 0"):
        verify(Schedule("nothing", Grid((1,)), 1, 0, np.zeros(0, STEP)))


def test_passes_over_ranges_of_chunks_prove_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = schedule_of("halving-doubling", 16)
    broken = edited(whole, first(whole, SEND, 5), flags=FROM_INPUT)
    monkeypatch.setattr(sys.modules["ddlbench.schedule.verify"], "POOL_BYTES", 16 * 8 * 3)
    verify(whole)
    with pytest.raises(ProofError, match="reads the buffer"):
        verify(broken)


def test_messages_that_mix_written_and_unwritten_chunks_get_their_copies() -> None:
    """Rank 1 adds to chunk 0 and then sends chunks 0 and 1 in one message: chunk 1 must be copied first."""
    up = (steps(SEND, 0, 0, 1, 0, 1), steps(ADD, 0, 1, 0, 0, 1), steps(SEND, 0, 1, 0, 1, 1), steps(ADD, 0, 0, 1, 1, 1))
    down = (steps(SEND, 1, [0, 1], [1, 0], 1 - np.arange(2), 1), steps(KEEP, 1, [1, 0], [0, 1], [1, 0], 1))
    verify(Schedule("exchange", Grid((2,)), 2, 2, lower_phase(Phase(2, up + down), np.arange(2), 2)))
    mixed = (
        steps(SEND, 0, 0, 1, 0, 1), steps(ADD, 0, 1, 0, 0, 1),
        steps(SEND, 1, 1, 0, 0, 2), steps(KEEP, 1, 0, 1, 0, 1, where=False), steps(ADD, 1, 0, 1, 1, 1, where=False),
        steps(KEEP, 1, 0, 1, 0, 2),
    )  # fmt: skip
    table = lower_phase(Phase(2, mixed), np.arange(2), 2)
    copies = table[table["kind"] == COPY]
    assert (copies["rank"].tolist(), copies["chunk"].tolist(), copies["round"].tolist()) == ([1], [1], [1])


# ---------------------------------------------------------------------------------------------------- mutants


def mutants(count: int, seed: int) -> Iterator[tuple[str, Schedule]]:
    """Yield random single edits of the lowered tables of all algorithms at several sizes."""
    random = np.random.default_rng(seed)
    grids = [Grid((p,)) for p in (2, 3, 4, 5, 8)] + [Grid((2, 2)), Grid((3, 2)), Grid((2, 4)), Grid((2, 2, 2))]
    texts = [a.name for a in available()] + ["multi-ring:lanes=2", "hierarchical:across=recursive-doubling"]
    pool = [(f"{text} on {grid}", lower(resolve(text, grid))) for text in texts for grid in grids]
    edits = (_edit_field, _edit_field, _edit_field, _edit_field, _delete, _duplicate, _swap)
    for number in range(count):
        name, schedule = pool[number % len(pool)]
        edit = edits[random.integers(len(edits))]
        yield f"{name}, {edit.__name__} {number}", replace(schedule, table=edit(schedule, random))


def _edit_field(schedule: Schedule, random: np.random.Generator) -> np.ndarray:
    table, row = schedule.table.copy(), random.integers(len(schedule.table))
    name = STEP.names[random.integers(len(STEP.names))]
    most = {"round": schedule.rounds, "rank": schedule.ranks, "peer": schedule.ranks, "chunk": schedule.chunks,
            "nchunks": schedule.chunks + 1, "lane": 3, "kind": 4, "flags": 4}[name]  # fmt: skip
    table[name][row] = random.integers(-1 if name in ("round", "peer", "chunk") else 0, most + 1)
    return table[np.argsort(table["round"], kind="stable")]


def _delete(schedule: Schedule, random: np.random.Generator) -> np.ndarray:
    return np.delete(schedule.table, random.integers(len(schedule.table)))


def _duplicate(schedule: Schedule, random: np.random.Generator) -> np.ndarray:
    row = random.integers(len(schedule.table))
    return np.insert(schedule.table, row, schedule.table[row])


def _swap(schedule: Schedule, random: np.random.Generator) -> np.ndarray:
    table = schedule.table.copy()
    a, b = random.integers(len(table), size=2)
    table[[a, b]] = table[[b, a]]
    table["round"][[a, b]] = table["round"][[b, a]]
    return table


class Judge:
    """Runs a schedule as the engine would: ranks on their own, messages in order between two ranks, two buffers.

    It shares no code with the proof. `right` is False for a deadlock, a wrong result, a read of a buffer before it is
    valid, or a write to a chunk whose send may still be reading it.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.p, self.chunks = schedule.ranks, schedule.chunks
        self.own = [[(7919 * r + 104729 * c + 1) ** 5 % (1 << 61) for c in range(self.chunks)] for r in range(self.p)]
        self.out: list[list[int | None]] = [[None] * self.chunks for _ in range(self.p)]
        self.wire: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
        self.rounds = [self._rounds(schedule, rank) for rank in range(self.p)]

    @staticmethod
    def _rounds(schedule: Schedule, rank: int) -> list[list[np.void]]:
        mine = [s for s in schedule.table if s["rank"] == rank]
        return [[s for s in mine if s["round"] == r] for r in range(max(1, schedule.rounds))]

    def right(self) -> bool:
        try:
            self._run()
        except (AssertionError, IndexError):
            return False
        total = [sum(self.own[r][c] for r in range(self.p)) for c in range(self.chunks)]
        return all(row == total for row in self.out) and not any(self.wire.values())

    def _run(self) -> None:
        walkers = [self._walk(rank) for rank in range(self.p)]
        idle = 0
        while walkers:
            walker = walkers.pop(0)
            moved = next(walker, None)
            if moved is not None:
                walkers.append(walker)
            idle = 0 if moved is None or moved else idle + 1
            assert idle <= self.p, "deadlock"

    def _walk(self, rank: int) -> Iterator[bool]:
        """Walk a rank's rounds; yield True on progress and False while waiting."""
        for table in self.rounds[rank]:
            for s in (s for s in table if s["kind"] == COPY):
                assert s["peer"] == rank
                self._store(rank, s, self.own[rank][s["chunk"] : s["chunk"] + s["nchunks"]])
            sends = [s for s in table if s["kind"] == SEND]
            for s in sends:
                self.wire[rank, int(s["peer"])].append(self._value(rank, s))
            receives = [s for s in table if s["kind"] in (KEEP, ADD)]
            busy = {c for s in sends for c in range(s["chunk"], s["chunk"] + s["nchunks"])}
            arrived = []
            for s in receives:
                while not self.wire[int(s["peer"]), rank]:
                    yield False
                arrived.append((s, self.wire[int(s["peer"]), rank].pop(0)))
                yield True
            for s, values in sorted(arrived, key=lambda pair: bool(pair[0]["flags"] & LATE)):
                assert len(values) == s["nchunks"]
                assert s["flags"] & LATE or not busy & set(range(s["chunk"], s["chunk"] + s["nchunks"]))
                own = self._value(rank, s) if s["kind"] == ADD else [0] * len(values)
                self._store(rank, s, [a + b for a, b in zip(values, own, strict=True)])
            yield True

    def _value(self, rank: int, s: np.void) -> list[int]:
        """What the rank holds: the input counts only while nothing has been written over it in place."""
        assert s["chunk"] >= 0
        assert s["chunk"] + s["nchunks"] <= self.chunks
        span = range(s["chunk"], s["chunk"] + s["nchunks"])
        held = [self.out[rank][c] for c in span]
        if s["flags"] & FROM_INPUT:
            assert all(h is None for h in held)
            return [self.own[rank][c] for c in span]
        assert all(h is not None for h in held)
        return [h for h in held if h is not None]

    def _store(self, rank: int, s: np.void, values: list[int]) -> None:
        assert s["chunk"] >= 0
        assert s["chunk"] + s["nchunks"] <= self.chunks
        for c, value in zip(range(s["chunk"], s["chunk"] + s["nchunks"]), values, strict=True):
            self.out[rank][c] = value


def test_the_judge_accepts_every_algorithm() -> None:
    for ranks in (1, 2, 3, 5, 8):
        for algorithm in available():
            assert Judge(schedule_of(algorithm.name, ranks)).right()


def test_no_wrong_mutant_is_accepted() -> None:
    accepted, wrong = 0, []
    for name, mutant in mutants(MUTANTS, seed=20170807):
        try:
            verify(mutant)
        except ProofError:
            continue
        accepted += 1
        if not Judge(mutant).right():
            wrong.append(name)
    assert wrong == []
    assert accepted < MUTANTS / 4  # what is left changes nothing: an order, an unused flag, a field set to itself


def test_the_judge_catches_what_a_null_proof_lets_through() -> None:
    """A proof that accepts all would fail the test above: many mutants are wrong."""
    judged = [Judge(mutant).right() for _, mutant in mutants(400, seed=1)]
    assert judged.count(False) > 200


@pytest.mark.parametrize("spoil", [lambda t: t[:-1], lambda t: np.concatenate([t, t[-1:]]), lambda t: t[::-1]])
def test_truncated_doubled_and_reversed_tables_are_refused(spoil: Callable[[np.ndarray], np.ndarray]) -> None:
    ring = schedule_of("ring", 3)
    with pytest.raises(ProofError):
        verify(replace(ring, table=np.ascontiguousarray(spoil(ring.table))))
