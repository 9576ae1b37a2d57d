"""What others call a device array: `__cuda_array_interface__` and DLPack, read without importing who made it."""

import ctypes
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ddlbench.dtypes import DTYPES, DType, dtype_named
from ddlbench.errors import UsageError

CPU, CUDA, CUDA_PINNED, CUDA_MANAGED = 1, 2, 3, 13
"""Devices of DLPack."""
_DLPACK_NAMES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 6: "bool"}
_ON_DEVICE = "the memory of a GPU"


@dataclass(frozen=True)
class DeviceArray:
    """A vector in a device's memory, contiguous: its address, its elements and their type's name.

    `device` is None where the maker did not say which. `stream` is the one whose work must be done before the memory
    is read (0: the default stream), and `kept` what keeps the memory there.
    """

    address: int
    size: int
    dtype: str
    itemsize: int
    device: int | None = None
    stream: int = 0
    readonly: bool = False
    kept: object = None

    @property
    def nbytes(self) -> int:
        """Bytes of the vector."""
        return self.size * self.itemsize

    def part(self, begin: int, size: int) -> "DeviceArray":
        """Return the `size` elements from `begin` on."""
        return replace(self, address=self.address + begin * self.itemsize, size=size)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array as CuPy, torch, JAX and pycuda take it; a bfloat16 as its bit pattern."""
        storage = DTYPES[self.dtype].storage
        return {
            "shape": (self.size,),
            "typestr": storage.str,
            "data": (self.address, self.readonly),
            "version": 3,
            "strides": None,
            "stream": None,
        }

    def __str__(self) -> str:
        return f"{self.size} {self.dtype} in {_ON_DEVICE}"


def device_array(buffer: object) -> DeviceArray | None:
    """Return the array in a device's memory that `buffer` is, None where it is none.

    Raises `UsageError` for one that is not contiguous, and for managed memory.
    """
    if isinstance(buffer, DeviceArray | np.ndarray):
        return buffer if isinstance(buffer, DeviceArray) else None
    found = _dlpack_device(buffer)
    if found is not None and found[0] == CUDA_MANAGED:
        raise UsageError("managed memory moves between host and device by itself: copy it to one of them")
    if found is not None and found[0] == CUDA:
        return _from_dlpack(buffer, found[1])
    interface = getattr(buffer, "__cuda_array_interface__", None)
    return None if interface is None else _from_interface(interface, buffer)


def pair(sendbuf: object, recvbuf: object) -> tuple[DeviceArray, DeviceArray] | None:
    """Return both buffers as arrays in a device's memory, None when both are the host's.

    Raises `UsageError` when there is one of each, or the two do not fit.
    """
    first = device_array(sendbuf)
    second = first if recvbuf is sendbuf else device_array(recvbuf)
    if first is None and second is None:
        return None
    if first is None or second is None:
        where = ("host memory", _ON_DEVICE) if first is None else (_ON_DEVICE, "host memory")
        raise UsageError(f"the send buffer is in {where[0]}, the receive buffer in {where[1]}: put both in one place")
    _check_pair(first, second)
    return first, second


def _check_pair(first: DeviceArray, second: DeviceArray) -> None:
    if second.readonly:
        raise UsageError("the array for the result is read-only")
    if (first.dtype, first.size) != (second.dtype, second.size):
        raise UsageError(f"send buffer of {first}, but receive buffer of {second}")
    apart = first.address + first.nbytes <= second.address or second.address + second.nbytes <= first.address
    if first.address != second.address and not apart:
        raise UsageError("send and receive buffers overlap; use the same array for in place, or separate ones")
    if None not in (first.device, second.device) and first.device != second.device:
        raise UsageError(f"the send buffer is on device {first.device}, the receive buffer on {second.device}")


def kind_of(array: DeviceArray, name: str | None) -> DType:
    """Return the element type of `array`, which `name` overrides for bit patterns; raises `UsageError`."""
    if array.dtype not in DTYPES and not (name and array.dtype in ("uint16", "void16")):
        raise UsageError(f"the device has no kernels for {array.dtype}: expected one of {', '.join(DTYPES)}")
    found = dtype_named(name or array.dtype)
    if found.itemsize != array.itemsize or array.dtype not in (found.name, found.storage.name, "void16"):
        raise UsageError(f"an array of {array.dtype} cannot hold {found.name}; expected {found.storage.name}")
    return found


# ---- __cuda_array_interface__ ----------------------------------------------------------------------------------------


def _from_interface(interface: dict[str, Any], owner: object) -> DeviceArray:
    dtype = np.dtype(interface["typestr"])
    if not dtype.isnative:
        raise UsageError(f"a device array of {interface['typestr']!r}: expected the machine's own byte order")
    address, readonly = interface["data"]
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    _check_contiguous(shape, None if strides is None else tuple(s // dtype.itemsize for s in strides))
    size = int(np.prod(shape, dtype=np.int64))
    name = f"void{8 * dtype.itemsize}" if dtype.kind == "V" else dtype.name
    stream = interface.get("stream") or 0
    return DeviceArray(int(address or 0), size, name, dtype.itemsize, None, int(stream), bool(readonly), owner)


def _check_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
    """Refuse an array whose `strides`, in elements, leave gaps or turn it round; raises `UsageError`."""
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides or ()), strict=False):
        if length > 1 and stride != expected:
            raise UsageError(f"expected a C-contiguous device array, got one of shape {shape} with strides {strides}")
        expected *= length


# ---- DLPack ----------------------------------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    """DLTensor of DLPack's dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _dlpack_device(buffer: object) -> tuple[int, int] | None:
    ask = getattr(buffer, "__dlpack_device__", None)
    if ask is None or not hasattr(buffer, "__dlpack__"):
        return None
    kind, number = ask()
    return int(kind), int(number)


def _from_dlpack(buffer: Any, device: int) -> DeviceArray:
    """Read the capsule of `buffer`; while it is kept under its name, it frees the tensor when it goes."""
    capsule = buffer.__dlpack__()  # its work so far is then done before the default stream's
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    _check_contiguous(shape, tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else None)
    name = f"{_DLPACK_NAMES.get(tensor.code, 'other')}{tensor.bits}" + (f"x{tensor.lanes}" * (tensor.lanes != 1))
    size = int(np.prod(shape, dtype=np.int64))
    address = (tensor.data or 0) + tensor.byte_offset
    return DeviceArray(address, size, name, tensor.bits * tensor.lanes // 8, device, kept=(buffer, capsule))
