"""`ddlbench fit` on all ranks: checks, measures, fits on the first rank, writes the files."""

import atexit
import signal
import sys
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from mpi4py import MPI

from ddlbench.bench.agreement import agreed, from_root
from ddlbench.bench.progress import PlainBar, RichBar
from ddlbench.bench.sleeping import apart
from ddlbench.cli.faults import START_SECONDS, Faults, finish_mpi
from ddlbench.cli.fit_request import Asked, Request, checked
from ddlbench.cli.fitted import Found, found, picture, told
from ddlbench.cli.session import library
from ddlbench.comm import Communicator
from ddlbench.cost.described import dumps
from ddlbench.launch.started import check, launcher
from ddlbench.links import record
from ddlbench.links.crowd import shares_processors
from ddlbench.links.machine import check_shape
from ddlbench.links.pairs import CLASSES, Places
from ddlbench.links.survey import Survey, Surveyor, find_places
from ddlbench.records.disk import write_atomically
from ddlbench.report.plain import fitting
from ddlbench.watch.board import LEAST_SECONDS, Board
from ddlbench.watch.watchdog import Watchdog

T = TypeVar("T")


def run(request: Request) -> int:
    """Measure, fit and write (collective over all ranks of the launch); return the exit status.

    Raises `AgreedError` on all ranks for mistakes in the request, before anything is measured, and when the files
    cannot be written.
    """
    world = MPI.COMM_WORLD
    check(launcher(), world.size, library())
    asked = from_root(world, partial(checked, request))
    atexit.register(finish_mpi, START_SECONDS)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with Watchdog(LEAST_SECONDS, Faults(world.rank)) as watchdog:
        watchdog.connect(world, START_SECONDS)
        communicator = agreed(world, lambda: Communicator(world))
        numbers = MPI.Group.Translate_ranks(world.group, range(world.size), communicator.comm.group)
        watchdog.number(numbers)
        _run(asked, communicator, watchdog.board)
        communicator.close()
    return 0


def _run(asked: Asked, communicator: Communicator, board: Board) -> None:
    comm, topology = communicator.comm, communicator.topology
    agreed(comm, lambda: check_shape(topology.ranks_per_node))
    begun = time.monotonic()
    places = find_places(communicator, asked.rack)
    surveyor = Surveyor(communicator, places, partial(sleeping, comm, board), board)
    with ExitStack() as stack:
        begin = _progress(places, stack) if comm.rank == 0 else lambda _: None
        survey = surveyor.run(asked.sizes, asked.seconds, begin)
        begin("the fit")
        board.begin("the fit")
        made = f"by ddlbench fit over {library()} on {datetime.now(UTC):%Y-%m-%d}"
        seen = surveyor.on_first(partial(found, survey, asked.out.stem, made))
    surveyor.on_first(partial(_write, asked, survey, seen))
    if comm.rank == 0:
        _tell(asked, survey, seen, time.monotonic() - begun)


def sleeping(comm: MPI.Comm, board: Board, members: Collection[int], action: Callable[[], T]) -> T:
    """Run `action` on `members`, the others being asleep and watched as such (collective over `comm`)."""
    if comm.rank in members:
        return apart(comm, members, action)
    with board.asleep(f"the turn of {len(members)} other ranks"):
        return apart(comm, members, action)


def _progress(places: Places, stack: ExitStack) -> Callable[[str], None]:
    """Return what shows how far the measurement is: a bar on a terminal, else a line now and then."""
    kinds = [kind for kind in CLASSES if places.at_once(kind)]
    total = (
        len(places.pairs())
        + 2
        + shares_processors(places.topology)
        + sum(1 + (len(places.at_once(kind)) > 1) for kind in kinds)
    )
    streams = {"out": sys.stdout, "err": sys.stderr}
    bar = RichBar(total, **streams, stack=stack) if sys.stderr.isatty() else PlainBar(total, **streams, noun="steps")
    begun = iter(range(total + 1))

    def begin(text: str) -> None:
        if next(begun, 0):
            bar.advance()
        bar.working_on(text)

    return begin


def _write(asked: Asked, survey: Survey, seen: Found) -> None:
    """Write the three files, the topology last: where it is, all of them are."""
    data = record.to_data(survey, seen.pairs, seen.slow, datetime.now(UTC).isoformat(timespec="seconds"))
    texts = (picture(survey, seen), record.dumps(data), dumps(seen.machine))
    for path, text in zip(asked.files[::-1], texts, strict=True):
        write_atomically(path, text)


def _tell(asked: Asked, survey: Survey, seen: Found, seconds: float) -> None:
    text = told(survey, seen, library())
    text += f"# {seconds:.1f} s; to use it: ddlbench predict all --topology {asked.out}\n"
    text += "".join(f"{file}\n" for file in asked.files)
    sys.stdout.write(fitting(text, sys.stdout.encoding))
    sys.stdout.flush()
