"""The library for users: a communicator whose allreduce runs a proved schedule.

with ddlbench.Communicator() as comm:
comm.allreduce(gradients, out=gradients, algorithm="halving-doubling")

with comm.plan(gradients, op="avg", algorithm="multi-ring:2") as plan:
for _ in range(steps):
plan.execute()
"""

import hashlib
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from ddlbench import _engine
from ddlbench.algorithms import resolve
from ddlbench.device import aware
from ddlbench.device.arrays import DeviceArray, kind_of, pair
from ddlbench.device.nccl import Nccl
from ddlbench.device.owner import Owner, extension, open_device
from ddlbench.device.plans import DevicePlans, together
from ddlbench.device.timing import EventTimed, Nanoseconds
from ddlbench.dtypes import DType, dtype_named, dtype_of, op_code
from ddlbench.errors import DeviceError, ProofError, UnsupportedError, UsageError, unknown
from ddlbench.local.shared import Cut, Runnable, SharedMemory
from ddlbench.pages import HugePages
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import Schedule, lower
from ddlbench.schedule.segments import longest_message, segments_for
from ddlbench.schedule.verify import Proof, verify
from ddlbench.topology import Topology, discover
from ddlbench.tuning.choice import Chooser

if TYPE_CHECKING:
    from mpi4py import MPI

Array = np.ndarray[Any, Any]
EXPLORE_SAMPLES = 5
TRANSPORTS = ("auto", "direct", "p2p")
DEVICE_TRANSPORTS = ("auto", "cuda-ipc", "cuda-aware", "staged")
"""For buffers in a device's memory: docs/cuda.md."""


@dataclass(frozen=True)
class Program:
    """One rank's lowered part of a schedule, and what all ranks must agree on to cut the vector alike."""

    schedule: Schedule
    message_chunks: int
    steps: int


class Plan:
    """An allreduce bound to its buffers, ready to run many times.

    algorithm
        the name of what runs; for `auto` and a mode that explores, what was chosen
    why
        for `auto`, what the choice rests on; why a plan is over messages though its ranks share a node; else ""
    transport
        "p2p" for MPI messages, "vendor" for the library's own allreduce, "direct" for memory that the ranks share:
        "direct-slots" through slots there, where others cannot address the buffers themselves; "mixed" and
        "mixed-slots" are these on each node, with messages between nodes; for buffers of a device one of
        `DEVICE_TRANSPORTS`, or "nccl"
    segments, rounds
        how the vector is cut and how many rounds the schedule has; 0 for a vendor's
    position, waiting
        where it stands while it runs, for other threads to call
    device_ns
        what events on the device say of the samples timed last, int64 nanoseconds; None for buffers of the host
    """

    device_ns: Callable[[], Nanoseconds] | None = None

    def __init__(
        self,
        runner: Any,
        algorithm: str,
        transport: str,
        segments: int,
        rounds: int,
        release: Callable[[], None] | None = None,
    ) -> None:
        self.runner, self._release = runner, release
        self.algorithm, self.transport, self.segments, self.rounds = algorithm, transport, segments, rounds
        self.why = ""
        self.execute = runner.execute
        self.time_samples = runner.time_samples
        self.time_windows = runner.time_windows
        self.position, self.waiting = runner.position, runner.waiting

    def close(self) -> None:
        """Free what the plan holds; it cannot run afterwards."""
        self.runner.close()
        if self._release:
            self._release()
        self.execute = self.time_samples = self.time_windows = _closed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _closed(*_: object) -> Any:
    raise UsageError("this plan is closed; make a new one with Communicator.plan")


