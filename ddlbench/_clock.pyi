from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Nanoseconds: TypeAlias = npt.NDArray[np.int64]

def now() -> int: ...
def answer(handle: int, peer: int, exchanges: int, yielding: bool) -> None: ...
def ask(handle: int, peer: int, exchanges: int, yielding: bool) -> tuple[_Nanoseconds, _Nanoseconds, _Nanoseconds]: ...
