"""Other people's benchmarks, where they are installed: run as they are over a library that is measured here too."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddlbench.foreign import Given, points_of, read_log
from ddlbench.foreign.points import run_of
from ddlbench.peers.contender import SECONDS, Job, series
from ddlbench.peers.library import Environment, Identity
from ddlbench.peers.process import PeerError, environ, run
from ddlbench.records import Point, Run, Store

GIB = 1 << 30
LDD_SECONDS = 20
LINKED = re.compile(r"^\s*(libmpi(?:ch|_abi|_ilp64)?\.so\S*) => (.*?)(?: \(0x[0-9a-f]+\))?$", re.MULTILINE)
IMB_REPETITIONS = "1000,2000"
"""A thousand, fewer of vectors that would come to more than so many MiB: by itself IMB stops at 40, one of 64 MiB. From
2048 on its count of bytes overflows, and it takes one repetition of everything."""


@dataclass(frozen=True)
class Task:
    """What a program is asked for: vectors of `sizes` bytes of float32, on `ranks` ranks; `folder` is for its files."""

    sizes: tuple[int, ...]
    ranks: int
    folder: Path

    @property
    def least(self) -> str:
        """The first size."""
        return str(min(self.sizes))

    @property
    def most(self) -> str:
        """The last size."""
        return str(max(self.sizes))


@dataclass(frozen=True)
class Program:
    """A benchmark: its name on PATH, and its options for a task, in the order in which they are tried.

    One that is not `over_mpi` starts its ranks itself.
    """

    name: str
    options: Callable[[Task], list[list[str]]]
    over_mpi: bool = True


def _osu(task: Task) -> list[list[str]]:
    """Ask for float32 and a check; up to 7.0 the program knows neither option and reduces float32 anyway."""
    old = ["-m", f"{task.least}:{task.most}", "-f"]
    return [[*old, "-c", "-T", "mpi_float"], old]


def _imb(task: Task) -> list[list[str]]:
    """Ask for these sizes; those above 4 MiB count only with a range and memory that hold them."""
    lengths = task.folder / "lengths"
    lengths.write_text("".join(f"{size}\n" for size in task.sizes))
    most = max(task.sizes)
    sizes = ["-msglen", str(lengths), "-msglog", f"0:{(most - 1).bit_length()}", "-mem", str(1 + 8 * most // GIB)]
    return [["Allreduce", "-npmin", str(task.ranks), *sizes, "-iter", IMB_REPETITIONS, "-iter_policy", "auto"]]


def _nccl(task: Task) -> list[list[str]]:
    sizes = ["-b", task.least, "-e", task.most, "-f", "2"]
    return [[*sizes, "-g", str(task.ranks), "-d", "float", "-o", "sum", "-n", "20", "-w", "5", "-c", "1"]]


OSU, IMB = Program("osu_allreduce", _osu), Program("IMB-MPI1", _imb)
NCCL = Program("all_reduce_perf", _nccl, over_mpi=False)
PROGRAMS = (OSU, IMB, NCCL)


@dataclass(frozen=True)
class ProgramContender:
    """A program at `path`, run in `environment`; `partner` is the library whose `mpi` its figures are held against.

    `sizes` are those that ddlbench measures, in bytes.
    """

    job: Job
    program: Program
    path: Path
    environment: Environment
    partner: Identity
    sizes: tuple[int, ...]

    @property
    def name(self) -> str:
        """What it is called while it runs."""
        return f"{self.program.name} over {self.partner.name}" if self.program.over_mpi else self.program.name

    @property
    def title(self) -> str:
        """What its points are called where it left none."""
        return series(self.program.name, self.partner.name) if self.program.over_mpi else self.program.name

    @property
    def key(self) -> str:
        """The name of its folder."""
        return self.program.name.lower()

    def measure(self, folder: Path) -> tuple[Run, list[Point]]:
        """Run the program and read its log; raises `PeerError` when there is no result in it, whosever fault."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        tries = self.program.options(Task(self.sizes, self.job.ranks, folder))
        failures = []
        for number, options in enumerate(tries, 1):
            try:
                return self._read(folder, self._run(options, folder / f"try-{number}.log"))
            except PeerError as error:
                failures.append(error)
        raise PeerError(str(failures[-1]))

    def _run(self, options: Sequence[str], log: Path) -> tuple[list[str], Path]:
        """Run the program; return its command and log. One that found its results wrong may end with any status."""
        launch = self.environment.launch(self.job.ranks) if self.program.over_mpi else []
        command = [*launch, str(self.path), *options]
        try:
            run(command, log, self.environment.variables, seconds=SECONDS, cwd=self.job.source)
        except PeerError:
            if not any(section.rows for section in read_log(log).sections):
                raise
        return command, log

    def _read(self, folder: Path, ran: tuple[list[str], Path]) -> tuple[Run, list[Point]]:
        command, log = ran
        imported = points_of(read_log(log), Given(ranks=self.job.ranks, device="cpu"))
        if not imported.points:
            raise PeerError(f"no result in {log}", "failed")
        version = imported.programs[0].partition(" ")[2]
        title = f"{self.program.name} {version}".rstrip()
        name = series(title, self.partner.name) if self.program.over_mpi else title
        record = run_of([imported], command)
        points = [replace(point, algorithm=name) for point in imported.points]
        with Store.create(folder, record, overwrite=True) as store:
            for point in points:
                store.append(point)
            store.finish()
        return record, points


