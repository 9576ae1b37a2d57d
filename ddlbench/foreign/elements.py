"""Element types as other programs spell them."""

from ddlbench.foreign.section import UnreadError, shown

ITEMSIZES = {
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "float8_e4m3": 1,
    "float8_e5m2": 1,
}
"""Bytes of an element of each type. ddlbench itself reduces seven of them; a log may hold the others."""

SPELLINGS = {
    # MPI. A char has no sign of its own: it counts as our type of one byte.
    "MPI_CHAR": "uint8",
    "MPI_BYTE": "uint8",
    "MPI_UNSIGNED_CHAR": "uint8",
    "MPI_UINT8_T": "uint8",
    "MPI_SIGNED_CHAR": "int8",
    "MPI_INT8_T": "int8",
    "MPI_SHORT": "int16",
    "MPI_UNSIGNED_SHORT": "uint16",
    "MPI_INT": "int32",
    "MPI_INT32_T": "int32",
    "MPI_UNSIGNED": "uint32",
    "MPI_LONG": "int64",
    "MPI_LONG_LONG": "int64",
    "MPI_LONG_LONG_INT": "int64",
    "MPI_INT64_T": "int64",
    "MPI_UNSIGNED_LONG": "uint64",
    "MPI_FLOAT": "float32",
    "MPI_DOUBLE": "float64",
    # nccl-tests
    "char": "int8",
    "int": "int32",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "f8e4m3": "float8_e4m3",
    "f8e5m2": "float8_e5m2",
}


def element_type(spelling: str) -> str:
    """Return our name of the element type that a log calls `spelling`; raises `UnreadError`."""
    name = SPELLINGS.get(spelling, spelling)
    if name not in ITEMSIZES:
        raise UnreadError(f"element type {shown(spelling, 24)} is not known")
    return name


def element_count(nbytes: int, dtype: str) -> int:
    """Return how many elements of `dtype` a vector of `nbytes` holds; raises `UnreadError` when that is no number."""
    count, rest = divmod(nbytes, ITEMSIZES[dtype])
    if rest:
        raise UnreadError(f"{nbytes} bytes are no whole number of {dtype} elements")
    return count
