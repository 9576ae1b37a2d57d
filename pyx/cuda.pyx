# cython: language_level=3
"""GPUs: device memory, streams, events, and the reductions of `cuda/` on them.

Addresses, streams and events are plain integers: those of this module, of pycuda, CuPy and torch are interchangeable,
since all use the device's primary context. A stream of 0 is the default one. Every failure is a `DeviceError` that
names the CUDA call; without a GPU it is a `NoDeviceError`. Importing this module needs neither a GPU nor a driver.
"""

import os
from collections import namedtuple

from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport uintptr_t

from cuda cimport (
    DDL_CUDA_HANDLE_NBYTES, DDL_CUDA_MOST_SOURCES, ddl_cuda_calls, ddl_cuda_can_access_peer, ddl_cuda_copy,
    ddl_cuda_current_device, ddl_cuda_device, ddl_cuda_device_count, ddl_cuda_device_info, ddl_cuda_divide,
    ddl_cuda_enable_peer, ddl_cuda_error_is_no_device, ddl_cuda_error_name, ddl_cuda_error_string,
    ddl_cuda_event_create, ddl_cuda_event_destroy, ddl_cuda_event_record, ddl_cuda_event_seconds,
    ddl_cuda_event_synchronize, ddl_cuda_fill, ddl_cuda_free, ddl_cuda_free_host, ddl_cuda_host_register,
    ddl_cuda_host_unregister, ddl_cuda_ipc_close, ddl_cuda_ipc_handle, ddl_cuda_ipc_open, ddl_cuda_malloc,
    ddl_cuda_malloc_host, ddl_cuda_memory, ddl_cuda_pointer_device, ddl_cuda_reduce_forward, ddl_cuda_set_device,
    ddl_cuda_stream_create, ddl_cuda_stream_destroy, ddl_cuda_stream_query, ddl_cuda_stream_wait,
    ddl_cuda_synchronize, ddl_cuda_versions,
)

from ddlbench.dtypes import DTYPES, OPS
from ddlbench.errors import DeviceError, NoDeviceError, UsageError

MOST_SOURCES = DDL_CUDA_MOST_SOURCES
HANDLE_NBYTES = DDL_CUDA_HANDLE_NBYTES
Device = namedtuple("Device", "name bus capability multiprocessors total_nbytes")

cdef enum:
    INVALID_VALUE = 1
    OUT_OF_MEMORY = 2


# ---- Errors ----------------------------------------------------------------------------------------------------------


def error_text(int code):
    """Return CUDA's own words for the `cudaError_t` `code`: "out of memory (cudaErrorMemoryAllocation, 2)"."""
    text = ddl_cuda_error_string(code).decode(errors="replace")
    return f"{text} ({ddl_cuda_error_name(code).decode(errors='replace')}, {code})"


cdef str spelt(int version):
    return f"{version // 1000}.{version % 1000 // 10}"


cdef str no_device_text(str call, int code):
    cdef int driver = 0, runtime = 0
    ddl_cuda_versions(&driver, &runtime)
    has = f"the driver is for CUDA {spelt(driver)}" if driver else "there is no NVIDIA driver"
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = f"; CUDA_VISIBLE_DEVICES is {visible!r}" if visible is not None else ""
    return (
        f"no GPU to work with: {call}: {error_text(code)}; this build is for CUDA {spelt(runtime)} and {has}{hidden}. "
        "See that nvidia-smi lists a GPU, install or update the driver, start a container with its GPUs "
        "(--gpus all), or measure host memory"
    )


cdef int check(int code, str call) except -1:
    if code == 0:
        return 0
    if ddl_cuda_error_is_no_device(code):
        raise NoDeviceError(no_device_text(call, code), code)
    way_out = "; use smaller vectors, or fewer ranks on the device" if code == OUT_OF_MEMORY else ""
    raise DeviceError(f"{call}: {error_text(code)}{way_out}", code)


# ---- Devices ---------------------------------------------------------------------------------------------------------


