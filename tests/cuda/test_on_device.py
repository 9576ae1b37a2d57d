"""The owner of a real device: pycuda and the extension in one context. Skipped where there is none."""

import mmap

import numpy as np
import pytest

from ddlbench.device.owner import extension, open_device
from ddlbench.errors import NoDeviceError


@pytest.fixture(scope="module")
def owner():
    try:
        extension().devices()
    except NoDeviceError as error:
        pytest.skip(f"no CUDA driver: {error}")
    return open_device(0)


def test_memory_of_pycuda_is_copied_and_reduced_by_the_extension(owner):
    array, seen = np.arange(1000, dtype=np.float32), np.empty(1000, np.float32)
    memory, stream = owner.empty(4000), owner.stream()
    owner.cuda.copy(memory.address, array.ctypes.data, 4000, stream)
    owner.cuda.reduce(2, 0, memory.address, [memory.address, memory.address], 1000, stream=stream)
    owner.cuda.copy(seen.ctypes.data, memory.address, 4000, stream)
    owner.cuda.synchronize(stream)
    assert (seen == 2 * array).all()


def test_too_much_memory_is_a_memory_error(owner):
    with pytest.raises(MemoryError, match="device 0 has no room for"):
        owner.empty(1 << 50)


def test_host_memory_is_pinned_and_given_back(owner):
    whole = np.zeros(3 * mmap.PAGESIZE, np.uint8)
    begin = -whole.ctypes.data % mmap.PAGESIZE
    for _ in range(2):  # a second time only where the first was undone
        owner.pin(whole[begin : begin + mmap.PAGESIZE])()


def test_events_keep_the_time_of_a_stream_of_pycuda(owner):
    stream, first, last = owner.stream(), owner.event(), owner.event()
    memory = owner.empty(1 << 24)
    owner.cuda.event_record(first, stream)
    owner.cuda.fill(memory.address, 1, 1 << 24, stream)
    owner.cuda.event_record(last, stream)
    owner.cuda.synchronize(stream)
    assert owner.cuda.event_seconds(first, last) > 0
