"""Element types and reductions: the one table that Python and C share.

The codes are those of `enum ddl_dtype` and `enum ddl_op` in `pyx/kernels.h`; a test holds them equal.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ddlbench.errors import UsageError, unknown


@dataclass(frozen=True)
class DType:
    """An element type.

    `storage` is the numpy dtype that holds one element. numpy has no bfloat16: its bit pattern is kept in a uint16, and
    the caller says `dtype="bfloat16"`. `significand_bits` counts the implicit bit and is 0 for integers.
    """

    name: str
    code: int
    storage: np.dtype[Any]
    significand_bits: int

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.storage.itemsize


DTYPES = {
    d.name: d
    for d in (
        DType("float16", 0, np.dtype(np.float16), 11),
        DType("bfloat16", 1, np.dtype(np.uint16), 8),
        DType("float32", 2, np.dtype(np.float32), 24),
        DType("float64", 3, np.dtype(np.float64), 53),
        DType("int32", 4, np.dtype(np.int32), 0),
        DType("int64", 5, np.dtype(np.int64), 0),
        DType("uint8", 6, np.dtype(np.uint8), 0),
    )
}
ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "bf16": "bfloat16",
    "fp16": "float16",
}
OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}


def dtype_named(name: str) -> DType:
    """Return the element type called `name` (or its nccl-tests name: half, float, double); raises `UsageError`."""
    found = DTYPES.get(ALIASES.get(name, name))
    if found is None:
        raise unknown("dtype", name, DTYPES)
    return found


def dtype_of(array: np.ndarray[Any, Any], name: str | None = None) -> DType:
    """Return the element type of `array`, which `name` overrides for bit patterns (bfloat16 in uint16).

    Raises `UsageError` when the array's numpy dtype is not one ddlbench reduces, or cannot hold `name`.
    """
    found = dtype_named(name or array.dtype.name)
    if array.dtype.itemsize != found.itemsize or array.dtype.name not in (found.name, found.storage.name):
        raise UsageError(f"an array of {array.dtype.name} cannot hold {found.name}; expected {found.storage.name}")
    return found


def op_code(name: str) -> int:
    """Return the code of the reduction called `name`; raises `UsageError`."""
    if name not in OPS:
        raise unknown("op", name, OPS)
    return OPS[name]
