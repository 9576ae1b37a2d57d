"""Plans for vectors in the memory of devices, over three transports.

cuda-ipc    the ranks of a node map each other's memory; kernels read and write it, counters in host memory order them;
            messages to other nodes go by way of pinned memory, or from the device where MPI takes that
cuda-aware  the engine over messages, with addresses on the device, where the MPI library takes these
staged      a plan of the host on pinned memory, piece by piece, with copies from and to the device around each
"""

import mmap
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ddlbench import _engine
from ddlbench.device.arrays import DeviceArray
from ddlbench.device.owner import Memory, Owner
from ddlbench.dtypes import DType
from ddlbench.errors import DeviceError, UnsupportedError
from ddlbench.local.binding import Bound, bind, layout_for, program_for
from ddlbench.local.program import Program
from ddlbench.local.shared import Cut, Runnable
from ddlbench.local.windows import Windows
from ddlbench.schedule.lower import Schedule

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")
Array = npt.NDArray[Any]
Buffers = tuple[DeviceArray, DeviceArray]

PIECE_NBYTES, MOST_PIECES = 4 << 20, 16
"""How much is staged at a time, and in how many pieces at most. Chosen, not measured: at 12 GB/s a piece takes a third
of a millisecond, long beside what starting a copy costs."""
SLOT_PIECE_NBYTES = 4 << 20
"""What a message through slots of a device has at most: a kernel must be long beside its launch."""
COUNTER_NBYTES = 128


class HostPlan(Protocol):
    """A plan of the host's, as a communicator makes it."""

    runner: Any
    transport: str

    def close(self) -> None:
        """Free what it holds."""


@dataclass(frozen=True)
class Mapped:
    """Where this process finds a block of each rank; `close` unmaps those of others."""

    addresses: list[int]
    close: Callable[[], None]


def together(comm: "MPI.Comm", action: Callable[[], T]) -> T:
    """Run `action`, which does not communicate, on every rank (collective); what one raises all raise."""
    value, failure = None, None
    try:
        value = action()
    except (MemoryError, DeviceError, UnsupportedError) as error:
        failure = error
    first = next((one for one in comm.allgather(failure) if one is not None), None)
    if first is not None:
        raise first
    return value  # type: ignore[return-value]


