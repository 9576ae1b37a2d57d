"""What the engine itself costs, with messages from a rank to itself: no wire, no other process.

`execute nothing` is the Python call. The others are rounds of one move of four bytes; a move's share is the time
divided by the moves, and the same messages by persistent requests of mpi4py stand beside it.
"""

import numpy as np
import pytest

from ddlbench import _engine
from ddlbench.schedule.lower import lower_phase
from ddlbench.schedule.move import KEEP, SEND, Phase, steps

MOVES = 100
MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed (make microbench installs it)")


@pytest.fixture
def buffers():
    return np.zeros(1, np.float32), np.zeros(1, np.float32)


def engine(table, buffers):
    return _engine.Engine(MPI.COMM_SELF.py2f(), table, 1, 1, *buffers, 2, 0, yielding=False)


def test_execute_nothing(benchmark, buffers):
    benchmark.group = "engine"
    plan = engine(np.zeros(0, steps(SEND, 0, 0, 0, 0, 1).dtype), buffers)
    benchmark(plan.execute)


def test_moves_of_the_engine(benchmark, buffers):
    benchmark.group = f"{MOVES} moves, one a round"
    rounds = np.arange(MOVES)
    table = lower_phase(
        Phase(MOVES, (steps(SEND, rounds, 0, 0, 0, 1), steps(KEEP, rounds, 0, 0, 0, 1))), np.array([0]), 1
    )
    plan = engine(table, buffers)
    benchmark(plan.execute)


def test_moves_of_mpi4py(benchmark, buffers):
    benchmark.group = f"{MOVES} moves, one a round"
    source, target = buffers
    receive, send = MPI.COMM_SELF.Recv_init(target, 0, 1), MPI.COMM_SELF.Send_init(source, 0, 1)

    def run():
        for _ in range(MOVES):
            MPI.Prequest.Startall([receive, send])
            MPI.Prequest.Waitall([receive, send])

    benchmark(run)
