from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

_Array: TypeAlias = np.ndarray[Any, Any]

class _OnDevice(Protocol):
    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...

_Buffer: TypeAlias = _Array | _OnDevice

STEP_SIZE: int
INSTRUCTION_SIZE: int
REQUEST_SIZE: int
DOING: tuple[str, ...]

def simd() -> str: ...
def compiler() -> str: ...

class Device:
    def __init__(self, calls: object, stream: int, before: int) -> None: ...

class Runner:
    def execute(self) -> None: ...
    def position(self) -> tuple[str, int, int, int]: ...
    def waiting(self) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None: ...
    def time_samples(self, samples: int) -> npt.NDArray[np.int64]: ...
    def time_windows(self, starts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def set_marks(self, events: npt.NDArray[np.uint64]) -> None: ...
    def close(self) -> None: ...

class Engine(Runner):
    staging_nbytes: int
    def __init__(
        self,
        comm: int,
        table: _Array,
        chunks: int,
        segments: int,
        sendbuf: _Buffer,
        recvbuf: _Buffer,
        dtype: int,
        op: int,
        yielding: bool,
        device: Device | None = None,
        staging: Callable[[int], object] | None = None,
    ) -> None: ...

class Vendor(Runner):
    def __init__(
        self,
        comm: int,
        sendbuf: _Buffer,
        recvbuf: _Buffer,
        dtype: int,
        op: int,
        yielding: bool,
        device: Device | None = None,
    ) -> None: ...

class Direct(Runner):
    def __init__(
        self,
        comm: int,
        variants: tuple[_Array, ...],
        operands: npt.NDArray[np.uint64],
        counters: npt.NDArray[np.uint64],
        span: int,
        memory: object,
        receives: _Array,
        sends: _Array,
        sendbuf: _Buffer,
        recvbuf: _Buffer,
        dtype: int,
        op: int,
        yielding: bool,
        device: Device | None = None,
        scratch: int = 0,
        mirror: tuple[_Array, _Array] | None = None,
    ) -> None: ...

class Staged(Runner):
    def __init__(
        self,
        comm: int,
        pieces: Sequence[Runner],
        bounds: npt.NDArray[np.int64],
        host: tuple[_Array, _Array],
        sendbuf: _Buffer,
        recvbuf: _Buffer,
        dtype: int,
        yielding: bool,
        device: Device,
        up: int,
    ) -> None: ...

class Nccl(Runner):
    def __init__(
        self,
        comm: int,
        function: int,
        communicator: int,
        kind: int,
        reduction: int,
        told: Callable[[int], str],
        sendbuf: _Buffer,
        recvbuf: _Buffer,
        dtype: int,
        op: int,
        yielding: bool,
        device: Device,
    ) -> None: ...
