"""The allreduce beside the least that memory must do, in turns on the same buffers."""

import pytest

from ddlbench.comm import Communicator
from ddlbench.errors import DdlbenchError
from ddlbench.peers import memory_rank


@pytest.mark.mpi(2, 3)
def test_memory_and_the_allreduce_take_turns_and_the_result_is_looked_at(comm, monkeypatch):
    with Communicator(comm) as ours:
        found = memory_rank.times(ours, 4000, "ring")
        assert {name: len(samples) for name, samples in found.items()} == {
            "plain": 48,
            "past the caches": 48,
            "allreduce": 48,
        }
        assert all(sample > 0 for samples in found.values() for sample in samples)
        assert comm.allgather(found) == [found] * comm.size
        # Without the allreduce the copies' values stay, and they are not the sum.
        monkeypatch.setattr(ours, "plan", lambda *buffers, **_: ours.floor_plan(*buffers, stream=False))
        with pytest.raises(DdlbenchError, match=r"element 0 is \d\.0 and should be [36]"):
            memory_rank.times(ours, 4000, "ring")
