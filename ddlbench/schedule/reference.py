"""The reference executor: runs the tables of all ranks in one process, in plain numpy.

It is slow and simple, and the engine must match it bit for bit. float16 and bfloat16 are computed as the kernels
compute them: each operation in float32, rounded once to nearest even.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ddlbench.dtypes import DType
from ddlbench.schedule.lower import Schedule, arrivals
from ddlbench.schedule.move import ADD, COPY, FROM_INPUT, LATE, SEND, Table
from ddlbench.schedule.segments import chunk_bounds, segment_bounds

Array = np.ndarray[Any, Any]
_UFUNCS: dict[str, Callable[[Array, Array], Array]] = {
    "sum": np.add,
    "avg": np.add,
    "prod": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
}


def widen(dtype: DType, stored: Array) -> Array:
    """Return stored elements as the type in which they are computed: 16-bit floats as float32."""
    if dtype.name == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32) if dtype.name == "float16" else stored


def narrow(dtype: DType, values: Array) -> Array:
    """Return computed values as they are stored, rounded to nearest even; every NaN becomes the canonical one."""
    if not dtype.significand_bits:
        return values.astype(dtype.storage)
    quiet = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    if dtype.name != "bfloat16":
        return quiet.astype(dtype.storage)
    bits = np.ascontiguousarray(quiet).view(np.uint32)
    return np.where(np.isnan(values), np.uint16(0x7FC0), ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16))


def combine(dtype: DType, op: str, a: Array, b: Array) -> Array:
    """Return a op b for arrays in the storage type of `dtype`, whichever comes first: -0 counts as less than +0."""
    x, y = widen(dtype, a), widen(dtype, b)
    with np.errstate(all="ignore"):
        result = _UFUNCS[op](x, y)
        if dtype.significand_bits and op in ("min", "max"):
            zero = x + y if op == "max" else -(-x - y)
            result = np.where((x == 0) & (y == 0), zero, result)
        return narrow(dtype, result)


def divide(dtype: DType, stored: Array, divisor: int) -> Array:
    """Return stored / divisor, rounded once; integers truncate toward zero."""
    values = widen(dtype, stored)
    if not dtype.significand_bits:
        wide = values.astype(np.int64)  # more ranks than a uint8 can count
        return narrow(dtype, (wide - np.fmod(wide, divisor)) // divisor)
    with np.errstate(all="ignore"):
        return narrow(dtype, values / values.dtype.type(divisor))


def execute(schedule: Schedule, inputs: Sequence[Array], dtype: DType, op: str, segments: int = 1) -> list[Array]:
    """Run `schedule` (the tables of all ranks) on one array per rank and return each rank's result.

    The inputs are one-dimensional, of one length, in the storage type of `dtype`, and stay as they are.
    """
    outputs: list[Array] = [np.full_like(values, 0) for values in inputs]
    for segment in range(segments):
        bounds = segment_bounds(len(inputs[0]), segments, segment)
        run = _Segment(schedule.chunks, (inputs, outputs), dtype, op, bounds)
        for round_ in np.unique(schedule.table["round"]):
            run.round(schedule.table[schedule.table["round"] == round_])
    if op == "avg":
        outputs = [divide(dtype, values, schedule.ranks) for values in outputs]
    return outputs


class _Segment:
    """One segment of the vector on all ranks."""

    def __init__(
        self, chunks: int, buffers: tuple[Sequence[Array], list[Array]], dtype: DType, op: str, bounds: tuple[int, int]
    ) -> None:
        self.chunks, self.dtype, self.op = chunks, dtype, op
        self.inputs, self.outputs = buffers
        self.first, self.last = bounds

    def part(self, step: Any) -> slice:
        """Return the elements that a step is about."""
        return slice(*chunk_bounds(self.first, self.last, self.chunks, int(step["chunk"]), int(step["nchunks"])))

    def own(self, step: Any) -> Array:
        """Return what the rank holds there, from the input where nothing has been written."""
        where = self.inputs if step["flags"] & FROM_INPUT else self.outputs
        values: Array = where[step["rank"]][self.part(step)]
        return values

    def round(self, table: Table) -> None:
        """Do one round: copies, all reads, then all writes, late ones last."""
        for step in table[table["kind"] == COPY]:
            self.outputs[step["rank"]][self.part(step)] = self.inputs[step["rank"]][self.part(step)]
        under_way: dict[tuple[int, int], list[Array]] = {}
        for step in table[table["kind"] == SEND]:
            under_way.setdefault((int(step["rank"]), int(step["peer"])), []).append(self.own(step).copy())
        arriving = [(s, under_way[int(s["peer"]), int(s["rank"])].pop(0)) for s in table[arrivals(table)]]
        for step, values in sorted(arriving, key=lambda pair: bool(pair[0]["flags"] & LATE)):
            value = combine(self.dtype, self.op, self.own(step), values) if step["kind"] == ADD else values
            self.outputs[step["rank"]][self.part(step)] = value
