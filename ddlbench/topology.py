"""Nodes and ranks as they are, found from the running processes."""

import os
import socket
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddlbench.schedule.grid import Grid

if TYPE_CHECKING:
    from mpi4py import MPI


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
    """

    hosts: tuple[str, ...]
    node_of: tuple[int, ...]
    cpus: tuple[tuple[int, ...], ...]

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

    def cores_of(self, rank: int) -> int:
        """Return how many processors the ranks of `rank`'s node may use together."""
        mates = [cpus for cpus, node in zip(self.cpus, self.node_of, strict=True) if node == self.node_of[rank]]
        return len(set().union(*mates))

    def oversubscribed(self, rank: int) -> bool:
        """Say whether the node of `rank` has more ranks than processors for them."""
        return self.ranks_per_node[self.node_of[rank]] > self.cores_of(rank)

    def grid(self) -> Grid:
        """Return the grid of the launch: ranks per node by nodes; one dimension on one node or uneven nodes."""
        if self.nodes == 1 or not self.even:
            return Grid((self.ranks,))
        return Grid((self.ranks_per_node[0], self.nodes))

    def to_json(self) -> dict[str, Any]:
        """Return the topology as a JSON value."""
        per_node = list(self.ranks_per_node)
        lists = {"hosts": list(self.hosts), "node_of": list(self.node_of), "cpus": [list(c) for c in self.cpus]}
        return {"nodes": self.nodes, "ranks": self.ranks, "ranks_per_node": per_node, **lists}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Topology":
        """Read what `to_json` wrote."""
        return cls(tuple(value["hosts"]), tuple(value["node_of"]), tuple(tuple(c) for c in value["cpus"]))


def discover(comm: "MPI.Comm") -> Topology:
    """Ask all ranks of `comm` where they are; collective."""
    from mpi4py import MPI

    node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
    first = node.bcast(comm.rank)
    node.Free()
    found = comm.allgather((socket.gethostname(), first, tuple(sorted(os.sched_getaffinity(0)))))
    hosts, firsts, cpus = (tuple(column) for column in zip(*found, strict=True))
    number = {first_rank: at for at, first_rank in enumerate(dict.fromkeys(firsts))}
    return Topology(hosts, tuple(number[f] for f in firsts), cpus)
