"""What a run stores of the machine and the settings it ran under, and what speaks against trusting its figures.

The environment is an allow list, never all of it: it ends up in reports people send on.
"""

import os
import platform
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ddlbench.bench.shapes import Shape
from ddlbench.records import TrustFlag
from ddlbench.topology import Topology, processor, spans

TUNING = (
    "OMPI_MCA_btl*",
    "OMPI_MCA_coll*",
    "OMPI_MCA_mpi_yield_when_idle",
    "OMPI_MCA_mtl*",
    "OMPI_MCA_osc",
    "OMPI_MCA_pml*",
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
)
"""The variables that say how MPI was tuned, as shell patterns."""
LAUNCH = (
    "DDLBENCH_LAB",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
    "SLURM_STEP_NUM_TASKS",
    "LSB_JOBID",
    "PBS_JOBID",
)
"""The variables that say how the ranks were started."""
VARIABLES = TUNING + LAUNCH

PACKAGES = ("ddlbench", "mpi4py", "numpy")
PINNING = "mpirun --bind-to core, srun --cpu-bind=cores, I_MPI_PIN=1"
"""How launchers give each rank a core."""
BUSY_SHARE = 0.25
"""A machine whose load before the run is above this share of its cores was doing something else."""
STOLEN_SHARE = 0.01
"""Ranks whose processors were given to another guest for more than this share of the run waited for each other."""
LATE_SHARE = 0.1
"""Of a quiet machine's samples next to none come late; above this share it was held up all the time."""


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return what is stored of the machine and its settings, as seen by this process, as a JSON object."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": processor(),
        "processors": os.cpu_count(),
        "memory_nbytes": _memory(),
        "python": platform.python_version(),
        "packages": {package: found for package in PACKAGES if (found := _version(package))},
        "variables": allowed(environ),
    }


def allowed(environ: Mapping[str, str], patterns: Sequence[str] = VARIABLES) -> dict[str, str]:
    """Return the variables that may be stored, or those of them that `patterns` name."""
    return {name: environ[name] for name in sorted(environ) if any(fnmatchcase(name, pattern) for pattern in patterns)}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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


def trust(topology: Topology, loads: Sequence[float], shapes: Sequence[Shape] = ()) -> tuple[TrustFlag, ...]:
    """Return what speaks against the figures of a run that starts now; `loads` are the load averages each rank saw.

    `topology` has all ranks that take part; `shapes` are what is measured, where that is not all of them together.
    """
    together = shapes or (Shape.of(topology, range(topology.ranks)),)
    busy_ones = (flag for ranks in topology.machines for flag in busy(topology, ranks, loads))
    return (*crowded(together), *busy_ones, *unpinned(topology), *shared_cores(topology))


def partial(nodes: int, environ: Mapping[str, str] = os.environ) -> Iterator[TrustFlag]:
    """Yield a flag when a launch has fewer `nodes` than the SLURM job it runs in: most often by mistake."""
    all_nodes = environ.get("SLURM_JOB_NUM_NODES", "")
    if re.fullmatch("[0-9]{1,9}", all_nodes) and nodes < int(all_nodes):
        yield TrustFlag("partial", f"this launch has {nodes} of the {all_nodes} nodes of its SLURM job")


