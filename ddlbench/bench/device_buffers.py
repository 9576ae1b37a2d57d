"""The buffers of one point in a device's memory: laid out and checked in a mirror on the host."""

from typing import Any

from ddlbench.bench.inputs import Buffers, Findings, Pattern
from ddlbench.device.arrays import DeviceArray
from ddlbench.device.owner import Memory, Owner
from ddlbench.dtypes import DType


class DeviceBuffers:
    """What `Buffers` is, in memory of the device of `owner`; guards are there too.

    Raises `MemoryError` where the device, or the host for the mirror, has no room.
    """

    def __init__(self, owner: Owner, count: int, dtype: DType, *, in_place: bool) -> None:
        self._owner, self._mirror = owner, Buffers(count, dtype, in_place=in_place)
        self.in_place = in_place
        self._memory: tuple[Memory, ...] = tuple(owner.empty(raw.nbytes) for raw in self._mirror.memory)
        self.send = self._array(self._mirror.send, 0, dtype)
        self.receive = self.send if in_place else self._array(self._mirror.receive, 1, dtype)

    def _array(self, mirrored: Any, which: int, dtype: DType) -> DeviceArray:
        """Return the device's array at the place that `mirrored` has in the mirror."""
        offset = mirrored.ctypes.data - self._mirror.memory[which].ctypes.data
        memory = self._memory[which]
        where = memory.address + offset
        return DeviceArray(where, mirrored.size, dtype.name, dtype.itemsize, self._owner.device, kept=memory)

    @property
    def result(self) -> Any:
        """The result as the last check saw it, on the host."""
        return self._mirror.result

    @property
    def nbytes(self) -> int:
        """The bytes of what is sent and where the result goes, one array counted once."""
        return self._mirror.nbytes

    def prepare(self, given: Pattern) -> None:
        """Lay out the input, and sentinels where the result goes."""
        self._mirror.prepare(given)
        for memory, raw in zip(self._memory, self._mirror.memory, strict=True):
            self._owner.cuda.copy(memory.address, raw.ctypes.data, raw.nbytes)
        self._owner.cuda.synchronize()

    def check(self, given: Pattern) -> Findings:
        """Return what is wrong after the allreduce of what `prepare` laid out."""
        for memory, raw in zip(self._memory, self._mirror.memory, strict=True):
            self._owner.cuda.copy(raw.ctypes.data, memory.address, raw.nbytes)
        self._owner.cuda.synchronize()
        return self._mirror.check(given)
