"""How this process was started, and whether launcher and MPI agree.

N processes that each believe to be alone are an error, never N runs of one rank.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from ddlbench.errors import UsageError

SIZE_AND_RANK = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
"""Most trusted first: under mpirun inside a SLURM job, SLURM's variables describe the daemon's step, not the rank."""
EXPECT_RANKS = "DDLBENCH_EXPECT_RANKS"
EXPECT_NODES = "DDLBENCH_EXPECT_NODES"


@dataclass(frozen=True)
class Launcher:
    """What the environment says of this process: `variable` is the one that holds `size`."""

    variable: str
    rank: int
    size: int


ALONE = Launcher("", 0, 1)


def launcher(environ: Mapping[str, str] = os.environ) -> Launcher:
    """Return what the launcher says, from the most trusted variables that are there; `ALONE` without any."""
    return next(filter(None, (_read(environ, size, rank) for size, rank in SIZE_AND_RANK)), ALONE)


def _read(environ: Mapping[str, str], size: str, rank: str) -> Launcher | None:
    try:
        return Launcher(size, int(environ[rank]), int(environ[size]))
    except (KeyError, ValueError):
        return None


def check(found: Launcher, mpi_size: int, library: str) -> None:
    """Raise `UsageError` when the launcher started several ranks and MPI (`library`: its name and version) sees one."""
    if found.size > 1 and mpi_size == 1:
        raise UsageError(
            f"the launcher says {found.size} ranks ({found.variable}={found.size}) but MPI says 1: this launcher does"
            f" not start the MPI that mpi4py uses ({library}); start with ddlbench launch, with that MPI's own mpirun,"
            " or with srun --mpi=pmix or --mpi=pmi2, whichever that MPI knows"
        )


def check_expected(what: str, found: int, expected: int | None) -> None:
    """Raise `UsageError` with both numbers when `found` ranks or nodes (`what`) are not as many as were `expected`."""
    if expected is not None and found != expected:
        raise UsageError(
            f"expected {expected} {what} (--expect-{what} or DDLBENCH_EXPECT_{what.upper()}), but there"
            f" {'is' if found == 1 else 'are'} {found}: the job was not started as it was meant to be; call ddlbench"
            " launch once, from the job script itself"
        )
