"""The library for users: a communicator whose allreduce runs a proved schedule.

with ddlbench.Communicator() as comm:
comm.allreduce(gradients, out=gradients, algorithm="halving-doubling")

with comm.plan(gradients, op="avg", algorithm="multi-ring:2") as plan:
for _ in range(steps):
plan.execute()
"""

import hashlib
import zlib
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ddlbench import _engine
from ddlbench.algorithms import resolve
from ddlbench.dtypes import DType, dtype_of, op_code
from ddlbench.errors import ProofError, UnsupportedError, UsageError
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import Schedule, lower
from ddlbench.schedule.segments import longest_message, segments_for
from ddlbench.schedule.verify import Proof, verify
from ddlbench.topology import Topology, discover

if TYPE_CHECKING:
    from mpi4py import MPI

Array = np.ndarray[Any, Any]
EXPLORE_SAMPLES = 5


@dataclass(frozen=True)
class Program:
    """One rank's lowered part of a schedule, and what all ranks must agree on to cut the vector alike."""

    schedule: Schedule
    message_chunks: int
    steps: int


class Plan:
    """An allreduce bound to its buffers, ready to run many times.

    algorithm
        the name of what runs; for a mode that explores, what was chosen
    transport
        "p2p" for MPI messages, "vendor" for the library's own allreduce
    segments, rounds
        how the vector is cut and how many rounds the schedule has; 0 for a vendor's
    """

    def __init__(self, runner: Any, algorithm: str, transport: str, segments: int, rounds: int) -> None:
        self._runner = runner
        self.algorithm, self.transport, self.segments, self.rounds = algorithm, transport, segments, rounds
        self.execute = runner.execute
        self.time_samples = runner.time_samples
        self.time_windows = runner.time_windows

    def close(self) -> None:
        """Free what the plan holds; it cannot run afterwards."""
        self._runner.close()
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
    """

    def __init__(self, comm: "MPI.Comm | None" = None, *, grid: Grid | None = None) -> None:
        from mpi4py import MPI

        given = MPI.COMM_WORLD if comm is None else comm
        found = discover(given)
        self.comm = given.Split(0, key=found.node_of[given.rank] * given.size + given.rank)
        self.topology: Topology = discover(self.comm)
        self.rank, self.size = self.comm.rank, self.comm.size
        self._given_grid = grid
        self.grid = grid.check_size(self.size) if grid else self.topology.grid()
        self.yielding = any(self.topology.oversubscribed(rank) for rank in range(self.size))
        self._programs: dict[tuple[str, Grid], Program] = {}

    def close(self) -> None:
        """Free the communicator; collective."""
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
        algorithm: str | BoundAlgorithm = "ring",
        dtype: str | None = None,
        segment_nbytes: int | None = None,
    ) -> Plan:
        """Make a plan that reduces `sendbuf` of all ranks into `recvbuf` of each; collective.

        The buffers are contiguous arrays of one dtype and size, the same on all ranks; `recvbuf` None or the same array
        means in place. `dtype="bfloat16"` says that uint16 arrays hold bfloat16. `segment_nbytes` bounds a message's
        bytes, 1 MiB by default. Raises `UsageError` for buffers or names that do not fit, on all
        ranks `UnsupportedError` for what does not exist here.
        """
        target = sendbuf if recvbuf is None else recvbuf
        kind = _check_buffers(sendbuf, target, dtype)
        code, bound = op_code(op), self.bind(algorithm)
        self._check_agreement(bound.name, kind.name, op, sendbuf.size, segment_nbytes)
        if bound.explore:
            bound = self._fastest(bound, sendbuf, target, op, kind)
        buffers = (sendbuf.reshape(-1), target.reshape(-1))
        if bound.vendor:
            return Plan(
                _engine.Vendor(self.comm.py2f(), *buffers, kind.code, code, self.yielding), bound.name, "vendor", 0, 0
            )
        return self._engine_plan(bound, buffers, kind, code, segment_nbytes)

    def allreduce(
        self,
        array: Array,
        out: Array | None = None,
        *,
        op: str = "sum",
        algorithm: str | BoundAlgorithm = "ring",
        dtype: str | None = None,
    ) -> Array:
        """Reduce `array` of all ranks and return the result; collective.

        The result is `out`, which may be `array` itself, or a new array when None. For repeated use make a `plan`.
        Raises as `plan` does.
        """
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
        for one in bound.explore or (bound,):
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

    def _check_agreement(self, *what: object) -> None:
        """Refuse on all ranks when they ask for different things: they would wait for each other for ever."""
        from mpi4py import MPI

        mark = zlib.crc32(repr(what).encode())
        both = np.array([mark, -mark], np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, both, MPI.MAX)
        if both[0] != -both[1]:
            raise UsageError(f"ranks ask for different allreduces; rank {self.rank} for {what}")

    def _fastest(self, bound: BoundAlgorithm, sendbuf: Array, recvbuf: Array, op: str, kind: DType) -> BoundAlgorithm:
        """Time every candidate on scratch buffers of the same size and return the one whose slowest rank is fastest."""
        from mpi4py import MPI

        source, target = np.zeros_like(sendbuf), np.zeros_like(recvbuf)
        taken = np.empty((len(bound.explore), EXPLORE_SAMPLES), np.int64)
        for at, candidate in enumerate(bound.explore):
            with self._engine_plan(
                candidate, (source.reshape(-1), target.reshape(-1)), kind, op_code(op), None
            ) as plan:
                plan.execute()
                taken[at] = plan.time_samples(EXPLORE_SAMPLES)
        self.comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
        return bound.explore[int(np.argmin(np.median(taken, axis=1)))]


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
