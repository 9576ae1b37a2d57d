"""NCCL's allreduce beside ours: the library is found and loaded when it is first asked for.

It is that of the PyPI package nvidia-nccl-cu12 or nvidia-nccl-cu13, else the one that the loader finds.
"""

import ctypes
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ddlbench import _engine
from ddlbench.device.arrays import DeviceArray
from ddlbench.dtypes import DType, op_code
from ddlbench.errors import DeviceError, NoDeviceError

if TYPE_CHECKING:
    from mpi4py import MPI

LIBRARY = "libnccl.so.2"
INSTALL = "pip install nvidia-nccl-cu12 (or -cu13, as your driver is), or put libnccl.so.2 on LD_LIBRARY_PATH"
KINDS = {"float16": 6, "bfloat16": 9, "float32": 7, "float64": 8, "int32": 2, "int64": 4, "uint8": 1}
REDUCTIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 0}
"""NCCL's codes. Its own average rounds in another way than ours: the sum is divided by our kernel."""
SAME_DEVICE = "NCCL wants a device for each rank, and refuses two ranks on one"


class UniqueId(ctypes.Structure):
    """ncclUniqueId of nccl.h."""

    _fields_ = (("internal", ctypes.c_char * 128),)


def library_path() -> str:
    """Return where NCCL is: in the PyPI package, or a name for the loader."""
    found = importlib.util.find_spec("nvidia") if os.environ.get("DDLBENCH_NCCL") is None else None
    places = [Path(place, "nccl", "lib", LIBRARY) for place in (found and found.submodule_search_locations) or ()]
    named = os.environ.get("DDLBENCH_NCCL", LIBRARY)
    return next((str(place) for place in places if place.exists()), named)


class Nccl:
    """NCCL's communicator of the ranks of `comm`, each on its current device; collective to make and to free.

    Raises `NoDeviceError` where there is no NCCL, `DeviceError` where it refuses these ranks.
    """

    def __init__(self, comm: "MPI.Comm") -> None:
        self._library = load()
        self._comm = comm
        self._handle = ctypes.c_void_p()
        unique = UniqueId()
        failed = self._library.ncclGetUniqueId(ctypes.byref(unique)) if comm.rank == 0 else 0
        told = comm.bcast((failed, bytes(unique)))
        self._check("ncclGetUniqueId", told[0])
        unique = UniqueId.from_buffer_copy(told[1])
        made = self._library.ncclCommInitRank(ctypes.byref(self._handle), comm.size, unique, comm.rank)
        self._check("ncclCommInitRank", max(comm.allgather(made)))

    @property
    def version(self) -> str:
        """NCCL's version, such as 2.28.3."""
        code = ctypes.c_int()
        self._check("ncclGetVersion", self._library.ncclGetVersion(ctypes.byref(code)))
        return f"{code.value // 10000}.{code.value % 10000 // 100}.{code.value % 100}"

    def runner(
        self,
        buffers: tuple[DeviceArray, DeviceArray],
        kind: DType,
        op: str,
        device: _engine.Device,
        *,
        yielding: bool,
    ) -> _engine.Nccl:
        """Return what runs NCCL's allreduce on `buffers`."""
        function = ctypes.cast(self._library.ncclAllReduce, ctypes.c_void_p).value or 0
        sendbuf, recvbuf = buffers
        return _engine.Nccl(
            self._comm.py2f(),
            function,
            self._handle.value or 0,
            KINDS[kind.name],
            REDUCTIONS[op],
            self._text,
            sendbuf,
            recvbuf,
            kind.code,
            op_code(op),
            yielding,
            device,
        )

    def free(self) -> None:
        """Free the communicator."""
        if self._handle.value:
            self._library.ncclCommDestroy(self._handle)
            self._handle = ctypes.c_void_p()

    def _text(self, error: int) -> str:
        text: bytes = self._library.ncclGetErrorString(error)
        return f"{text.decode(errors='replace')} ({error})"

    def _check(self, call: str, error: int) -> None:
        if error:
            raise DeviceError(f"{call}: {self._text(error)}")


def load() -> ctypes.CDLL:
    """Return NCCL's library; raises `NoDeviceError`."""
    try:
        library = ctypes.CDLL(library_path())
    except OSError as error:
        raise NoDeviceError(f"algorithm 'nccl' needs NCCL, which does not load ({error}): {INSTALL}") from None
    library.ncclGetErrorString.restype = ctypes.c_char_p
    library.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, UniqueId, ctypes.c_int]
    library.ncclCommDestroy.argtypes = [ctypes.c_void_p]
    return library
