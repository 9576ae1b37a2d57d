"""The engine does what the tables say: bit for bit what the reference executor does, for any count, in any place."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ddlbench.algorithms import available
from ddlbench.comm import Communicator
from ddlbench.dtypes import DTYPES, OPS
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import lower
from ddlbench.schedule.reference import execute, widen
from ddlbench.topology import Topology, discover

RANKS = (1, 2, 3, 5, 8)
NAMES = [a.name for a in available()]
COUNTS = (0, 1, 3, 8, 1001)


def inputs_of(ranks: int, count: int, dtype: str, seed: int = 1) -> list[np.ndarray]:
    """Return one array of random elements per rank, with the rounding of real data."""
    random = np.random.default_rng(seed)
    kind = DTYPES[dtype]
    if not kind.significand_bits:
        return [random.integers(0, 200, count).astype(kind.storage) for _ in range(ranks)]
    values = [random.standard_normal(count).astype(np.float32) for _ in range(ranks)]
    if dtype == "bfloat16":
        return [(v.view(np.uint32) >> 16).astype(np.uint16) for v in values]
    return [v.astype(kind.storage) for v in values]


WAYS = ("p2p", "direct-slots", "direct")
"""Messages, slots in shared memory, and buffers there."""
MIXED = ("mixed-slots", "mixed")
"""The same two inside nodes, and messages between."""


def check(
    comm: Communicator, text: str, dtype: str, op: str, count: int, *, in_place: bool, message: int | None
) -> None:
    """Run one allreduce over each transport and hold it against the reference."""
    inputs = inputs_of(comm.size, count, dtype)
    for way in WAYS if comm.topology.nodes == 1 else MIXED:
        check_over(comm, way, inputs, text, dtype, op, count, in_place=in_place, message=message)


def check_over(
    comm: Communicator,
    way: str,
    inputs: list[np.ndarray],
    text: str,
    dtype: str,
    op: str,
    count: int,
    *,
    in_place: bool,
    message: int | None,
) -> None:
    """Run an allreduce three times over; the send buffer and what lies around the buffers must not change."""
    storage = DTYPES[dtype].storage
    registered, transport = "-" not in way, "p2p" if way == "p2p" else "direct"
    empty = comm.empty if registered and transport == "direct" else np.empty
    guarded, source = empty(count + 16, storage), empty(count, storage)
    guarded[:] = 77
    result = guarded[8 : 8 + count]
    sent = result if in_place else source
    with comm.plan(
        sent, result, op=op, algorithm=text, dtype=dtype, segment_nbytes=message, transport=transport
    ) as plan:
        assert plan.transport == way
        for _ in range(3):
            source[:] = inputs[comm.rank]
            sent[:] = inputs[comm.rank]
            plan.execute()
        expected = execute(lower(comm.bind(text)), inputs, DTYPES[dtype], op, plan.segments)[comm.rank]
    what = (way, text, dtype, op, count, in_place, message)
    assert np.array_equal(result.view(np.uint8), expected.view(np.uint8)), what
    assert np.array_equal(source, inputs[comm.rank]), what
    assert np.all(guarded[:8] == 77), what
    assert np.all(guarded[8 + count :] == 77), what
    if registered and transport == "direct":
        comm.release(guarded)
        comm.release(source)


@pytest.mark.mpi(*RANKS, timeout=120)
@pytest.mark.parametrize("text", NAMES)
def test_every_algorithm_matches_the_reference(comm, text):
    with Communicator(comm) as ours:
        for count in COUNTS:
            for in_place in (False, True):
                check(ours, text, "float32", "sum", count, in_place=in_place, message=None)
                check(ours, text, "float32", "sum", count, in_place=in_place, message=256)


def apart(found: Topology, ranks_per_node: Sequence[int]) -> Topology:
    """Return `found`, of ranks that all share memory, as if they were on nodes of their own."""
    nodes = [node for node, ranks in enumerate(ranks_per_node) for _ in range(ranks)]
    return replace(found, node_of=tuple(nodes), machine_of=found.machine_of or found.node_of)


@pytest.mark.mpi(3, 5, 8, timeout=120)
@pytest.mark.parametrize("text", NAMES)
def test_every_algorithm_matches_the_reference_with_messages_between_nodes(comm, text, monkeypatch):
    """Nodes that are none, so that one machine is enough: what is shared within them, and sent between, is the same."""
    for ranks_per_node in {3: [(2, 1)], 5: [(1, 1, 3)], 8: [(4, 4), (2, 2, 2, 2)]}[comm.size]:
        monkeypatch.setattr("ddlbench.comm.discover", lambda of, nodes=ranks_per_node: apart(discover(of), nodes))
        grid = Grid((comm.size,)) if len(set(ranks_per_node)) > 1 else None
        with Communicator(comm, grid=grid) as ours:
            for count, in_place, message in ((comm.size - 1, True, None), (1003, False, None), (1003, True, 256)):
                check(ours, text, "float32", "sum", count, in_place=in_place, message=message)


@pytest.mark.mpi(2, 3, 5, timeout=120)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_op_matches_the_reference(comm, dtype):
    with Communicator(comm) as ours:
        for op in OPS:
            for text in ("ring", "recursive-doubling", "direct"):
                check(ours, text, dtype, op, 301, in_place=False, message=128)


@pytest.mark.mpi(6, 8)
@pytest.mark.parametrize(
    "text", ["hierarchical:2x{}", "leader:2x{}:across=ring", "multi-ring:2x{}:lanes=2", "r:2x{}", "multi-ring:3"]
)
def test_grids_match_the_reference(comm, text):
    with Communicator(comm) as ours:
        check(ours, text.format(comm.size // 2), "float32", "avg", 1003, in_place=False, message=512)
        check(ours, text.format(comm.size // 2), "bfloat16", "sum", 1003, in_place=True, message=None)


@pytest.mark.mpi(1, 2, 5)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("op", OPS)
def test_the_vendors_allreduce_agrees_on_integers(comm, dtype, op):
    with Communicator(comm) as ours:
        values = (np.arange(1000) % 3 + comm.rank + 1).astype(DTYPES[dtype].storage)
        results = [ours.allreduce(values, op=op, algorithm=name) for name in ("mpi", "ring")]
        assert np.array_equal(*results)


@pytest.mark.mpi(*RANKS)
def test_a_plan_reads_its_buffer_anew_each_time(comm):
    with Communicator(comm) as ours:
        values, result = np.zeros(5000, np.float32), np.zeros(5000, np.float32)
        with ours.plan(values, result, algorithm="double-binary-tree", segment_nbytes=1024, transport="p2p") as plan:
            assert plan.segments > 1 or comm.size == 1
            for turn in range(20):
                values[:] = np.arange(5000) + turn * (comm.rank + 1)
                plan.execute()
                total = comm.size * np.arange(5000) + turn * sum(range(1, comm.size + 1))
                assert np.array_equal(result, total.astype(np.float32))


@pytest.mark.mpi(2, 3)
def test_samples_are_times_of_real_runs(comm):
    with Communicator(comm) as ours:
        values = np.full(1000, comm.rank + 1, np.int64)
        with ours.plan(values, algorithm="ring") as plan:
            taken = plan.time_samples(3)
        assert taken.shape == (3,)
        assert np.all(taken > 0)
        once = sum(range(1, comm.size + 1))
        assert np.all(values == once * comm.size**2)  # in place, three times: each sums what the one before left


@pytest.mark.mpi(2, 3)
def test_results_stay_within_the_derived_bound(comm):
    """docs/numerics.md: depth d of additions, each rounding by at most u, gives ((1+u)^d - 1) sum |x|."""
    with Communicator(comm) as ours:
        for dtype, unit in (("float16", 2.0**-11), ("bfloat16", 2.0**-8), ("float32", 2.0**-24)):
            kind, inputs = DTYPES[dtype], inputs_of(comm.size, 4096, dtype, seed=5)
            result = ours.allreduce(inputs[comm.rank], algorithm="ring", dtype=dtype)
            exact = sum(widen(kind, x).astype(np.float64) for x in inputs)
            allowed = ((1 + unit) ** (comm.size - 1) - 1) * sum(
                np.abs(widen(kind, x).astype(np.float64)) for x in inputs
            )
            assert np.all(np.abs(widen(kind, result).astype(np.float64) - exact) <= allowed)


def available_gib() -> float:
    """Return the memory that is free for the asking."""
    text = Path("/proc/meminfo").read_text()
    kib = next(int(line.split()[1]) for line in text.splitlines() if line.startswith("MemAvailable"))
    return kib / 2**20


@pytest.mark.slow
@pytest.mark.mpi(2, timeout=240)
def test_more_than_two_to_the_31_elements(comm):
    count, need = 2**31 + 5, 6.0
    short = comm.bcast(available_gib() < need)
    if short:
        pytest.skip(f"needs {need:.0f} GiB of free memory, here are {available_gib():.1f}")
    with Communicator(comm) as ours:
        values = np.zeros(count, np.uint8)
        marks = np.array([0, 1, 2**31 - 1, 2**31, count - 1, count // 2, 2**30, 2**30 + 1])
        values[marks] = comm.rank + 100
        with ours.plan(values, algorithm="ring") as plan:
            assert count // plan.segments // 2 <= 2**30
            plan.execute()
        assert np.all(values[marks] == 201)
        assert int(np.count_nonzero(values)) == len(marks)


@pytest.mark.mpi(2)
def test_messages_beyond_the_mpi_limit_are_cut_whatever_is_asked(comm):
    from ddlbench.schedule.segments import segments_for

    assert segments_for(2, 1, 4, 2**33, 2**40) == 4
    assert segments_for(1, 1, 10**6, 2**40) == 1024


@pytest.mark.mpi(2, 3)
def test_ranks_beyond_the_cores_yield(comm):
    with Communicator(comm) as ours:
        cores = len(os.sched_getaffinity(0))
        assert ours.yielding == (comm.size > cores)
        ours.yielding = True
        check(ours, "halving-doubling", "float64", "sum", 777, in_place=False, message=None)