class Communicator:
    """All ranks of an MPI communicator (`MPI.COMM_WORLD` when None), for allreduces by schedule; collective to make.

    The ranks are taken node by node, so that `rank` differs from the rank in `comm` when the launcher placed ranks
    round-robin. `grid` overrides the grid found from the launch; `UsageError` when it does not hold all ranks.
    `huge_pages` puts what `empty` returns, and the memory of plans that ranks share, into huge pages; on all ranks
    `UnsupportedError` where the system gives none. How much lies there, `huge_pages.tallies` tells (docs/direct.md).
    """

    def __init__(self, comm: "MPI.Comm | None" = None, *, grid: Grid | None = None, huge_pages: bool = False) -> None:
        from mpi4py import MPI

        given = MPI.COMM_WORLD if comm is None else comm
        found = discover(given)
        sorted_ = given.Split(0, key=found.node_of[given.rank] * given.size + given.rank)
        self._begin(sorted_, discover(sorted_), grid, HugePages.on_all(sorted_.allgather) if huge_pages else None)
        if self.huge_pages:
            self.release(self.empty(1, np.uint8))
            self.huge_pages.check(sorted_.allgather)

    def _begin(self, comm: "MPI.Comm", topology: Topology, grid: Grid | None, huge: HugePages | None) -> None:
        """Take over `comm`, whose ranks stand node by node as `topology` has them."""
        self.huge_pages = huge
        self.comm, self.topology = comm, topology
        self.rank, self.size = comm.rank, comm.size
        self._given_grid = grid
        self.grid = grid.check_size(self.size) if grid else topology.grid()
        self.yielding = topology.crowded
        self._programs: dict[tuple[str, Grid], Program] = {}
        self._of_node: dict[tuple[str, Grid], Schedule] = {}
        node = topology.ranks_of(topology.node_of[comm.rank])
        self._shared = SharedMemory(comm, node, yielding=self.yielding, huge=huge)
        self._owner: Owner | None = None

    def part(self, ranks: Collection[int], *, grid: Grid | None = None) -> "Communicator | None":
        """Return a communicator of `ranks` of this one, in their order, and None on all others; collective over all.

        `grid` overrides the grid found from where the ranks are; `UsageError` when it does not hold all of them.
        """
        from mpi4py import MPI

        topology = self.topology.part(frozenset(ranks))
        if grid is not None:
            grid.check_size(topology.ranks)
        comm = self.comm.Split(0 if self.rank in ranks else MPI.UNDEFINED, key=self.rank)
        if comm == MPI.COMM_NULL:
            return None
        part = object.__new__(Communicator)
        part._begin(comm, topology, grid, self.huge_pages)
        part._owner = self._owner
        return part

    def close(self) -> None:
        """Free the communicator and the buffers of `empty`; collective."""
        if "_on_device" in self.__dict__:
            self._on_device.free()
        if "_nccl" in self.__dict__:
            self._nccl.free()
        self._shared.free()
        self.comm.Free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:  # after an error other ranks may never come to the collective Free
            self.close()

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.comm.Barrier()

    def bind(self, algorithm: str | BoundAlgorithm) -> BoundAlgorithm:
        """Return the algorithm on this communicator's grid; `UsageError`, or `UnsupportedError` for uneven nodes."""
        found = resolve(algorithm, self.grid) if isinstance(algorithm, str) else algorithm
        node_aware = found.algorithm is not None and found.algorithm.node_aware
        if node_aware and not self.topology.even and found.grid == self.grid and self._given_grid is None:
            per_node = ", ".join(map(str, self.topology.ranks_per_node))
            raise UnsupportedError(
                f"{found.name} needs the same number of ranks on every node; here they have {per_node}"
            )
        return found

    def plan(
        self,
        sendbuf: Array,
        recvbuf: Array | None = None,
        *,
        op: str = "sum",
        algorithm: str | BoundAlgorithm = "auto",
        dtype: str | None = None,
        segment_nbytes: int | None = None,
        transport: str = "auto",
    ) -> Plan:
        """Make a plan that reduces `sendbuf` of all ranks into `recvbuf` of each; collective.

        Buffers in a GPU's memory are what has `__cuda_array_interface__` or DLPack (docs/cuda.md); those of the host
        are contiguous arrays of one dtype and size, the same on all ranks; `recvbuf` None or the same array means in
        place. `algorithm="auto"` takes the best for these buffers, measured or by closed form: docs/tuning.md.
        `dtype="bfloat16"` says that uint16 arrays hold bfloat16. `segment_nbytes` bounds a message's bytes, 1 MiB by
        default. `transport` is one of `TRANSPORTS`: direct for memory between ranks of a node and messages to others,
        p2p for messages alone, auto for direct where ranks share a node and there is memory for it. Raises `UsageError`
        for buffers or names that do not fit, on all ranks `UnsupportedError` for what does not exist here.
        """
        target = sendbuf if recvbuf is None else recvbuf
        device = pair(sendbuf, target)
        if device is not None:
            return self._device_plan(device, op, self.bind(algorithm), dtype, segment_nbytes, transport)
        kind = _check_buffers(sendbuf, target, dtype)
        code, bound = op_code(op), self.bind(algorithm)
        way = self._way(transport)
        self._check_agreement(bound.name, kind.name, op, sendbuf.size, segment_nbytes, transport)
        if bound.auto:
            in_place = sendbuf.ctypes.data == target.ctypes.data
            choice = self._chooser.choose(sendbuf.nbytes, kind, op, in_place=in_place, transport=way)
            plan = self.plan(
                sendbuf,
                recvbuf,
                op=op,
                algorithm=choice.algorithm,
                dtype=dtype,
                segment_nbytes=segment_nbytes,
                transport=transport,
            )
            plan.why = "; ".join(filter(None, (choice.why, plan.why)))
            return plan
        if bound.explore:
            bound = self._fastest(bound, sendbuf, target, op, kind, way)
        buffers = (sendbuf.reshape(-1), target.reshape(-1))
        if bound.vendor:
            _check_host_vendor(bound)
            return Plan(
                _engine.Vendor(self.comm.py2f(), *buffers, kind.code, code, self.yielding), bound.name, "vendor", 0, 0
            )
        if transport == "auto" and way != "p2p":
            try:
                return self._scheduled(bound, buffers, kind, code, way, segment_nbytes)
            except MemoryError as error:  # on all ranks alike
                plan = self._scheduled(bound, buffers, kind, code, "p2p", segment_nbytes)
                plan.why = f"over messages: {error}"
                return plan
        return self._scheduled(bound, buffers, kind, code, way, segment_nbytes)

    def _way(self, transport: str) -> str:
        """Return the transport that is meant, direct, mixed or p2p; raises `UsageError`, or `UnsupportedError` here."""
        if transport in DEVICE_TRANSPORTS and transport not in TRANSPORTS:
            raise UsageError(f"transport {transport} is for buffers on a device: expected {', '.join(TRANSPORTS)}")
        if transport not in TRANSPORTS:
            raise unknown("transport", transport, TRANSPORTS)
        if transport == "p2p" or (transport == "auto" and not self._shares):
            return "p2p"
        if not self._shares:
            raise UnsupportedError(
                f"the direct transport needs ranks that share a node; each is on its own, of {self.size}"
            )
        return "direct" if self.topology.nodes == 1 else "mixed"

    @property
    def _shares(self) -> bool:
        """Whether there is a node with more than one rank, or no other node."""
        return self.topology.nodes == 1 or max(self.topology.ranks_per_node) > 1

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> Array:
        """Return a new array of which all ranks of a node can address each other's; collective, the same on all ranks.

        The direct transport reads and writes such buffers without a copy. They live until `release` or `close`.
        Where no two ranks share a node it is an ordinary array.
        """
        if self._shares:
            return self._shared.empty(shape, dtype)
        return self.huge_pages.empty(shape, dtype) if self.huge_pages else np.empty(shape, dtype)

    def release(self, array: Array) -> None:
        """Give back an array of `empty`; collective. Nobody may use it, or a plan with it, any more."""
        if self._shares:
            self._shared.release(array)

    def allreduce(
        self,
        array: Array,
        out: Array | None = None,
        *,
        op: str = "sum",
        algorithm: str | BoundAlgorithm = "auto",
        dtype: str | None = None,
    ) -> Array:
        """Reduce `array` of all ranks and return the result; collective.

        The result is `out`, which may be `array` itself, or a new array when None. For repeated use make a `plan`.
        Raises as `plan` does.
        """
        on_device = pair(array, array) if out is None else None
        if on_device is not None:
            array_ = on_device[0]
            together(self.comm, lambda: self._take_device(array_))
            out = self.device_empty(on_device[0].size, kind_of(on_device[0], dtype).name)  # type: ignore[assignment]
        result = np.empty_like(array, order="C") if out is None else out
        with self.plan(array, result, op=op, algorithm=algorithm, dtype=dtype) as plan:
            plan.execute()
        return result

    def prove(self, algorithm: str | BoundAlgorithm) -> Proof | None:
        """Prove the programs that the ranks would run; collective. Returns None for a vendor's, which has no schedule.

        Rank 0 proves the schedule, and each rank's own lowered table must be the part of it that is the rank's. Raises
        `ProofError` on all ranks.
        """
        bound = self.bind(algorithm)
        proof = None
        for one in self._chooser.alternatives() if bound.auto else bound.explore or (bound,):
            proof = None if one.vendor else self._prove_one(one)
        return proof

    def _prove_one(self, bound: BoundAlgorithm) -> Proof:
        digests = self.comm.gather(_digest(self._program(bound).schedule))
        outcome: Proof | ProofError | None = None
        if digests is not None:
            try:
                outcome = _prove(bound, digests)
            except ProofError as error:
                outcome = error
        outcome = self.comm.bcast(outcome)
        if isinstance(outcome, Proof):
            return outcome
        raise ProofError(f"algorithm {bound.name!r} is refused: {outcome}")

    def _program(self, bound: BoundAlgorithm) -> Program:
        key = (bound.name, bound.grid)
        if key not in self._programs:
            from mpi4py import MPI

            own = lower(bound, self.rank)
            sizes = np.array([longest_message(own), len(own.table)])
            self.comm.Allreduce(MPI.IN_PLACE, sizes, MPI.MAX)
            self._programs[key] = Program(own, int(sizes[0]), int(sizes[1]))
        return self._programs[key]

    def _scheduled(
        self,
        bound: BoundAlgorithm,
        buffers: tuple[Array, Array],
        kind: DType,
        op: int,
        transport: str,
        segment_nbytes: int | None = None,
    ) -> Plan:
        """Return a plan of a schedule over `transport`, p2p, direct or mixed; collective."""
        make = self._engine_plan if transport == "p2p" else self._direct_plan
        return make(bound, buffers, kind, op, segment_nbytes)

    def _engine_plan(
        self, bound: BoundAlgorithm, buffers: tuple[Array, Array], kind: DType, op: int, segment_nbytes: int | None
    ) -> Plan:  # fmt: skip
        program = self._program(bound)
        own, nbytes = program.schedule, buffers[0].nbytes
        segments = segments_for(own.chunks, program.message_chunks, program.steps, nbytes, segment_nbytes)
        table = np.ascontiguousarray(own.table)
        runner = _engine.Engine(
            self.comm.py2f(), table, own.chunks, segments, *buffers, kind.code, op, self.yielding
        )  # fmt: skip
        return Plan(runner, bound.name, "p2p", segments, own.rounds)

    def _direct_plan(
        self, bound: BoundAlgorithm, buffers: tuple[Array, Array], kind: DType, op: int, segment_nbytes: int | None
    ) -> Plan:  # fmt: skip
        program, tables = self._program(bound), self._tables(bound)
        self._shared.yielding = self.yielding
        between_nodes = 0
        if self._shared.several:
            of = tables.chunks, program.message_chunks, program.steps
            between_nodes = segments_for(*of, buffers[0].nbytes, segment_nbytes)
        cut = Cut(program.message_chunks, between_nodes, segment_nbytes)
        made = self._shared.plan(tables, cut, buffers, kind, op)
        return Plan(made.runner, bound.name, made.transport, made.segments, tables.rounds, made.close)

    # ---- Buffers of a device ---------------------------------------------------------------------------------------

    def use_device(self, owner: Owner) -> None:
        """Let buffers of a device be those of `owner`; without this the device of the first buffer is taken."""
        self._owner = owner

    def device_empty(self, size: int, dtype: str = "float32") -> DeviceArray:
        """Return a new vector in this rank's device's memory; raises `MemoryError` where it has no room."""
        kind = dtype_named(dtype)
        memory = self.owner.empty(size * kind.itemsize)
        return DeviceArray(memory.address, size, kind.name, kind.itemsize, self.owner.device, kept=memory)

    @property
    def owner(self) -> Owner:
        """The owner of this rank's device; `UsageError` where none is known yet."""
        if self._owner is None:
            raise UsageError("no device is chosen yet: call use_device(open_device(number)) first")
        return self._owner

    @cached_property
    def _on_device(self) -> DevicePlans:
        """What plans on a device share."""
        node = self.topology.ranks_of(self.topology.node_of[self.rank])
        return DevicePlans(self.comm, node, self.owner, self._bytes, yielding=self.yielding)

    def _bytes(self, nbytes: int) -> Array:
        return self.empty(nbytes, np.uint8)

    @cached_property
    def _nccl(self) -> Nccl:
        """NCCL's communicator of these ranks; collective when it is first used."""
        return Nccl(self.comm)

    @cached_property
    def _not_aware(self) -> str:
        """Why MPI does not take memory of the devices, "" where it does; collective when it is first used."""
        first = self.rank == min(self.topology.ranks_of(self.topology.node_of[self.rank]))
        return aware.why_not(self.comm, self.owner.device, first=first)

    def _device_plan(
        self,
        buffers: tuple[DeviceArray, DeviceArray],
        op: str,
        bound: BoundAlgorithm,
        dtype: str | None,
        segment_nbytes: int | None,
        transport: str,
    ) -> Plan:
        """Return a plan for buffers of a device (collective); raises as `plan` does, and `DeviceError`."""
        kind = kind_of(buffers[0], dtype)
        op_code(op)
        if transport not in DEVICE_TRANSPORTS:
            raise UsageError(
                f"transport {transport!r}: for buffers on a device it is one of {', '.join(DEVICE_TRANSPORTS)}"
            )
        self._check_agreement(bound.name, kind.name, op, buffers[0].size, segment_nbytes, transport, "device")
        together(self.comm, lambda: self._take_device(buffers[0]))
        why = ""
        if bound.auto:
            in_place = buffers[0].address == buffers[1].address
            choice = self._chooser.choose(buffers[0].nbytes, kind, op, in_place=in_place, transport="p2p")
            bound, why = self.bind(choice.algorithm), f"{choice.why}, for host memory"
        if bound.explore:
            raise UnsupportedError(f"{bound.name} explores on host memory only: name an algorithm")
        made, transport_why = self._by_a_way(bound, buffers, kind, op, segment_nbytes, transport)
        timed = EventTimed(self.owner, made.runner)

        def release() -> None:
            timed.close()
            made.close()

        plan = Plan(made.runner, bound.name, made.transport, made.segments, self._rounds(bound), release)
        plan.time_samples, plan.time_windows, plan.device_ns = timed.time_samples, timed.time_windows, timed.device_ns
        plan.why = "; ".join(filter(None, (why, transport_why)))
        return plan

    def _take_device(self, buffer: DeviceArray) -> None:
        """Take the device of `buffer` unless one is taken; raises `UnsupportedError` for a buffer on another."""
        cuda = extension() if self._owner is None else self._owner.cuda
        found = cuda.pointer_device(buffer.address) if buffer.device is None and buffer.address else buffer.device
        if self._owner is None:
            self._owner = open_device(cuda.current_device() if found is None else found)
        if found not in (None, self._owner.device):
            raise UnsupportedError(f"a buffer on device {found}, but this rank's is {self._owner.device}")

    def _rounds(self, bound: BoundAlgorithm) -> int:
        return 0 if bound.vendor else self._program(bound).schedule.rounds

    def _by_a_way(
        self,
        bound: BoundAlgorithm,
        buffers: tuple[DeviceArray, DeviceArray],
        kind: DType,
        op: str,
        segment_nbytes: int | None,
        transport: str,
    ) -> tuple[Runnable, str]:
        """Return what runs over the first transport that can be had, and why not over one before it (collective)."""
        whys = list[str]()
        for way in self._device_ways(bound, transport):
            try:
                return self._over(way, bound, buffers, kind, op, segment_nbytes), "; ".join(whys)
            except (DeviceError, UnsupportedError) as error:  # on all ranks alike
                if transport != "auto" or way in ("staged", "nccl"):
                    raise
                whys.append(f"not over {way}: {error}")
        raise UnsupportedError(f"{bound.name} cannot run over {transport}")

    def _device_ways(self, bound: BoundAlgorithm, transport: str) -> tuple[str, ...]:
        """Return the transports to try for buffers on a device, best first; the order is argued, not measured."""
        if bound.name == "nccl" and bound.vendor:
            return ("nccl",)
        if transport == "cuda-ipc" and bound.vendor:
            raise UnsupportedError(f"{bound.name} has no schedule to run over cuda-ipc: use staged or cuda-aware")
        if transport != "auto":
            return (transport,)
        if self._shares and not bound.vendor:
            return ("cuda-ipc", "staged")
        return ("cuda-aware", "staged") if not self._not_aware else ("staged",)

    def _over(
        self,
        way: str,
        bound: BoundAlgorithm,
        buffers: tuple[DeviceArray, DeviceArray],
        kind: DType,
        op: str,
        segment_nbytes: int | None,
    ) -> Runnable:
        """Return what runs over `way`; raises on all ranks alike."""
        plans, code = self._on_device, op_code(op)
        if way == "nccl":
            runner = self._nccl.runner(buffers, kind, op, plans.device(buffers), yielding=self.yielding)
            return Runnable(runner, "nccl", 1, _nothing)
        if way == "staged":
            return plans.staged(
                buffers,
                kind,
                lambda source, target: self.plan(
                    source, target, op=op, algorithm=bound, dtype=kind.name, segment_nbytes=segment_nbytes
                ),
            )
        if way == "cuda-ipc" and not self._shares:
            raise UnsupportedError("cuda-ipc needs ranks that share a node; each is alone: use cuda-aware or staged")
        if way == "cuda-aware" and self._not_aware:
            raise UnsupportedError(f"MPI is not given memory of a device: {self._not_aware}; use --transport staged")
        if bound.vendor:
            vendor = _engine.Vendor(
                self.comm.py2f(), *buffers, kind.code, code, self.yielding, plans.device(buffers)
            )  # fmt: skip
            return Runnable(vendor, "cuda-aware", 0, _nothing)
        program = self._program(bound)
        of = program.schedule.chunks, program.message_chunks, program.steps
        segments = segments_for(*of, buffers[0].nbytes, segment_nbytes)
        if way == "cuda-ipc":
            several = self.topology.nodes > 1
            cut = Cut(program.message_chunks, segments if several else 0, segment_nbytes)
            aware_ = several and not self._not_aware
            return plans.ipc(self._tables(bound), cut, buffers, kind, code, aware=aware_)
        return plans.aware(program.schedule, segments, buffers, kind, code)

    def floor_plan(self, sendbuf: Array, recvbuf: Array, *, stream: bool) -> Plan:
        """Return a plan that moves what an allreduce of arrays of `empty` must move, and reduces nothing; collective.

        `stream` says whether it writes past the caches. The results are of no use, the time is: see local/floor.py.
        """
        kind = _check_buffers(sendbuf, recvbuf, None)
        made = self._shared.floor((sendbuf.reshape(-1), recvbuf.reshape(-1)), kind, stream=stream)
        return Plan(made.runner, "floor", made.transport, made.segments, 1, made.close)

    def _tables(self, bound: BoundAlgorithm) -> Schedule:
        """Return the tables of the ranks of this node."""
        key = (bound.name, bound.grid)
        if key not in self._of_node:
            node = self.topology.ranks_of(self.topology.node_of[self.rank])
            self._of_node[key] = lower(bound, node)
        return self._of_node[key]

    @cached_property
    def _chooser(self) -> Chooser:
        """What `auto` takes its choices from; collective when it is first used."""
        return Chooser.of(self.comm, self.topology, self.grid)

    def _check_agreement(self, *what: object) -> None:
        """Refuse on all ranks when they ask for different things: they would wait for each other for ever."""
        from mpi4py import MPI

        mark = zlib.crc32(repr(what).encode())
        both = np.array([mark, -mark], np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, both, MPI.MAX)
        if both[0] != -both[1]:
            raise UsageError(f"ranks ask for different allreduces; rank {self.rank} for {what}")

    def _fastest(
        self, bound: BoundAlgorithm, sendbuf: Array, recvbuf: Array, op: str, kind: DType, transport: str
    ) -> BoundAlgorithm:  # fmt: skip
        """Time every candidate on scratch buffers of the same size and return the one whose slowest rank is fastest."""
        from mpi4py import MPI

        source, target = np.zeros_like(sendbuf), np.zeros_like(recvbuf)
        taken = np.empty((len(bound.explore), EXPLORE_SAMPLES), np.int64)
        for at, candidate in enumerate(bound.explore):
            with self._scheduled(
                candidate, (source.reshape(-1), target.reshape(-1)), kind, op_code(op), transport
            ) as plan:
                plan.execute()
                taken[at] = plan.time_samples(EXPLORE_SAMPLES)
        self.comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
        return bound.explore[int(np.argmin(np.median(taken, axis=1)))]


