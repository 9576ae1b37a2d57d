"""The owner of a device that is an emulation (tests/emulated_cuda.py), as pycuda is of a GPU: no proof of one.

Processes that name one folder share the build. `use()` lets all of ddlbench in this process see such
devices, whose number and memory EMULATED_CUDA_DEVICES and EMULATED_CUDA_MEMORY say before that. As a program it is
`ddlbench` with such devices.
"""

import hashlib
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import emulated_cuda
from ddlbench.device import owner as owners
from ddlbench.device.owner import Owner, out_of_memory, pinned
from ddlbench.errors import DeviceError

SOURCES = ("cuda", "tests/cuda_shim", "pyx/cuda.pyx", "pyx/cuda.pxd", "pyx/kernels.h", "ddlbench/errors.py")


def build() -> Path:
    """Return the emulated extension, compiled once for each state of its sources."""
    paths = [emulated_cuda.TOP / source for source in SOURCES]
    files = sorted(file for path in paths for file in (path.iterdir() if path.is_dir() else [path]) if file.is_file())
    state = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    return emulated_cuda.build(emulated_cuda.TOP / "build" / "emulated-cuda" / state)


class EmulatedMemory:
    """A block of emulated device memory."""

    def __init__(self, cuda: Any, address: int, nbytes: int) -> None:
        self.address, self.nbytes = address, nbytes
        self.close = weakref.finalize(self, cuda.free, address)


class EmulatedOwner:
    """Device number `device` of the emulation."""

    def __init__(self, device: int = 0) -> None:
        self.cuda = owners.extension()
        self.device = device
        self.cuda.set_device(device)

    def empty(self, nbytes: int) -> EmulatedMemory:
        try:
            return EmulatedMemory(self.cuda, self.cuda.malloc(max(nbytes, 1)), nbytes)
        except DeviceError as error:
            if error.code != 2:
                raise
            raise out_of_memory(self, nbytes) from None

    def pin(self, array: np.ndarray) -> Callable[[], None]:
        return pinned(self.cuda, array)

    def stream(self) -> int:
        return self.cuda.stream_create()

    def event(self) -> int:
        return self.cuda.event_create()


def use() -> None:
    """Make emulated devices those of this process."""
    emulated_cuda.install(build())
    owners.open_device = open_device  # type: ignore[assignment]
    import ddlbench.comm

    ddlbench.comm.open_device = open_device  # type: ignore[attr-defined]


def open_device(device: int) -> Owner:
    return EmulatedOwner(device)


if __name__ == "__main__":
    from ddlbench.cli import main

    use()
    sys.exit(main())
