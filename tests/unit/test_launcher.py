"""The launcher and MPI must agree on the number of ranks, whatever else stands in the environment."""

import pytest

from ddlbench.bench.launch import ALONE, Launcher, check, launcher
from ddlbench.errors import UsageError

OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "3"}
MPICH = {"PMI_SIZE": "2", "PMI_RANK": "1"}
SLURM = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "5"}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, ALONE),
        (OPEN_MPI, Launcher("OMPI_COMM_WORLD_SIZE", 3, 4)),
        (MPICH, Launcher("PMI_SIZE", 1, 2)),
        (SLURM, Launcher("SLURM_STEP_NUM_TASKS", 5, 8)),
        (SLURM | OPEN_MPI, Launcher("OMPI_COMM_WORLD_SIZE", 3, 4)),
        (SLURM | MPICH, Launcher("PMI_SIZE", 1, 2)),
        (SLURM | {"PMI_SIZE": "", "PMI_RANK": ""}, Launcher("SLURM_STEP_NUM_TASKS", 5, 8)),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "0"}, ALONE),
    ],
)
def test_the_most_trusted_variables_win(environ, expected):
    assert launcher(environ) == expected


def test_a_launcher_of_many_with_an_mpi_of_one_is_an_error_that_names_both():
    with pytest.raises(UsageError) as refused:
        check(launcher(SLURM), 1, "Open MPI 5.0.11")
    for part in ("8 ranks", "SLURM_STEP_NUM_TASKS=8", "MPI says 1", "Open MPI 5.0.11", "mpirun"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("environ", "size"), [({}, 1), (OPEN_MPI, 4), ({}, 8), ({"PMI_SIZE": "1", "PMI_RANK": "0"}, 1)]
)
def test_agreement_passes(environ, size):
    check(launcher(environ), size, "Open MPI 5.0.11")
