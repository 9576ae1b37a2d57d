"""The kernels for GPUs against those for the host, bit for bit.

"emulated" is an emulation: cuda/ compiled for the host with tests/cuda_shim. It runs the kernels' arithmetic, indices
and alignments, and proves nothing about a device, its compiler or its memory. "device" is the real extension on a GPU.
"""

import ctypes
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import reduce as fold
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ddlbench import _reduce
from ddlbench.dtypes import DTYPES, OPS
from ddlbench.errors import DeviceError, NoDeviceError, UsageError
from emulated_cuda import load, seen

Array = np.ndarray[Any, Any]

TESTS = Path(__file__).resolve().parents[1]
FLOATS = ("float16", "bfloat16", "float32", "float64")
SIZES = (*range(20), 31, 32, 33, 47, 64, 100, 1021, 4099)
SENTINEL = 0xA5
# Of the destination and of eight sources, in bytes.
ALIGNED = (16, 32, 0, 48, 16, 0, 64, 32, 16)
ALIKE = (8, 24, 8, 40, 56, 8, 24, 8, 8)
APART = (0, 8, 4, 2, 12, 10, 0, 6, 14)
BYTES = (1, 15, 3, 7, 9, 11, 13, 5, 1)
PLACES = {"aligned": ALIGNED, "alike": ALIKE, "apart": APART, "bytes": BYTES}


class Gpu:
    """A device: its module, and memory on it in slots far enough apart."""

    SLOT = 64 * 1024

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.base = module.malloc(12 * self.SLOT)

    def close(self) -> None:
        self.module.free(self.base)

    def address(self, slot: int, offset: int) -> int:
        return int(self.base) + slot * self.SLOT + 1024 + offset

    def place(self, slot: int, offset: int, patterns: Array) -> int:
        """Put the bytes of `patterns` into a slot, so many bytes beyond a multiple of 1024, and return the address."""
        address = self.address(slot, offset)
        self.module.copy(address, patterns.ctypes.data, patterns.nbytes)
        return address

    def bytes_at(self, address: int, nbytes: int) -> Array:
        """Return the bytes at `address`, once all work is done."""
        found = np.empty(nbytes, np.uint8)
        self.module.copy(found.ctypes.data, address, nbytes)
        self.module.synchronize()
        return found

    def reduced(self, name: str, op: str, sources: Sequence[int], n: int, to: int, divisor: int = 0) -> Array:
        """Return `n` reduced elements, after a look at the bytes around them."""
        dtype = DTYPES[name]
        self.module.fill(to - 64, SENTINEL, n * dtype.itemsize + 128)
        self.module.reduce(dtype.code, OPS[op], to, sources, n, divisor=divisor)
        return self.inside(to, n * dtype.itemsize).view(bits_of(name))

    def inside(self, to: int, nbytes: int) -> Array:
        """Return the bytes at `to`, which only sentinels may surround."""
        around = self.bytes_at(to - 64, nbytes + 128)
        assert (around[:64] == SENTINEL).all()
        assert (around[64 + nbytes :] == SENTINEL).all()
        return around[64 : 64 + nbytes]


def gpu_missing() -> str | None:
    """Return why there is no GPU to run these tests on, or None."""
    if importlib.util.find_spec("ddlbench._cuda") is None:
        return "ddlbench._cuda is not built"
    cuda = importlib.import_module("ddlbench._cuda")
    try:
        return None if cuda.devices() else "no GPU"
    except NoDeviceError as error:
        return f"no GPU: {cuda.error_text(error.code)}"


NO_GPU = gpu_missing()


@pytest.fixture(scope="module", params=["emulated"] if NO_GPU else ["emulated", "device"])
def gpu(request: pytest.FixtureRequest) -> Iterator[Gpu]:
    """Give an emulated GPU, and a real one where there is one."""
    on_device = request.param == "device"
    path = None if on_device else request.getfixturevalue("emulated_cuda")
    found = Gpu(importlib.import_module("ddlbench._cuda") if on_device else load(path))
    yield found
    found.close()


