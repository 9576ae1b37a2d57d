"""Fixtures of tests on virtual clusters, which skip with the reason where this machine can have none."""

from collections.abc import Iterator

import pytest

from ddlbench.lab import start
from launch import NO_MPIRUN, find_mpirun
from virtual import Labs


@pytest.fixture(scope="session")
def _possible() -> None:
    if reason := start.missing():
        pytest.skip(f"no lab can run here: {reason}")
    if find_mpirun() is None:
        pytest.skip(NO_MPIRUN)


@pytest.fixture
def labs(_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    """Give `labs("run", …)`, which runs `ddlbench lab`; what still runs when the test ends is ended."""
    labs = Labs(tmp_path_factory.mktemp("lab"))
    yield labs
    labs.close()
