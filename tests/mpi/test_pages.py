"""Huge pages under the memory that ranks share, as smaps has them on both sides."""

import json
import sys

import numpy as np
import pytest

from ddlbench import pages
from ddlbench.bench.config import SweepConfig
from ddlbench.comm import Communicator
from ddlbench.errors import UnsupportedError, UsageError
from ddlbench.pages import Tally


@pytest.mark.mpi(2)
def test_windows_lie_in_huge_pages_and_plans_run_there(comm, monkeypatch):
    from ddlbench.cli.session import open_communicator

    try:
        communicator = Communicator(comm, huge_pages=True)
    except UnsupportedError as error:
        pytest.skip(str(error))
    with communicator:
        page = communicator.huge_pages.page_nbytes
        source, target = (communicator.empty(2 * page // 4) for _ in range(2))
        source[:] = comm.rank + 1
        with communicator.plan(source, target, algorithm="direct", transport="direct") as plan:
            plan.execute()
            assert plan.transport == "direct"
        assert (target == 3).all()
        tally = communicator.huge_pages.tallies["windows"]
        assert tally.nbytes >= tally.huge_nbytes
        if comm.allreduce(tally.nbytes - tally.huge_nbytes):
            pytest.skip("this machine's memory is in pieces: not all that was asked for got huge pages")
        assert tally.nbytes >= 4 * page
        of_all = communicator._shared._windows.addresses(communicator._shared._windows.find(source))
        comm.Barrier()
        assert [int(pages.memory_at(at, 2 * page).view(np.float32)[-1]) for at in of_all] == [1, 2]
        assert all(pages.memory_at(at, 2 * page).any() for at in of_all), "looked at, so that it is mapped"
        seen = [next(one for one in pages._mapped(pages.SMAPS) if one.begin <= at < one.end) for at in of_all]
        assert all(one.huge_nbytes == 2 * page for one in seen), "this process' pages of each rank's part"
        communicator.release(source)
        assert communicator.part(range(comm.size)).huge_pages is communicator.huge_pages
    monkeypatch.setattr(pages, "huge_nbytes", lambda *_: 0)
    with pytest.raises(UnsupportedError, match=r"shared windows cannot have huge pages here: .*shmem_enabled is "):
        Communicator(comm, huge_pages=True)
    with pytest.raises(UsageError, match="--huge-pages: shared windows cannot have huge pages here"):
        open_communicator(SweepConfig(huge_pages=True))
    assert communicator.huge_pages.tallies["arrays"] == Tally()


def test_a_sweep_stores_what_came_of_the_huge_pages_it_was_asked_for(mpirun, tmp_path):
    sweep = ("sweep", "--sizes", "4K,3M", "-a", "ring", "-n", "5", "--passes", "1", "--huge-pages", "--out", tmp_path)
    finished = mpirun(2, sys.executable, "-m", "ddlbench", *map(str, sweep))
    if "--huge-pages: " in finished.stderr:
        assert finished.status == 2
        pytest.skip(finished.stderr)
    assert finished.status == 0, finished.stderr
    run = json.loads((tmp_path / "run.json").read_text())
    told = run["huge_pages"]
    assert (told["arrays"]["allocations"], told["arrays"]["nbytes"]) == (8, 4 * (told["page_nbytes"] + (4 << 20)))
    assert told["windows"]["allocations"] >= 2
    assert run["config"]["huge_pages"] is True
    short = any(told[kind]["huge_nbytes"] < told[kind]["nbytes"] for kind in ("arrays", "windows"))
    assert short == ("small-pages" in [flag["flag"] for flag in run["trust"]])
