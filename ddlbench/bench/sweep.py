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
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ddlbench.bench.agreement import AgreedError, agreed, describe, from_root
from ddlbench.bench.axes import Cell, format_size
from ddlbench.bench.cold import ColdPlan, copies_needed
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.device_buffers import DeviceBuffers
from ddlbench.bench.environment import available_nbytes
from ddlbench.bench.inputs import Buffers, Findings, pattern
from ddlbench.bench.pace import LEAST_SAMPLES, Pace, Progress
from ddlbench.bench.shapes import shape_text
from ddlbench.bench.timer import Timer, window_ns
from ddlbench.dtypes import DType
from ddlbench.errors import UnsupportedError
from ddlbench.records import Point
from ddlbench.records.point import Status, Stop
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.statistics import summarise
from ddlbench.watch.board import LEAST_SECONDS, Board, Step

if TYPE_CHECKING:
    from ddlbench.comm import Communicator, Plan

AnyBuffers = Buffers | DeviceBuffers
GIB = 1 << 30
LATE_SHARE, MOST_STRETCH, MOST_PATIENCE = 0.3, 4.0, 64.0
"""Windows are stretched while more than this share of a batch comes late, up to so many times; and the time until the
first of a batch, while all of a batch is late."""
MANY_LATE = 3 * LEAST_SAMPLES
"""So many late samples and hardly any other: the ranks of this machine cannot start together now. `Pace` gives no point
up before that."""
BLOCK_SECONDS = 120.0
"""Points that may take so long together go through all passes before the next ones begin."""
PATIENCE = 20.0
"""So many times the predicted time of a run may pass before it is taken for stuck."""
TAKE_TURNS_NBYTES = GIB
"""Algorithms take turns while their vectors together stay below this; each plan may hold memory of a vector's size."""


@dataclass(frozen=True)
class Layout:
    """The ranks on their nodes: `ranks_per_node` is "" where nodes differ, `neighbours` the ranks on this one's."""

    ranks: int
    nodes: int
    ranks_per_node: str
    neighbours: int

    def __str__(self) -> str:
        return shape_text(self.nodes, self.ranks_per_node, self.ranks)


Key = tuple[str, int, str, str, bool, int, str, int]


class Priced(NamedTuple):
    """The lower bound and the predicted time in microseconds, None where there is none; and which limit binds."""

    bound_us: float | None = None
    model_us: float | None = None
    limit: str = ""


Price = Callable[[BoundAlgorithm, int, str], Priced]
"""From an algorithm, a vector's bytes and a transport to what it is priced at."""


@dataclass(frozen=True)
class Group:
    """The points that are measured together: one vector, the algorithms that take turns on it, and on which ranks."""

    dtype: DType
    op: str
    cell: Cell
    in_place: bool
    algorithms: tuple[BoundAlgorithm, ...]
    layout: Layout

    @property
    def in_bytes(self) -> str:
        """The group in words, its size in bytes."""
        place = " in place" if self.in_place else ""
        return f"{self.cell.nbytes} bytes {self.dtype.name} {self.op}{place} on {self.layout}"

    def to_json(self) -> dict[str, Any]:
        """Return the group under the names that the fields of a point have."""
        where = {"nodes": self.layout.nodes, "ranks_per_node": self.layout.ranks_per_node, "ranks": self.layout.ranks}
        what = {"dtype": self.dtype.name, "op": self.op, "in_place": self.in_place}
        return {"nbytes": self.cell.nbytes, "count": self.cell.count, **what, **where}

    def __str__(self) -> str:
        what = f"{format_size(self.cell.nbytes)} {self.dtype.name} {self.op}{' in place' if self.in_place else ''}"
        return f"{what} on {self.layout}"


class Listener(Protocol):
    """What rank 0 is told while a sweep runs; a `DdlbenchError` or `OSError` it raises ends the sweep on all ranks."""

    def begin(self, group: Group, pass_: int) -> None:
        """Take note of what is measured now, in which pass."""

    def point(self, point: Point) -> None:
        """Take a finished point."""


