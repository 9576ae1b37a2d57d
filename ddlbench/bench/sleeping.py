"""Some ranks at work while the others sleep: an MPI library's own waits use a core each, which the work would miss."""

import os
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from ddlbench.bench.agreement import AgreedError
from ddlbench.errors import DdlbenchError

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

T = TypeVar("T")
TAG = 7
FIRST_SECONDS, LONGEST_SECONDS = 0.0001, 0.005
"""A sleeping rank looks for news so often at first, and so rarely after a while: it is awake that soon, too."""


class LauncherGoneError(DdlbenchError):
    """What started this rank has ended, and with it, it must be taken, the job."""


def apart(comm: "Comm", members: Collection[int], action: Callable[[], T]) -> T:
    """Run `action` on the ranks `members` of `comm` while all others sleep (collective).

    Returns what it returned on this rank, and on those that slept what it returned on the first member, which must be
    possible to pickle. An `AgreedError`, which all members raise, is raised on all ranks. Any other error is that
    rank's own, which must then end the job: nobody wakes the others.
    """
    first, at_work = min(members), frozenset(members)
    if comm.rank not in at_work:
        return _slept(comm, first)  # type: ignore[no-any-return]
    others = [rank for rank in range(comm.size) if rank not in at_work] if comm.rank == first else []
    try:
        result = action()
    except AgreedError as error:
        _tell(comm, others, None, error)
        raise
    _tell(comm, others, result, None)
    return result


def _tell(comm: "Comm", others: Collection[int], value: object, error: AgreedError | None) -> None:
    """Wake the others with what came of it; all messages are under way before the first is waited for."""
    news = (value, error and (error.error, str(error)))
    for request in [comm.isend(news, dest=other, tag=TAG) for other in others]:
        request.wait()


def _slept(comm: "Comm", first: int) -> Any:
    """Sleep until rank `first` tells what came of the others' work; return or raise that."""
    launcher, pause = os.getppid(), FIRST_SECONDS
    while not comm.iprobe(source=first, tag=TAG):
        if os.getppid() != launcher:
            raise LauncherGoneError("the launcher of this rank ended while the rank slept")
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_SECONDS)
    value, failure = comm.recv(source=first, tag=TAG)
    if failure is not None:
        raise AgreedError(*failure)
    return value