def test_all_this_runs_on_a_gpu_as_well() -> None:
    if NO_GPU:
        pytest.skip(f"{NO_GPU}; the kernels are emulated on the CPU")
    assert not importlib.import_module("ddlbench._cuda").devices()[0].name.startswith("emulated")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence numpy: overflow and NaN are what these tests provoke."""
    with np.errstate(all="ignore"):
        yield


# ---- Inputs and what is expected of them -----------------------------------------------------------------------------


def bits_of(name: str) -> np.dtype[Any]:
    return np.dtype(f"u{DTYPES[name].itemsize}")


def specials(name: str) -> Array:
    """Return patterns of both signs: zero, subnormals, 1 and about it, the largest, infinity and NaNs of all kinds."""
    bits = 8 * DTYPES[name].itemsize
    if name not in FLOATS:
        return np.array([0, 1, 2, 3, 2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1, 2 ** (bits - 2)], bits_of(name))
    mantissa = DTYPES[name].significand_bits - 1
    infinity = 2 ** (bits - 1) - 2**mantissa
    one = (2 ** (bits - 2) - 1) >> mantissa << mantissa
    magnitudes = [0, 1, 2**mantissa - 1, 2**mantissa, one - 1, one, one + 1, infinity - 1, infinity]
    magnitudes += [infinity + 1, infinity + 2 ** (mantissa - 1), 2 ** (bits - 1) - 1]
    return np.array([sign << (bits - 1) | m for m in magnitudes for sign in (0, 1)], bits_of(name))


def mixed(name: str, n: int, seed: int) -> Array:
    """Return `n` patterns: special ones, any bits, and floats of about 1, whose sums and products round."""
    rng = np.random.default_rng(seed)
    any_bits = rng.integers(0, 256, n * DTYPES[name].itemsize, dtype=np.uint8).view(bits_of(name))
    near = any_bits
    if name in FLOATS:
        top = np.uint64(3) << np.uint64(DTYPES[name].significand_bits - 1)
        one = int(specials(name)[10])
        near = (one - int(top) + rng.integers(0, 2 * int(top), n)).astype(bits_of(name))
    return np.choose(rng.integers(0, 5, n), [rng.choice(specials(name), n), any_bits, near, near, near])


def of_host(name: str, op: str, inputs: Sequence[Array], divisor: int = 0) -> Array:
    """Return the inputs reduced one after another by the kernels of the host."""

    def two(a: Array, b: Array) -> Array:
        dst = np.empty_like(a)
        _reduce.reduce(DTYPES[name].code, OPS[op], dst, a, b)
        return dst

    result = fold(two, inputs).copy()
    if divisor:
        _reduce.divide(DTYPES[name].code, result, divisor)
    return result


def same_bits(found: Array, wanted: Array, **case: object) -> None:
    np.testing.assert_array_equal(found, wanted, err_msg=str(case))


# ---- Reductions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
def test_every_size_and_alignment_has_the_bits_of_the_host(gpu: Gpu, name: str, op: str) -> None:
    inputs = [mixed(name, max(SIZES), seed) for seed in range(3)]
    wanted = {k: of_host(name, op, inputs[:k]) for k in (2, 3)}
    for place, offsets in PLACES.items():
        sources = [gpu.place(1 + k, offsets[1 + k], x) for k, x in enumerate(inputs)]
        for n, k in product(SIZES, (2, 3)):
            found = gpu.reduced(name, op, sources[:k], n, gpu.address(0, offsets[0]))
            same_bits(found, wanted[k][:n], n=n, sources=k, place=place)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
def test_one_to_eight_sources_are_reduced_in_their_order(gpu: Gpu, name: str, op: str) -> None:
    n = 301
    inputs = [mixed(name, n, seed) for seed in range(8)]
    for place, offsets in PLACES.items():
        sources = [gpu.place(1 + k, offsets[1 + k], x) for k, x in enumerate(inputs)]
        for k in range(1, 9):
            found = gpu.reduced(name, op, sources[:k], n, gpu.address(0, offsets[0]))
            same_bits(found, of_host(name, op, inputs[:k]), sources=k, place=place)


@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("name", DTYPES)
def test_every_pair_of_special_values_has_the_bits_of_the_host(gpu: Gpu, name: str, op: str) -> None:
    pool = specials(name)
    a, b = np.repeat(pool, pool.size), np.tile(pool, pool.size)
    found = gpu.reduced(name, op, [gpu.place(1, 0, a), gpu.place(2, 0, b)], a.size, gpu.address(0, 0))
    same_bits(found, of_host(name, op, [a, b]))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_the_conversions_of_all_short_floats_are_those_of_the_host(gpu: Gpu, name: str) -> None:
    for part in np.arange(1 << 16, dtype=np.uint16).reshape(4, -1):
        neutral = np.full_like(part, 0x8000)
        found = gpu.reduced(
            name, "sum", [gpu.place(1, 0, part), gpu.place(2, 0, neutral)], part.size, gpu.address(0, 0)
        )
        same_bits(found, of_host(name, "sum", [part, neutral]))


def test_one_source_is_copied_as_it_is_a_nan_too(gpu: Gpu) -> None:
    for name, op in product(DTYPES, OPS):
        x = specials(name)
        same_bits(gpu.reduced(name, op, [gpu.place(1, 8, x)], x.size, gpu.address(0, 0)), x, name=name, op=op)


# ---- Average ---------------------------------------------------------------------------------------------------------

DIVISORS = (1, 2, 3, 7, 8, 64, 255, 256, 257, 1000, 2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**32 + 1, 2**40, 2**63 - 1)


@pytest.mark.parametrize("name", DTYPES)
def test_an_average_divides_the_rounded_sum_once(gpu: Gpu, name: str) -> None:
    n = 200
    inputs = [mixed(name, n, seed) for seed in range(8)]
    sources = [gpu.place(1 + k, ALIGNED[k], x) for k, x in enumerate(inputs)]
    for divisor, k, to in product(DIVISORS, (1, 2, 8), (0, 1)):
        found = gpu.reduced(name, "avg", sources[:k], n, gpu.address(0, to), divisor)
        same_bits(found, of_host(name, "avg", inputs[:k], divisor), divisor=divisor, sources=k, to=to)


def test_bytes_divide_by_every_number_as_the_host_does(gpu: Gpu) -> None:
    every = np.arange(256, dtype=np.uint8)
    source = gpu.place(1, 0, every)
    for divisor in range(1, 300):
        found = gpu.reduced("uint8", "avg", [source], 256, gpu.address(0, 0), divisor)
        same_bits(found, every // min(divisor, 256) if divisor < 256 else np.zeros_like(every), divisor=divisor)


@pytest.mark.parametrize("name", DTYPES)
def test_divide_is_the_second_half_of_an_average(gpu: Gpu, name: str) -> None:
    x = mixed(name, 99, 1)
    address = gpu.place(1, 4, x)
    gpu.module.divide(DTYPES[name].code, address, x.size, 7)
    same_bits(gpu.bytes_at(address, x.nbytes).view(bits_of(name)), of_host(name, "avg", [x], 7))


# ---- Destinations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("to", "forward"), [(0, 16), (0, 8), (4, 0), (2, 6), (1, 0), (0, 1), (3, 9)])
@pytest.mark.parametrize("name", ["bfloat16", "float32", "int64", "uint8"])
def test_the_result_goes_to_two_places_in_one_pass(gpu: Gpu, name: str, to: int, forward: int) -> None:
    dtype = DTYPES[name]
    inputs = [mixed(name, 500, seed) for seed in range(4)]
    sources = [gpu.place(2 + k, 16, x) for k, x in enumerate(inputs)]
    places = [gpu.address(0, to), gpu.address(1, forward)]
    for n, k in product((1, 5, 40, 500), (1, 2, 4)):
        for place in places:
            gpu.module.fill(place - 64, SENTINEL, n * dtype.itemsize + 128)
        gpu.module.reduce(dtype.code, OPS["sum"], places[0], sources[:k], n, forward=places[1])
        for place in places:
            found = gpu.inside(place, n * dtype.itemsize).view(bits_of(name))
            same_bits(found, of_host(name, "sum", inputs[:k])[:n], n=n, sources=k)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["float16", "float64", "int32", "uint8"])
def test_a_destination_may_be_any_of_the_sources(gpu: Gpu, name: str, place: str) -> None:
    inputs = [mixed(name, 1000, seed) for seed in range(4)]
    wanted = of_host(name, "sum", inputs).view(np.uint8)
    for at in range(4):
        sources = [gpu.place(1 + k, PLACES[place][k], x) for k, x in enumerate(inputs)]
        forward = sources[(at + 1) % 4]
        gpu.module.reduce(DTYPES[name].code, OPS["sum"], sources[at], sources, 1000, forward=forward)
        same_bits(gpu.bytes_at(sources[at], wanted.size), wanted, at=at)
        same_bits(gpu.bytes_at(forward, wanted.size), wanted, at=at)


def test_nothing_outside_a_source_is_read(gpu: Gpu) -> None:
    """The emulation has unmapped pages on both sides of an allocation: one byte too far ends the process."""
    nbytes = 64 * 1024
    allocation, result = gpu.module.malloc(nbytes), gpu.module.malloc(2 * nbytes)
    gpu.module.fill(allocation, 1, nbytes)
    for to, n in product(range(17), (*range(1, 70), nbytes)):
        for source in {allocation, allocation + nbytes - n}:
            gpu.module.reduce(DTYPES["uint8"].code, OPS["sum"], result + to, [source, source], n)
    gpu.module.synchronize()
    assert (gpu.bytes_at(result + 16, nbytes) == 2).all()
    gpu.module.free(allocation)
    gpu.module.free(result)


# ---- Refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"dtype": 7}, "unknown dtype code 7; expected one of {'float16': 0"),
        ({"dtype": -1}, "unknown dtype code -1"),
        ({"op": 5}, "unknown op code 5; expected one of {'sum': 0"),
        ({"sources": 0}, "0 sources; expected 1 to 8"),
        ({"sources": 9}, "9 sources; expected 1 to 8"),
        ({"divisor": 2}, "divisor 2 with op code 0; expected 0, or with avg the number of ranks"),
        ({"divisor": -1, "op": 4}, "divisor -1 with op code 4"),
        ({"dst": "null"}, "an address is 0"),
        ({"source": "null"}, "an address is 0"),
        ({"dst": "overlap"}, "dst overlaps in part"),
        ({"forward": "overlap"}, "dst overlaps in part"),
        ({"forward": "dst"}, "dst overlaps in part"),
        ({"count": 2**62}, "the memory ends beyond all addresses"),
    ],
)
def test_what_cannot_be_reduced_is_refused_and_nothing_is_written(gpu: Gpu, case: dict[str, Any], message: str) -> None:
    dst, source = gpu.place(0, 0, np.zeros(64, np.uint8)), gpu.place(1, 0, np.ones(64, np.uint8))
    where = {"null": 0, "overlap": source + 4, "dst": dst}
    sources = [where.get(case.get("source", ""), source)] * case.get("sources", 2)
    with pytest.raises(UsageError, match=message):
        gpu.module.reduce(
            case.get("dtype", 2),
            case.get("op", 0),
            where.get(case.get("dst", ""), dst),
            sources,
            case.get("count", 16),
            divisor=case.get("divisor", 0),
            forward=where.get(case.get("forward", ""), 0),
        )
    assert not gpu.bytes_at(dst, 64).any()
    assert (gpu.bytes_at(source, 64) == 1).all()


def test_a_divisor_below_one_is_refused(gpu: Gpu) -> None:
    with pytest.raises(UsageError, match="divisor 0; expected the number of ranks, 1 or more"):
        gpu.module.divide(2, gpu.address(0, 0), 4, 0)


def test_no_elements_are_no_work(gpu: Gpu) -> None:
    gpu.module.reduce(2, 0, 0, [0, 0], 0)
    gpu.module.synchronize()


# ---- Memory, streams and events --------------------------------------------------------------------------------------


def test_streams_keep_their_order_and_wait_for_events(gpu: Gpu) -> None:
    cuda = gpu.module
    first, second, start, end = cuda.stream_create(), cuda.stream_create(), cuda.event_create(), cuda.event_create()
    x, y = gpu.place(1, 0, np.full(64, 3, np.uint8)), gpu.address(2, 0)
    cuda.synchronize()
    cuda.event_record(start, first)
    cuda.reduce(DTYPES["uint8"].code, OPS["sum"], y, [x, x], 64, stream=first)
    cuda.event_record(end, first)
    cuda.stream_wait(second, end)
    cuda.reduce(DTYPES["uint8"].code, OPS["sum"], y, [y, x], 64, stream=second)
    cuda.synchronize(second)
    assert cuda.stream_query(second)
    cuda.event_synchronize(end)
    assert cuda.event_seconds(start, end) >= 0
    assert (gpu.bytes_at(y, 64) == 9).all()
    for event in (start, end):
        cuda.event_destroy(event)
    for stream in (first, second):
        cuda.stream_destroy(stream)


def test_pinned_memory_is_the_hosts_and_kernels_reach_it(gpu: Gpu) -> None:
    cuda = gpu.module
    pinned = cuda.malloc_host(64)
    seen(pinned, 64)[:] = 5
    cuda.reduce(DTYPES["uint8"].code, OPS["sum"], pinned, [pinned, pinned], 64)
    cuda.synchronize()
    assert (seen(pinned, 64) == 10).all()
    assert cuda.pointer_device(pinned) is None
    assert cuda.pointer_device(gpu.base) == cuda.current_device()
    cuda.free_host(pinned)
    memory = np.zeros(4096, np.uint8)
    cuda.host_register(memory.ctypes.data, memory.nbytes)
    cuda.host_unregister(memory.ctypes.data)
    with pytest.raises(DeviceError, match=r"^cudaHostUnregister: .* \(cudaErrorHostMemoryNotRegistered, 713\)$"):
        cuda.host_unregister(memory.ctypes.data)


def test_a_handle_of_another_length_is_refused(gpu: Gpu) -> None:
    with pytest.raises(UsageError, match="a CUDA IPC handle of 3 bytes; expected 64"):
        gpu.module.ipc_open(b"abc")


def test_a_handle_says_where_in_its_allocation_an_address_is(gpu: Gpu) -> None:
    handle, offset = gpu.module.ipc_handle(gpu.base + 1000)
    assert (len(handle), offset) == (gpu.module.HANDLE_NBYTES, 1000)


def test_too_much_memory_is_refused_with_the_way_out(gpu: Gpu) -> None:
    with pytest.raises(DeviceError, match=r"cudaMalloc of \d+ bytes: out of memory .* use smaller vectors") as refused:
        gpu.module.malloc(2**50)
    assert refused.value.code == 2
    free_nbytes, total_nbytes = gpu.module.memory()
    assert 0 < free_nbytes <= total_nbytes == gpu.module.devices()[gpu.module.current_device()].total_nbytes


# ---- What only the emulation can show --------------------------------------------------------------------------------

Emulated = Callable[..., ModuleType]


@pytest.fixture
def emulated(emulated_cuda: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Emulated:
    """Give `emulated(devices=1)`: an extension of its own, with the settings that cuda_runtime.h of the shim has."""

    def made(**settings: object) -> ModuleType:
        for name, value in settings.items():
            monkeypatch.setenv(f"EMULATED_CUDA_{name.upper()}", str(value))
        return load(shutil.copy(emulated_cuda, tmp_path))

    return made


@pytest.mark.parametrize(
    ("code", "name"), [(34, "StubLibrary"), (35, "InsufficientDriver"), (100, "NoDevice")], ids=str
)
def test_without_a_driver_one_line_says_what_to_do(
    emulated: Emulated, code: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = emulated(error=code)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    for call in (cuda.devices, cuda.synchronize, lambda: cuda.malloc(1), lambda: cuda.reduce(2, 0, 256, [512, 512], 1)):
        with pytest.raises(NoDeviceError, match=rf"^no GPU to work with: .*cudaError{name}, {code}\)") as refused:
            call()
        assert refused.value.code == code
    text = str(refused.value)
    assert "\n" not in text
    assert "there is no NVIDIA driver; CUDA_VISIBLE_DEVICES is '7'. See that nvidia-smi lists a GPU" in text


def test_an_error_that_is_not_the_drivers_names_the_call(emulated: Emulated) -> None:
    cuda = emulated(devices=2)
    with pytest.raises(DeviceError, match=r"^cudaSetDevice: invalid device ordinal \(cudaErrorInvalidDevice, 101\)$"):
        cuda.set_device(2)
    cuda.set_device(1)
    assert cuda.current_device() == 1
    assert len(cuda.devices()) == 2
    assert cuda.can_access_peer(0, 1)
    cuda.enable_peer(0)
    cuda.enable_peer(0)


def test_memory_runs_out_where_it_is_said_to_and_comes_back(emulated: Emulated) -> None:
    cuda = emulated(memory=10_000)
    held = cuda.malloc(8_000)
    with pytest.raises(DeviceError, match="cudaMalloc of 4000 bytes: out of memory"):
        cuda.malloc(4_000)
    assert cuda.memory() == (2_000, 10_000)
    cuda.free(held)
    cuda.free(cuda.malloc(10_000))


def test_nothing_happens_before_somebody_waits(emulated: Emulated) -> None:
    cuda = emulated()
    stream, memory = cuda.stream_create(), cuda.malloc(16)
    cuda.fill(memory, 7, 16, stream)
    assert not seen(memory, 16).any()
    cuda.synchronize()
    assert not seen(memory, 16).any()
    cuda.synchronize(stream)
    assert (seen(memory, 16) == 7).all()


OTHER_PROCESS = """
import sys
from emulated_cuda import install, seen

