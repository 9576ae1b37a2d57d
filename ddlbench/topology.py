"""Nodes and ranks as they are, found from the running processes."""

import os
import platform
import re
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ddlbench.schedule.grid import Grid

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
KERNEL = Path("/proc/sys/kernel/random/boot_id")
"""Tells one running kernel from any other; containers and network namespaces of one machine read the same."""
PROCESSORS = Path("/proc/cpuinfo")
CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Topology:
    """Where the ranks are; tuples have one element per rank.

    hosts
        host name
    node_of
        number of the node, from 0 in the order of the nodes' first ranks. Ranks that can share memory are on one node,
        whatever their hosts are called
    cpus
        the processors each rank may run on
    launch_ranks
        the number each rank has in the launch (its rank in MPI_COMM_WORLD); empty where it is not known
    machine_of
        number of the machine, from 0 in the order of their first ranks: nodes that are containers of one machine share
        its processors. Empty where each node is a machine
    physical
        the cores that the processors in `cpus` are of, each core by the number of its first processor: with hardware
        threads one core is several processors. Empty where it is not known
    host_cores
        how many cores the host of each rank has, whether the rank may use them or not; empty where not known
    """

    hosts: tuple[str, ...]
    node_of: tuple[int, ...]
    cpus: tuple[tuple[int, ...], ...]
    launch_ranks: tuple[int, ...] = ()
    machine_of: tuple[int, ...] = ()
    physical: tuple[tuple[int, ...], ...] = ()
    host_cores: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.hosts)

    @property
    def ranks_per_node(self) -> tuple[int, ...]:
        """Number of ranks on each node."""
        found = Counter(self.node_of)
        return tuple(found[node] for node in sorted(found))

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.ranks_per_node)

    @property
    def even(self) -> bool:
        """Whether all nodes have the same number of ranks."""
        return len(set(self.ranks_per_node)) == 1

    def ranks_of(self, node: int) -> tuple[int, ...]:
        """Return the ranks on a node, ascending."""
        return tuple(rank for rank, where in enumerate(self.node_of) if where == node)

    @property
    def machines(self) -> tuple[tuple[int, ...], ...]:
        """The ranks on each machine, ascending: those that share processors."""
        found: dict[int, list[int]] = {}
        for rank, machine in enumerate(self.machine_of or self.node_of):
            found.setdefault(machine, []).append(rank)
        return tuple(map(tuple, found.values()))

    def cores_of(self, ranks: Iterable[int]) -> int:
        """Return how many processors `ranks` may use together, when all are on one machine."""
        return len(set().union(*(self.cpus[rank] for rank in ranks)))

    @property
    def crowded(self) -> bool:
        """Whether any machine has more ranks than processors for them."""
        return any(len(ranks) > self.cores_of(ranks) for ranks in self.machines)

    def part(self, ranks: Collection[int]) -> "Topology":
        """Return the topology of `ranks` alone, which keep their order; nodes and machines are numbered anew."""

        def kept(column: Sequence[T]) -> tuple[T, ...]:
            return tuple(value for rank, value in enumerate(column) if rank in ranks)

        return Topology(
            kept(self.hosts),
            numbered(kept(self.node_of)),
            kept(self.cpus),
            kept(self.launch_ranks),
            numbered(kept(self.machine_of)),
            kept(self.physical),
            kept(self.host_cores),
        )

    def grid(self) -> Grid:
        """Return the grid of the launch: ranks per node by nodes; one dimension on one node or uneven nodes."""
        if self.nodes == 1 or not self.even:
            return Grid((self.ranks,))
        return Grid((self.ranks_per_node[0], self.nodes))

    def to_json(self) -> dict[str, Any]:
        """Return the topology as a JSON value."""
        return {
            "nodes": self.nodes,
            "ranks": self.ranks,
            "ranks_per_node": list(self.ranks_per_node),
            "hosts": list(self.hosts),
            "node_of": list(self.node_of),
            "cpus": [list(cpus) for cpus in self.cpus],
            "cores": [spans(cpus) for cpus in self.cpus],
            "launch_ranks": list(self.launch_ranks),
            "machine_of": list(self.machine_of),
            "physical": [list(cores) for cores in self.physical],
            "host_cores": list(self.host_cores),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Topology":
        """Read what `to_json` wrote, now or before it knew of launch ranks, machines and cores."""
        cpus, physical = (tuple(tuple(one) for one in value.get(name, ())) for name in ("cpus", "physical"))
        launch_ranks, machine_of, host_cores = (
            tuple(value.get(name, ())) for name in ("launch_ranks", "machine_of", "host_cores")
        )
        return cls(tuple(value["hosts"]), tuple(value["node_of"]), cpus, launch_ranks, machine_of, physical, host_cores)


def spans(numbers: Collection[int]) -> str:
    """Return whole numbers as a list of spans, as taskset writes processors: `0-3,8`."""
    ordered = sorted(set(numbers))
    breaks = [at for at, (low, high) in enumerate(pairwise(ordered), 1) if high != low + 1]
    starts, ends = [0, *breaks], [*breaks, len(ordered)]
    runs = (ordered[start:end] for start, end in zip(starts, ends, strict=True))
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs if run)


def numbered(values: Iterable[Any]) -> tuple[int, ...]:
    """Return each value's number, from 0 in the order in which they first come."""
    found = tuple(values)
    number = {value: at for at, value in enumerate(dict.fromkeys(found))}
    return tuple(number[value] for value in found)


def discover(comm: "MPI.Comm") -> Topology:
    """Ask all ranks of `comm` where they are; collective.

    A node is what MPI takes for one: ranks that it can give shared memory (`MPI_COMM_TYPE_SHARED`).
    """
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
    first = node.bcast(comm.rank)
    node.Free()
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    cores = tuple(sorted({_core(cpu) for cpu in cpus}))
    count = len({_core(cpu) for cpu in range(os.cpu_count() or 0)})
    found = comm.allgather((socket.gethostname(), first, cpus, MPI.COMM_WORLD.rank, _machine(first), cores, count))
    hosts, firsts, allowed, launch_ranks, machines, physical, counts = (
        tuple(column) for column in zip(*found, strict=True)
    )
    return Topology(hosts, numbered(firsts), allowed, launch_ranks, numbered(machines), physical, counts)


def _core(cpu: int) -> int:
    """Return the first processor of the core that the processor `cpu` is a hardware thread of; itself if unknown."""
    try:
        siblings = (CPUS / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        return int(re.split("[-,]", siblings)[0])
    except (OSError, ValueError):
        return cpu


def processor() -> str:
    """Return the name of this host's processor: the x86 and the POWER spelling of Linux, or what Python knows."""
    try:
        lines = PROCESSORS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "cpu"):
            return value.strip()
    return platform.processor() or platform.machine()


def _machine(node: int) -> str:
    """Return what is the same on all nodes that run under this kernel; the `node` itself where it does not say."""
    try:
        return KERNEL.read_text(encoding="ascii").strip()
    except OSError:
        return f"node {node}"
