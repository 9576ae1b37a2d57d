"""A sweep from its command line to its report: the parts of ddlbench put together, step by step, on all ranks.

Every step that can fail is agreed on, so that a mistake is one line from rank 0 and all ranks leave together.
"""

import atexit
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

from mpi4py import MPI

from ddlbench import __version__, _engine
from ddlbench.algorithms import resolve
from ddlbench.bench import config as configuration
from ddlbench.bench.agreement import agreed, from_root
from ddlbench.bench.clock import GlobalClock
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.environment import Ticks, clock_apart, environment, load_average, small_pages, stolen, ticks, trust
from ddlbench.bench.environment import partial as partial_job
from ddlbench.bench.shapes import Shape, shapes
from ddlbench.bench.sleeping import apart
from ddlbench.bench.sweep import Layout, Priced, Sweep
from ddlbench.bench.timer import MOST_ERROR_US, Timer, choose_timer
from ddlbench.cli.devices import take_devices
from ddlbench.cli.ending import Interrupted
from ddlbench.cli.faults import Faults, finish_mpi, start_seconds
from ddlbench.cli.header import header
from ddlbench.cli.recorder import Opened, Recorder
from ddlbench.cli.resuming import config_of
from ddlbench.cli.stage import Stage, layout_of
from ddlbench.comm import Communicator
from ddlbench.cost.closed import bounds, memory_bounds, model_seconds
from ddlbench.cost.limits import binding
from ddlbench.cost.links import Links
from ddlbench.cost.probe import probe_links, probe_memory
from ddlbench.errors import ProofError, UnsupportedError, UsageError
from ddlbench.launch.started import ALONE, check, check_expected, launcher
from ddlbench.records import Run, TrustFlag, add_fault
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.verify import Proof
from ddlbench.watch.board import LEAST_SECONDS, Board
from ddlbench.watch.fault import Fault
from ddlbench.watch.watchdog import Watchdog

T = TypeVar("T")
Start = Callable[[Communicator], tuple[Timer, str]]
"""From a communicator to how its ranks start together, and why so."""


@dataclass(frozen=True)
class Request:
    """What the command line asks for; `flags` are keys of a configuration with the texts given for them."""

    config: Path | None
    flags: Mapping[str, Any]
    out: Path | None
    overwrite: bool
    resume: bool
    form: str
    command: tuple[str, ...]
    expect_ranks: int | None = None
    expect_nodes: int | None = None


def run(request: Request) -> int:
    """Measure what `request` asks for (collective over all ranks of the launch); return the exit status.

    Raises `AgreedError` on all ranks for mistakes in the request, and when the results cannot be written.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    found = launcher()
    check(found, MPI.COMM_WORLD.size, library())
    asked = _asked(request)
    limit = LEAST_SECONDS if asked is None else asked
    atexit.register(finish_mpi, start_seconds(asked))
    faults = Faults(MPI.COMM_WORLD.rank)
    # A rank that nobody launched may outlive who started it, as under nohup.
    with Watchdog(limit, faults, parent=None if found is ALONE else os.getppid()) as watchdog:
        watchdog.connect(MPI.COMM_WORLD, start_seconds(asked))
        return _watched(request, watchdog, faults)


def _asked(request: Request) -> float | None:
    """Return for how many seconds nothing may move, None where the request does not say so, or not rightly.

    What is wrong with it is told later, by one rank.
    """
    with suppress(UsageError):
        return configuration.timeout_of(request.flags)
    return None


def _watched(request: Request, watchdog: Watchdog, faults: Faults) -> int:
    world = MPI.COMM_WORLD
    watchdog.board.begin("the reading of the configuration")
    agreed(world, lambda: check_expected("ranks", world.size, request.expect_ranks))
    config = from_root(world, partial(_config, request))
    communicator = agreed(world, partial(open_communicator, config))
    agreed(world, lambda: check_expected("nodes", communicator.topology.nodes, request.expect_nodes))
    watchdog.number(MPI.Group.Translate_ranks(world.group, range(world.size), communicator.comm.group))
    watchdog.board.limit_s = config.timeout or LEAST_SECONDS
    devices = take_devices(communicator, config) if config.device != "host" else None
    session = Session(request, config, communicator, watchdog.board, faults)
    session.devices = devices
    status = session.run()
    communicator.close()
    return status


def open_communicator(config: SweepConfig) -> Communicator:
    """Return the communicator of the launch; raises `UsageError` where it cannot have the pages that are asked for."""
    try:
        communicator = Communicator(MPI.COMM_WORLD, huge_pages=config.huge_pages)
        if communicator.huge_pages and config.buffers == "ordinary":
            communicator.huge_pages.array(1)
            communicator.huge_pages.check(MPI.COMM_WORLD.allgather)
    except UnsupportedError as error:
        raise UsageError(f"--huge-pages: {error}") from None
    return communicator


def _config(request: Request) -> SweepConfig:
    """Return what is to be measured: what a run that is gone on with says, when the request says nothing."""
    if request.resume and request.out is not None and request.config is None and not request.flags.keys() - {"timeout"}:
        return replace(config_of(request.out), timeout=configuration.timeout_of(request.flags))
    return configuration.load(request.config, request.flags)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    """Take a launcher's SIGTERM, which is how Ctrl-C reaches a rank, and another rank's abort, for an interrupt."""
    raise KeyboardInterrupt("the launcher ended this rank; ")


def library() -> str:
    """Return the MPI library in use and its version, such as Open MPI 5.0.11."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


