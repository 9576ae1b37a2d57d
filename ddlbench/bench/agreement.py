"""Doing a thing on every rank so that all of them know when it failed on any: nobody waits for a rank that gave up."""

import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from ddlbench.errors import DdlbenchError

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

T = TypeVar("T")
FAILURES = (DdlbenchError, MemoryError, OSError)


class AgreedError(Exception):
    """An error that all ranks raise together: `error` is that of the first rank that failed, which the text names."""

    def __init__(self, error: Exception, text: str) -> None:
        super().__init__(text)
        self.error = error

    @property
    def exit_status(self) -> int:
        """The exit status for the command line."""
        return self.error.exit_status if isinstance(self.error, DdlbenchError) else 1


class _Attempt(Generic[T]):
    """What came of an action: a value, or one of the errors that an action may end with."""

    def __init__(self, action: Callable[[], T]) -> None:
        self.error: Exception | None = None
        try:
            self.value = action()
        except FAILURES as error:
            self.error = error


def agreed(comm: "Comm", action: Callable[[], T]) -> T:
    """Run `action` on every rank (collective) and return this rank's value.

    Raises `AgreedError` on all ranks when it raised a `DdlbenchError`, a `MemoryError` or an `OSError` on any. The
    action must not communicate after a point where it can fail on some ranks only.
    """
    attempt = _Attempt(action)
    if comm.allreduce(int(attempt.error is not None)):
        raise _first(comm.allgather((attempt.error, platform.node())))
    return attempt.value


def from_root(comm: "Comm", action: Callable[[], T]) -> T:
    """Run `action` on rank 0 alone (collective) and return its value on every rank; raises as `agreed` does."""
    attempt = _Attempt(action) if comm.rank == 0 else None
    value, error = comm.bcast(attempt and (getattr(attempt, "value", None), attempt.error))
    if error is not None:
        raise AgreedError(error, describe(error))
    return value  # type: ignore[no-any-return]


def _first(gathered: list[tuple[Exception | None, str]]) -> AgreedError:
    """Return the error of the first rank that has one, saying which rank and host it was unless all met the same."""
    rank, error, host = next((rank, error, host) for rank, (error, host) in enumerate(gathered) if error is not None)
    same = {str(other) for other, _ in gathered} == {str(error)}
    return AgreedError(error, describe(error) if same else f"rank {rank} on {host}: {describe(error)}")


def describe(error: Exception) -> str:
    """Return the error as one line."""
    text = " ".join(str(error).split())
    if isinstance(error, BrokenPipeError):
        return "standard output was closed"
    if isinstance(error, MemoryError):
        return f"out of memory: {text}" if text else "out of memory"
    return text or type(error).__name__