def load_average() -> float:
    """Return how many processes wanted to run on this host in the last minute, 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def crowded(shapes: Sequence[Shape]) -> Iterator[TrustFlag]:
    """Yield a flag for each machine with more ranks of a shape than processors; it names the shapes unless it is all.

    Ranks that are left out of a shape sleep, and do not count.
    """
    found: dict[TrustFlag, list[str]] = {}
    for shape in shapes:
        for ranks in shape.topology.machines:
            for flag in oversubscribed(shape.topology, ranks):
                found.setdefault(flag, []).append(str(shape))
    for flag, named in found.items():
        yield flag if len(named) == len(shapes) else TrustFlag(flag.flag, f"{flag.detail} ({'; '.join(named)})")


def oversubscribed(topology: Topology, ranks: Sequence[int]) -> Iterator[TrustFlag]:
    """Yield a flag when `ranks`, those of one machine, are more than the processors they may use together."""
    cores = topology.cores_of(ranks)
    if len(ranks) > cores:
        where = f"{_counted(cores, 'core')} of {_machine(topology, ranks)}"
        yield TrustFlag("oversubscribed", f"{len(ranks)} ranks on {where}")


def busy(topology: Topology, ranks: Sequence[int], loads: Sequence[float]) -> Iterator[TrustFlag]:
    """Yield a flag when the machine that `ranks` are on had work to do in the minute before the run."""
    cores, load = topology.cores_of(ranks), loads[ranks[0]]
    if load > BUSY_SHARE * cores:
        seen = f"load of {load:.1f} on {_counted(cores, 'core')} of {_machine(topology, ranks)}"
        yield TrustFlag("busy", f"{seen} in the minute before the run")


def _machine(topology: Topology, ranks: Sequence[int]) -> str:
    """Return the name of the host of `ranks`; of several on one machine the first and the last."""
    hosts = list(dict.fromkeys(topology.hosts[rank] for rank in ranks))
    return hosts[0] if len(hosts) == 1 else f"the one machine of {hosts[0]} … {hosts[-1]}"


def unpinned(topology: Topology) -> Iterator[TrustFlag]:
    """Yield a flag when ranks may move between cores though each could have its own.

    Where a machine has fewer processors than ranks there is nothing to pin them to, and `crowded` says so.
    """
    free = sum(_may_move(topology, rank, ranks) for ranks in topology.machines for rank in ranks)
    if free:
        seen = f"{_counted(free, 'rank')} of {topology.ranks} may move between cores"
        yield TrustFlag("unpinned", f"{seen}: pin each to one ({PINNING})")


def _may_move(topology: Topology, rank: int, ranks: Sequence[int]) -> bool:
    """Say whether `rank` may move though each of `ranks`, those of its machine, could have a place of its own.

    That is a core where there are enough of them, else a hardware thread.
    """
    for places in (_cores(topology), topology.cpus):
        if len(ranks) <= len(set().union(*(places[one] for one in ranks))):
            return len(places[rank]) > 1
    return False


def _cores(topology: Topology) -> Sequence[Sequence[int]]:
    """Return the cores each rank may run on; where hardware threads are not known, its processors."""
    return topology.physical or topology.cpus


def shared_cores(topology: Topology) -> Iterator[TrustFlag]:
    """Yield a flag for each machine with ranks that are pinned to one core while others of it are left free."""
    cores = _cores(topology)
    for ranks in topology.machines:
        pinned: dict[int, list[int]] = {}
        for rank in ranks:
            if len(cores[rank]) == 1:
                pinned.setdefault(cores[rank][0], []).append(rank)
        shared = {core: those for core, those in pinned.items() if len(those) > 1}
        if shared and _has_more(topology, ranks):
            core, those = next(iter(shared.items()))
            more = f", and {len(shared) - 1} more such cores" if len(shared) > 1 else ""
            seen = f"{len(those)} ranks ({spans(those)}) are pinned to core {core} of {_machine(topology, ranks)}{more}"
            yield TrustFlag("shared-core", f"{seen}: give each its own ({PINNING})")


def _has_more(topology: Topology, ranks: Sequence[int]) -> bool:
    """Say whether the machine of `ranks` has a core for each, those included that no rank may use."""
    known = topology.host_cores[ranks[0]] if topology.host_cores else 0
    cores = _cores(topology)
    return len(ranks) <= max(known, len(set().union(*(cores[rank] for rank in ranks))))


@dataclass(frozen=True)
class Ticks:
    """Clock ticks of some processors since the machine started: those that other guests had, and all of them."""

    stolen: int
    all: int

    def share_since(self, before: "Ticks") -> float:
        """Return the share of the ticks since `before` that other guests had; 0 where there were none."""
        return (self.stolen - before.stolen) / max(1, self.all - before.all)


def ticks(cpus: Collection[int]) -> Ticks:
    """Return the ticks of the processors `cpus` of this host until now; none where the system does not say."""
    names = {f"cpu{cpu}" for cpu in cpus}
    words = (line.split() for line in _lines(Path("/proc/stat")) if line.startswith("cpu"))
    # user nice system idle iowait irq softirq steal; the guests after them are in user and nice already
    counts = [[int(word) for word in line[1:9]] for line in words if line[0] in names and len(line) > 8]
    return Ticks(sum(count[7] for count in counts), sum(map(sum, counts)))


def stolen(topology: Topology, shares: Sequence[float]) -> Iterator[TrustFlag]:
    """Yield a flag for each node whose processors went to other guests of the machine below for a part of the run.

    `shares` holds for each rank the share of time that its processors were taken away.
    """
    for node in range(topology.nodes):
        ranks = [rank for rank, where in enumerate(topology.node_of) if where == node]
        worst = max(shares[rank] for rank in ranks)
        if worst > STOLEN_SHARE:
            yield TrustFlag(
                "stolen", f"other guests had {worst:.1%} of the processors' time on {topology.hosts[ranks[0]]}"
            )


def late(missed: int, taken: int) -> Iterator[TrustFlag]:
    """Yield a flag when many of the samples `taken` were `missed`: a rank was not ready at their start."""
    if missed > LATE_SHARE * taken:
        yield TrustFlag(
            "late", f"{missed / taken:.0%} of the samples were left out: a rank was not ready at their start"
        )


def small_pages(told: Mapping[str, Any] | None) -> Iterator[TrustFlag]:
    """Yield a flag when memory that was to be in huge pages was not all there; `told` is `huge_pages` of a run."""
    parts = [told[kind] for kind in ("arrays", "windows")] if told else []
    asked, found = (sum(part[name] for part in parts) for name in ("nbytes", "huge_nbytes"))
    if found < asked:
        yield TrustFlag("small-pages", f"{1 - found / asked:.1%} of the memory that was to be in huge pages was not")


def clock_apart(sync: str, error_us: float, most_us: float) -> Iterator[TrustFlag]:
    """Yield a flag when starts rest on clocks that are `error_us` apart, more than the `most_us` that they may be."""
    if sync == "window" and error_us > most_us:
        yield TrustFlag("clock", f"starts rest on clocks that are up to {error_us:.1f} us apart")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
