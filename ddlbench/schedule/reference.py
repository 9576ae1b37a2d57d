"""The reference executor: runs the tables of all ranks in one process, in plain numpy.

It is slow and simple, and the engine must match it bit for bit. float16 and bfloat16 are computed as the kernels compute
them: each operation in float32, rounded once to nearest even.
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


def widen_bfloat16(bits: Array) -> Array:
    """Return the float32 values of bfloat16 bit patterns (uint16)."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_bfloat16(values: Array) -> Array:
    """Return the bfloat16 bit patterns (uint16) nearest to float32 `values`, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def combine(dtype: DType, op: str, a: Array, b: Array) -> Array:
    """Return a op b for arrays in the storage type of `dtype`."""
    work = _UFUNCS[op]
    if dtype.name == "bfloat16":
        return round_bfloat16(work(widen_bfloat16(a), widen_bfloat16(b)))
    if dtype.name == "float16":
        return work(a.astype(np.float32), b.astype(np.float32)).astype(np.float16)
    return work(a, b)


def divide(dtype: DType, values: Array, divisor: int) -> Array:
    """Return values / divisor, rounded once; integers truncate toward zero."""
    if dtype.name == "bfloat16":
        return round_bfloat16(widen_bfloat16(values) / np.float32(divisor))
    if dtype.name == "float16":
        return (values.astype(np.float32) / np.float32(divisor)).astype(np.float16)
    if dtype.significand_bits:
        return values / values.dtype.type(divisor)
    quotient: Array = np.sign(values) * (np.abs(values) // divisor)
    return quotient.astype(values.dtype)


def execute(schedule: Schedule, inputs: Sequence[Array], dtype: DType, op: str, segments: int = 1) -> list[Array]:
    """Run `schedule` (the tables of all ranks) on one array per rank and return each rank's result.

    The inputs are one-dimensional, of one length, in the storage type of `dtype`, and stay as they are.
    """
    outputs = [np.full_like(values, 0) for values in inputs]
    for segment in range(segments):
        first, last = segment_bounds(len(inputs[0]), segments, segment)
        run = _Segment(schedule, inputs, outputs, dtype, op, first, last)
        for round_ in np.unique(schedule.table["round"]):
            run.round(schedule.table[schedule.table["round"] == round_])
    if op == "avg":
        outputs = [divide(dtype, values, schedule.ranks) for values in outputs]
    return outputs


class _Segment:
    """One segment of the vector on all ranks."""

    def __init__(
        self, schedule: Schedule, inputs: Sequence[Array], outputs: list[Array], dtype: DType, op: str, first: int, last: int
    ) -> None:  # fmt: skip
        self.chunks, self.inputs, self.outputs = schedule.chunks, inputs, outputs
        self.dtype, self.op, self.first, self.last = dtype, op, first, last

    def part(self, step: Any) -> slice:
        """Return the elements that a step is about."""
        return slice(*chunk_bounds(self.first, self.last, self.chunks, int(step["chunk"]), int(step["nchunks"])))

    def own(self, step: Any) -> Array:
        """Return what the rank holds there, from the input where nothing has been written."""
        where = self.inputs if step["flags"] & FROM_INPUT else self.outputs
        return where[step["rank"]][self.part(step)]

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
