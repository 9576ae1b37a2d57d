"""The Communicator: what users call, what it refuses, and that refusals reach every rank."""

import numpy as np
import pytest

import ddlbench.comm as comm_module
from ddlbench import _engine
from ddlbench.comm import Communicator
from ddlbench.errors import ProofError, UnsupportedError, UsageError
from ddlbench.schedule import Grid, Phase, flat_algorithm
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.move import STEP


def test_python_and_c_agree_on_the_row_of_a_table():
    assert STEP.itemsize == _engine.STEP_SIZE


@pytest.mark.mpi(1, 2, 3)
def test_allreduce_returns_a_new_array_or_fills_the_one_given(comm):
    with Communicator(comm) as ours:
        values = np.arange(6, dtype=np.float64).reshape(2, 3) + comm.rank
        expected = comm.size * np.arange(6).reshape(2, 3) + sum(range(comm.size))
        new = ours.allreduce(values)
        assert np.array_equal(new, expected)
        assert new.shape == (2, 3)
        assert ours.allreduce(values, out=values, algorithm="direct") is values
        assert np.array_equal(values, expected)


@pytest.mark.mpi(2, 3)
def test_average_divides_by_the_ranks(comm):
    with Communicator(comm) as ours:
        assert np.array_equal(
            ours.allreduce(np.full(3, comm.rank, np.float32), op="avg"), np.full(3, (comm.size - 1) / 2)
        )


@pytest.mark.mpi(2)
def test_buffers_that_do_not_fit_are_refused_by_their_fault(comm):
    with Communicator(comm) as ours:
        good = np.zeros(4, np.float32)
        frozen = np.zeros(4, np.float32)
        frozen.flags.writeable = False
        cases = [
            ((good[::2],), {}, "not contiguous"),
            (([1.0],), {}, "got list"),
            ((good, np.zeros(5, np.float32)), {}, "send buffer of 4 float32, but receive buffer of 5 float32"),
            ((good, np.zeros(4, np.float64)), {}, "receive buffer of 4 float64"),
            ((good, frozen), {}, "read-only"),
            ((good[:3], good[1:]), {}, "overlap"),
            ((np.zeros(4, np.complex64),), {}, "unknown dtype 'complex64'"),
            ((good,), {"dtype": "bfloat16"}, "cannot hold bfloat16"),
            ((good,), {"op": "summ"}, "unknown op 'summ': did you mean 'sum'"),
            ((good,), {"algorithm": "rign"}, "unknown algorithm 'rign': did you mean 'ring'"),
        ]
        for args, named, message in cases:
            with pytest.raises(UsageError, match=message):
                ours.plan(*args, **named)


@pytest.mark.mpi(2, 3)
def test_ranks_that_ask_for_different_things_are_refused_on_all_ranks(comm):
    with Communicator(comm) as ours:
        with pytest.raises(UsageError, match="ranks ask for different allreduces"):
            ours.plan(np.zeros(4 + (comm.rank == 1), np.float32))
        with pytest.raises(UsageError, match="ranks ask for different allreduces"):
            ours.plan(np.zeros(4, np.float32), algorithm="ring" if comm.rank else "direct")


@pytest.mark.mpi(2)
def test_what_the_vendor_lacks_is_unsupported(comm):
    with Communicator(comm) as ours, pytest.raises(UnsupportedError, match="no 16-bit"):
        ours.plan(np.zeros(4, np.float16), algorithm="mpi")


@pytest.mark.mpi(2)
def test_a_closed_plan_says_so(comm):
    with Communicator(comm) as ours:
        plan = ours.plan(np.zeros(4, np.float32))
        plan.execute()
        plan.close()
        with pytest.raises(UsageError, match="closed"):
            plan.execute()


@pytest.mark.mpi(4)
def test_a_grid_must_hold_all_ranks(comm):
    with pytest.raises(UsageError, match="grid 3x2 holds 6 ranks, but there are 4"):
        Communicator(comm, grid=Grid((3, 2)))
    with Communicator(comm, grid=Grid((2, 2))) as ours:
        assert ours.bind("hierarchical").grid == Grid((2, 2))
        with pytest.raises(UsageError, match="grid 4x2 holds 8 ranks, but there are 4"):
            ours.plan(np.zeros(1, np.float32), algorithm="r:4x2")


@pytest.mark.mpi(3)
def test_a_part_of_the_ranks_can_reduce_alone(comm):
    part = comm.Split(int(comm.rank == 0), comm.rank)
    with Communicator(part) as ours:
        assert ours.allreduce(np.ones(1, np.int32))[0] == part.size
    part.Free()


@pytest.mark.mpi(1, 2, 5)
def test_all_algorithms_are_proved_as_they_run(comm):
    with Communicator(comm) as ours:
        proof = ours.prove("halving-doubling")
        assert proof is not None
        assert proof.ranks == comm.size
        assert ours.prove("mpi") is None


@pytest.mark.mpi(2, 3)
def test_a_wrong_algorithm_is_refused_on_all_ranks_with_the_proofs_message(comm):
    null = flat_algorithm("null", "does nothing", pieces=lambda _: 1, allreduce=lambda _: [Phase(0, ())])
    with Communicator(comm) as ours:
        bound = BoundAlgorithm("null", ours.grid, null)
        with pytest.raises(ProofError, match=rf"'null' is refused: .* 1 of {comm.size} contributions"):
            ours.prove(bound)


@pytest.mark.mpi(3)
def test_a_rank_that_would_run_something_else_is_found(comm, monkeypatch):
    with Communicator(comm) as ours:
        right = comm_module.lower

        def spoilt(bound, ranks=None):
            schedule = right(bound, ranks)
            if ranks is not None and comm.rank == 2:
                schedule.table["peer"][0] = 1
            return schedule

        monkeypatch.setattr(comm_module, "lower", spoilt)
        with pytest.raises(ProofError, match="rank 2 lowers another program"):
            ours.prove("ring")


@pytest.mark.mpi(4)
def test_exploring_picks_one_of_the_candidates_on_all_ranks(comm):
    with Communicator(comm) as ours:
        values = np.full(10_000, comm.rank, np.float32)
        with ours.plan(values, algorithm="p:2x2") as plan:
            assert len(set(comm.allgather(plan.algorithm))) == 1
            assert plan.algorithm.startswith("multi-ring:2x2:base=")
            plan.execute()
        assert np.all(values == 6)


@pytest.mark.mpi(2)
def test_the_topology_is_that_of_the_processes(comm):
    with Communicator(comm) as ours:
        assert ours.topology.ranks == comm.size
        assert ours.topology.nodes == 1
        assert type(ours.topology).from_json(ours.topology.to_json()) == ours.topology
