"""Who owns what on a device: its context, memory, pinned host memory, streams and events. On a GPU that is pycuda.

Kernels, copies and handles for other processes are those of `ddlbench._cuda`; both work in the device's primary
context, as CuPy, torch and JAX do, so that addresses, streams and events of one are good for the other.
"""

import atexit
import importlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ddlbench.errors import DeviceError, NoDeviceError

INSTALL = "pip install 'ddlbench[cuda]'"
BUILD = "build ddlbench where there is an nvcc (DDLBENCH_CUDA=1 pip install …, see docs/cuda.md)"


class Memory(Protocol):
    """A block of a device's memory; it is freed by `close`, or with the object."""

    address: int
    nbytes: int

    def close(self) -> None:
        """Free it; nobody may use it any more."""


class Owner(Protocol):
    """The owner of device number `device`; `cuda` is `ddlbench._cuda`."""

    device: int
    cuda: Any

    def empty(self, nbytes: int) -> Memory:
        """Return new device memory; raises `MemoryError` where the device has no room."""

    def pin(self, array: npt.NDArray[np.uint8]) -> Callable[[], None]:
        """Pin the host memory of `array`, whole pages; return what unpins it. Raises `MemoryError`."""

    def stream(self) -> int:
        """Return the address of a new stream, which lives as long as the owner."""

    def event(self) -> int:
        """Return the address of a new event that keeps the time and lives as long as the owner."""


def extension() -> Any:
    """Return `ddlbench._cuda`; raises `NoDeviceError` where it was not built."""
    try:
        return importlib.import_module("ddlbench._cuda")
    except ImportError as error:
        raise NoDeviceError(f"this ddlbench was built without CUDA ({error}): {BUILD}") from None


class PycudaMemory:
    """Device memory of pycuda."""

    def __init__(self, allocation: Any, nbytes: int) -> None:
        self._allocation, self.address, self.nbytes = allocation, int(allocation), nbytes

    def close(self) -> None:
        """Free it; nobody may use it any more."""
        self._allocation.free()


class PycudaOwner:
    """Device number `device` with its primary context current, by pycuda, until this process ends.

    Raises `NoDeviceError` where pycuda or a driver is missing, or there is no such device.
    """

    def __init__(self, device: int) -> None:
        self.cuda = extension()
        found = self.cuda.devices()
        if device >= len(found):
            raise NoDeviceError(f"there is no device {device}: this process sees {len(found)}")
        self.device = device
        self._driver = _pycuda()
        self._kept: list[Any] = []
        self._driver.init()
        context = self._driver.Device(device).retain_primary_context()
        context.push()
        atexit.register(context.pop)
        self.cuda.set_device(device)

    def empty(self, nbytes: int) -> PycudaMemory:
        """Return new device memory; raises `MemoryError` where the device has no room."""
        try:
            return PycudaMemory(self._driver.mem_alloc(max(nbytes, 1)), nbytes)
        except self._driver.MemoryError:
            raise out_of_memory(self, nbytes) from None
        except self._driver.Error as error:
            raise DeviceError(f"pycuda: {error}") from None

    def pin(self, array: npt.NDArray[np.uint8]) -> Callable[[], None]:
        """Pin the host memory of `array`, whole pages; return what unpins it. Raises `MemoryError`."""
        return pinned(self.cuda, array)

    def stream(self) -> int:
        """Return the address of a new stream, which lives as long as the owner."""
        self._kept.append(self._driver.Stream())
        return int(self._kept[-1].handle)

    def event(self) -> int:
        """Return the address of a new event that keeps the time and lives as long as the owner."""
        return int(self.cuda.event_create())


def pinned(cuda: Any, array: npt.NDArray[np.uint8]) -> Callable[[], None]:
    """Pin the host memory of `array` by `cuda`, `ddlbench._cuda`; return what unpins it. Raises `MemoryError`.

    Not by pycuda, whose register_host_memory gives an array that does not lead back to what unpins it.
    """
    try:
        cuda.host_register(array.ctypes.data, array.nbytes)
    except DeviceError as error:
        raise MemoryError(f"{array.nbytes} bytes of host memory cannot be pinned: {error}") from None
    return lambda: cuda.host_unregister(array.ctypes.data)


def out_of_memory(owner: Owner, nbytes: int) -> MemoryError:
    """Return the error for a device without room for `nbytes`."""
    free, total = owner.cuda.memory()
    return MemoryError(f"device {owner.device} has no room for {nbytes} bytes: {free} of {total} are free")


def _pycuda() -> Any:
    """Return `pycuda.driver`; raises `NoDeviceError` where it cannot be loaded."""
    try:
        return importlib.import_module("pycuda.driver")
    except ModuleNotFoundError:
        raise NoDeviceError(f"device buffers need pycuda, which is not installed: {INSTALL}") from None
    except ImportError as error:
        raise NoDeviceError(f"pycuda does not load ({error}): build it anew for this driver and toolkit") from None


def open_device(device: int) -> Owner:
    """Return the owner of device number `device`; raises `NoDeviceError`."""
    return PycudaOwner(device)
