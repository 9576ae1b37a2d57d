"""How a sweep ends that hangs or loses a rank: what the watchdog found is said and stored, and every rank leaves.

All of it runs in the watchdog's thread, or in the thread of `ddlbench._deadline`, since the program itself may be stuck
in MPI. MPI_Abort is tried, as it ends the ranks of other nodes at once where it works; a deadline stands behind it.
"""

import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import isinf
from pathlib import Path
from typing import Any

from ddlbench import _deadline
from ddlbench.errors import DdlbenchError
from ddlbench.launch import heartbeat
from ddlbench.launch.started import launcher
from ddlbench.watch.board import Beat
from ddlbench.watch.fault import Fault

STALLED = 3
"""The exit status of a run that ended early because it hung, or because a rank was lost."""
ABORT_SECONDS = 3.0
"""How long MPI_Abort may take."""
FOLLOW_SECONDS = 1.0
"""How long ranks that were told to leave wait for MPI_Abort to end them."""
INTERRUPT_SECONDS = 2.5
"""How long a rank may take to end that was interrupted."""
ORPHAN_SECONDS = 1.0
"""How long one may whose launcher is gone: what started that may kill its ranks 2 s later."""
START_SECONDS = 60.0
"""How long MPI may take to start, the ranks to meet, and MPI to end, where no time limit was asked for."""
START_MARGIN_SECONDS = 9.0
"""How much longer than a limit that was asked for."""
LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun")
LAUNCHER_SECONDS = 2.0
"""How long a launcher has to end by itself after a host was lost."""
LAST_RITES = """
import select, signal, sys
held, seconds = int(sys.argv[1]), float(sys.argv[2])
for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 1)):
    if select.select([held], [], [], patience)[0]:
        break
    signal.pidfd_send_signal(held, number)
"""
HELD_SECONDS = 10.0
"""How much longer than the limit a rank may not run Python."""


def _here() -> str:
    return f"rank {launcher().rank} on {platform.node()}"


@contextmanager
def within(seconds: float, what: str, hint: str = "") -> Iterator[None]:
    """End this process with status 3 when what is done inside takes longer than `seconds`, naming it as `what`.

    `hint` is what to say behind that.
    """
    if not isinf(seconds):
        text = f"ddlbench: error: {_here()}: {what} did not come to an end within {seconds:.0f} s{hint}\n"
        _deadline.arm(seconds, text, STALLED)
    try:
        yield
    finally:
        _deadline.disarm()


def start_seconds(limit_s: float | None) -> float:
    """Return how long MPI may take to start, the ranks to meet, and MPI to end; `limit_s` is what was asked for."""
    return START_SECONDS if limit_s is None else limit_s + START_MARGIN_SECONDS


def start_mpi(limit_s: float | None) -> None:
    """Start MPI, which takes all ranks; ends this process when that takes longer than `start_seconds`.

    Open MPI ends a process at the moment when it sees the connection of another one break, often before the watchdog
    could say whose that was. It is told to wait for a second before it aborts.
    """
    os.environ.setdefault("OMPI_MCA_mpi_abort_delay", "1")
    with within(start_seconds(limit_s), "starting MPI", "; where ranks start slowly, give --timeout more"):
        import mpi4py.MPI  # noqa: F401 - what counts is that it is loaded


def finish_mpi(seconds: float) -> None:
    """End MPI, which takes all ranks; ends this process when that takes longer than `seconds`."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized():
        with within(seconds, "ending MPI"):
            mpi.Finalize()


class Faults:
    """What the watchdog of a sweep does about what it finds (`ddlbench.watch.watchdog.Ending`); `rank` is this rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._kept = "nothing was measured yet"
        self._points = ""
        self._store: Callable[[Fault], None] | None = None

    def keep(self, out: Path, store: Callable[[Fault], None] | None) -> None:
        """Take note that points are kept in `out` from now on, and of how this rank stores a fault there."""
        self._kept = f"the points that were finished are kept, --resume {shlex.quote(str(out))} goes on with them"
        self._points = f"the points that were finished are kept in {out}"
        self._store = store

    def announce(self, fault: Fault) -> None:
        """Say the fault and store it."""
        _say("\n".join([*fault.lines(), f"# {self._kept}"]))
        if fault.found and any(place.host != platform.node() for place in fault.silent):
            _end_launcher()
        if self._store:
            try:
                self._store(fault)
            except DdlbenchError as error:
                _say(f"# the record does not say so: {error}")

    def alone(self, beat: Beat, leaders: tuple[str, ...]) -> None:
        """Say where this rank stands."""
        unheard = f"; nothing was heard from {' or '.join(leaders)}" if leaders else ""
        place = f"{_here()} (pid {os.getpid()}): {beat.what}, {beat.where}"
        _say(f"# stalled: {place}: no progress for {beat.idle_s:.0f} s{unheard}")

    def interrupted(self, why: str) -> None:
        """See to it that this process ends, though it may be stuck in MPI."""
        text = ": ".join(filter(None, ("ddlbench: interrupted", "; ".join(filter(None, (why, self._points))))))
        seconds = ORPHAN_SECONDS if why else INTERRUPT_SECONDS
        _deadline.arm(seconds, f"{text}\n" if self._rank == 0 else "", 130)

    def alive(self, beat: Beat) -> None:
        """Put off the end that comes when the interpreter stands still, which nothing written in Python could tell."""
        if self._rank == 0:
            heartbeat.beat(None if isinf(beat.limit_s) else beat.limit_s)
        if not isinf(beat.limit_s):
            seconds = beat.limit_s + HELD_SECONDS
            text = f"# stalled: {_here()} (pid {os.getpid()}): {beat.what}: Python stood still for {seconds:.0f} s\n"
            _deadline.arm(seconds, text, STALLED)

    def unwatched(self) -> None:
        """Take that end away."""
        _deadline.disarm()

    def leave(self, *, first: bool) -> None:
        """End this process, and by MPI_Abort the job, for certain."""
        if self._rank == 0:
            heartbeat.beat(0.0)  # nobody need wait for the next sign: ddlbench launch ends what is left of the job
        _deadline.arm(ABORT_SECONDS, "", STALLED)
        if first:
            _abort()
        time.sleep(FOLLOW_SECONDS)
        os._exit(STALLED)


def _end_launcher() -> None:
    """Have the launcher of this rank ended by a process of its own, when it has not ended by itself soon.

    Open MPI's waits for the hosts that it lost for eight minutes, although it was told to abort. Where this rank's
    parent is no launcher, or the kernel cannot hold on to a process (before Linux 5.3), nothing is done.
    """
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        name = Path(f"/proc/{parent}/comm").read_text().strip()
        if name in LAUNCHERS:
            held = os.pidfd_open(parent)
            _say(f"# {name} (pid {parent}) may wait for what it lost: it is killed unless it ends by itself")
            words = [sys.executable, "-S", "-c", LAST_RITES, str(held), str(LAUNCHER_SECONDS)]
            subprocess.Popen(words, pass_fds=[held], stdin=subprocess.DEVNULL, start_new_session=True)


def _abort() -> None:
    """End the job by MPI, where MPI may be called from this thread."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    usable = mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized()
    if usable and mpi.COMM_WORLD.size > 1 and mpi.Query_thread() == mpi.THREAD_MULTIPLE:
        mpi.COMM_WORLD.Abort(STALLED)


def _say(text: str) -> None:
    """Write past Python's streams, which the program may hold."""
    with suppress(OSError):
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"{text}\n".encode("utf-8", "backslashreplace"))
