"""Who is measured: each a program that is started anew in every pass and leaves points."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ddlbench.peers.library import Environment, Identity
from ddlbench.peers.process import PeerError, run
from ddlbench.records import Loaded, Point, Run, load

SECONDS = 900
"""How long one start of a contender may take."""
GLOO_VARIABLES = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
PAGE = "report.html"


@dataclass(frozen=True)
class Job:
    """What all contenders measure: the sweep in the file `config`, on `ranks` ranks, started in the folder `source`."""

    config: Path
    ranks: int
    source: Path


class Contender(Protocol):
    """One that takes part: what it is called while it runs and in tables, and what its folder is called."""

    @property
    def name(self) -> str:
        """What it is called while it runs: MPICH 5.0.2."""

    @property
    def title(self) -> str:
        """What its points are called where it left none: mpi (MPICH 5.0.2)."""

    @property
    def key(self) -> str:
        """The name of its folder."""

    def measure(self, folder: Path) -> tuple[Run, list[Point]]:
        """Run once, everything it leaves going into `folder`; return what it ran on and its points, named for tables.

        Raises `PeerError` when it did not come to its end.
        """


@dataclass(frozen=True)
class SweepContender:
    """Algorithms of `ddlbench sweep` over one MPI library; `flags` go before the values of the job's configuration.

    `label` tells contenders over one library apart, in the names of their points too.
    """

    job: Job
    environment: Environment
    identity: Identity
    algorithms: tuple[str, ...]
    key: str
    flags: tuple[str, ...] = ()
    label: str = ""

    @property
    def name(self) -> str:
        """What it is called while it runs."""
        return f"{self.identity.name}, {self.label}" if self.label else self.identity.name

    @property
    def title(self) -> str:
        """What its points are called where it left none."""
        return series(self.algorithms[0], self.name)

    def measure(self, folder: Path) -> tuple[Run, list[Point]]:
        """Run the sweep; raises `PeerError` when it does not end, or ran over another library."""
        words = ["-m", "ddlbench", "sweep", str(self.job.config), "-a", ",".join(self.algorithms), *self.flags]
        command = self.environment.ranks(self.job.ranks, *words, "--out", str(folder), "--overwrite")
        loaded = started(command, folder, self.environment, self.job.source)
        told = Identity(str(loaded.run.mpi.get("library")), str(loaded.run.mpi.get("version")), ())
        if told.name != self.identity.name:
            raise PeerError(f"the sweep ran over {told.name}, not over {self.identity.name}", "failed")
        return loaded.run, [replace(point, algorithm=series(point.algorithm, self.name)) for point in loaded.points]


@dataclass(frozen=True)
class GlooContender:
    """The allreduce of torch over gloo, on this node, started by torch's own launcher."""

    job: Job
    environment: Environment
    key: str = "gloo"
    name: str = "gloo"
    title: str = "gloo (torch)"

    def measure(self, folder: Path) -> tuple[Run, list[Point]]:
        """Run `gloo_rank`; raises `PeerError`."""
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.job.ranks)]
        program = ["-m", "ddlbench.peers.gloo_rank", str(self.job.config), str(folder)]
        environment = replace(self.environment, variables=GLOO_VARIABLES)
        command = [str(environment.python), "-I", *launcher, *program]
        loaded = started(command, folder, environment, self.job.source)
        name = series("gloo", f"torch {loaded.run.mpi['version']}")
        return loaded.run, [replace(point, algorithm=name) for point in loaded.points]


def series(algorithm: str, library: str) -> str:
    """Return what the points of an algorithm over a library are called: mpi (MPICH 5.0.2)."""
    return f"{algorithm} ({library})"


def started(
    command: Sequence[str], folder: Path, environment: Environment, source: Path, seconds: float = SECONDS
) -> Loaded:
    """Run `command` in the folder `source` and return the finished run that it leaves in `folder`; raises `PeerError`.

    It is ended after `seconds`.

    What counts is the run that was left: a launcher ends with 0 though it lost ranks, and not with 0 for wrong results.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    failure = None
    try:
        run(command, folder.with_suffix(".log"), environment.variables, seconds=seconds, cwd=source)
    except PeerError as error:
        failure = error
    loaded = load(folder) if (folder / "run.json").exists() else None
    if loaded is None or not loaded.run.finished:
        raise failure or PeerError(f"it left no finished run; see {folder.with_suffix('.log')}", "failed")
    (folder / PAGE).unlink(missing_ok=True)  # one page of all of them is made at the end
    return loaded
