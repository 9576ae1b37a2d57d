"""The direct transport of a communicator: windows of each node's ranks, and the plans that run there."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ddlbench import _engine
from ddlbench.dtypes import DType
from ddlbench.errors import UsageError
from ddlbench.local.binding import bind, layout_for, program_for
from ddlbench.local.floor import floor_program
from ddlbench.local.program import Program
from ddlbench.local.windows import Registered, Windows
from ddlbench.pages import HugePages
from ddlbench.schedule.lower import Schedule

if TYPE_CHECKING:
    from mpi4py import MPI

Array = npt.NDArray[Any]
Buffers = tuple[Array, Array]


@dataclass(frozen=True)
class Cut:
    """What all ranks must agree on to cut a vector alike.

    The most chunks of a message of any rank, the segments for messages between nodes, 0 without any, and how many bytes
    a message may have, None for what the transport likes.
    """

    message_chunks: int
    between_nodes: int
    piece_nbytes: int | None


@dataclass(frozen=True)
class Runnable:
    """What runs: the engine's runner, the transport's name in records, the segments, and what gives its slot back."""

    runner: _engine.Runner
    transport: str
    segments: int
    close: Callable[[], None]


class SharedMemory:
    """The memory that the ranks of each node of `comm` share; `node` holds those of this rank's node, ascending.

    `yielding` says that ranks that wait give their processor away, `huge` is for windows in huge pages.
    """

    def __init__(
        self, comm: "MPI.Comm", node: Collection[int], *, yielding: bool, huge: HugePages | None = None
    ) -> None:
        self._comm, self._ranks, self.yielding, self._huge = comm, tuple(node), yielding, huge

    @property
    def several(self) -> bool:
        """Whether there are ranks on other nodes, which are reached by messages."""
        return len(self._ranks) < self._comm.size

    @cached_property
    def _node(self) -> "MPI.Comm":
        """A communicator of the node's ranks, in their order; collective when it is first used."""
        return self._comm.Split(self._ranks[0], key=self._comm.rank) if self.several else self._comm

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self._node, self._comm, self._huge)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Return a new array at the same place of a new window on all ranks; collective."""
        kind = np.dtype(dtype)
        return self._windows.empty(int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)

    def release(self, array: Array) -> None:
        """Give back an array of `empty`; collective. Raises `UsageError` when it is none."""
        if not self._windows.release(array):
            raise UsageError("only an array of Communicator.empty that is still there can be released")

    def plan(self, tables: Schedule, cut: Cut, buffers: Buffers, kind: DType, op: int) -> Runnable:
        """Return what runs the schedule of which `tables` has the node's ranks, on flat buffers; collective."""
        where = self._registered(buffers)
        layout = layout_for(
            tables,
            cut.message_chunks,
            buffers[0].size,
            kind.itemsize,
            registered=where is not None,
            in_place=buffers[0].ctypes.data == buffers[1].ctypes.data,
            piece_nbytes=cut.piece_nbytes,
            between_nodes=cut.between_nodes,
        )
        program = program_for(tables, layout, self._comm.rank, self._ranks)
        return self._runnable(program, buffers, where, kind, op, layout.segments)

    def floor(self, buffers: Buffers, kind: DType, *, stream: bool) -> Runnable:
        """Return what moves the bytes of an allreduce and reduces nothing; collective, see `floor_program`."""
        where = self._registered(buffers)
        if where is None or self.several:
            raise UsageError("the least time to move bytes is measured on arrays of Communicator.empty, on one node")
        size, rank = self._comm.size, self._comm.rank
        program = floor_program(size, rank, buffers[0].size, kind.itemsize, stream=stream)
        return self._runnable(program, buffers, where, kind, 0, 1)

    def free(self) -> None:
        """Give all memory back; collective."""
        if "_windows" in self.__dict__:
            self._windows.free()
        if self.several and "_node" in self.__dict__:
            self._node.Free()

    def _runnable(
        self,
        program: Program,
        buffers: Buffers,
        where: tuple[Registered, Registered] | None,
        kind: DType,
        op: int,
        segments: int,
    ) -> Runnable:
        slot = self._windows.reserve(program.slot_nbytes)
        stage: Array = np.empty(program.stage_nbytes, np.uint8)
        spaces = (*self._addresses(buffers, where), self._everywhere(slot.addresses), self._own(stage))
        at = bind(program, spaces, kind.itemsize)
        runner = _engine.Direct(
            self._comm.py2f(),
            at.variants,
            at.operands,
            at.counters,
            program.span,
            (slot, stage),
            at.receives,
            at.sends,
            *buffers,
            kind.code,
            op,
            self.yielding,
        )
        kept = "direct" if where else "direct-slots"
        return Runnable(runner, kept.replace("direct", "mixed") if self.several else kept, segments, slot.close)

    def _registered(self, buffers: Buffers) -> tuple[Registered, Registered] | None:
        """Return where the buffers lie, if that is the same place of the same windows on all ranks; collective."""
        from mpi4py import MPI

        found = [self._windows.find(buffer) for buffer in buffers]
        told = [value for one in found for value in ((one.window, one.offset) if one else (-1, -1))]
        both = np.array(told + [-value for value in told], np.int64)
        self._comm.Allreduce(MPI.IN_PLACE, both, MPI.MAX)
        alike = bool((both[:4] == -both[4:]).all())
        sender, receiver = found
        return (sender, receiver) if alike and sender and receiver else None

    def _addresses(self, buffers: Buffers, where: tuple[Registered, Registered] | None) -> tuple[list[int], list[int]]:
        """Return where this process finds each rank's input and output; only its own, where they are not registered."""
        if where:
            sender, receiver = (self._everywhere(self._windows.addresses(one)) for one in where)
        else:
            sender, receiver = (self._own(buffer) for buffer in buffers)
        return sender, receiver

    def _own(self, array: Array) -> list[int]:
        """Return an address for each rank: that of `array` for this one, else 0."""
        addresses = [0] * self._comm.size
        addresses[self._comm.rank] = array.ctypes.data
        return addresses

    def _everywhere(self, addresses: Collection[int]) -> list[int]:
        """Return an address for each rank: those given, of the ranks of the node, else 0."""
        found = [0] * self._comm.size
        for rank, address in zip(self._ranks, addresses, strict=True):
            found[rank] = address
        return found
