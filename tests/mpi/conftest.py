"""`@pytest.mark.mpi(2, 3)`: the test runs under mpirun on 2 and on 3 ranks, each count a test of its own.

pytest itself runs outside MPI. All chosen tests of one rank count share one mpirun (`mpi_batch.py`), since starting
ranks takes far longer than most tests; each rank runs a pytest of its own with the same tests in the same order
(`mpi_rank.py`) and writes what happened to a file. A test that fails, crashes or hangs ends its mpirun and is reported
with the command and the output of every rank; the tests after it get a new one. Tests without the mark run as
everywhere.
"""

import os
from collections.abc import Iterator

import pytest

from launch import NO_MPIRUN, find_mpirun
from mpi_batch import Batches, ranks_of
from mpi_rank import DIRECTORY, Rank

RANKS_HERE = DIRECTORY in os.environ


def pytest_configure(config: pytest.Config) -> None:
    """Become one rank, or the pytest that starts the ranks."""
    if RANKS_HERE:
        config.pluginmanager.register(Rank(config), "mpi-rank")
        return
    try:
        import mpi4py
    except ImportError:
        missing = "mpi4py is not installed (make test installs it)"
    else:
        mpi4py.rc(initialize=False, finalize=False)  # test modules are imported here too, and here is no rank
        missing = "" if find_mpirun() else NO_MPIRUN
    config.pluginmanager.register(Batches(config, missing), "mpi-batches")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each rank count of the mark."""
    mark = metafunc.definition.get_closest_marker("mpi")
    if mark is None:
        return
    if not mark.args or not all(isinstance(ranks, int) and ranks > 0 for ranks in mark.args):
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: mpi{mark.args}: expected rank counts, as in mpi(2, 3)")
    metafunc.parametrize("mpi_ranks", mark.args, ids=[f"{ranks}-ranks" for ranks in mark.args], indirect=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bring the tests of one rank count together."""
    items.sort(key=ranks_of)


@pytest.fixture(autouse=True)
def mpi_ranks(request: pytest.FixtureRequest) -> int | None:
    """Give the rank count this test is for, or None without the mark."""
    return getattr(request, "param", None)


@pytest.fixture
def comm(mpi_ranks: int | None) -> Iterator[object]:
    """Give mpi4py's COMM_WORLD, of the size the mark says."""
    if not RANKS_HERE:
        pytest.fail("comm is for tests with @pytest.mark.mpi(...)")
    from mpi4py import MPI

    assert mpi_ranks == MPI.COMM_WORLD.size
    return MPI.COMM_WORLD
