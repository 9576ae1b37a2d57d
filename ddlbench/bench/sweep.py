"""The loop of a sweep: every vector, every algorithm, checked before and after it is timed.

The whole sweep is gone through in passes, each in another order, so that a slow minute of the machine falls on no one
point; the last pass goes in the order in which the results are shown. The algorithms of one size share its buffers and
take turns, a batch of samples each, so that a machine that drifts does not favour one. What ranks must know in common,
rank 0 decides.
"""

import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ddlbench.bench.agreement import AgreedError, agreed, describe, from_root
from ddlbench.bench.axes import Cell, format_size
from ddlbench.bench.cold import ColdPlan, copies_needed
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.environment import available_nbytes
from ddlbench.bench.inputs import Buffers, Findings, pattern
from ddlbench.bench.pace import LEAST_SAMPLES, Pace, Progress
from ddlbench.bench.timer import Timer, window_ns
from ddlbench.dtypes import DType
from ddlbench.errors import UnsupportedError
from ddlbench.records import Point
from ddlbench.records.point import Status, Stop
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.statistics import summarise

if TYPE_CHECKING:
    from ddlbench.comm import Communicator, Plan

GIB = 1 << 30
LATE_SHARE, MOST_STRETCH, MOST_PATIENCE = 0.3, 4.0, 64.0
"""Windows are stretched while more than this share of a batch comes late, up to so many times; and the time until the
first of a batch, while all of a batch is late."""
MANY_LATE = 100
"""So many late samples and hardly any other: the ranks of this machine cannot start together now."""
BLOCK_SECONDS = 120.0
"""Points that may take so long together go through all passes before the next ones begin."""
TAKE_TURNS_NBYTES = GIB
"""Algorithms take turns while their vectors together stay below this; each plan may hold memory of a vector's size."""


@dataclass(frozen=True)
class Layout:
    """The ranks on their nodes: `ranks_per_node` is "" where nodes differ, `neighbours` the ranks on this one's."""

    ranks: int
    nodes: int
    ranks_per_node: str
    neighbours: int


Key = tuple[str, int, str, str, bool]
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

    def begin(self, group: Group, pass_: int) -> None:
        """Take note of what is measured now, in which pass."""

    def point(self, point: Point) -> None:
        """Take a finished point."""


@dataclass
class Trial:
    """One algorithm on one vector: what the checks said, and its samples, each that of the slowest rank."""

    algorithm: BoundAlgorithm
    timer: Timer
    status: Status = "ok"
    reason: str = ""
    transport: str = ""
    wrong: int | None = None
    stopped: Stop = ""
    samples: list[npt.NDArray[np.int64]] = field(default_factory=list)
    mine: list[npt.NDArray[np.int64]] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    late: int = 0
    missed: int = 0
    seconds: float = 0.0
    per_sample: float | None = None
    expected_s: float = 0.0
    stretch: float = 1.0
    patience: float = 1.0

    @property
    def finished(self) -> bool:
        """Whether the point is to be stored: it was stopped, or there is nothing to time."""
        return bool(self.stopped) or self.status in ("skipped", "failed")

    @property
    def done(self) -> int:
        """Samples that count."""
        return sum(map(len, self.samples))

    def progress(self) -> Progress:
        """Return what the pace is decided by."""
        width = None
        if self.done >= LEAST_SAMPLES:
            seen = summarise(np.concatenate(self.samples), self.passes)
            width = (seen.ci_high_us - seen.ci_low_us) / max(seen.median_us, 1e-3)
        in_pass = self.passes[-1] if self.passes else 0
        return Progress(self.done, in_pass, self.done + self.late, self.seconds, self.per_sample, width)

    def take(self, slowest: npt.NDArray[np.int64], late: npt.NDArray[np.bool_], mine: npt.NDArray[np.int64]) -> None:
        """Take in a batch: samples that some rank came late for do not count."""
        if late.mean() > LATE_SHARE:
            self.stretch = min(self.stretch * 1.5, MOST_STRETCH)
        self.patience = min(self.patience * 2, MOST_PATIENCE) if late.all() else max(self.patience / 2, 1.0)
        self.late += int(late.sum())
        self.samples.append(slowest[~late])
        self.mine.append(mine[~late])
        self.passes[-1] += int((~late).sum())
        recent = np.concatenate(self.samples[-3:])
        if len(recent):
            self.expected_s = float(np.median(recent)) * 1e-9

    def start_anew(self, timer: Timer) -> None:
        """Leave out all samples so far and go on with another `timer`: nearly all of them were late."""
        self.reason = f"timed after barriers: {self.late} of {self.late + self.done} aligned starts were late"
        self.missed, self.late, self.seconds, self.timer = self.missed + self.late, 0, 0.0, timer
        self.samples, self.mine, self.passes = [], [], [0] * len(self.passes)

    def found(self, total: Findings, text: str) -> None:
        """Take in what a check found on all ranks together, and the text that says so."""
        wrong = total.wrong + total.changed + total.damaged
        self.wrong = max(self.wrong or 0, wrong)
        if wrong and self.status == "ok":
            self.status, self.reason = "wrong", text