class DevicePlans:
    """Plans of the ranks of `comm` for memory of their devices; `node` has the ranks of this one's node, ascending.

    `empty` makes host memory that all ranks of a node address (collective).
    """

    def __init__(
        self, comm: "MPI.Comm", node: Collection[int], owner: Owner, empty: Callable[[int], Array], *, yielding: bool
    ) -> None:
        self._comm, self._ranks, self.owner, self._empty, self.yielding = comm, tuple(node), owner, empty, yielding
        self._stream, self._up = owner.stream(), owner.stream()
        self._staging: dict[tuple[int, int], Array] = {}
        self._unpin: list[Callable[[], None]] = []
        self._maps = _Maps(owner)
        self._made = 0
        self._retired: dict[int, tuple[Memory, ...]] = {}

    def device(self, buffers: Buffers) -> _engine.Device:
        """Return what the engine needs of the device for plans on `buffers`."""
        return _engine.Device(self.owner.cuda.calls(), self._stream, buffers[0].stream)

    def free(self) -> None:
        """Give back what plans share; collective."""
        for unpin in self._unpin:
            unpin()
        self._unpin, self._staging = [], {}
        self._comm.Barrier()  # until nobody has slots of others mapped any more
        for memory in self._retired.values():
            _close(memory)
        self._retired = {}
        if "_windows" in self.__dict__:
            self._windows.free()
        if self._several and "_node" in self.__dict__:
            self._node.Free()

    # ---- staged ----------------------------------------------------------------------------------------------------

    def staged(self, buffers: Buffers, kind: DType, plan: Callable[[Array, Array], HostPlan]) -> Runnable:
        """Return what reduces `buffers` by way of pinned memory (collective); `plan` makes the plan of each piece."""
        in_place = buffers[0].address == buffers[1].address
        host = [self._pinned(which, buffers[0].nbytes).view(kind.storage) for which in range(2 - in_place)]
        source, target = (one[: buffers[0].size] for one in (host[0], host[-1]))
        bounds = piece_bounds(buffers[0].size, kind.itemsize)
        spans = [slice(*span) for span in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)]
        made = tuple(plan(source[span], target[span]) for span in spans)
        runners = [one.runner for one in made]
        runner = _engine.Staged(
            self._comm.py2f(),
            runners,
            bounds,
            (source, target),
            *buffers,
            kind.code,
            self.yielding,
            self.device(buffers),
            self._up,
        )
        return Runnable(runner, "staged", len(spans), lambda: _close(made))

    def _pinned(self, which: int, nbytes: int) -> Array:
        """Return pinned memory of at least `nbytes`, the same for all plans of a size (collective)."""
        page = mmap.PAGESIZE
        room = max(page, 1 << max(nbytes - 1, 0).bit_length())
        if (which, room) not in self._staging:
            whole = self._empty(room + 2 * page)
            begin = -whole.ctypes.data % page
            array = whole[begin : begin + room]
            self._unpin.append(together(self._comm, lambda: self.owner.pin(array)))
            self._staging[which, room] = array
        return self._staging[which, room][: -(-nbytes // 8) * 8]

    # ---- cuda-aware --------------------------------------------------------------------------------------------------

    def aware(self, own: Schedule, segments: int, buffers: Buffers, kind: DType, op: int) -> Runnable:
        """Return what runs this rank's tables over messages of device memory (collective)."""
        runner = together(self._comm, lambda: self._aware(own, segments, buffers, kind, op))
        return Runnable(runner, "cuda-aware", segments, _nothing)

    def _aware(self, own: Schedule, segments: int, buffers: Buffers, kind: DType, op: int) -> _engine.Engine:
        table = np.ascontiguousarray(own.table)
        sendbuf, recvbuf = buffers
        return _engine.Engine(
            self._comm.py2f(),
            table,
            own.chunks,
            segments,
            sendbuf,
            recvbuf,
            kind.code,
            op,
            self.yielding,
            self.device(buffers),
            self.owner.empty,
        )

    # ---- cuda-ipc ----------------------------------------------------------------------------------------------------

    @cached_property
    def _windows(self) -> Windows:
        """Host memory for counters; collective when it is first used."""
        return Windows(self._node, self._comm)

    @property
    def _several(self) -> bool:
        """Whether there are ranks on other nodes."""
        return len(self._ranks) < self._comm.size

    @cached_property
    def _node(self) -> "MPI.Comm":
        """A communicator of the node's ranks, in their order; collective when it is first used."""
        return self._comm.Split(self._ranks[0], key=self._comm.rank) if self._several else self._comm

    def ipc(self, tables: Schedule, cut: Cut, buffers: Buffers, kind: DType, op: int, *, aware: bool) -> Runnable:
        """Return what runs on memory that the ranks of a node map; `tables` has all of theirs (collective).

        Messages to other nodes start and end in device memory where MPI is `aware` of it, else in pinned host memory.
        Raises `UnsupportedError` or `DeviceError` on all ranks where it cannot be mapped, `MemoryError` where there is
        no room for slots.
        """
        mapped = self._mapped_buffers(buffers)
        layout = layout_for(
            tables,
            cut.message_chunks,
            buffers[0].size,
            kind.itemsize,
            registered=mapped is not None,
            in_place=buffers[0].address == buffers[1].address,
            piece_nbytes=cut.piece_nbytes or (None if mapped else SLOT_PIECE_NBYTES),
            between_nodes=cut.between_nodes,
        )
        program = program_for(tables, layout, self._comm.rank, self._ranks)
        made = self._mapped_program(program, mapped or self._unmapped(buffers), buffers, kind, op, aware=aware)
        return replace(made, segments=layout.segments)

    def _mapped_program(
        self, program: Program, mapped: list[Mapped], buffers: Buffers, kind: DType, op: int, *, aware: bool
    ) -> Runnable:
        self._reclaim()
        slot = together(self._comm, lambda: self.owner.empty(program.slot_nbytes))
        slots = self._map(slot.address)
        scratch = together(self._comm, lambda: self._scratch(program, kind))
        stage = together(self._comm, lambda: self.owner.empty(program.stage_nbytes))
        counters = self._windows.reserve(COUNTER_NBYTES)
        spaces = (*(one.addresses for one in mapped), slots.addresses, self._own(stage.address))
        at = bind(program, spaces, kind.itemsize)
        mirror = together(self._comm, lambda: Mirror(self.owner, at, aware=aware))
        runner = _engine.Direct(
            self._comm.py2f(),
            at.variants,
            at.operands,
            self._of_node(counters.addresses),
            program.span,
            (slot, scratch, counters, stage, mirror),
            at.receives,
            at.sends,
            *buffers,
            kind.code,
            op,
            self.yielding,
            self.device(buffers),
            scratch.address if scratch else 0,
            mirror.tables,
        )

        self._made += 1
        number = self._made

        def close() -> None:
            for one in (*mapped, slots):
                one.close()
            counters.close()
            mirror.close()
            self._retired[number] = (slot, scratch) if scratch else (slot,)

        return Runnable(runner, "cuda-ipc", 1, close)

    def _of_node(self, addresses: Iterable[int]) -> npt.NDArray[np.uint64]:
        """Return an address for each rank: those given, of the ranks of the node, else 0."""
        found = np.zeros(self._comm.size, np.uint64)
        found[list(self._ranks)] = list(addresses)
        return found

    def _reclaim(self) -> None:
        """Free the slots of plans that all ranks have closed, and so have unmapped (collective)."""
        for number in set.intersection(*self._comm.allgather(set(self._retired))):
            _close(self._retired.pop(number))

    def _scratch(self, program: Program, kind: DType) -> Memory | None:
        """Return memory for partial results of instructions with more sources than a kernel takes, None without any."""
        most = self.owner.cuda.MOST_SOURCES
        counts = [one.count for variant in program.variants for one in variant if len(one.sources) > most]
        return self.owner.empty(max(counts) * kind.itemsize) if counts else None

    def _mapped_buffers(self, buffers: Buffers) -> list[Mapped] | None:
        """Return where this process finds all ranks' buffers; None where some have no handle (collective)."""
        handles = [self._handle(buffer.address) for buffer in buffers] if buffers[0].nbytes else [None, None]
        gathered = self._comm.allgather(handles)
        if any(handle is None for of_rank in gathered for handle in of_rank):
            return None
        return [
            self._opened([of_rank[which] for of_rank in gathered], buffer.address)
            for which, buffer in enumerate(buffers)
        ]

    def _unmapped(self, buffers: Buffers) -> list[Mapped]:
        return [Mapped(self._own(buffer.address), _nothing) for buffer in buffers]

    def _handle(self, address: int) -> tuple[bytes, int] | None:
        """Return the handle of the memory around `address` and its offset there; None for memory that has none."""
        try:
            handle, offset = self.owner.cuda.ipc_handle(address)
        except DeviceError:
            return None
        return bytes(handle), offset

    def _map(self, address: int) -> Mapped:
        """Return where this process finds the block that each rank has at its `address` (collective)."""
        handle = self._handle(address)
        gathered = self._comm.allgather(handle)
        if any(one is None for one in gathered):
            raise UnsupportedError("this device's memory cannot be mapped by other processes: use --transport staged")
        return self._opened(gathered, address)

    def _opened(self, handles: list[tuple[bytes, int]], own: int) -> Mapped:
        return together(self._comm, lambda: self._open(handles, own))

    def _open(self, handles: list[tuple[bytes, int]], own: int) -> Mapped:
        others = {rank: handles[rank] for rank in self._ranks if rank != self._comm.rank}
        bases = {handle: self._maps.base(handle) for handle, _ in others.values()}
        addresses = self._own(own)
        for rank, (handle, offset) in others.items():
            addresses[rank] = bases[handle] + offset
        return Mapped(addresses, lambda: self._maps.close(bases))

    def _own(self, address: int) -> list[int]:
        """Return an address for each rank: `address` for this one, else 0."""
        return [address if rank == self._comm.rank else 0 for rank in range(self._comm.size)]


class Mirror:
    """Pinned host memory where the messages of a program start and end, unless MPI is `aware` of device memory.

    `tables` are its tables of receives and sends with addresses here, None where there is nothing to mirror.
    """

    def __init__(self, owner: Owner, at: Bound, *, aware: bool) -> None:
        nbytes = [-(-int(one) // 64) * 64 for one in (*at.receives["nbytes"], *at.sends["nbytes"])]
        self.tables: tuple[Array, Array] | None = None
        self.close: Callable[[], None] = _nothing
        if not nbytes or aware:
            return
        page = mmap.PAGESIZE
        whole = np.empty(-(-sum(nbytes) // page) * page + page, np.uint8)
        begin = -whole.ctypes.data % page
        self._memory = whole[begin : begin + len(whole) - page]
        self.close = owner.pin(self._memory)
        places = self._memory.ctypes.data + np.cumsum([0, *nbytes[:-1]])
        receives, sends = at.receives.copy(), at.sends.copy()
        receives["address"], sends["address"] = places[: len(receives)], places[len(receives) :]
        self.tables = receives, sends


class _Maps:
    """Allocations of other processes that this one has mapped: each once, however many plans use it."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._bases: dict[bytes, int] = {}
        self._users: Counter[bytes] = Counter()

    def base(self, handle: bytes) -> int:
        """Map an allocation, unless it is, and return where it begins; each call wants a `close`."""
        if handle not in self._bases:
            self._bases[handle] = self._owner.cuda.ipc_open(handle)
        self._users[handle] += 1
        return self._bases[handle]

    def close(self, handles: Iterable[bytes]) -> None:
        """Unmap those of the allocations that nobody else uses."""
        for handle in handles:
            self._users[handle] -= 1
            if not self._users[handle]:
                self._owner.cuda.ipc_close(self._bases.pop(handle))


def piece_bounds(count: int, itemsize: int) -> npt.NDArray[np.int64]:
    """Return where the pieces of a staged vector begin, and the last one's end, in elements."""
    pieces = max(1, min(MOST_PIECES, count * itemsize // PIECE_NBYTES))
    return np.arange(pieces + 1, dtype=np.int64) * count // pieces


class _Closed(Protocol):
    def close(self) -> None: ...


def _close(these: Iterable[_Closed]) -> None:
    for one in these:
        one.close()


def _nothing() -> None:
    """Nothing to give back."""
