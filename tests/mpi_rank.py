"""The pytest that is one rank: runs the tests it is told in lockstep with the others and writes down what happened.

Files in $DDLBENCH_TEST_DIRECTORY, made by `mpi_batch.py`: `tests` holds the node ids to run, one a line; this rank adds
`rank-R.events` (one JSON object a line), `rank-R.output` (what tests print, a record separator and the node id before
each test) and `rank-R.tmp` (the temporary folders of its tests).
"""

import faulthandler
import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch import PATIENCE

DIRECTORY = "DDLBENCH_TEST_DIRECTORY"
RANKS = "DDLBENCH_TEST_RANKS"
SEPARATOR = "\x1e"
# A rank whose test failed gives the others this long to fail for themselves, and so to be heard, before it aborts them.
GRACE_S = 0.5
# Should nobody be left to end a rank that hangs, it ends itself this long after its test's time.
LAST_RESORT_S = 30


def timeout_of(item: pytest.Item) -> float:
    """Return the seconds that the mpi mark of `item` allows one test."""
    mark = item.get_closest_marker("mpi")
    return PATIENCE * float(mark.kwargs.get("timeout", 60) if mark else 60)


class Rank:
    """Pytest plugin of one rank."""

    def __init__(self, config: pytest.Config) -> None:
        from mpi4py import MPI

        self.config = config
        self.directory = Path(os.environ[DIRECTORY])
        self.world = MPI.COMM_WORLD
        if self.world.size != int(os.environ[RANKS]):
            raise pytest.UsageError(
                f"mpirun started {os.environ[RANKS]} ranks, MPI says {self.world.size}: "
                f"mpirun and mpi4py ({MPI.Get_library_version().split(',')[0]}) belong to different MPIs"
            )
        self.lockstep = self.world.Dup()
        self.failed = False
        config.option.basetemp = self.directory / f"rank-{self.world.rank}.tmp"  # pytest's own is one for all processes
        self.events = (self.directory / f"rank-{self.world.rank}.events").open("w", buffering=1)
        with (self.directory / f"rank-{self.world.rank}.output").open("wb", buffering=0) as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        # pytest's own report, made after this, goes nowhere: the other side makes one of all ranks.
        self.stdout, sys.stdout = sys.stdout, io.StringIO()

    def write(self, event: str, **content: object) -> None:
        """Add one event to this rank's file."""
        self.events.write(json.dumps({"event": event, **content}) + "\n")

    def pytest_sessionstart(self) -> None:
        """Give the tests their standard output."""
        sys.stdout = self.stdout

    def pytest_unconfigure(self) -> None:
        """Close this rank's file."""
        self.events.close()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Print what keeps a module from being imported."""
        if report.failed:
            sys.stderr.write(f"{report.longreprtext}\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests asked for, in the order asked for."""
        found = {item.nodeid: item for item in items}
        items[:] = [found[nodeid] for nodeid in (self.directory / "tests").read_text().splitlines()]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Run one test; then wait for the other ranks, or end them when it failed."""
        self.begin(item)
        result = yield
        if self.failed:
            time.sleep(GRACE_S)
            self.world.Abort(1)
        self.lockstep.Barrier()
        faulthandler.cancel_dump_traceback_later()
        self.write("finished", nodeid=item.nodeid)
        return result

    def begin(self, item: pytest.Item) -> None:
        """Note the start of a test, and set what shows where a rank hangs and ends it."""
        os.write(1, f"{SEPARATOR}{item.nodeid}\n".encode())
        self.write("started", nodeid=item.nodeid)
        seconds = timeout_of(item)
        faulthandler.dump_traceback_later(seconds, exit=False, file=2)
        signal.setitimer(signal.ITIMER_REAL, seconds + LAST_RESORT_S)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand one phase of a test over to the other side."""
        self.failed = self.failed or report.failed
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.write("report", nodeid=report.nodeid, time=time.time(), data=data)
