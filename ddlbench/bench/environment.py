"""What a run stores of the machine and the settings it ran under, and what speaks against trusting its figures.

The environment is an allow list, never all of it: it ends up in reports people send on.
"""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ddlbench.records import TrustFlag
from ddlbench.topology import Topology

VARIABLES = (
    "OMPI_MCA_btl*",
    "OMPI_MCA_coll*",
    "OMPI_MCA_mpi_yield_when_idle",
    "OMPI_MCA_mtl*",
    "OMPI_MCA_osc",
    "OMPI_MCA_pml*",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPICH_ASYNC_PROGRESS",
    "MPIR_CVAR_*ALLREDUCE*",
    "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE",
    "FI_PROVIDER",
    "I_MPI_ADJUST_ALLREDUCE",
    "I_MPI_FABRICS",
    "I_MPI_PIN*",
    "UCX_NET_DEVICES",
    "UCX_TLS",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_SOCKET_IFNAME",
    "CUDA_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
    "SLURM_STEP_NUM_TASKS",
    "LSB_JOBID",
    "PBS_JOBID",
)
"""The variables that say how the ranks were started and how MPI was tuned, as shell patterns."""

PACKAGES = ("ddlbench", "mpi4py", "numpy")
BUSY_SHARE = 0.25
"""A machine whose load before the run is above this share of its cores was doing something else."""


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return what is stored of the machine and its settings, as seen by this process, as a JSON object."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "memory_nbytes": _memory(),
        "python": platform.python_version(),
        "packages": {package: found for package in PACKAGES if (found := _version(package))},
        "variables": allowed(environ),
    }


def allowed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may be stored."""
    return {name: environ[name] for name in sorted(environ) if any(fnmatchcase(name, pattern) for pattern in VARIABLES)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the processor's name: the x86 and the POWER spelling of Linux, or what Python knows."""
    for line in _lines(Path("/proc/cpuinfo")):
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "cpu"):
            return value.strip()
    return platform.processor() or platform.machine()


def _memory() -> int | None:
    return _meminfo("MemTotal")


def available_nbytes() -> int | None:
    """Return the memory that can be had on this host without swapping, or None where the system does not say."""
    return _meminfo("MemAvailable")


def _meminfo(field: str) -> int | None:
    for line in _lines(Path("/proc/meminfo")):
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def trust(topology: Topology, loads: Sequence[float]) -> tuple[TrustFlag, ...]:
    """Return what speaks against the figures of a run that starts now; `loads` are the load averages each rank saw."""
    ranks_of = {topology.node_of[rank]: rank for rank in reversed(range(topology.ranks))}
    flags = (
        flag for rank in ranks_of.values() for flag in (*oversubscribed(topology, rank), *busy(topology, rank, loads))
    )
    return (*flags, *unpinned(topology))


def load_average() -> float:
    """Return how many processes wanted to run on this host in the last minute, 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def oversubscribed(topology: Topology, rank: int) -> Iterator[TrustFlag]:
    """Yield a flag when the node of `rank` has more ranks than processors they may use together."""
    if topology.oversubscribed(rank):
        ranks = topology.ranks_per_node[topology.node_of[rank]]
        cores = _counted(topology.cores_of(rank), "core")
        yield TrustFlag("oversubscribed", f"{ranks} ranks on {cores} of {topology.hosts[rank]}")


def busy(topology: Topology, rank: int, loads: Sequence[float]) -> Iterator[TrustFlag]:
    """Yield a flag when the node of `rank` had work to do in the minute before the run."""
    cores = topology.cores_of(rank)
    if loads[rank] > BUSY_SHARE * cores:
        seen = f"load of {loads[rank]:.1f} on {_counted(cores, 'core')} of {topology.hosts[rank]}"
        yield TrustFlag("busy", f"{seen} in the minute before the run")


def unpinned(topology: Topology) -> Iterator[TrustFlag]:
    """Yield a flag when ranks may move between processors."""
    free = sum(len(cpus) > 1 for cpus in topology.cpus)
    if free:
        yield TrustFlag("unpinned", f"{_counted(free, 'rank')} of {topology.ranks} may move between cores")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
