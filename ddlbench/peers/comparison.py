"""The whole of `make peers`: who can take part, the passes, and one run directory of what came of them."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ddlbench import __version__
from ddlbench.bench import config as configuration
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.environment import environment
from ddlbench.errors import UsageError
from ddlbench.peers.choice import candidates, chosen
from ddlbench.peers.contender import Contender, GlooContender, Job, SweepContender, series
from ddlbench.peers.environments import MARKER, Workshop
from ddlbench.peers.library import (
    WHEELS,
    Environment,
    Identity,
    identify,
    open_mpi_variables,
    physical_cores,
    this_python,
)
from ddlbench.peers.outcome import VENDOR, Absence, Outcome, write
from ddlbench.peers.passes import Harvest, Say, in_turns
from ddlbench.peers.process import PeerError
from ddlbench.peers.programs import PROGRAMS, contender
from ddlbench.records import Run, Store, load
from ddlbench.report.units import counted

PASSES = "passes"
CHOOSING = ("--max-seconds", "0.03", "--ci", "10%")
"""The sweep that finds ddlbench's best algorithms is shorter than the passes, whose samples are the ones that count."""

Library = tuple[Environment, Identity]


@dataclass(frozen=True)
class Request:
    """What the command line asks for.

    `launcher` starts ranks of the Python that runs this, `venv` is its environment, beside which the others are made.
    `torch` is the requirement to install, None for none. `processors` are those that this process may run on. `only` is
    the part of `make bench-fast` to run, node or lab, None for both.
    """

    ranks: int
    launcher: tuple[str, ...]
    venv: Path
    config: Path
    out: Path
    passes: int
    torch: str | None
    processors: frozenset[int]
    only: str | None = None
    command: tuple[str, ...] = field(default_factory=lambda: ("python", "-m", "ddlbench.peers", *sys.argv[1:]))


class Comparison:
    """One `make peers`; `source` is the source tree, `say` tells a person what goes on."""

    def __init__(self, request: Request, source: Path, say: Say) -> None:
        self._request, self._say = request, say
        self._sweep = checked(configuration.load(request.config, {}))
        self._job = Job(request.config.resolve(), request.ranks, source)
        self._workshop = Workshop(source, request.venv, source / "build" / "peers.log")
        self._pinned = request.ranks <= physical_cores(request.processors)
        self.absences: list[Absence] = []

    def run(self) -> tuple[list[str], int]:
        """Measure and store; return the lines to show, and 1 when a result was wrong or one failed, else 0.

        Raises `UsageError` when the folder for the results holds something else, `PeerError` when ddlbench cannot run
        over the MPI in use. What the passes gave before an interrupt is stored.
        """
        with Store.create(self._request.out, self.record(), overwrite=True) as store:
            folder = self.cleared()
            libraries = self.libraries(self.in_use())
            outcome = self._before_the_passes(libraries, folder)
            try:
                in_turns(outcome.harvests, self._request.passes, folder, self._say)
            finally:
                store.update(replace(store.run, **outcome.known()))
                for point in outcome.all_points():
                    store.append(point)
            store.finish()
        loaded = load(self._request.out)
        bad = any(point.status in ("wrong", "failed") for point in loaded.points)
        return [*self._head(outcome), *write(outcome, loaded, self._request.out)], int(bad)

    def record(self) -> Run:
        """Return what is known of the run at its start."""
        return Run(
            ddlbench=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            command=self._request.command,
            config={**self._sweep.to_json(), "passes": self._request.passes},
            environment=environment(),
            mpi={},
            topology={},
        )

    def cleared(self) -> Path:
        """Return the empty folder of the passes; raises `UsageError` when one of that name was not made here."""
        folder = self._request.out / PASSES
        if folder.exists() and not (folder / MARKER).exists():
            raise UsageError(f"{folder} was not made by make peers; give another folder for the results")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / MARKER).write_text("make peers\n")
        return folder

    def in_use(self) -> Library:
        """Return the MPI in use; raises `PeerError` when ddlbench cannot run over it."""
        variables = open_mpi_variables(self._request.venv, self._pinned)
        environment_ = Environment(this_python(), self._request.launcher, variables)
        return environment_, identify(environment_)

    def libraries(self, in_use: Library) -> list[Library]:
        """Return the MPI in use and, each in an environment of its own, those of the wheels that it is not."""
        found = [in_use]
        for wheel in WHEELS:
            if wheel.vendor != found[0][1].vendor:
                self._say(f"set-up: {wheel.vendor}, in {self._workshop.folder(wheel.key).name}")
                with self._or_absent(series(VENDOR, wheel.vendor)):
                    found.append(self._workshop.library(wheel, pinned=self._pinned))
        return found

    def _before_the_passes(self, libraries: Sequence[Library], folder: Path) -> Outcome:
        """Find ddlbench's best algorithms and who takes part; nobody has been measured yet."""
        algorithms = (VENDOR, *candidates(self._job.ranks))
        base = SweepContender(self._job, *libraries[0], algorithms, "choosing", CHOOSING)
        self._say(f"which of ddlbench's algorithms is best at which size: {base.name}")
        first, points = base.measure(folder / base.key)
        best = chosen(first, points)
        harvests = [Harvest(one) for one in self._contenders(libraries, best)]
        return Outcome(first, points, best, harvests, self.absences)

    def _contenders(self, libraries: Sequence[Library], best: Mapping[int, str]) -> list[Contender]:
        """Return who takes part, the MPI in use with ddlbench's best algorithms first."""
        own = tuple(dict.fromkeys(name.partition(" (")[0] for name in best.values()))
        found: list[Contender] = []
        for environment_, identity in libraries:
            algorithms = (VENDOR,) if found else (VENDOR, *own)
            found.append(SweepContender(self._job, environment_, identity, algorithms, _folder(identity)))
        with self._or_absent("gloo (torch)"):
            found.append(GlooContender(self._job, self._workshop.torch(self._request.torch)))
        for program in PROGRAMS:
            with self._or_absent(program.name):
                found.append(contender(program, self._job, self._sweep.sizes, libraries))
        return found

    @contextmanager
    def _or_absent(self, title: str) -> Iterator[None]:
        """Take the `PeerError` of one that cannot take part for the reason why."""
        try:
            yield
        except PeerError as error:
            self.absences.append(Absence(title, error))
            self._say(f"left out: {title}: {error}")

    def _head(self, outcome: Outcome) -> list[str]:
        """Return the lines above the tables: what was measured, and how to read them."""
        ranks, starts = counted(self._job.ranks, "rank"), counted(self._request.passes, "start")
        free = outcome.unpinned()
        pinned = f"; not pinned to a core: {', '.join(free)}" if free else ", pinned to a core each"
        how = "± half their 95 % interval; × as many times the fastest MPI library's"
        return [f"# float32 sum, out of place, {ranks}{pinned}", f"# medians in µs of {starts} each; {how}"]


def checked(config: SweepConfig) -> SweepConfig:
    """Return `config`; raises `UsageError` when it asks for what not all can do."""
    if [dtype.name for dtype in config.dtypes] != ["float32"] or config.ops != ("sum",) or config.in_place != (False,):
        raise UsageError("peers are compared in float32 sums out of place: the configuration must ask for these alone")
    if config.workload is not None:
        raise UsageError("peers are compared by size: the configuration must hold sizes, not a workload")
    return config


def _folder(identity: Identity) -> str:
    return identity.vendor.lower().replace(" ", "-")
