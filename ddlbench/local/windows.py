"""Memory that all ranks of a node address: MPI-3 shared windows, for buffers and for the slots of plans."""

import os
import resource
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ddlbench.errors import UnsupportedError
from ddlbench.pages import Again, HugePages, memory_at

if TYPE_CHECKING:
    from mpi4py import MPI

Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 128
SHARED = Path("/dev/shm")
"""Where Linux and the MPI libraries keep memory that processes share."""
ANY_NBYTES = 1 << 62
ARENA_NBYTES = 1 << 20
"""Least bytes of an arena: enough for the slots of many small plans."""


class Window:
    """`nbytes` on each rank of a communicator whose ranks share memory; collective to make and to free.

    Each rank touches its own part first, so that it lies in the memory of its own processor. `addresses` are where this
    process finds each rank's part. `everyone` is the communicator of all who make one at once, each node its own. With
    `huge` each part lies in huge pages as far as the system gives them, which its tally tells.
    Raises `MemoryError` on all of them when one node has no room for it, `UnsupportedError` when the library keeps a
    copy that loads and stores do not see.
    """

    def __init__(self, comm: "MPI.Comm", everyone: "MPI.Comm", nbytes: int, huge: HugePages | None = None) -> None:
        from mpi4py import MPI

        room = huge.rounded(nbytes) + huge.page_nbytes if huge else nbytes + ALIGNMENT
        _check_room(comm.size, everyone, room)
        self.nbytes = nbytes
        info = MPI.Info.Create()
        info.Set("alloc_shared_noncontig", "true")
        self._window = MPI.Win.Allocate_shared(room, 1, info, cast("MPI.Intracomm", comm))
        info.Free()
        if self._window.model != MPI.WIN_UNIFIED:
            self._window.Free()
            raise UnsupportedError("this MPI keeps copies of shared windows: use --transport p2p")
        self._window.Lock_all(MPI.MODE_NOCHECK)
        self._parts = [self._window.Shared_query(rank)[0] for rank in range(comm.size)]
        self._again = [Again(part.address, part.nbytes, huge.page_nbytes) for part in self._parts] if huge else []
        self.addresses = tuple(self._begin(rank) for rank in range(comm.size))
        own = self.addresses[comm.rank]
        if huge:
            huge.fill("windows", memory_at(own, huge.rounded(nbytes)))
        # At least one byte: numpy may put a slice of none anywhere.
        self.own: Bytes = memory_at(own, max(1, nbytes))
        self.own[:] = 0

    def _begin(self, rank: int) -> int:
        """Return where this process finds the part of `rank`."""
        return self._again[rank].address if self._again else -(-self._parts[rank].address // ALIGNMENT) * ALIGNMENT

    def barrier(self, comm: "MPI.Comm") -> None:
        """Wait for all of `comm`; what each has written to the window until then, all see from then on.

        MPI's own barrier promises that of messages alone, and a processor that orders memory weakly need not do better.
        """
        self._window.Sync()
        comm.Barrier()
        self._window.Sync()

    def free(self) -> None:
        """Give the memory back; collective, and nobody may use it any more."""
        self.own = np.zeros(0, np.uint8)
        self._parts = []
        for one in self._again:
            one.close()
        self._window.Unlock_all()
        self._window.Free()


@dataclass(frozen=True)
class Registered:
    """Where a buffer lies: which of the windows, counted from the first ever made, and its first byte there."""

    window: int
    offset: int


def _check_room(ranks: int, everyone: "MPI.Comm", nbytes: int) -> None:
    """Raise `MemoryError` on all of `everyone` unless each node has `nbytes` of shared memory for each of its ranks.

    Asked first, for MPI says "known error not in list", and not always on all ranks.
    """
    need, room = nbytes * ranks, _room()
    worst = min(everyone.allgather((room - need, need, room)))
    if worst[0] < 0:
        raise MemoryError(
            f"no shared memory for {worst[1]} bytes, {worst[2]} are free in {SHARED} or allowed in a file"
        )


def _room() -> int:
    """Return how many bytes of shared memory a process may make here."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    found = os.statvfs(SHARED) if SHARED.is_dir() else None
    free = found.f_bavail * found.f_frsize if found else ANY_NBYTES
    return free if limit == resource.RLIM_INFINITY else min(free, limit)


class Windows:
    """The windows of the ranks of a node: what buffers were asked for, and arenas for the slots of plans.

    All nodes make theirs together: what is collective is so over `everyone`.
    """

    def __init__(self, node: "MPI.Comm", everyone: "MPI.Comm", huge: HugePages | None = None) -> None:
        self._node, self._everyone, self._huge = node, everyone, huge
        self._buffers: dict[int, Window] = {}
        self._made = 0
        self._arenas: list[Window] = []
        self._used: list[dict[int, int]] = []

    def empty(self, nbytes: int) -> Bytes:
        """Return a new buffer of `nbytes` that all ranks can address; collective."""
        window = Window(self._node, self._everyone, nbytes, self._huge)
        self._buffers[self._made] = window
        self._made += 1
        return window.own[:nbytes]

    def release(self, array: npt.NDArray[Any]) -> bool:
        """Free the window that `array` lies in; collective. Return whether there was one."""
        found = self.find(array)
        if found is None:
            return False
        self._buffers.pop(found.window).free()
        return True

    def find(self, array: npt.NDArray[Any]) -> Registered | None:
        """Return where `array` lies, None when not in a window of this communicator."""
        address = array.ctypes.data
        starts = sorted((window.addresses[self._node.rank], number) for number, window in self._buffers.items())
        at = bisect_right(starts, (address, self._made)) - 1
        if at < 0:
            return None
        start, number = starts[at]
        inside = address + array.nbytes <= start + self._buffers[number].nbytes
        return Registered(number, address - start) if inside else None

    def addresses(self, where: Registered) -> list[int]:
        """Return where this process finds the bytes at `where` of each rank of the node."""
        return [start + where.offset for start in self._buffers[where.window].addresses]

    def reserve(self, nbytes: int) -> "Slot":
        """Return a piece of an arena of at least `nbytes` on every rank, all zeros; collective.

        Every rank may ask for another size; the greatest counts. A piece lies behind all that are in use on any rank.
        """
        from mpi4py import MPI

        asked = np.array([nbytes, self._end(), len(self._arenas)], np.int64)
        self._everyone.Allreduce(MPI.IN_PLACE, asked, MPI.MAX)
        most, begin = (int(value) for value in -(-asked[:2] // ALIGNMENT) * ALIGNMENT)
        if not self._arenas or begin + most > self._arenas[-1].nbytes:
            self._arenas.append(Window(self._node, self._everyone, max(ARENA_NBYTES, 2 * most), self._huge))
            self._used.append({})
            begin = 0
        arena, used = self._arenas[-1], self._used[-1]
        arena.own[begin : begin + most] = 0
        arena.barrier(self._node)
        used[begin] = begin + most
        return Slot(tuple(start + begin for start in arena.addresses), used, begin)

    def _end(self) -> int:
        return max(self._used[-1].values(), default=0) if self._used else 0

    def free(self) -> None:
        """Give everything back; collective."""
        for window in (*self._buffers.values(), *self._arenas):
            window.free()
        self._buffers, self._arenas, self._used = {}, [], []


@dataclass(frozen=True)
class Slot:
    """A piece of an arena: where this process finds it of each rank of the node; `close` gives this rank's own back."""

    addresses: tuple[int, ...]
    _used: dict[int, int]
    _begin: int

    def close(self) -> None:
        """Give the piece back: this rank's later plans may lie there once all others have given it back too."""
        self._used.pop(self._begin, None)
