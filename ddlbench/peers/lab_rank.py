"""One rank of the measurement on a virtual cluster: ddlbench and MPI_Allreduce in turns; started in `ddlbench lab`.

The arguments are a file with the task and the folder for the run that rank 0 stores. The task is JSON:

    label   what the names of points say of the cluster: lab 4 x 2
    turns   how often those that are compared take turns
    drop    after a turn, who took more than so many times the least median is left out; from 4 MiB on for larger
            sizes too. null for nobody
    check   whether results are checked, before the samples and after the last of them
    rows    for each size: nbytes, samples in a turn, fewer where that takes long, and the names of `ours`, algorithms
            of ddlbench, and of `theirs`, settings of Open MPI

All work on the same buffers, which ranks of a node can address; samples start after a barrier, and count the slowest
rank.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ddlbench import __version__, _engine
from ddlbench.bench.environment import environment, load_average, trust
from ddlbench.bench.inputs import Buffers, pattern
from ddlbench.comm import Communicator
from ddlbench.dtypes import dtype_named, op_code
from ddlbench.errors import UnsupportedError
from ddlbench.peers.settings import AS_IT_COMES, Parameters
from ddlbench.records import Point, Run, Store

if TYPE_CHECKING:
    from mpi4py import MPI

Slow = set[tuple[bool, str]]
"""Those who are left out at larger sizes, by `Entry.key`."""
FLOAT, SUM = dtype_named("float32"), "sum"
LARGE = 1 << 22
"""From this size on the bytes count: who is slow is slower still with more of them."""


LOOK, TURN_NS = 3, 50_000_000
"""So many samples, which count for nothing, tell how many fit into a turn of so many nanoseconds."""


@dataclass
class Entry:
    """One of those that are compared at a size: its name in the task, and what was seen of it on all ranks.

    `at_once` are its samples in a turn, `samples` nanoseconds of the slowest rank; `wrong` counts wrong elements,
    changed inputs and guard bytes, None where nothing was checked, and `told` is the first of them in words. `missing`
    says why it cannot run here.
    """

    name: str
    vendor: bool
    title: str = ""
    transport: str = "vendor"
    runner: Any = None
    at_once: int = 1
    samples: list[int] = field(default_factory=list)
    wrong: int | None = None
    told: str = ""
    missing: str = ""

    @property
    def key(self) -> tuple[bool, str]:
        """What tells it apart: an algorithm of ddlbench may have the name of a setting."""
        return self.vendor, self.name

    @property
    def median(self) -> float:
        """The median of its samples; infinite without one."""
        return float(np.median(self.samples)) if self.samples else float("inf")


class Vendors:
    """A communicator of Open MPI for each of its settings, made when it is first asked for (collective)."""

    def __init__(self, comm: "MPI.Comm") -> None:
        self._comm = comm
        self._parameters: Parameters | None = None
        self._made: dict[str, MPI.Comm] = {}

    def set(self, setting: str) -> Any:
        """Return a context in which `setting` is in force; raises as `Parameters` does."""
        if setting == AS_IT_COMES:
            return nullcontext()
        if self._parameters is None:
            self._parameters = Parameters(_engine.__file__)
        return self._parameters.set(setting)

    def comm(self, setting: str) -> "MPI.Comm":
        """Return the communicator of a setting."""
        if setting not in self._made:
            with self.set(setting):
                self._made[setting] = self._comm.Dup()
        return self._made[setting]

    def close(self) -> None:
        """Free all of them (collective)."""
        for comm in self._made.values():
            comm.Free()
        if self._parameters is not None:
            self._parameters.close()


class Row:
    """The measurement at one size (collective, as all its methods are)."""

    def __init__(self, communicator: Communicator, vendors: Vendors, row: Mapping[str, Any], slow: Slow) -> None:
        self._communicator, self._vendors, self._comm = communicator, vendors, communicator.comm
        self._samples, self.nbytes = int(row["samples"]), int(row["nbytes"])
        self._slow = slow
        self._memory: list[Any] = []
        self._given = pattern(FLOAT, SUM, communicator.rank, communicator.size)
        self.buffers = Buffers(self.nbytes // FLOAT.itemsize, FLOAT, in_place=False, take=self._take)
        ours = [Entry(name, vendor=False) for name in row["ours"]]
        theirs = [Entry(name, vendor=True) for name in row["theirs"]]
        self.entries = [entry for entry in (*ours, *theirs) if entry.key not in slow]

    def _take(self, nbytes: int) -> Any:
        self._memory.append(self._communicator.empty(nbytes, np.uint8))
        return self._memory[-1]

    def measure(self, turns: int, drop: float | None, *, check: bool) -> list[Entry]:
        """Return what was seen of everyone who is not left out."""
        self.buffers.prepare(self._given)
        with ExitStack() as plans:
            for entry in self.entries:
                self._prepare(entry, plans, check=check)
            left = [entry for entry in self.entries if not entry.missing]
            for turn in range(turns):
                for entry in left if turn % 2 == 0 else reversed(left):
                    self._take_turn(entry, check=check and turn == turns - 1)
                left = kept(left, drop, self._slow, carried=self.nbytes >= LARGE)
        for memory in self._memory:
            self._communicator.release(memory)
        return self.entries

    def _prepare(self, entry: Entry, plans: ExitStack, *, check: bool) -> None:
        """Make what runs, and run it once, to make connections; for a large vector that is only done to check it."""
        try:
            entry.runner = self._vendor(entry) if entry.vendor else self._plan(entry, plans)
        except UnsupportedError as error:
            entry.missing = str(error)
            return
        if check:
            self.buffers.prepare(self._given)
        if check or self.nbytes < LARGE:
            with self._in_force(entry):
                entry.runner.execute()
        if check:
            self._check(entry)
        if self._samples > 1:
            entry.at_once = fitting(int(np.median(self._timed(entry, LOOK))), self._samples)

    def _vendor(self, entry: Entry) -> Any:
        entry.title = f"mpi {entry.name}"
        comm, flat = self._vendors.comm(entry.name).py2f(), (self.buffers.send, self.buffers.receive)
        return _engine.Vendor(comm, *flat, FLOAT.code, op_code(SUM), self._communicator.yielding)

    def _plan(self, entry: Entry, plans: ExitStack) -> Any:
        plan = self._communicator.plan(self.buffers.send, self.buffers.receive, op=SUM, algorithm=entry.name)
        entry.title, entry.transport = plan.algorithm, plan.transport
        return plans.enter_context(plan)

    def _in_force(self, entry: Entry) -> Any:
        return self._vendors.set(entry.name) if entry.vendor else nullcontext()

    def _timed(self, entry: Entry, samples: int) -> npt.NDArray[np.int64]:
        """Return the nanoseconds of the slowest rank."""
        from mpi4py import MPI

        with self._in_force(entry):
            taken: npt.NDArray[np.int64] = entry.runner.time_samples(samples)
        self._comm.Allreduce(MPI.IN_PLACE, taken, MPI.MAX)
        return taken

    def _take_turn(self, entry: Entry, *, check: bool) -> None:
        if check:
            self.buffers.prepare(self._given)
        entry.samples += map(int, self._timed(entry, entry.at_once))
        if check:
            self._check(entry)

    def _check(self, entry: Entry) -> None:
        found = self.buffers.check(self._given)
        first = "" if found.first is None else found.first.told(FLOAT)
        told = self._comm.allgather((found.wrong + found.changed + found.damaged, first))
        entry.wrong = (entry.wrong or 0) + sum(wrong for wrong, _ in told)
        entry.told = entry.told or next((f"rank {rank}, {first}" for rank, (_, first) in enumerate(told) if first), "")


def fitting(each_ns: int, most: int) -> int:
    """Return how many samples of `each_ns` nanoseconds fit into a turn, 2 to `most`."""
    return max(2, min(most, TURN_NS // max(1, each_ns)))


def kept(entries: Sequence[Entry], drop: float | None, slow: Slow, *, carried: bool) -> list[Entry]:
    """Return those of `entries` who go on; where it is `carried` over, the others are added to `slow`.

    All ranks have the same samples, so they agree.
    """
    if drop is None:
        return [*entries]
    most = drop * min((entry.median for entry in entries), default=0.0)
    if carried:
        slow.update(entry.key for entry in entries if entry.median > most)
    return [entry for entry in entries if entry.median <= most]


class Measurement:
    """All rows of a task."""

    def __init__(self, communicator: Communicator, task: Mapping[str, Any], library: str) -> None:
        self._communicator, self._task, self._library = communicator, task, library
        self._slow: Slow = set()

    def points(self) -> Iterator[Point]:
        """Yield the points, on all ranks alike (collective)."""
        vendors = Vendors(self._communicator.comm)
        for each in self._task["rows"]:
            row = Row(self._communicator, vendors, each, self._slow)
            for entry in row.measure(self._task["turns"], self._task["drop"], check=self._task["check"]):
                yield self._point(entry, row.buffers.send)
        vendors.close()

    def _point(self, entry: Entry, send: npt.NDArray[Any]) -> Point:
        topology, where = self._communicator.topology, self._task["label"]
        beside = f"{self._library}, {where}" if entry.vendor else where
        status, reason = _status(entry)
        return Point(
            algorithm=f"{entry.title or entry.name} ({beside})",
            nbytes=send.nbytes,
            count=send.size,
            dtype=FLOAT.name,
            op=SUM,
            in_place=False,
            nodes=topology.nodes,
            ranks_per_node=str(topology.ranks_per_node[0]) if topology.even else "",
            ranks=topology.ranks,
            device="cpu",
            transport=entry.transport,
            sync="barrier",
            samples_ns=tuple(entry.samples),
            status=status,
            reason=reason,
            wrong=entry.wrong,
            passes=(len(entry.samples),),
            stopped="samples" if entry.samples else "",
        )


def _status(entry: Entry) -> tuple[Any, str]:
    """Return the status of an entry's point, and why it is not ok."""
    if entry.missing:
        return "skipped", entry.missing
    if not entry.wrong:
        return "ok", ""
    first = f": {entry.told}" if entry.told else ""
    return "wrong", f"{entry.wrong} wrong elements or changed bytes{first}"


def main(arguments: Sequence[str]) -> int:
    """Measure the task in the file `arguments[0]`; rank 0 stores the run in the folder `arguments[1]`."""
    from mpi4py import MPI

    task = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    vendor, version = MPI.get_vendor()
    with Communicator() as communicator:
        measurement = Measurement(communicator, task, f"{vendor} {'.'.join(map(str, version))}")
        loads = communicator.comm.allgather(load_average())
        if communicator.rank:
            for _ in measurement.points():
                pass
            return 0
        record = Run(
            ddlbench=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=("python", "-m", "ddlbench.peers.lab_rank", *arguments),
            config=task,
            environment=environment(),
            mpi={"library": vendor, "version": ".".join(map(str, version))},
            topology=communicator.topology.to_json(),
            trust=trust(communicator.topology, loads),
        )
        with Store.create(arguments[1], record, overwrite=True) as store:
            for point in measurement.points():
                store.append(point)
            store.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