cuda = install(sys.argv[1])
base = cuda.ipc_open(bytes.fromhex(sys.argv[2])) + int(sys.argv[3])
own = cuda.malloc(64)
cuda.fill(own, 4, 64)
cuda.reduce(6, 0, own, [own, base], 64, forward=base)
cuda.synchronize()
assert cuda.pointer_device(base) == 0
cuda.ipc_close(base - int(sys.argv[3]))
import ddlbench._cuda
assert ddlbench._cuda is cuda
print(seen(own, 64).tolist() == [7] * 64)
"""


def test_another_process_maps_memory_by_its_handle(emulated: Emulated, emulated_cuda: Path) -> None:
    cuda = emulated()
    memory = cuda.malloc(4096)
    cuda.fill(memory, 3, 4096)
    cuda.synchronize()
    handle, offset = cuda.ipc_handle(memory + 128)
    with pytest.raises(DeviceError, match="cudaIpcOpenMemHandle"):
        cuda.ipc_open(handle)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (TESTS, TESTS.parent)))}
    argv = [sys.executable, "-c", OTHER_PROCESS, str(emulated_cuda), handle.hex(), str(offset)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert seen(memory, 4096)[127:193].tolist() == [3, *[7] * 64, 3]


def test_loops_without_python_get_a_table_of_calls(emulated: Emulated) -> None:
    cuda = emulated()
    open_capsule = ctypes.pythonapi.PyCapsule_GetPointer
    open_capsule.restype, open_capsule.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = open_capsule(cuda.calls(), b"ddlbench._cuda.calls")
    nbytes, *functions = (ctypes.c_void_p * 11).from_address(address)
    assert nbytes == 11 * ctypes.sizeof(ctypes.c_void_p)
    reduce = ctypes.CFUNCTYPE(
        ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_int, ctypes.c_size_t, *[ctypes.c_int] * 2, ctypes.c_longlong,
        ctypes.c_void_p,
    )(functions[0])  # fmt: skip
    x, y = cuda.malloc(16), cuda.malloc(16)
    cuda.fill(x, 2, 16)
    assert reduce(y, (ctypes.c_void_p * 2)(x, x), 2, 16, 6, OPS["sum"], 0, None) == 0
    assert reduce(y, (ctypes.c_void_p * 2)(x, x), 9, 16, 6, OPS["sum"], 0, None) == 1
    cuda.synchronize()
    assert (seen(y, 16) == 4).all()
