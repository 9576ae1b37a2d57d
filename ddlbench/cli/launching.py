"""A launch from its command line to its verdict, in one process that is no rank of the job."""

import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.launch import allocation, checks, commands, hostfile, libraries, running, verdict
from ddlbench.launch.commands import Job
from ddlbench.launch.heartbeat import VARIABLE, Heartbeat
from ddlbench.launch.hosts import check_resolve, shown
from ddlbench.launch.layout import Layout, Wish, grid_of, planned
from ddlbench.launch.verdict import Expected


@dataclass(frozen=True)
class Request:
    """What the command line asks for; `own` are its words up to the command's."""

    words: tuple[str, ...]
    hosts: str | None
    hostfile: Path | None
    wish: Wish
    mpi: str | None
    launcher: str | None
    check_seconds: float | None
    dry_run: bool
    own: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """The words to run on every rank, and the run directory they are to leave; None for other programs than a sweep."""

    words: tuple[str, ...]
    directory: Path | None = None
    goes_on: bool = False


def launch(request: Request) -> int:
    """Do what `request` asks for and return the exit status; raises `DdlbenchError` for what is refused."""
    found = allocation.find(request.hosts, request.hostfile)
    layout = planned(found, request.wish)
    program = _program(request.words, request.wish.mode)
    job = _job(request, found, layout, program.words)
    _tell(f"{_told(layout)} ({found.source}), {job.library.name}")
    if request.dry_run:
        sys.stdout.write(f"{shlex.join(commands.command(job))}\n")
        return 0
    # SIGTERM and SIGHUP are taken for Ctrl-C, so that what was started is ended before this process is.
    with running.handled((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        check_resolve(layout.hosts)
        if request.check_seconds is not None and len(layout.hosts) > 1:
            _check(job, request.check_seconds)
        return _run(job, program, request.own)


def _job(request: Request, found: allocation.Allocation, layout: Layout, words: tuple[str, ...]) -> Job:
    """Return the job, its host file written."""
    library = libraries.of_family(request.mpi) if request.mpi is not None else libraries.of_this_python()
    there = not (request.dry_run and request.mpi is not None)
    launcher = libraries.launcher_of(library, found.scheduler, request.launcher, must_be_there=there)
    variables = commands.variables_of(layout, os.environ)
    bound = any(name in os.environ for name in commands.BINDING)
    return _with_hostfile(Job(library, launcher, layout, words, variables, bound=bound))


def _with_hostfile(job: Job) -> Job:
    if not commands.needs_hostfile(job.launcher, job.layout):
        return job
    text = hostfile.rendered(job.layout.hosts, colon=commands.with_colon(job.library))
    return replace(job, hostfile=hostfile.write(text))


def _told(layout: Layout) -> str:
    """Return how many ranks run where, in words."""
    ranks = "1 rank" if layout.ranks == 1 else f"{layout.ranks} ranks"
    names = shown([host.name for host in layout.hosts])
    if len(layout.hosts) == 1:
        return f"{ranks} on {names}"
    each = layout.per_node or "/".join(map(str, layout.counts[:8]))
    return f"{ranks}, {each} on each of {len(layout.hosts)} nodes: {names}"


def _tell(text: str) -> None:
    sys.stderr.write(f"# launch: {text}\n")
    sys.stderr.flush()


# ---- The command ---------------------------------------------------------------------------------------------------


def _program(words: tuple[str, ...], mode: str | None) -> Program:
    """Return what to run: of a sweep the options are checked here, once, and it is told where to put its results.

    Raises `UsageError` when there is no such program, or for a mode that only a sweep understands.
    """
    at = _sweep_at(words)
    if at is None:
        if mode is not None:
            raise UsageError(f"--mode {mode} is for ddlbench sweep, the command is {words[0]}")
        return Program(_found(words))
    from ddlbench.cli.sweep import command as sweep

    given = sweep.make_context("ddlbench sweep", [*words[at + 1 :]]).params
    if given["resume"] is not None:
        return Program(_found(words), Path(given["resume"]), goes_on=True)
    more = _of_mode(mode, given)
    out = given["out"] or str(Path("reports", f"sweep-{datetime.now(UTC):%Y%m%d-%H%M%S}"))
    more += [] if given["out"] else ["--out", out]
    return Program((*_found(words), *more), Path(out))


def _sweep_at(words: tuple[str, ...]) -> int | None:
    """Return where the verb `sweep` of ddlbench stands, whatever is before ddlbench; None when it is not there."""
    pairs = enumerate(pairwise(words), 1)
    return next((at for at, (word, verb) in pairs if Path(word).name == "ddlbench" and verb == "sweep"), None)


def _found(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words with the program's path: the ddlbench that runs this, or as this shell finds it."""
    if words[0] == "ddlbench":
        beside = Path(sys.executable).parent / "ddlbench"
        return (str(beside), *words[1:]) if beside.exists() else (sys.executable, "-m", "ddlbench", *words[1:])
    path = shutil.which(words[0])
    if path is None:
        raise UsageError(f"{words[0]!r} is not a program here: check the spelling, or give its path")
    return (path, *words[1:])


def _of_mode(mode: str | None, given: Mapping[str, object]) -> list[str]:
    """Return the options of a sweep that measures a mode, beside the algorithms it was given or the MPI library's."""
    if mode is None:
        return []
    grid = grid_of(mode)
    algorithms = [mode] if given["algorithms"] else [mode, "mpi"]
    return ["-a", ",".join(algorithms), *(["--grid", str(grid)] if grid and given["grid"] is None else [])]


# ---- The run -------------------------------------------------------------------------------------------------------


def _environ(job: Job) -> dict[str, str]:
    return commands.environment_of(job.library, os.environ, root=commands.is_root())


def _check(job: Job, seconds: float) -> None:
    """Ask the hosts; raises `DdlbenchError`, and tells what is no reason to refuse them."""
    environ, stop = _environ(job), threading.Event()

    def ask(layout: Layout) -> checks.Answer:
        token = checks.token()
        asking = replace(job, layout=layout, words=checks.words(token), hostfile=None)
        return checks.asked(commands.command(_with_hostfile(asking)), token, environ, seconds, stop)

    try:
        for line in checks.check(job.layout, ask, seconds, singly=job.launcher.kind != "jsrun"):
            _tell(line)
    except checks.NoAnswerError as error:
        for line in filter(None, map(str.strip, error.words.splitlines())):
            _tell(f"| {line}")
        raise
    finally:
        stop.set()


def _run(job: Job, program: Program, own: tuple[str, ...]) -> int:
    """Run the job under watch and return the exit status, after saying what is to be said."""
    expected = None
    if program.directory is not None:
        again = (*own, "--", "ddlbench", "sweep", "--resume", str(program.directory))
        expected = Expected.of(program.directory, again, goes_on=program.goes_on)
    with _watched(program.directory) as (watch, variables):
        command = commands.command(replace(job, variables=_added(job, variables)))
        _tell(shlex.join(command))
        came = verdict.judged(running.run(command, _environ(job) | variables, watch), expected, _kept)
    if came.text:
        sys.stderr.write(f"ddlbench: {'' if came.status == verdict.INTERRUPTED else 'error: '}{came.text}\n")
    return came.status


def _kept(directory: Path) -> str:
    """Return what is there of a run that is not finished, and what is missing."""
    from ddlbench.cli.missing import missing

    try:
        return missing(directory)
    except DdlbenchError:
        return verdict.points_kept(directory)


def _added(job: Job, variables: dict[str, str]) -> dict[str, str]:
    """Return the job's variables with those of the watch, which ranks of this machine have from the launcher."""
    return dict(job.variables) if job.layout.only_here else {**job.variables, **variables}


@contextmanager
def _watched(directory: Path | None) -> Iterator[tuple[running.Watch, dict[str, str]]]:
    """Give what watches the job, and the variables that make the ranks show themselves."""
    if directory is None:
        yield lambda: None, {}
        return
    place = directory.absolute()
    path = place.with_name(f".{place.name}.alive")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
    except OSError:  # the sweep will say it better
        yield lambda: None, {}
        return
    watch = Heartbeat(path)
    try:
        yield watch, {VARIABLE: str(path)}
    finally:
        watch.remove()