def devices():
    """Return a `Device` for each GPU that this process may use, in CUDA's order.

    `bus` is the PCI address ("0000:3b:00.0"), `capability` a pair such as (9, 0), `total_nbytes` the device's memory.
    Raises `NoDeviceError`, with the driver's error and what to do, when there is none.
    """
    cdef int count = 0, device, code
    cdef ddl_cuda_device_info found
    with nogil:
        code = ddl_cuda_device_count(&count)
    check(code, "cudaGetDeviceCount")
    all_devices = []
    for device in range(count):
        with nogil:
            code = ddl_cuda_device(device, &found)
        check(code, "cudaGetDeviceProperties")
        capability = (found.major, found.minor)
        all_devices.append(
            Device(
                found.name.decode(errors="replace"), found.bus.decode(), capability, found.multiprocessors,
                found.total_nbytes,
            )
        )
    return tuple(all_devices)


def set_device(int device):
    """Make `device` the calling thread's current one, which all that follows acts on."""
    cdef int code
    with nogil:
        code = ddl_cuda_set_device(device)
    check(code, "cudaSetDevice")


def current_device():
    """Return the index of the calling thread's current device."""
    cdef int device = 0
    check(ddl_cuda_current_device(&device), "cudaGetDevice")
    return device


def versions():
    """Return the CUDA versions of the driver (0: none) and of this build, as 1000 * major + 10 * minor."""
    cdef int driver = 0, runtime = 0
    check(ddl_cuda_versions(&driver, &runtime), "cudaDriverGetVersion")
    return driver, runtime


def memory():
    """Return the free and the total bytes of the current device."""
    cdef size_t free_nbytes = 0, total_nbytes = 0
    check(ddl_cuda_memory(&free_nbytes, &total_nbytes), "cudaMemGetInfo")
    return free_nbytes, total_nbytes


def can_access_peer(int device, int peer):
    """Return whether kernels on `device` can address the memory of `peer`."""
    cdef int can = 0
    check(ddl_cuda_can_access_peer(&can, device, peer), "cudaDeviceCanAccessPeer")
    return bool(can)


def enable_peer(int peer):
    """Let kernels on the current device address the memory of `peer`; twice is once."""
    check(ddl_cuda_enable_peer(peer), "cudaDeviceEnablePeerAccess")


# ---- Memory ----------------------------------------------------------------------------------------------------------


def malloc(size_t nbytes):
    """Return the address of `nbytes` of new memory on the current device; `free` it.

    Raises `DeviceError` with `code` 2 when it does not have so much.
    """
    cdef void *memory = NULL
    cdef int code
    with nogil:
        code = ddl_cuda_malloc(&memory, nbytes)
    check(code, f"cudaMalloc of {nbytes} bytes")
    return <uintptr_t> memory


def free(uintptr_t address):
    """Free what `malloc` returned."""
    cdef int code
    with nogil:
        code = ddl_cuda_free(<void *> address)
    check(code, "cudaFree")


def malloc_host(size_t nbytes):
    """Return the address of `nbytes` of new pinned host memory, which devices address too; `free_host` it."""
    cdef void *memory = NULL
    cdef int code
    with nogil:
        code = ddl_cuda_malloc_host(&memory, nbytes)
    check(code, f"cudaHostAlloc of {nbytes} bytes")
    return <uintptr_t> memory


def free_host(uintptr_t address):
    """Free what `malloc_host` returned."""
    cdef int code
    with nogil:
        code = ddl_cuda_free_host(<void *> address)
    check(code, "cudaFreeHost")


def host_register(uintptr_t address, size_t nbytes):
    """Pin host memory that exists, until `host_unregister`."""
    cdef int code
    with nogil:
        code = ddl_cuda_host_register(<void *> address, nbytes)
    check(code, f"cudaHostRegister of {nbytes} bytes")


def host_unregister(uintptr_t address):
    """Undo `host_register`."""
    cdef int code
    with nogil:
        code = ddl_cuda_host_unregister(<void *> address)
    check(code, "cudaHostUnregister")