class Session:
    """One sweep on an open communicator, which has all ranks of the launch; `devices` is what is stored of theirs."""

    devices: dict[str, Any] | None = None

    def __init__(
        self, request: Request, config: SweepConfig, communicator: Communicator, board: Board, faults: Faults
    ) -> None:
        self._board, self._faults = board, faults
        self._request = request
        self._config = config
        self._communicator = communicator
        self._comm = communicator.comm
        self._started = datetime.now(UTC)
        self._out = request.out or Path("reports", f"sweep-{self._started:%Y%m%d-%H%M%S}")

    def run(self) -> int:
        """Resolve, prove, probe, measure and report, in this order; return the exit status."""
        self._board.begin("the choice of ranks and algorithms")
        stages = self._staged()
        proofs = [proof for stage in stages for proof in self._apart(stage, partial(self._proofs, stage))]
        with ExitStack() as stack:
            shown = [(stage.layout, stage.algorithms) for stage in stages]
            recorder = Recorder(self._out, self._config, shown, stack, self._request.form)
            record = self._record(stages, proofs)
            self._board.begin("the opening of the run directory")
            opened = from_root(self._comm, partial(self._opened, recorder, record))
            self._out = from_root(self._comm, lambda: self._out)
            self._faults.keep(self._out, self._fault_store(recorder, opened.run))
            try:
                tally = self._tally(stages, opened, recorder)
            except KeyboardInterrupt as cause:
                raise Interrupted(f"{cause}the points that were finished are kept in {self._out}") from None
        return 1 if tally["wrong"] or tally["failed"] else 0

    def _fault_store(self, recorder: Recorder, run: Run) -> Callable[[Fault], None]:
        """Return how this rank stores a fault: rank 0 keeps the record, another one tells when rank 0 is gone."""
        if self._comm.rank == 0:
            return recorder.fault
        return lambda fault: add_fault(self._out, run.created, fault.to_json())

    def _opened(self, recorder: Recorder, record: Run) -> Opened:
        """Open the run directory; raises `UsageError`."""
        if self._request.resume:
            return recorder.resume(record)
        return recorder.create(record, overwrite=self._request.overwrite)

    def _tally(self, stages: list[Stage], opened: Opened, recorder: Recorder) -> Counter[str]:
        """Measure what is missing and write the reports; return how many points of each status the run has."""
        ended = self._measured(stages, opened, recorder) if opened.missing else opened.run
        self._board.begin("the writing of the reports")
        return from_root(self._comm, partial(recorder.finish, ended))

    def _staged(self) -> list[Stage]:
        """Return the shapes that are measured, with their communicators and algorithms (collective)."""
        topology, config = self._communicator.topology, self._config
        found = agreed(self._comm, lambda: shapes(topology, config.nodes, config.ranks_per_node))
        return [agreed(self._comm, partial(self._stage, shape, several=len(found) > 1)) for shape in found]

    def _stage(self, shape: Shape, *, several: bool) -> Stage:
        """Return the stage of `shape`; raises `UsageError` for a grid or an algorithm that does not fit it."""
        try:
            communicator = self._communicator.part(shape.members, grid=self._config.grid)
            algorithms = self._resolved(self._config.grid or shape.topology.grid())
        except UsageError as error:
            raise UsageError(f"on {shape}: {error}" if several else str(error)) from None
        return Stage(shape, layout_of(shape, self._comm.rank), algorithms, communicator)

    def _apart(self, stage: Stage, action: Callable[[], T]) -> T:
        """Run `action` on the ranks of the stage, the others being asleep (collective over all)."""
        return self._sleeping(stage.shape.members, action)

    def _sleeping(self, members: Collection[int], action: Callable[[], T]) -> T:
        """Run `action` on the ranks `members`, the others being asleep and watched as such (collective over all)."""
        if self._comm.rank in members:
            return apart(self._comm, members, action)
        with self._board.asleep(f"the turn of {len(members)} other ranks"):
            return apart(self._comm, members, action)

    def _resolved(self, grid: Grid) -> tuple[BoundAlgorithm, ...]:
        """Return the algorithms, each name once; raises `UsageError`."""
        bound = [resolve(text, grid) for text in self._config.algorithms]
        return tuple({algorithm.name: algorithm for algorithm in bound}.values())

    def _proofs(self, stage: Stage) -> list[dict[str, Any]]:
        """Return the proofs of the programs that will run on the stage, for the record (collective over its ranks)."""
        comm = stage.here.comm
        found = (agreed(comm, partial(self._proved, stage, bound)) for bound in stage.algorithms)
        return [proof for proof in found if proof]

    def _proved(self, stage: Stage, bound: BoundAlgorithm) -> dict[str, Any] | None:
        """Return the proof of the programs that will run, for the record (collective); None where there is none to run.

        Raises `UsageError` when it is refused: nothing is measured then.
        """
        start = time.perf_counter()
        self._board.begin(f"the proof of {bound.name} for {stage.shape.ranks} ranks")
        try:
            proof = stage.here.prove(bound)
        except ProofError as error:
            raise UsageError(str(error)) from None
        except UnsupportedError:
            return None
        return None if proof is None else _proof_record(stage, bound.name, proof, time.perf_counter() - start)

    def _record(self, stages: list[Stage], proofs: list[dict[str, Any]]) -> Run:
        """Return what is stored of the run (collective)."""
        name, version = MPI.get_vendor()
        topology = self._communicator.topology
        return Run(
            ddlbench=__version__,
            created=self._started.isoformat(timespec="seconds"),
            command=self._request.command,
            config=self._config.to_json(),
            environment=environment() | {"compiler": _engine.compiler(), "simd": _engine.simd()} | self._of_devices(),
            mpi={"library": name, "version": ".".join(map(str, version))},
            topology=topology.to_json(),
            huge_pages=self._huge_pages(),
            trust=self._doubts([stage.shape for stage in stages]),
            proofs=tuple(proofs),
        )

    def _of_devices(self) -> dict[str, Any]:
        return {} if self.devices is None else {"devices": self.devices}

    def _huge_pages(self) -> dict[str, Any] | None:
        """Return what is stored of huge pages, of all ranks until now; None where nobody asked (collective)."""
        huge = self._communicator.huge_pages
        return huge.to_json(self._comm.allgather(huge.tallies)) if huge else None

    def _doubts(self, measured: list[Shape]) -> tuple[TrustFlag, ...]:
        """Return what speaks against the figures before there are any (collective)."""
        loads = self._comm.allgather(load_average())
        together = Shape.of(self._communicator.topology, {rank for shape in measured for rank in shape.members})
        # Whoever said how many nodes there must be has them, be it a part of the job.
        unused = () if self._request.expect_nodes else partial_job(self._communicator.topology.nodes)
        return (*unused, *trust(together.topology, [loads[rank] for rank in together.members], measured))

    def _measured(self, stages: list[Stage], opened: Opened, recorder: Recorder) -> Run:
        """Measure the points that are missing and return the record as it is known then."""
        self._board.begin("the probe of the links")
        links = self._probed(stages)
        self._board.begin("the synchronisation of the clocks")
        clock = GlobalClock(self._communicator)
        start = partial(self._timer, clock, opened.run.clock or {}, any(s.shape.topology.crowded for s in stages))
        timer, why = start(self._communicator)
        record = self._timed(replace(opened.run, links=links.to_json()), clock, timer.sync, why)
        lines = header(record, self._config, links, [stage.shape for stage in stages], timer.sync)
        from_root(self._comm, lambda: recorder.start(record, lines))
        before = self._ticks()
        for stage in stages:
            self._apart(stage, partial(self._swept, stage, links, start, recorder, opened))
        self._board.begin("the check of the clocks")
        clock.check()
        shares = self._comm.allgather(self._ticks().share_since(before))
        return self._checked(record, clock, timer.sync, shares)

    def _probed(self, stages: list[Stage]) -> Links:
        """Return what the links between ranks allow, and the memory they share where it is to be used (collective)."""
        links = probe_links(self._communicator, self._sleeping)
        if self._config.transport == "p2p":
            return links
        shapes = [stage.shape.members for stage in stages if stage.shape.nodes == 1]
        largest = (cell.nbytes for dtype in self._config.dtypes for cell in self._config.cells(dtype))
        return replace(links, memory=probe_memory(self._communicator, self._sleeping, shapes, max(largest, default=0)))

    def _swept(self, stage: Stage, links: Links, start: Start, recorder: Recorder, opened: Opened) -> None:
        """Measure what is missing of a shape (collective over its ranks)."""
        sweep = Sweep(
            stage.here,
            self._config,
            stage.algorithms,
            layout=stage.layout,
            price=lambda bound, nbytes, transport: self._price(links, stage.layout, bound, nbytes, transport),
            listener=recorder,
            timer=start(stage.here)[0],
            done=opened.done,
        )
        sweep.board = self._board
        with self._board.numbering(stage.shape.members):
            sweep.run()
        stage.here.close()

    def _timer(
        self, clock: GlobalClock, there: Mapping[str, Any], crowded: bool, communicator: Communicator
    ) -> tuple[Timer, str]:
        """Return the timer of `communicator` and why it is that one.

        All shapes are timed alike, so that they can be compared, and like the points that are there already.
        """
        asked = there.get("sync", self._config.sync)
        timer, why = choose_timer(communicator, clock, asked, self._config.cache, crowded=crowded)
        return timer, there.get("why", why)

    def _timed(self, record: Run, clock: GlobalClock, sync: str, why: str) -> Run:
        """Return the record with how ranks start, and by which clock."""
        return replace(record, clock={**clock.summary().to_json(), "sync": sync, "why": why})

    def _ticks(self) -> Ticks:
        return ticks(self._communicator.topology.cpus[self._comm.rank])

    def _checked(self, record: Run, clock: GlobalClock, sync: str, shares: list[float]) -> Run:
        """Return the record with what was seen by the end; `shares` of each rank's time went to other guests."""
        pages = self._huge_pages()
        flags = (
            *clock_apart(sync, clock.error_us, MOST_ERROR_US),
            *stolen(self._communicator.topology, shares),
            *small_pages(pages),
        )
        told = {**(record.clock or {}), **clock.summary().to_json()}
        return replace(record, clock=told, huge_pages=pages, trust=tuple(dict.fromkeys((*record.trust, *flags))))

    def _price(self, links: Links, at: Layout, bound: BoundAlgorithm, nbytes: int, transport: str) -> Priced:
        """Return the lower bound, which limit it is, and the predicted time; an empty vector has neither."""
        if self._config.device != "host" or not nbytes:
            return Priced()  # the links that were probed are those of host memory
        if transport.startswith("direct"):  # and closed forms count messages
            return _priced(memory_bounds(links, at.ranks, nbytes), None)
        least = bounds(links, at.nodes, at.ranks, nbytes, shared=transport.startswith("mixed"))
        return _priced(least, model_seconds(links, at.nodes, at.ranks, bound, nbytes))


def _priced(least: Mapping[str, float], predicted: float | None) -> Priced:
    """Return the greatest bound and the prediction, both given in seconds."""
    limit = binding(least)
    return Priced(_micro(least.get(limit)), _micro(predicted), limit)


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _proof_record(stage: Stage, name: str, proof: Proof, seconds: float) -> dict[str, Any]:
    return {
        "algorithm": name,
        "nodes": stage.layout.nodes,
        "ranks_per_node": stage.layout.ranks_per_node,
        "ranks": proof.ranks,
        "rounds": proof.rounds,
        "moves": proof.moves,
        "seconds": round(seconds, 6),
    }
