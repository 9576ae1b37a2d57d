"""The settings of Open MPI's allreduce that are compared, and how a rank changes them while it runs.

They are parameters that a user gives when ranks are started: `--mca coll ^han`, `--mca coll_tuned_use_dynamic_rules 1
--mca coll_tuned_allreduce_algorithm 4`. Open MPI reads them when a communicator is made, when it is first used or at
each call, and lets a program write them by the tool interface of MPI (MPI 4.1, section 15.3). So one launch can hold a
communicator for each setting, and all of them can take turns.
"""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ddlbench.errors import MPIError, UnsupportedError, unknown

AS_IT_COMES = "as it comes"
_WITHOUT_HAN = {"coll_han_priority": -1}
"""What `--mca coll ^han` does: a component that has a priority below 0 does not take part."""


def _forced(number: int, segment_nbytes: int = 0) -> dict[str, int]:
    """Return the parameters that force one of the algorithms of the component `tuned`, by Open MPI's number."""
    return {
        **_WITHOUT_HAN,
        "coll_tuned_use_dynamic_rules": 1,
        "coll_tuned_allreduce_algorithm": number,
        "coll_tuned_allreduce_algorithm_segmentsize": segment_nbytes,
    }


SETTINGS: Mapping[str, Mapping[str, int]] = {
    AS_IT_COMES: {},
    "simple HAN": {"coll_han_use_allreduce_algorithm": 2},
    "without HAN": _WITHOUT_HAN,
    "linear": _forced(1),
    "reduce and broadcast": _forced(2),
    "recursive doubling": _forced(3),
    "ring": _forced(4),
    "segmented ring": _forced(5, 1 << 20),
    "Rabenseifner": _forced(6),
}
"""From the name of a setting to its parameters. Open MPI itself cuts a segmented ring into pieces of 1 MiB."""


class Parameters:
    """The parameters of the MPI library that `library`, a file linked with it, has loaded.

    Raises `MPIError` when the library has no tool interface that works.
    """

    def __init__(self, library: str) -> None:
        self._mpi = ctypes.CDLL(library)
        self._call("MPI_T_init_thread", 0, ctypes.byref(ctypes.c_int()))

    def close(self) -> None:
        """Give the tool interface back."""
        self._call("MPI_T_finalize")

    @contextmanager
    def set(self, setting: str) -> Iterator[None]:
        """Have a setting in force meanwhile.

        Raises `UsageError` for a name that is none, `UnsupportedError` when the library has not all its parameters.
        """
        if setting not in SETTINGS:
            raise unknown("setting", setting, SETTINGS)
        before = {name: self.read(name) for name in SETTINGS[setting]}
        try:
            for name, value in SETTINGS[setting].items():
                self.write(name, value)
            yield
        finally:
            for name, value in before.items():
                self.write(name, value)

    def read(self, name: str) -> int:
        """Return the value of a parameter, an integer or a truth value; raises `UnsupportedError` without one."""
        with self._handle(name) as handle:
            value = ctypes.c_longlong(0)
            self._call("MPI_T_cvar_read", handle, ctypes.byref(value))
            return ctypes.c_int(value.value).value

    def write(self, name: str, value: int) -> None:
        """Give a parameter a value; raises `UnsupportedError` when there is none, or it does not take it."""
        with self._handle(name) as handle:
            self._call("MPI_T_cvar_write", handle, ctypes.byref(ctypes.c_longlong(value)))
        if (found := self.read(name)) != value:
            raise UnsupportedError(f"this MPI library's parameter {name} does not take {value}, it stays {found}")

    @contextmanager
    def _handle(self, name: str) -> Iterator[ctypes.c_void_p]:
        index, handle = ctypes.c_int(), ctypes.c_void_p()
        if self._mpi.MPI_T_cvar_get_index(name.encode(), ctypes.byref(index)):
            raise UnsupportedError(f"this MPI library has no parameter {name}")
        self._call("MPI_T_cvar_handle_alloc", index, None, ctypes.byref(handle), ctypes.byref(ctypes.c_int()))
        try:
            yield handle
        finally:
            self._call("MPI_T_cvar_handle_free", ctypes.byref(handle))

    def _call(self, function: str, *arguments: object) -> None:
        try:
            status = getattr(self._mpi, function)(*arguments)
        except AttributeError:
            raise MPIError(f"this MPI library has no {function}") from None
        if status:
            raise MPIError(f"{function} returned {status}")
