"""A sweep from its command line to its report: the parts of ddlbench put together, step by step, on all ranks.

Every step that can fail is agreed on, so that a mistake is one line from rank 0 and all ranks leave together.
"""

import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from mpi4py import MPI

from ddlbench import __version__, _engine
from ddlbench.algorithms import resolve
from ddlbench.bench import config as configuration
from ddlbench.bench import launch
from ddlbench.bench.agreement import agreed, from_root
from ddlbench.bench.clock import GlobalClock
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.environment import Ticks, clock_apart, environment, load_average, stolen, ticks, trust
from ddlbench.bench.sweep import Layout, Sweep
from ddlbench.bench.timer import MOST_ERROR_US, Timer, choose_timer
from ddlbench.cli.ending import Interrupted
from ddlbench.cli.header import header
from ddlbench.cli.recorder import Opened, Recorder
from ddlbench.cli.resuming import config_of
from ddlbench.comm import Communicator
from ddlbench.cost.closed import bound_seconds, model_seconds
from ddlbench.cost.links import Links
from ddlbench.cost.probe import probe_links
from ddlbench.errors import ProofError, UnsupportedError, UsageError
from ddlbench.records import Run
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.schedule.verify import Proof
from ddlbench.topology import Topology


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


def run(request: Request) -> int:
    """Measure what `request` asks for (collective over all ranks of the launch); return the exit status.

    Raises `AgreedError` on all ranks for mistakes in the request, and when the results cannot be written.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    world = MPI.COMM_WORLD
    launch.check(launch.launcher(), world.size, library())
    config = from_root(world, partial(_config, request))
    communicator = agreed(world, lambda: Communicator(world, grid=config.grid))
    status = Session(request, config, communicator).run()
    communicator.close()
    return status


def _config(request: Request) -> SweepConfig:
    """Return what is to be measured: what a run that is gone on with says, when the request says nothing."""
    if request.resume and request.out is not None and request.config is None and not request.flags:
        return config_of(request.out)
    return configuration.load(request.config, request.flags)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001 - the signature of a handler
    """Take a launcher's SIGTERM, which is how Ctrl-C reaches a rank, and another rank's abort, for an interrupt."""
    raise KeyboardInterrupt("the launcher ended this rank; ")


def library() -> str:
    """Return the MPI library in use and its version, such as Open MPI 5.0.11."""
    name, version = MPI.get_vendor()
    return f"{name} {'.'.join(map(str, version))}"


def layout_of(topology: Topology, rank: int) -> Layout:
    """Return the layout of `topology` as its `rank` sees it."""
    per_node = topology.ranks_per_node
    return Layout(
        ranks=topology.ranks,
        nodes=topology.nodes,
        ranks_per_node=str(per_node[0]) if topology.even else "",
        neighbours=per_node[topology.node_of[rank]],
    )


class Session:
    """One sweep on an open communicator."""

    def __init__(self, request: Request, config: SweepConfig, communicator: Communicator) -> None:
        self._request = request
        self._config = config
        self._communicator = communicator
        self._comm = communicator.comm
        self._started = datetime.now(UTC)
        self._out = request.out or Path("reports", f"sweep-{self._started:%Y%m%d-%H%M%S}")

    def run(self) -> int:
        """Resolve, prove, probe, measure and report, in this order; return the exit status."""
        algorithms = agreed(self._comm, self._resolved)
        proofs = [proof for bound in algorithms if (proof := agreed(self._comm, partial(self._proved, bound)))]
        with ExitStack() as stack:
            recorder = Recorder(self._out, self._config, algorithms, stack, self._request.form)
            record = self._record(proofs)
            opened = from_root(self._comm, partial(self._opened, recorder, record))
            try:
                tally = self._tally(algorithms, opened, recorder)
            except KeyboardInterrupt as cause:
                raise Interrupted(f"{cause}the points that were finished are kept in {self._out}") from None
        return 1 if tally["wrong"] or tally["failed"] else 0

    def _opened(self, recorder: Recorder, record: Run) -> Opened:
        """Open the run directory; raises `UsageError`."""
        if self._request.resume:
            return recorder.resume(record)
        return recorder.create(record, overwrite=self._request.overwrite)

    def _tally(self, algorithms: list[BoundAlgorithm], opened: Opened, recorder: Recorder) -> Counter[str]:
        """Measure what is missing and write the reports; return how many points of each status the run has."""
        ended = self._measured(algorithms, opened, recorder) if opened.missing else opened.run
        return from_root(self._comm, partial(recorder.finish, ended))

    def _resolved(self) -> list[BoundAlgorithm]:
        """Return the algorithms, each name once; raises `UsageError`."""
        bound = [resolve(text, self._communicator.grid) for text in self._config.algorithms]
        return list({algorithm.name: algorithm for algorithm in bound}.values())

    def _proved(self, bound: BoundAlgorithm) -> dict[str, Any] | None:
        """Return the proof of the programs that will run, for the record (collective); None where there is none to run.

        Raises `UsageError` when it is refused: nothing is measured then.
        """
        start = time.perf_counter()
        try:
            proof = self._communicator.prove(bound)
        except ProofError as error:
            raise UsageError(str(error)) from None
        except UnsupportedError:
            return None
        return None if proof is None else _proof_record(bound.name, proof, time.perf_counter() - start)

    def _record(self, proofs: list[dict[str, Any]]) -> Run:
        """Return what is stored of the run (collective)."""
        name, version = MPI.get_vendor()
        topology = self._communicator.topology
        return Run(
            ddlbench=__version__,
            created=self._started.isoformat(timespec="seconds"),
            command=self._request.command,
            config=self._config.to_json(),
            environment=environment() | {"compiler": _engine.compiler(), "simd": _engine.simd()},
            mpi={"library": name, "version": ".".join(map(str, version))},
            topology=topology.to_json(),
            trust=trust(topology, self._comm.allgather(load_average())),
            proofs=tuple(proofs),
        )

    def _measured(self, algorithms: list[BoundAlgorithm], opened: Opened, recorder: Recorder) -> Run:
        """Measure the points that are missing and return the record as it is known then."""
        links, clock = probe_links(self._communicator), GlobalClock(self._communicator)
        timer, record = self._timer(clock, replace(opened.run, links=links.to_json()))
        lines = header(record, self._config, links, self._communicator.grid, timer.sync)
        from_root(self._comm, lambda: recorder.start(record, lines))
        sweep = Sweep(
            self._communicator,
            self._config,
            algorithms,
            layout=layout_of(self._communicator.topology, self._comm.rank),
            price=lambda bound, nbytes: self._price(links, bound, nbytes),
            listener=recorder,
            timer=timer,
            done=opened.done,
        )
        before = self._ticks()
        sweep.run()
        clock.check()
        shares = self._comm.allgather(self._ticks().share_since(before))
        return self._checked(record, clock, timer.sync, shares)

    def _timer(self, clock: GlobalClock, record: Run) -> tuple[Timer, Run]:
        """Return the timer and the record that says so; points that are there already have chosen how ranks start."""
        there = record.clock or {}
        timer, why = choose_timer(self._communicator, clock, there.get("sync", self._config.sync), self._config.cache)
        told = {**clock.summary().to_json(), "sync": timer.sync, "why": there.get("why", why)}
        return timer, replace(record, clock=told)

    def _ticks(self) -> Ticks:
        return ticks(self._communicator.topology.cpus[self._comm.rank])

    def _checked(self, record: Run, clock: GlobalClock, sync: str, shares: list[float]) -> Run:
        """Return the record with what was seen by the end; `shares` of each rank's time went to other guests."""
        flags = (*clock_apart(sync, clock.error_us, MOST_ERROR_US), *stolen(self._communicator.topology, shares))
        told = {**(record.clock or {}), **clock.summary().to_json()}
        return replace(record, clock=told, trust=tuple(dict.fromkeys((*record.trust, *flags))))

    def _price(self, links: Links, bound: BoundAlgorithm, nbytes: int) -> tuple[float | None, float | None]:
        """Return the lower bound and the predicted time in microseconds, None where there is none."""
        return _micro(bound_seconds(links, self._comm.size, nbytes)), _micro(model_seconds(links, bound, nbytes))


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e6


def _proof_record(name: str, proof: Proof, seconds: float) -> dict[str, Any]:
    return {
        "algorithm": name,
        "ranks": proof.ranks,
        "rounds": proof.rounds,
        "moves": proof.moves,
        "seconds": round(seconds, 6),
    }
