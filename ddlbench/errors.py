"""Errors a caller can act on: each message names the value, what was expected and the way out."""

import difflib
from collections.abc import Iterable


class DdlbenchError(Exception):
    """Base of all errors ddlbench raises on purpose; `exit_status` is what the command line returns for it."""

    exit_status = 1


class UsageError(DdlbenchError):
    """The caller's input is wrong: a size, a name, a grid, a configuration key, a file."""

    exit_status = 2


class UnsupportedError(DdlbenchError):
    """The request is well formed, but this combination does not exist here (a dtype the vendor's allreduce lacks)."""


class ProofError(DdlbenchError):
    """A schedule was refused by the proof; the message names the round, the rank and the move."""


class MPIError(DdlbenchError):
    """An MPI call returned an error; the message holds the call and MPI's own text."""


class DeviceError(DdlbenchError):
    """A call of CUDA or NCCL failed; the message holds its own name and text. `code` is the `cudaError_t`, if any."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class NoDeviceError(DeviceError):
    """There is no GPU to work with: no driver, an old one, no device this process may use, or not as asked for."""

    exit_status = 2


def unknown(kind: str, value: object, choices: Iterable[str]) -> UsageError:
    """Return the error for a `value` that is none of `choices`, with the nearest right spelling.

    `kind` is what the value should have been, in the user's words ("algorithm", "dtype", "configuration key").
    """
    known = list(choices)
    near = difflib.get_close_matches(str(value).lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of: {', '.join(known)}"
    return UsageError(f"unknown {kind} {str(value)!r}: {hint}")
