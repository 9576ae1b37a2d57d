"""A launch from its command line to its verdict, in one process that is no rank of the job."""

import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ddlbench.cli.program import Program, judged, program_of
from ddlbench.errors import UsageError
from ddlbench.launch import allocation, checks, commands, hostfile, libraries, running
from ddlbench.launch.commands import Job
from ddlbench.launch.heartbeat import VARIABLE, Heartbeat
from ddlbench.launch.hosts import check_resolve, shown
from ddlbench.launch.layout import Layout, Wish, planned


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


def launch(request: Request) -> int:
    """Do what `request` asks for and return the exit status; raises `DdlbenchError` for what is refused."""
    found = allocation.find(request.hosts, request.hostfile)
    layout = planned(found, request.wish)
    program = _found(program_of(request.words, request.wish.mode))
    job = _job(request, found, layout, program.words)
    _tell(f"{_told(layout)} ({found.source}), {job.library.name}")
    if layout.sharing:
        _tell(f"{layout.sharing}; their times are not those of ranks with a core each")
    if request.dry_run:
        sys.stdout.write(f"{shlex.join(commands.command(job))}\n")
        return 0
    # SIGTERM and SIGHUP are taken for Ctrl-C, so that what was started is ended before this process is.
    with running.handled((signal.SIGTERM, signal.SIGHUP), signal.default_int_handler):
        check_resolve(layout.hosts)
        if request.check_seconds is not None and not layout.only_here:
            _check(job, request.check_seconds)
        return _run(job, program, request.own)


def _job(request: Request, found: allocation.Allocation, layout: Layout, words: tuple[str, ...]) -> Job:
    """Return the job, its host file written."""
    library = libraries.of_family(request.mpi) if request.mpi is not None else libraries.of_this_python()
    there = not (request.dry_run and request.mpi is not None)
    launcher = libraries.launcher_of(library, found.scheduler, request.launcher, must_be_there=there)
    variables = commands.variables_of(layout, os.environ)
    job = Job(
        library,
        launcher,
        layout,
        words,
        variables,
        bound=any(name in os.environ for name in commands.BINDING),
        kept_alive=any(name in os.environ for name in commands.KEEPALIVE_VARIABLES),
        settings=commands.settings_of(library, os.environ, root=commands.is_root()),
    )
    return _with_hostfile(job)


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


def _found(program: Program) -> Program:
    """Return it with the path of its first word: the ddlbench that runs this, or as this shell finds it.

    Raises `UsageError` when there is no such program.
    """
    name, *rest = program.words
    if name == "ddlbench":
        beside = Path(sys.executable).parent / "ddlbench"
        start = (str(beside),) if beside.exists() else (sys.executable, "-m", "ddlbench")
        return replace(program, words=(*start, *rest))
    path = shutil.which(name)
    if path is None:
        raise UsageError(f"{name!r} is not a program here: check the spelling, or give its path")
    return replace(program, words=(path, *rest))


# ---- The run -------------------------------------------------------------------------------------------------------


def _check(job: Job, seconds: float) -> None:
    """Ask the hosts; raises `DdlbenchError`, and tells what is no reason to refuse them."""
    stop = threading.Event()

    def ask(layout: Layout) -> checks.Answer:
        token = checks.token()
        asking = replace(job, layout=layout, words=checks.words(token), hostfile=None)
        return checks.asked(commands.command(_with_hostfile(asking)), token, os.environ, seconds, stop)

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
    expected = program.expected(own)
    with _watched(program.directory) as (watch, variables):
        command = commands.command(replace(job, variables={**job.variables, **variables}))
        _tell(shlex.join(command))
        return judged(running.run(command, os.environ, watch), expected)


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
