"""The loop of a sweep: every vector, every algorithm, checked before and after it is timed.

The algorithms of one size share its buffers and take turns, a batch of samples each, so that a machine that drifts
does not favour one. What ranks must know in common, rank 0 decides.
"""

import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ddlbench.bench.agreement import AgreedError, agreed, describe, from_root
from ddlbench.bench.axes import Cell, format_size
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.environment import available_nbytes
from ddlbench.bench.inputs import Buffers, Findings, pattern
from ddlbench.bench.pace import Pace
from ddlbench.dtypes import DType
from ddlbench.errors import UnsupportedError
from ddlbench.records import Point
from ddlbench.records.point import Status
from ddlbench.schedule.algorithm import BoundAlgorithm

if TYPE_CHECKING:
    from ddlbench.comm import Communicator, Plan

GIB = 1 << 30
TAKE_TURNS_NBYTES = GIB
"""Algorithms take turns while their vectors together stay below this; each plan may hold memory of a vector's size."""


@dataclass(frozen=True)
class Layout:
    """The ranks on their nodes: `ranks_per_node` is "" where nodes differ, `neighbours` the ranks on this one's."""

    ranks: int
    nodes: int
    ranks_per_node: str
    neighbours: int


Price = Callable[[BoundAlgorithm, int], tuple[float | None, float | None]]
"""From an algorithm and a vector's bytes to the lower bound and the predicted time, in microseconds."""


@dataclass(frozen=True)
class Group:
    """The points that are measured together: one vector, and the algorithms that take turns on it."""

    dtype: DType
    op: str
    cell: Cell
    in_place: bool
    algorithms: tuple[BoundAlgorithm, ...]

    def __str__(self) -> str:
        return f"{format_size(self.cell.nbytes)} {self.dtype.name} {self.op}{' in place' if self.in_place else ''}"


class Listener(Protocol):
    """What rank 0 is told while a sweep runs; a `DdlbenchError` or `OSError` it raises ends the sweep on all ranks."""

    def begin(self, group: Group) -> None:
        """Take note of what is measured now."""

    def point(self, point: Point) -> None:
        """Take a finished point."""


@dataclass
class Trial:
    """One algorithm in its group: its plan, its samples so far, and what the checks said."""

    algorithm: BoundAlgorithm
    plan: "Plan | None" = None
    status: Status = "ok"
    reason: str = ""
    wrong: int | None = None
    samples: list[npt.NDArray[np.int64]] = field(default_factory=list)
    seconds: float = 0.0
    per_sample: float | None = None

    @property
    def done(self) -> int:
        """Samples taken."""
        return sum(map(len, self.samples))

    def warm_up(self, plan: "Plan", times: int) -> None:
        """Run the plan `times` times as it will be timed, for caches, connections and a first idea of its speed."""
        if times:
            start = time.perf_counter()
            plan.time_samples(times)
            self.per_sample = _share(start, times)

    def sample(self, plan: "Plan", batch: int) -> None:
        """Take `batch` samples more."""
        start = time.perf_counter()
        self.samples.append(plan.time_samples(batch))
        self.seconds += time.perf_counter() - start
        self.per_sample = max(self.seconds / self.done, 1e-9)

    def found(self, total: Findings, text: str) -> None:
        """Take in what a check found on all ranks together, and the text that says so."""
        wrong = total.wrong + total.changed + total.damaged
        self.wrong = max(self.wrong or 0, wrong)
        if wrong and self.status == "ok":
            self.status, self.reason = "wrong", text


def _share(start: float, times: int) -> float:
    return max((time.perf_counter() - start) / times, 1e-9)


