from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Array: TypeAlias = np.ndarray[Any, Any]

STEP_SIZE: int
INSTRUCTION_SIZE: int
REQUEST_SIZE: int
DOING: tuple[str, ...]

def simd() -> str: ...
def compiler() -> str: ...

class Runner:
    def execute(self) -> None: ...
    def position(self) -> tuple[str, int, int, int]: ...
    def waiting(self) -> tuple[int, int, tuple[int, ...], tuple[int, ...]] | None: ...
    def time_samples(self, samples: int) -> npt.NDArray[np.int64]: ...
    def time_windows(self, starts: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]: ...
    def close(self) -> None: ...

class Engine(Runner):
    staging_nbytes: int
    def __init__(
        self,
        comm: int,
        table: _Array,
        chunks: int,
        segments: int,
        sendbuf: _Array,
        recvbuf: _Array,
        dtype: int,
        op: int,
        yielding: bool,
    ) -> None: ...

class Vendor(Runner):
    def __init__(self, comm: int, sendbuf: _Array, recvbuf: _Array, dtype: int, op: int, yielding: bool) -> None: ...

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
        sendbuf: _Array,
        recvbuf: _Array,
        dtype: int,
        op: int,
        yielding: bool,
    ) -> None: ...