@dataclass
class Trial:
    """One algorithm on one vector: what the checks said, and its samples, each that of the slowest rank.

    `chosen` is what an algorithm that explores chose in the first pass; the others go on with it.
    """

    algorithm: BoundAlgorithm
    timer: Timer
    chosen: BoundAlgorithm | None = None
    status: Status = "ok"
    reason: str = ""
    transport: str = ""
    wrong: int | None = None
    stopped: Stop = ""
    samples: list[npt.NDArray[np.int64]] = field(default_factory=list)
    mine: list[npt.NDArray[np.int64]] = field(default_factory=list)
    on_device: list[npt.NDArray[np.int64]] = field(default_factory=list)
    first_s: float = 0.0
    passes: list[int] = field(default_factory=list)
    late: int = 0
    missed: int = 0
    seconds: float = 0.0
    per_sample: float | None = None
    expected_s: float = 0.0
    stretch: float = 1.0
    patience: float = 1.0
    step: Step | None = None

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

    def take_device(self, slowest: npt.NDArray[np.int64], late: npt.NDArray[np.bool_]) -> None:
        """Take in what events on the devices say of a batch."""
        self.on_device.append(slowest[~late])

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
        why = f"timed after barriers: {self.late} of {self.late + self.done} aligned starts were late"
        self.reason = f"{self.reason}; {why}" if self.reason else why
        self.missed, self.late, self.seconds, self.timer = self.missed + self.late, 0, 0.0, timer
        self.samples, self.mine, self.passes = [], [], [0] * len(self.passes)
        self.on_device = []

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
    measured already. The attribute `board` is told what goes on; put another in its place to have the sweep
    watched.
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
        self.board = Board()
        self._communicator = communicator
        self._comm = communicator.comm
        self._config = config
        self._layout = layout
        self._price = price
        self._listener = listener
        self._held: tuple[Any, ...] = ()
        self._pace = Pace(config.iterations, config.ci, config.max_seconds, config.passes)
        self._trials = [
            (group, [Trial(a, timer) for a in group.algorithms if key_of(group, a) not in done])
            for group in groups(config, tuple(algorithms), layout)
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
        self.board.begin(f"{group}, pass {pass_ + 1}: buffers and plans")
        try:
            buffers = self._allocate(group)
        except AgreedError as failure:
            for trial in trials:
                trial.status, trial.reason = "failed", str(failure)
            return
        buffers.prepare(pattern(group.dtype, group.op, self._comm.rank, self._comm.size))
        opened = [(trial, self._open(group, trial, buffers)) for trial in trials]
        live = [(trial, plan) for trial, plan in opened if plan is not None]
        for trial, plan in live:
            self.board.begin(self._step(group, trial, plan, pass_))
            self._begin(group, trial, plan, buffers, pass_)
        self._sample(live, pass_)
        for trial, plan in live:
            if pass_ + 1 == self._config.passes:
                self.board.begin(self._step(group, trial, plan, pass_))
                self._end(group, trial, plan, buffers)
            plan.close()
            trial.step = None
        self._release()
        self.board.begin(f"{group}, pass {pass_ + 1}: the points that are finished")

    def _step(self, group: Group, trial: Trial, plan: "Plan | ColdPlan", pass_: int) -> Step:
        """Return what the watchdog is told of a visit to a trial; the trial keeps it while its plan is there."""
        point = {**group.to_json(), "algorithm": trial.algorithm.name, "pass": pass_ + 1}
        what = f"{trial.algorithm.name}, {group.in_bytes}, pass {pass_ + 1}"
        limit = self._config.timeout or self._patience_s(trial.algorithm, group.cell.nbytes)
        trial.step = Step(what, plan, limit, point)
        return trial.step

    def _patience_s(self, algorithm: BoundAlgorithm, nbytes: int) -> float:
        """Return for how long nothing may move in a run: many times what it should take, and a minute at least."""
        priced = self._price(algorithm, nbytes, "")
        return max(LEAST_SECONDS, PATIENCE * max(priced.bound_us or 0.0, priced.model_us or 0.0) * 1e-6)

    def _end(self, group: Group, trial: Trial, plan: "Plan | ColdPlan", buffers: AnyBuffers) -> None:
        """Say what ended the point, and check its result once more."""
        if not trial.done:
            trial.status = "failed"
            trial.reason = f"all {trial.late} samples were late: the ranks never began together; try --sync barrier"
            return
        trial.stopped = self._comm.bcast(self._pace.stopped(trial.progress()))
        self._check(group, trial, plan, buffers, " after the timed samples")

    def _begin(self, group: Group, trial: Trial, plan: "Plan | ColdPlan", buffers: AnyBuffers, pass_: int) -> None:
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

    def _allocate(self, group: Group) -> AnyBuffers:
        """Return the group's buffers (collective); raises `AgreedError` where a host or device has no room for them."""
        if self._on_device:
            return agreed(self._comm, lambda: self._in_device_memory(group))
        if self._config.buffers == "ordinary":
            return agreed(self._comm, lambda: self._ordinary(group))
        agreed(self._comm, lambda: self._check_room(group))
        count, in_place = group.cell.count, group.in_place
        return agreed(self._comm, lambda: Buffers(count, group.dtype, in_place=in_place, take=self._registered))

    @property
    def _on_device(self) -> bool:
        return self._config.device != "host"

    def _in_device_memory(self, group: Group) -> DeviceBuffers:
        self._check_room(group)
        owner = self._communicator.owner
        return DeviceBuffers(owner, group.cell.count, group.dtype, in_place=group.in_place)

    def _registered(self, nbytes: int) -> Any:
        """Return memory that all ranks address (collective, and raising on all ranks alike)."""
        memory = self._communicator.empty(nbytes, np.uint8)
        self._held += (memory,)
        return memory

    def _release(self) -> None:
        """Give back the registered buffers of a visit (collective)."""
        if self._on_device:
            self._comm.Barrier()  # until no rank has the others' memory mapped any more
        for memory in self._held:
            self._communicator.release(memory)
        self._held = ()

    def _ordinary(self, group: Group) -> AnyBuffers:
        self._check_room(group)
        huge = self._communicator.huge_pages
        if huge:
            return Buffers(group.cell.count, group.dtype, in_place=group.in_place, take=huge.array)
        return Buffers(group.cell.count, group.dtype, in_place=group.in_place)

    def _check_room(self, group: Group) -> None:
        """Raise `MemoryError` where the host has no room for the group's buffers."""
        need = group.cell.nbytes * (1 if group.in_place else 2) * self._layout.neighbours
        room = available_nbytes()
        if room is not None and need > room:
            raise MemoryError(
                f"this host's ranks need {need / GIB:.2f} GiB for their buffers, {room / GIB:.2f} are free"
            )

    def _open(self, group: Group, trial: Trial, buffers: AnyBuffers) -> "Plan | ColdPlan | None":
        """Return the trial's plan, or None with the reason in the trial."""
        algorithm = trial.chosen or trial.algorithm
        start = time.perf_counter()
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
        trial.first_s = trial.first_s or time.perf_counter() - start
        trial.transport = made.transport
        if algorithm.explore:
            trial.chosen = _choice(algorithm, made.algorithm)
        if (algorithm.explore or algorithm.auto) and not trial.reason:
            trial.reason = f"chose {made.algorithm}{made.why and f' ({made.why})'}"
        trial.reason = trial.reason or made.why
        return made

    def _planned(self, group: Group, algorithm: BoundAlgorithm, buffers: AnyBuffers) -> "Plan | ColdPlan":
        first = self._plan(group, algorithm, buffers)
        if self._config.cache == "warm":
            return first
        more = copies_needed(group.cell.nbytes * (1 if group.in_place else 2)) - 1
        others = [self._allocate(group) for _ in range(more)]
        given = pattern(group.dtype, group.op, self._comm.rank, self._comm.size)
        for other in others:
            other.prepare(given)
        algorithm = _choice(algorithm, first.algorithm)
        return ColdPlan([first, *(self._plan(group, algorithm, other) for other in others)], buffers.nbytes)

    def _plan(self, group: Group, algorithm: BoundAlgorithm, buffers: AnyBuffers) -> "Plan":
        receive: Any = None if group.in_place else buffers.receive
        send: Any = buffers.send
        return self._communicator.plan(
            send,
            receive,
            op=group.op,
            algorithm=algorithm,
            dtype=group.dtype.name,
            transport=self._config.transport,
        )

    def _check(self, group: Group, trial: Trial, plan: "Plan | ColdPlan", buffers: AnyBuffers, when: str) -> None:
        """Run the plan once on fresh input and compare every element on every rank with what it must be."""
        given = pattern(group.dtype, group.op, self._comm.rank, self._comm.size)
        buffers.prepare(given)
        start = time.perf_counter()
        plan.execute()
        if trial.wrong is None and not trial.done:
            trial.first_s += time.perf_counter() - start
        trial.per_sample = trial.per_sample or _share(start, 1)
        if self._config.check:
            mine = buffers.check(given)
            wrong, changed, damaged = map(int, self._comm.allreduce(np.array([mine.wrong, mine.changed, mine.damaged])))
            total, bad = Findings(wrong, changed, damaged), bool(wrong or changed or damaged)
            trial.found(total, self._told(total, mine, group.dtype, buffers) + when if bad else "")

    def _told(self, total: Findings, mine: Findings, dtype: DType, buffers: AnyBuffers) -> str:
        """Return what a failed check found on all ranks, in words, and the first wrong element (collective)."""
        gathered = self._comm.allgather((zlib.crc32(buffers.result.data), mine.first))
        alike = "all ranks have the same result"
        if len({digest for digest, _ in gathered}) > 1:
            alike = "the ranks' results differ"
        amount = self._layout.ranks * buffers.receive.size
        named = [
            f"; the first: rank {self.board.number(rank)}, {first.told(dtype)}"
            for rank, (_, first) in enumerate(gathered)
            if first
        ]
        parts = (
            (total.wrong, f"{total.wrong} of {amount} elements are wrong, {alike}{''.join(named[:1])}"),
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
        if trial.step:
            self.board.begin(trial.step)
        start = time.perf_counter()
        taken = trial.timer.batch(plan, batch, window_ns(trial.expected_s, trial.stretch), trial.patience)
        both = np.array([taken.durations, taken.late])
        self._comm.Allreduce(_in_place(), both, _max())
        trial.take(both[0], both[1] > 0, taken.durations)
        ask = getattr(plan, "device_ns", None)
        if ask is not None:
            seen = ask()[-batch:]
            self._comm.Allreduce(_in_place(), seen, _max())
            trial.take_device(seen, both[1] > 0)
        trial.seconds += time.perf_counter() - start
        if trial.timer.fallback is not None and trial.late >= MANY_LATE and trial.late > 10 * trial.done:
            trial.start_anew(trial.timer.fallback)
        trial.per_sample = max(trial.seconds / max(trial.done + trial.late, 1), 1e-9)

    def _point(self, group: Group, trial: Trial) -> Point:
        """Return the trial as a record, complete on rank 0 (collective)."""
        slowest = np.concatenate([np.empty(0, np.int64), *trial.samples])
        priced = self._price(trial.algorithm, group.cell.nbytes, trial.transport)
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
            device="cuda" if self._on_device else "cpu",
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
            bound_us=priced.bound_us,
            limit=priced.limit,
            model_us=priced.model_us,
            multiplicity=group.cell.multiplicity,
            device_ns=tuple(map(int, np.concatenate([np.empty(0, np.int64), *trial.on_device]))),
            first_us=self._first_us(trial),
        )

    def _first_us(self, trial: Trial) -> float | None:
        """Return what the first plan and its first run took on the slowest rank (collective); None on the host."""
        if not self._on_device:
            return None
        seconds = self._comm.allreduce(trial.first_s, op=_max())
        return round(seconds * 1e6, 1) if seconds else None

    def _per_rank(self, trial: Trial) -> tuple[tuple[int, ...], ...] | None:
        """Return each rank's own times, on rank 0 where they were asked for (collective)."""
        if not self._config.per_rank:
            return None
        gathered = self._comm.gather(np.concatenate([np.empty(0, np.int64), *trial.mine]))
        return None if gathered is None else tuple(tuple(map(int, samples)) for samples in gathered)


def _choice(algorithm: BoundAlgorithm, name: str) -> BoundAlgorithm:
    """Return the candidate of the name that an algorithm which explores has chosen; any other algorithm itself."""
    return next((one for one in algorithm.explore if one.name == name), algorithm)


def key_of(group: Group, algorithm: BoundAlgorithm) -> Key:
    """Return what tells a point of a run from all others of it."""
    where = (group.layout.nodes, group.layout.ranks_per_node, group.layout.ranks)
    return (algorithm.name, group.cell.count, group.dtype.name, group.op, group.in_place, *where)


def key_of_point(point: Point) -> Key:
    """Return the same for a stored point."""
    where = (point.nodes, point.ranks_per_node, point.ranks)
    return (point.algorithm, point.count, point.dtype, point.op, point.in_place, *where)


def _max() -> Any:
    from mpi4py import MPI

    return MPI.MAX


def _in_place() -> Any:
    from mpi4py import MPI

    return MPI.IN_PLACE


def groups(config: SweepConfig, algorithms: tuple[BoundAlgorithm, ...], layout: Layout) -> Iterator[Group]:
    """Yield the groups of a shape in their order: by dtype, op and size, in and out of place side by side."""
    for dtype in config.dtypes:
        for op in config.ops:
            for cell in config.cells(dtype):
                for in_place in config.in_place:
                    for together in _together(cell, algorithms):
                        yield Group(dtype, op, cell, in_place, together, layout)


def _together(cell: Cell, algorithms: tuple[BoundAlgorithm, ...]) -> Iterable[tuple[BoundAlgorithm, ...]]:
    """Return which algorithms take turns on a vector: all of them, or each alone where memory might not hold all."""
    small = cell.nbytes * len(algorithms) <= TAKE_TURNS_NBYTES
    return [algorithms] if small else [(algorithm,) for algorithm in algorithms]