class Sweep:
    """A sweep over the ranks of `communicator`; `listener` is told of it on rank 0 and is not used elsewhere."""

    def __init__(
        self,
        communicator: "Communicator",
        config: SweepConfig,
        algorithms: Sequence[BoundAlgorithm],
        *,
        layout: Layout,
        price: Price,
        listener: Listener,
    ) -> None:
        self._communicator = communicator
        self._comm = communicator.comm
        self._config = config
        self._algorithms = tuple(algorithms)
        self._layout = layout
        self._price = price
        self._listener = listener
        self._pace = Pace(config.iterations, config.seconds_per_point)

    def run(self) -> Counter[str]:
        """Measure every point (collective) and return how many there are of each status, on every rank.

        Raises `AgreedError` on all ranks when an algorithm cannot be planned for a reason other than that the
        combination does not exist or that memory is short, or when the listener fails.
        """
        tally: Counter[str] = Counter()
        for group in groups(self._config, self._algorithms):
            from_root(self._comm, partial(self._listener.begin, group))
            points = [self._point(group, trial) for trial in self._measure(group)]
            from_root(self._comm, partial(self._tell, points))
            tally.update(point.status for point in points)
        return tally

    def _tell(self, points: Iterable[Point]) -> None:
        for point in points:
            self._listener.point(point)

    def _measure(self, group: Group) -> list[Trial]:
        """Return the finished trials of the group's algorithms."""
        try:
            buffers = agreed(self._comm, lambda: self._allocate(group))
        except AgreedError as failure:
            return [Trial(algorithm, status="failed", reason=str(failure)) for algorithm in group.algorithms]
        trials = [self._open(group, algorithm, buffers) for algorithm in group.algorithms]
        live = [(trial, trial.plan) for trial in trials if trial.plan is not None]
        for trial, plan in live:
            self._check(group, trial, plan, buffers, "")
            trial.warm_up(plan, self._config.warmup)
        self._sample(live)
        for trial, plan in live:
            self._check(group, trial, plan, buffers, " after the timed samples")
            plan.close()
        return trials

    def _allocate(self, group: Group) -> Buffers:
        """Return the group's buffers; raises `MemoryError` where the host has no room for them."""
        need = group.cell.nbytes * (1 if group.in_place else 2) * self._layout.neighbours
        room = available_nbytes()
        if room is not None and need > room:
            raise MemoryError(
                f"this host's ranks need {need / GIB:.2f} GiB for their buffers, {room / GIB:.2f} are free"
            )
        return Buffers(group.cell.count, group.dtype, in_place=group.in_place)

    def _open(self, group: Group, algorithm: BoundAlgorithm, buffers: Buffers) -> Trial:
        """Return the trial with its plan, or with the reason why there is none."""

        def plan() -> "Plan":
            receive = None if group.in_place else buffers.receive
            return self._communicator.plan(
                buffers.send, receive, op=group.op, algorithm=algorithm, dtype=group.dtype.name
            )

        try:
            made = agreed(self._comm, plan)
            return Trial(algorithm, made, reason=f"chose {made.algorithm}" if algorithm.explore else "")
        except AgreedError as failure:
            if isinstance(failure.error, UnsupportedError):
                return Trial(algorithm, status="skipped", reason=describe(failure.error))
            if isinstance(failure.error, MemoryError):
                return Trial(algorithm, status="failed", reason=str(failure))
            raise

    def _check(self, group: Group, trial: Trial, plan: "Plan", buffers: Buffers, when: str) -> None:
        """Run the plan once on fresh input and compare every element on every rank with what it must be."""
        given = pattern(group.dtype, group.op, self._comm.rank, self._comm.size)
        buffers.prepare(given)
        start = time.perf_counter()
        plan.execute()
        trial.per_sample = trial.per_sample or _share(start, 1)
        if self._config.check:
            mine = buffers.check(given)
            total = Findings(*map(int, self._comm.allreduce(np.array([mine.wrong, mine.changed, mine.damaged]))))
            trial.found(total, self._told(total, buffers) + when if any(vars(total).values()) else "")

    def _told(self, total: Findings, buffers: Buffers) -> str:
        """Return what a failed check found, in words (collective)."""
        digests = set(self._comm.allgather(zlib.crc32(buffers.receive.data)))
        alike = "the ranks' results differ" if len(digests) > 1 else "all ranks have the same result"
        amount = self._layout.ranks * buffers.receive.size
        parts = (
            (total.wrong, f"{total.wrong} of {amount} elements are wrong, {alike}"),
            (total.changed, f"{total.changed} elements of the input were changed"),
            (total.damaged, f"{total.damaged} bytes beyond the buffers were overwritten"),
        )
        return "; ".join(text for number, text in parts if number)

    def _sample(self, live: Sequence[tuple[Trial, "Plan"]]) -> None:
        """Take turns at samples until rank 0 has enough of each."""
        while any(batches := self._batches(live)):
            for (trial, plan), batch in zip(live, batches, strict=True):
                if batch:
                    trial.sample(plan, batch)

    def _batches(self, live: Sequence[tuple[Trial, "Plan"]]) -> list[int]:
        """Return the size of each algorithm's next batch, as rank 0 sees it."""
        mine = [self._pace.batch(trial.done, trial.per_sample) for trial, _ in live]
        batches: list[int] = self._comm.bcast(mine)
        return batches

    def _point(self, group: Group, trial: Trial) -> Point:
        """Return the trial as a record; its samples are each that of the slowest rank, on rank 0 (collective)."""
        mine = np.concatenate([np.empty(0, np.int64), *trial.samples])
        slowest = self._comm.reduce(mine, np.maximum, 0)
        bound_us, model_us = self._price(trial.algorithm, group.cell.nbytes)
        return Point(
            algorithm=trial.algorithm.name,
            nbytes=group.cell.nbytes,
            count=group.cell.count,
            dtype=group.dtype.name,
            op=group.op,
            in_place=group.in_place,
            nodes=self._layout.nodes,
            ranks_per_node=self._layout.ranks_per_node,
            ranks=self._layout.ranks,
            device="cpu",
            transport="" if trial.plan is None else trial.plan.transport,
            sync="barrier",
            samples_ns=() if slowest is None else tuple(map(int, slowest)),
            status=trial.status,
            reason=trial.reason,
            wrong=trial.wrong,
            bound_us=bound_us,
            model_us=model_us,
            multiplicity=group.cell.multiplicity,
        )


def groups(config: SweepConfig, algorithms: tuple[BoundAlgorithm, ...]) -> Iterator[Group]:
    """Yield the groups of a sweep in their order: by dtype, op and size, in and out of place side by side."""
    for dtype in config.dtypes:
        for op in config.ops:
            for cell in config.cells(dtype):
                for in_place in config.in_place:
                    for together in _together(cell, algorithms):
                        yield Group(dtype, op, cell, in_place, together)


def _together(cell: Cell, algorithms: tuple[BoundAlgorithm, ...]) -> Iterable[tuple[BoundAlgorithm, ...]]:
    """Return which algorithms take turns on a vector: all of them, or each alone where memory might not hold all."""
    small = cell.nbytes * len(algorithms) <= TAKE_TURNS_NBYTES
    return [algorithms] if small else [(algorithm,) for algorithm in algorithms]