def pointer_device(uintptr_t address):
    """Return the device whose memory `address` is, or None for host memory, pinned or not."""
    cdef int device = -1
    check(ddl_cuda_pointer_device(<void *> address, &device), "cudaPointerGetAttributes")
    return None if device < 0 else device


def copy(uintptr_t dst, uintptr_t source, size_t nbytes, uintptr_t stream=0):
    """Copy between any two of device, mapped peer and host, in the order of `stream`.

    Returns before it is done, unless the host's memory is not pinned.
    """
    cdef int code
    with nogil:
        code = ddl_cuda_copy(<void *> dst, <const void *> source, nbytes, <void *> stream)
    check(code, f"cudaMemcpyAsync of {nbytes} bytes")


def fill(uintptr_t dst, int byte, size_t nbytes, uintptr_t stream=0):
    """Set `nbytes` of device memory to `byte`, in the order of `stream`."""
    check(ddl_cuda_fill(<void *> dst, byte, nbytes, <void *> stream), "cudaMemsetAsync")


def ipc_handle(uintptr_t address):
    """Return what another process opens the device memory at `address` with, and its offset in what it gets.

    The handle, `HANDLE_NBYTES` bytes, is that of the whole allocation around `address`.
    """
    cdef unsigned char handle[64]
    cdef size_t offset = 0
    check(ddl_cuda_ipc_handle(<void *> address, handle, &offset), "cudaIpcGetMemHandle")
    return bytes(handle[:DDL_CUDA_HANDLE_NBYTES]), offset


def ipc_open(const unsigned char[::1] handle):
    """Map the allocation behind another process's `handle` and return its address; `ipc_close` it.

    Raises `UsageError` for a handle of another length, `DeviceError` when the devices do not reach each other.
    """
    cdef void *base = NULL
    cdef int code
    if handle.shape[0] != DDL_CUDA_HANDLE_NBYTES:
        raise UsageError(f"a CUDA IPC handle of {handle.shape[0]} bytes; expected {HANDLE_NBYTES}")
    with nogil:
        code = ddl_cuda_ipc_open(&base, &handle[0])
    check(code, "cudaIpcOpenMemHandle")
    return <uintptr_t> base


def ipc_close(uintptr_t base):
    """Unmap what `ipc_open` returned."""
    cdef int code
    with nogil:
        code = ddl_cuda_ipc_close(<void *> base)
    check(code, "cudaIpcCloseMemHandle")


# ---- Reductions ------------------------------------------------------------------------------------------------------


cdef int check_codes(int dtype, int op, Py_ssize_t n_sources) except -1:
    if not 0 <= dtype < len(DTYPES):
        codes = {name: known.code for name, known in DTYPES.items()}
        raise UsageError(f"unknown dtype code {dtype}; expected one of {codes}")
    if not 0 <= op < len(OPS):
        raise UsageError(f"unknown op code {op}; expected one of {OPS}")
    if not 1 <= n_sources <= DDL_CUDA_MOST_SOURCES:
        raise UsageError(f"{n_sources} sources; expected 1 to {MOST_SOURCES}")
    return 0


cdef int check_launch(int code, str call) except -1:
    if code == INVALID_VALUE:
        raise UsageError(f"{call}: an address is 0, the memory ends beyond all addresses, or dst overlaps in part")
    return check(code, call)


