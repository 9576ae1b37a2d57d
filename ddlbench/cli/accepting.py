"""`ddlbench accept` on all ranks: checks, measures, judges, writes the files on the first rank."""

import atexit
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from mpi4py import MPI

from ddlbench import __version__
from ddlbench.accept import expect, junit, page, record, tables
from ddlbench.accept.course import Course, Outcome
from ddlbench.accept.examine import Examiner
from ddlbench.accept.record import Report
from ddlbench.bench.agreement import agreed, from_root
from ddlbench.cli.accept_request import FILES, Asked, Request, checked
from ddlbench.cli.faults import START_SECONDS, Faults, finish_mpi
from ddlbench.cli.fitting import sleeping
from ddlbench.cli.session import library
from ddlbench.comm import Communicator
from ddlbench.errors import UsageError
from ddlbench.launch.started import check, launcher
from ddlbench.records.disk import write_atomically
from ddlbench.report.plain import fitting, plain
from ddlbench.report.units import counted
from ddlbench.topology import Topology
from ddlbench.watch.board import LEAST_SECONDS, Board
from ddlbench.watch.watchdog import Watchdog

LAST_SECONDS = 1.0
"""So much later than the others the first rank leaves an acceptance that failed."""
SAY_SECONDS = 2.0
"""So often it is said what goes on."""


def run(request: Request) -> int:
    """Measure, judge and write (collective over all ranks of the launch); return the exit status of this rank.

    That is 1 on rank 0 alone when something is too slow, else 0. Raises `AgreedError` on all ranks for mistakes in the
    request, before anything is measured, and when the files cannot be written.
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
        passed = _run(asked, communicator, watchdog.board)
        communicator.close()
    return 0 if passed else _failed(world.rank)


def _failed(rank: int) -> int:
    """End MPI and return the status of a rank of an acceptance that failed: the first rank's is 1, and it leaves last.

    At the first status that is not 0 a launcher ends the other ranks. Open MPI 5's was seen to hang where they were
    leaving by themselves just then.
    """
    finish_mpi(START_SECONDS)
    if rank > 0:
        return 0
    time.sleep(LAST_SECONDS)
    return 1


def _run(asked: Asked, communicator: Communicator, board: Board) -> bool:
    comm, topology = communicator.comm, communicator.topology
    begun = time.monotonic()
    expectation = agreed(comm, lambda: _expectation(asked, topology))
    begin = _Progress() if comm.rank == 0 else lambda _: None
    examiner = Examiner(communicator, asked.rules, partial(sleeping, comm, board), board, begin)
    outcome = Course(examiner, expectation, asked.rules).run()
    from_root(comm, lambda: _finish(asked, topology, outcome, time.monotonic() - begun))
    return bool(comm.bcast(outcome.passed))


def _expectation(asked: Asked, topology: Topology) -> expect.Expectation:
    """Return what figures are held against; raises `UsageError` when it does not fit the launch."""
    if asked.machine:
        try:
            return expect.Described(asked.machine, topology, asked.rules)
        except UsageError as error:
            raise UsageError(f"--topology: {error}") from None
    if asked.baseline:
        try:
            return expect.Earlier(asked.baseline, record.hosts_of(topology), asked.rules)
        except UsageError as error:
            raise UsageError(f"--baseline: {error}") from None
    return expect.Nothing()


class _Progress:
    """Says on standard error what goes on, now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._said = clock, -SAY_SECONDS

    def __call__(self, what: str) -> None:
        if self._clock() - self._said >= SAY_SECONDS:
            self._said = self._clock()
            sys.stderr.write(f"# accept: {what}\n")
            sys.stderr.flush()


def _finish(asked: Asked, topology: Topology, outcome: Outcome, seconds: float) -> None:
    report = Report(
        outcome=outcome,
        hosts=record.hosts_of(topology),
        slots=topology.ranks_per_node,
        rules=asked.rules,
        against=asked.against,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        program=f"ddlbench {__version__}",
        warnings=tuple(_warnings(topology)),
    )
    makers = (page.render, tables.csv_text, junit.dumps, tables.hostfile, record.dumps)
    for name, make in zip(FILES, makers, strict=True):
        write_atomically(asked.out / name, make(report))
    _tell(report, asked)


def _warnings(topology: Topology) -> Iterator[str]:
    """Yield reasons to doubt the figures."""
    if lab := os.environ.get("DDLBENCH_LAB"):
        yield f"The nodes are virtual, of one machine ({lab}): this is no acceptance of anything."
    if topology.crowded:
        yield "There are more ranks than processors: figures of processors and latencies are the scheduler's."


def _tell(report: Report, asked: Asked) -> None:
    where = f"{counted(sum(report.slots), 'rank')} on {counted(len(report.hosts), 'node')}"
    text = f"# ddlbench accept: {where}, against {report.against}, {library()}\n"
    text += plain(tables.table(report))
    text += "".join(f"# {line}\n" for line in (*report.warnings, *tables.verdict(report)))
    text += f"# {report.seconds:.1f} s\n" + "".join(f"{asked.out / name}\n" for name in FILES)
    sys.stdout.write(fitting(text, sys.stdout.encoding))
    sys.stdout.flush()
