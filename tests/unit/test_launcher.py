"""The launcher and MPI must agree on the number of ranks, whatever else stands in the environment."""

import pytest

from ddlbench.bench.environment import partial
from ddlbench.errors import UsageError
from ddlbench.launch.started import ALONE, Launcher, check, check_expected, launcher

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


@pytest.mark.parametrize(("found", "expected"), [(8, 8), (1, None), (8, None)])
def test_what_was_expected_or_was_not_asked_for_passes(found, expected):
    check_expected("ranks", found, expected)


def test_another_number_than_was_expected_is_an_error_with_both_and_the_option():
    with pytest.raises(UsageError) as refused:
        check_expected("nodes", 1, 4)
    for part in ("expected 4 nodes", "--expect-nodes", "DDLBENCH_EXPECT_NODES", "there is 1", "ddlbench launch"):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("nodes", "all_nodes", "flags"),
    [(1, "4", ["partial"]), (4, "4", []), (1, "", []), (1, "1", []), (2, "x", []), (1, "9" * 5000, [])],
    ids=["part", "whole", "unknown", "one", "text", "long"],
)
def test_a_launch_on_a_part_of_a_slurm_job_is_to_be_minded(nodes, all_nodes, flags):
    found = list(partial(nodes, {"SLURM_JOB_NUM_NODES": all_nodes}))
    assert [flag.flag for flag in found] == flags
    assert all(f"{nodes} of the {all_nodes} nodes" in flag.detail for flag in found)