def _check_host_vendor(bound: BoundAlgorithm) -> None:
    if bound.name == "nccl":
        raise UnsupportedError("algorithm 'nccl' reduces memory of GPUs: give it device buffers (sweep --device cuda)")


def _nothing() -> None:
    """Nothing to give back."""


def _check_buffers(sendbuf: Array, recvbuf: Array, name: str | None) -> DType:
    given: tuple[object, ...] = (sendbuf, recvbuf)
    for buffer in given:
        if not isinstance(buffer, np.ndarray) or not buffer.flags.c_contiguous:
            raise UsageError(f"expected a C-contiguous numpy array, got {_described(buffer)}")
    if not recvbuf.flags.writeable:
        raise UsageError("the array for the result is read-only")
    if (sendbuf.dtype, sendbuf.size) != (recvbuf.dtype, recvbuf.size):
        raise UsageError(f"send buffer of {_described(sendbuf)}, but receive buffer of {_described(recvbuf)}")
    same = sendbuf.ctypes.data == recvbuf.ctypes.data
    if not same and np.may_share_memory(sendbuf, recvbuf):
        raise UsageError("send and receive buffers overlap; use the same array for in place, or separate ones")
    return dtype_of(sendbuf, name)


def _described(buffer: object) -> str:
    if not isinstance(buffer, np.ndarray):
        return type(buffer).__name__
    return f"{buffer.size} {buffer.dtype}" + ("" if buffer.flags.c_contiguous else ", not contiguous")


def _digest(schedule: Schedule) -> bytes:
    head = repr((schedule.name, schedule.grid, schedule.chunks, schedule.rounds)).encode()
    return hashlib.sha256(head + schedule.table.tobytes()).digest()


def _prove(bound: BoundAlgorithm, digests: list[bytes]) -> Proof:
    whole = lower(bound)
    proof = verify(whole)
    for rank, digest in enumerate(digests):
        if digest != _digest(whole.program(rank)):
            raise ProofError(f"rank {rank} lowers another program alone than as part of all {whole.ranks} ranks")
    return proof