def contender(
    program: Program, job: Job, sizes: tuple[int, ...], libraries: Sequence[tuple[Environment, Identity]]
) -> ProgramContender:
    """Return the `program` on PATH, over the one of `libraries` that it is linked with; the first is the one in use.

    Intel's wheel brings IMB-MPI1, which is taken where PATH has none. Raises `PeerError` when there is none to run.
    """
    failures = []
    for path, environment in _candidates(program, libraries):
        try:
            return _over(program, job, sizes, path, _library(program, path, environment, libraries))
        except PeerError as error:
            failures.append(error)
    raise failures[0] if failures else PeerError("not found on PATH")


def _over(
    program: Program, job: Job, sizes: tuple[int, ...], path: Path, library: tuple[Environment, Identity]
) -> ProgramContender:
    return ProgramContender(job, program, path, *library, sizes)


def _candidates(
    program: Program, libraries: Sequence[tuple[Environment, Identity]]
) -> list[tuple[Path, Environment | None]]:
    """Return where the program is, and the environment that brought it."""
    on_path = shutil.which(program.name)
    found: list[tuple[Path, Environment | None]] = [(Path(on_path), None)] if on_path else []
    for environment, identity in libraries:
        beside = environment.python.with_name(program.name)
        if identity.vendor == "Intel MPI" and beside.exists():
            library = str(identity.files[0].parent) if identity.files else ""
            found.append((beside, with_libraries(environment, library)))
    return found


def with_libraries(environment: Environment, folder: str) -> Environment:
    """Return the environment with `folder` as the first where programs look for libraries."""
    others = environ({}).get("LD_LIBRARY_PATH", "")
    return replace(
        environment, variables={**environment.variables, "LD_LIBRARY_PATH": ":".join(filter(None, (folder, others)))}
    )


def _library(
    program: Program,
    path: Path,
    environment: Environment | None,
    libraries: Sequence[tuple[Environment, Identity]],
) -> tuple[Environment, Identity]:
    """Return the environment to run the program in, and the library that it is over; raises `PeerError`."""
    in_use = libraries[0]
    if not program.over_mpi:
        return Environment(in_use[0].python, ()), in_use[1]
    linked = linked_with(path, environment)
    if linked is None:  # a script, or linked statically: there is no telling
        return in_use
    for known, identity in libraries:
        if any(file.samefile(linked) for file in identity.files if linked.exists()):
            return environment or known, identity
    raise PeerError(
        f"{path} is linked with {linked}, which is the MPI of none of the libraries here: MPI=system or MPICC=/path/to/"
        "mpicc makes that one take part"
    )


def linked_with(path: Path, environment: Environment | None) -> Path | None:
    """Return the MPI library that the program at `path` would load; None when it is not linked with one by name.

    Raises `PeerError` when that library cannot be found.
    """
    variables = environ({} if environment is None else environment.variables)
    try:
        done = subprocess.run(
            ["ldd", str(path)], capture_output=True, text=True, timeout=LDD_SECONDS, check=False, env=variables
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = LINKED.search(done.stdout)
    if found is None:
        return None
    if found[2] == "not found":
        raise PeerError(f"{path} does not find its {found[1]}")
    return Path(found[2])
