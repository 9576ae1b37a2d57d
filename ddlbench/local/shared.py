"""The direct transport of a communicator whose ranks share memory: its windows, and the plans that run there."""

from collections.abc import Callable
from dataclasses import dataclass
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
from ddlbench.schedule.lower import Schedule

if TYPE_CHECKING:
    from mpi4py import MPI

Array = npt.NDArray[Any]
Buffers = tuple[Array, Array]


@dataclass(frozen=True)
class Runnable:
    """What runs: the engine's runner, the transport's name in records, the segments, and what gives its slot back."""

    runner: _engine.Direct
    transport: str
    segments: int
    close: Callable[[], None]


class SharedMemory:
    """The memory that the ranks of `comm` share. `yielding` says that ranks that wait give their processor away."""

    def __init__(self, comm: "MPI.Comm", *, yielding: bool) -> None:
        self._comm, self.yielding = comm, yielding
        self._windows = Windows(comm)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """Return a new array at the same place of a new window on all ranks; collective."""
        kind = np.dtype(dtype)
        return self._windows.empty(int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)

    def release(self, array: Array) -> None:
        """Give back an array of `empty`; collective. Raises `UsageError` when it is none."""
        if not self._windows.release(array):
            raise UsageError("only an array of Communicator.empty that is still there can be released")

    def plan(
        self, whole: Schedule, message_chunks: int, buffers: Buffers, kind: DType, op: int, piece_nbytes: int | None
    ) -> Runnable:
        """Return what runs the schedule `whole`, of all ranks, on flat buffers; collective.

        `message_chunks` is the most that a message of any rank has; `piece_nbytes` bounds a message's bytes.
        """
        where = self._registered(buffers)
        layout = layout_for(
            whole,
            message_chunks,
            buffers[0].size,
            kind.itemsize,
            registered=where is not None,
            in_place=buffers[0].ctypes.data == buffers[1].ctypes.data,
            piece_nbytes=piece_nbytes,
        )
        program = program_for(whole, layout, self._comm.rank)
        return self._runnable(program, buffers, where, kind, op, layout.segments)

    def floor(self, buffers: Buffers, kind: DType, *, stream: bool) -> Runnable:
        """Return what moves the bytes of an allreduce and reduces nothing; collective, see `floor_program`."""
        where = self._registered(buffers)
        if where is None:
            raise UsageError("the least time to move bytes is measured on arrays of Communicator.empty")
        size, rank = self._comm.size, self._comm.rank
        program = floor_program(size, rank, buffers[0].size, kind.itemsize, stream=stream)
        return self._runnable(program, buffers, where, kind, 0, 1)

    def free(self) -> None:
        """Give all memory back; collective."""
        self._windows.free()

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
        at = bind(program, (*self._addresses(buffers, where), slot.addresses))
        runner = _engine.Direct(
            self._comm.py2f(),
            at.variants,
            at.operands,
            at.counters,
            program.span,
            slot,
            *buffers,
            kind.code,
            op,
            self.yielding,
        )
        return Runnable(runner, "direct" if where else "direct-slots", segments, slot.close)

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
            return self._windows.addresses(where[0]), self._windows.addresses(where[1])
        own = np.arange(self._comm.size) == self._comm.rank
        sender, receiver = ((own * buffer.ctypes.data).tolist() for buffer in buffers)
        return sender, receiver
