"""Fixtures of all tests."""

from pathlib import Path

import pytest

from launch import MpiRun


@pytest.fixture
def mpirun(tmp_path_factory: pytest.TempPathFactory) -> MpiRun:
    """Give `mpirun(ranks, *argv, timeout=60)`: a program under mpirun, with its status, output and errors."""
    return MpiRun(tmp_path_factory.mktemp("mpirun"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """Give the top folder of this repository."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def emulated_cuda() -> Path:
    """Give the path of a `ddlbench._cuda` whose GPUs are emulated, compiled once for each state of its sources."""
    from emulated_cuda import missing
    from emulated_device import build

    if reason := missing():
        pytest.skip(reason)
    return build()
