"""What the call from Python costs above the engine: `make microbench` prints it; nothing here asserts a time.

A loop calls `plan.execute()` of a plan of one rank; the engine times the same plan by itself (`time_samples`). A plan
that does nothing is the call alone. What reading the clock takes is in the engine's figure, and so is told beside it.

Goal: under 0.3 µs.
"""

import itertools
import time

import numpy as np
import pytest

from ddlbench import _engine
from ddlbench.comm import Communicator
from ddlbench.schedule.move import SEND, steps

CALLS, ROUNDS = 2000, 15
MPI = pytest.importorskip("mpi4py.MPI", reason="mpi4py is not installed (make microbench installs it)")


def seconds_of(call):
    """Return the seconds of one of many calls, the loop around them included."""
    start = time.perf_counter()
    for _ in itertools.repeat(None, CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def nothing():
    """Return at once: what a loop and any call of Python's own take."""


def line(name, plan):
    """Return a line of the table: in turns, a loop of calls and the engine's own samples, in nanoseconds."""
    taken = np.array([(seconds_of(plan.execute) * 1e9, np.median(plan.time_samples(CALLS))) for _ in range(ROUNDS)])
    called, engine = np.median(taken, axis=0)
    least = taken.min(axis=0)
    above = f"{called - engine:>10.0f} {least[0] - least[1]:>10.0f}"
    return f"{name:<38} {called:>10.0f} {least[0]:>10.0f} {engine:>10.0f} {least[1]:>10.0f} {above}"


def test_what_a_call_costs_above_the_engine(capsys):
    one = np.ones(1, np.float32)
    empty = np.zeros(0, steps(SEND, 0, 0, 0, 0, 1).dtype)
    idle = _engine.Engine(MPI.COMM_SELF.py2f(), empty, 1, 1, one, one.copy(), 2, 0, yielding=False)
    head = "".join(f"{title:>11}" for title in ("call", "least", "engine", "least", "above", "least"))
    with capsys.disabled(), Communicator(MPI.COMM_SELF) as communicator:
        print(f"\n\nplan.execute() above the engine (nanoseconds, median and least; goal 300)\n{'':<38}{head}")
        print(line("a plan that does nothing", idle))
        for nbytes in (8, 4096):
            source, target = np.ones(nbytes // 4, np.float32), np.zeros(nbytes // 4, np.float32)
            for transport in ("direct", "p2p"):
                with communicator.plan(source, target, transport=transport) as plan:
                    print(line(f"{nbytes} bytes on one rank, {plan.transport}", plan))
                assert (target == 1).all()
        loop = sorted(seconds_of(nothing) * 1e9 for _ in range(ROUNDS))
        print(f"a loop over a Python function that does nothing: {loop[ROUNDS // 2]:.0f}, least {loop[0]:.0f}")