def _share(start: float, times: int) -> float:
    return max((time.perf_counter() - start) / times, 1e-9)


Visit = tuple[Group, list[Trial]]


class Sweep:
    """A sweep over the ranks of `communicator`; `listener` is told of it on rank 0 and is not used elsewhere.

    `timer` times the samples; points whose samples are nearly all late by it are timed by its fallback, where it has
    one, and say so. `done` are points, as `key_of` names them, that an earlier part of the run has
    measured already.
    """

    def __init__(
        self,
        communicator: "Communicator",
        config: SweepConfig,
        algorithms: Sequence[BoundAlgorithm],
        *,
        layout: Layout,
        price: Price,
        listener: Listener,
        timer: Timer,
        done: Collection[Key] = (),
    ) -> None:
        self._communicator = communicator
        self._comm = communicator.comm
        self._config = config
        self._layout = layout
        self._price = price
        self._listener = listener
        self._pace = Pace(config.iterations, config.ci, config.max_seconds, config.passes)
        self._trials = [
            (group, [Trial(a, timer) for a in group.algorithms if key_of(group, a) not in done])
            for group in groups(config, tuple(algorithms))
        ]

    def run(self) -> Counter[str]:
        """Measure every point (collective) and return how many there are of each status, on every rank.

        Raises `AgreedError` on all ranks when an algorithm cannot be planned for a reason other than that the
        combination does not exist or that memory is short, or when the listener fails.
        """
        tally: Counter[str] = Counter()
        for block in self._blocks():
            for pass_ in range(self._config.passes):
                for group, trials in self._order(block, pass_):
                    from_root(self._comm, partial(self._listener.begin, group, pass_))
                    self._measure(group, trials, pass_)
                    points = [self._point(group, trial) for trial in trials if trial.finished]
                    from_root(self._comm, partial(self._tell, points))
                    tally.update(point.status for point in points)
        return tally

    def _blocks(self) -> Iterator[list[Visit]]:
        """Yield the groups in blocks that go through all passes, so that points reach the disk after minutes."""
        block: list[Visit] = []
        for group, trials in self._trials:
            block.append((group, trials))
            if sum(len(known) for _, known in block) * self._config.max_seconds >= BLOCK_SECONDS:
                yield block
                block = []
        yield block

    def _order(self, block: list[Visit], pass_: int) -> Iterator[Visit]:
        """Yield the groups of a pass with the trials that go on, shuffled alike on all ranks; the last in order."""
        shuffled = random.Random(f"{self._config.seed} {pass_}")
        order = list(block)
        if pass_ + 1 < self._config.passes:
            shuffled.shuffle(order)
        for group, trials in order:
            going_on = [trial for trial in trials if not trial.finished]
            shuffled.shuffle(going_on)
            if going_on:
                yield group, going_on

    def _tell(self, points: Iterable[Point]) -> None:
        for point in points:
            self._listener.point(point)

    def _measure(self, group: Group, trials: list[Trial], pass_: int) -> None:
        """Visit the trials of a group once."""
        try:
            buffers = agreed(self._comm, lambda: self._allocate(group))
        except AgreedError as failure:
            for trial in trials:
                trial.status, trial.reason = "failed", str(failure)
            return
        buffers.prepare(pattern(group.dtype, group.op, self._comm.rank, self._comm.size))
        opened = [(trial, self._open(group, trial, buffers)) for trial in trials]
        live = [(trial, plan) for trial, plan in opened if plan is not None]
        for trial, plan in live:
            self._begin(group, trial, plan, buffers, pass_)
        self._sample(live, pass_)
        for trial, plan in live:
            if pass_ + 1 == self._config.passes:
                self._end(group, trial, plan, buffers)
            plan.close()

    def _end(self, group: Group, trial: Trial, plan: "Plan | ColdPlan", buffers: Buffers) -> None:
        """Say what ended the point, and check its result once more."""
        if not trial.done:
            trial.status = "failed"
            trial.reason = f"all {trial.late} samples were late: the ranks never began together; try --sync barrier"
            return
        trial.stopped = self._comm.bcast(self._pace.stopped(trial.progress()))
        self._check(group, trial, plan, buffers, " after the timed samples")

    def _begin(self, group: Group, trial: Trial, plan: "Plan | ColdPlan", buffers: Buffers, pass_: int) -> None:
        """Check the result when it is the first visit, and warm up: caches, connections, an idea of the speed."""
        trial.passes.append(0)
        if pass_ == 0:
            self._check(group, trial, plan, buffers, "")
        if self._config.warmup:
            start = time.perf_counter()
            taken = plan.time_samples(self._config.warmup)
            trial.per_sample = _share(start, self._config.warmup)
            slowest = self._comm.allreduce(float(np.median(taken)) * 1e-9, op=_max())
            trial.expected_s = trial.expected_s or slowest

    def _allocate(self, group: Group) -> Buffers:
        """Return the group's buffers; raises `MemoryError` where the host has no room for them."""
        need = group.cell.nbytes * (1 if group.in_place else 2) * self._layout.neighbours
        room = available_nbytes()
        if room is not None and need > room:
            raise MemoryError(
                f"this host's ranks need {need / GIB:.2f} GiB for their buffers, {room / GIB:.2f} are free"
            )
        return Buffers(group.cell.count, group.dtype, in_place=group.in_place)

    def _open(self, group: Group, trial: Trial, buffers: Buffers) -> "Plan | ColdPlan | None":
        """Return the trial's plan, or None with the reason in the trial."""
        algorithm = trial.algorithm
        try:
            made = agreed(self._comm, partial(self._planned, group, algorithm, buffers))
        except AgreedError as failure:
            if isinstance(failure.error, UnsupportedError):
                trial.status, trial.reason = "skipped", describe(failure.error)
            elif isinstance(failure.error, MemoryError):
                trial.status, trial.reason = "failed", str(failure)
            else:
                raise
            return None
        trial.transport = made.transport
        if algorithm.explore and not trial.reason:
            trial.reason = f"chose {made.algorithm}"
        return made

    def _planned(self, group: Group, algorithm: BoundAlgorithm, buffers: Buffers) -> "Plan | ColdPlan":
        first = self._plan(group, algorithm, buffers)
        if self._config.cache == "warm":
            return first
        more = copies_needed(group.cell.nbytes * (1 if group.in_place else 2)) - 1
        others = [self._allocate(group) for _ in range(more)]
        given = pattern(group.dtype, group.op, self._comm.rank, self._comm.size)
        for other in others:
            other.prepare(given)
        return ColdPlan([first, *(self._plan(group, algorithm, other) for other in others)], buffers.nbytes)

    def _plan(self, group: Group, algorithm: BoundAlgorithm, buffers: Buffers) -> "Plan":
        receive = None if group.in_place else buffers.receive
        return self._communicator.plan(buffers.send, receive, op=group.op, algorithm=algorithm, dtype=group.dtype.name)

    def _check(self, group: Group, trial: Trial, plan: "Plan | ColdPlan", buffers: Buffers, when: str) -> None:
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

    def _sample(self, live: Sequence[tuple[Trial, "Plan | ColdPlan"]], pass_: int) -> None:
        """Take turns at samples until rank 0 has enough of each for this pass."""
        while any(batches := self._batches(live, pass_)):
            for (trial, plan), batch in zip(live, batches, strict=True):
                if batch:
                    self._take(trial, plan, batch)

    def _batches(self, live: Sequence[tuple[Trial, "Plan | ColdPlan"]], pass_: int) -> list[int]:
        """Return the size of each algorithm's next batch, as rank 0 sees it."""
        mine = [self._pace.batch(trial.progress(), pass_) for trial, _ in live]
        batches: list[int] = self._comm.bcast(mine)
        return batches

    def _take(self, trial: Trial, plan: "Plan | ColdPlan", batch: int) -> None:
        """Take `batch` samples; each is the time of the slowest rank, and does not count when any was late."""
        start = time.perf_counter()
        taken = trial.timer.batch(plan, batch, window_ns(trial.expected_s, trial.stretch), trial.patience)
        both = np.array([taken.durations, taken.late])
        self._comm.Allreduce(_in_place(), both, _max())
        trial.take(both[0], both[1] > 0, taken.durations)
        trial.seconds += time.perf_counter() - start
        if trial.timer.fallback is not None and trial.late >= MANY_LATE and trial.late > 10 * trial.done:
            trial.start_anew(trial.timer.fallback)
        trial.per_sample = max(trial.seconds / max(trial.done + trial.late, 1), 1e-9)

    def _point(self, group: Group, trial: Trial) -> Point:
        """Return the trial as a record, complete on rank 0 (collective)."""
        slowest = np.concatenate([np.empty(0, np.int64), *trial.samples])
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
            transport=trial.transport,
            sync=trial.timer.sync,
            samples_ns=tuple(map(int, slowest)),
            passes=tuple(trial.passes),
            late=trial.late + trial.missed,
            stopped=trial.stopped,
            cache=self._config.cache,
            per_rank_ns=self._per_rank(trial),
            status=trial.status,
            reason=trial.reason,
            wrong=trial.wrong,
            bound_us=bound_us,
            model_us=model_us,
            multiplicity=group.cell.multiplicity,
        )

    def _per_rank(self, trial: Trial) -> tuple[tuple[int, ...], ...] | None:
        """Return each rank's own times, on rank 0 where they were asked for (collective)."""
        if not self._config.per_rank:
            return None
        gathered = self._comm.gather(np.concatenate([np.empty(0, np.int64), *trial.mine]))
        return None if gathered is None else tuple(tuple(map(int, samples)) for samples in gathered)


def key_of(group: Group, algorithm: BoundAlgorithm) -> Key:
    """Return what tells a point of a run from all others of it."""
    return (algorithm.name, group.cell.count, group.dtype.name, group.op, group.in_place)


def key_of_point(point: Point) -> Key:
    """Return the same for a stored point."""
    return (point.algorithm, point.count, point.dtype, point.op, point.in_place)


def _max() -> Any:
    from mpi4py import MPI

    return MPI.MAX


def _in_place() -> Any:
    from mpi4py import MPI

    return MPI.IN_PLACE


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