def reduce(
    int dtype, int op, uintptr_t dst, sources, size_t count, *, long long divisor=0, uintptr_t forward=0,
    uintptr_t stream=0,
):
    """Set `dst[i] = (sources[0][i] op sources[1][i]) op sources[2][i] …` for `count` elements, in `stream`.

    `dtype` and `op` are the codes of `ddlbench.dtypes`; `sources` 1 to 8 addresses at any alignment, of which `dst`
    may be one. With "avg" a `divisor` of 1 or more divides the rounded sum; 0 leaves that to `divide`. The result goes
    to `forward` as well where that is not 0. Returns before it is done. Raises `UsageError` for an unknown code,
    another number of sources, a divisor that does not belong, a null address or a partial overlap.
    """
    cdef const void *addresses[8]
    cdef int n_sources = len(sources)
    check_codes(dtype, op, n_sources)
    if divisor < 0 or (divisor and op != OPS["avg"]):
        raise UsageError(f"divisor {divisor} with op code {op}; expected 0, or with avg the number of ranks")
    for k in range(n_sources):
        addresses[k] = <const void *> <uintptr_t> sources[k]
    check_launch(
        ddl_cuda_reduce_forward(
            <void *> dst, <void *> forward, addresses, n_sources, count, dtype, op, divisor, <void *> stream
        ),
        "reduce",
    )


def divide(int dtype, uintptr_t dst, size_t count, long long divisor, uintptr_t stream=0):
    """Set `dst[i] = dst[i] / divisor` for `count` elements, in the order of `stream`: the second half of "avg".

    Raises `UsageError` for an unknown code or a divisor below 1.
    """
    check_codes(dtype, 0, 1)
    if divisor < 1:
        raise UsageError(f"divisor {divisor}; expected the number of ranks, 1 or more")
    check_launch(ddl_cuda_divide(<void *> dst, count, dtype, divisor, <void *> stream), "divide")


# ---- Streams and events ----------------------------------------------------------------------------------------------


def stream_create():
    """Return a new stream, which does not wait for the default one; `stream_destroy` it."""
    cdef void *stream = NULL
    check(ddl_cuda_stream_create(&stream), "cudaStreamCreate")
    return <uintptr_t> stream


def stream_destroy(uintptr_t stream):
    """Destroy a stream once its work is done."""
    check(ddl_cuda_stream_destroy(<void *> stream), "cudaStreamDestroy")


def stream_wait(uintptr_t stream, uintptr_t event):
    """Let what is put into `stream` from now on wait for `event`."""
    check(ddl_cuda_stream_wait(<void *> stream, <void *> event), "cudaStreamWaitEvent")


def stream_query(uintptr_t stream=0):
    """Return whether all work of `stream` is done. Raises `DeviceError` for a failure of that work."""
    cdef int done = 0
    check(ddl_cuda_stream_query(<void *> stream, &done), "cudaStreamQuery")
    return bool(done)


def synchronize(uintptr_t stream=0):
    """Wait until all work of `stream` is done. Raises `DeviceError` for a failure of that work."""
    cdef int code
    with nogil:
        code = ddl_cuda_synchronize(<void *> stream)
    check(code, "cudaStreamSynchronize")


def event_create():
    """Return a new event that keeps the time; `event_destroy` it."""
    cdef void *event = NULL
    check(ddl_cuda_event_create(&event), "cudaEventCreate")
    return <uintptr_t> event


def event_destroy(uintptr_t event):
    """Destroy an event."""
    check(ddl_cuda_event_destroy(<void *> event), "cudaEventDestroy")


def event_record(uintptr_t event, uintptr_t stream=0):
    """Let `event` happen when what `stream` holds now is done."""
    check(ddl_cuda_event_record(<void *> event, <void *> stream), "cudaEventRecord")


def event_synchronize(uintptr_t event):
    """Wait until `event` has happened."""
    cdef int code
    with nogil:
        code = ddl_cuda_event_synchronize(<void *> event)
    check(code, "cudaEventSynchronize")


def event_seconds(uintptr_t start, uintptr_t end):
    """Return the seconds between two events that have happened."""
    cdef double seconds = 0
    check(ddl_cuda_event_seconds(&seconds, <void *> start, <void *> end), "cudaEventElapsedTime")
    return seconds


# ---- For code in another extension -----------------------------------------------------------------------------------


def calls():
    """Return the capsule "ddlbench._cuda.calls" of a `struct ddl_cuda_table`, for loops without Python."""
    return PyCapsule_New(<void *> ddl_cuda_calls(), "ddlbench._cuda.calls", NULL)
