"""Inputs whose reduction is exact in any order, and checks at zero tolerance.

Every partial result over any subset of the ranks is representable in the dtype, so the order in which an algorithm adds
cannot matter and one wrong bit is a wrong element:

sum, avg  floats are integers whose magnitudes, added over the ranks that contribute to an element, stay within
          2^significand_bits; where that leaves too little (bfloat16 holds 256) some ranks, others for each element,
          contribute 0. avg is that exact sum divided by the ranks, rounded once. Integers are kept from
          wrapping in the same way: MPI does not say what a vendor's allreduce does then, and Open MPI's vector code
          saturates uint8 where its scalar code wraps.
prod      floats are powers of two of both signs whose exponents, added over the ranks, stay in the normal range;
          integers are odd, so that wrapping never ends at 0.
min, max  the whole range of exact integers.

The values of a rank are a table of `PERIOD` of them, a prime, laid out over the vector block by block, each block
starting at another place of the table. All ranks start their blocks at the same places, so the expected result is
laid out the same way from the table of the reduced values: O(PERIOD) work for each rank there is, then the speed of a
copy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.dtypes import DType

Array = npt.NDArray[Any]
Take = Callable[[int], Array]

PERIOD = 8191
GUARD_NBYTES = 256
"""Bytes before and after each buffer that nobody may touch."""
ALIGNMENT = 64
SENTINEL = 0xA5
"""What guards, and results before they are computed, are filled with."""

MOST_EXPONENT = {"float16": 14, "bfloat16": 126, "float32": 126, "float64": 1022}
"""Powers of two of up to this magnitude are normal numbers on both sides of 1."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def noise(stream: int) -> npt.NDArray[np.uint64]:
    """Return PERIOD well mixed 64-bit words, others for each `stream`: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

    Written out because all ranks must agree on it, whichever numpy they run.
    """
    z = (np.arange(1, PERIOD + 1, dtype=np.uint64) + np.uint64(stream * PERIOD)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def _contributes(rank: int, ranks: int, contributors: int) -> npt.NDArray[np.bool_]:
    """Return where in the table `rank` is one of the `contributors`, an arc of ranks that starts anywhere."""
    first = (noise(0) % np.uint64(ranks)).astype(np.int64)
    return (rank - first) % ranks < contributors


def _spread(word: npt.NDArray[np.uint64], low: int, high: int) -> npt.NDArray[np.int64]:
    """Return integers from `low` to `high`, both included, evenly spread; the span must be below 2^64."""
    return (word % np.uint64(high - low + 1)).astype(np.int64) + low


def _bounded(rank: int, ranks: int, most: int, *, signed: bool) -> npt.NDArray[np.int64]:
    """Return integers whose magnitudes add up to at most `most` over all ranks, none 0 where the rank contributes."""
    contributors = min(ranks, max(1, most // 16))
    word = noise(rank + 1)
    magnitude = _spread(word >> np.uint64(1), 1, most // contributors)
    sign = np.where((word & np.uint64(1)) & np.uint64(signed), -1, 1)
    return np.where(_contributes(rank, ranks, contributors), sign * magnitude, 0)


def _powers(rank: int, ranks: int, most: int) -> npt.NDArray[np.float64]:
    """Return powers of two of both signs whose exponents' magnitudes add up to at most `most` over all ranks."""
    contributors = min(ranks, most)
    word = noise(rank + 1)
    exponent = _spread(word >> np.uint64(1), -(most // contributors), most // contributors)
    sign = np.where(word & np.uint64(1), -1.0, 1.0)
    return sign * np.exp2(np.where(_contributes(rank, ranks, contributors), exponent, 0))


def _whole_range(rank: int, dtype: DType) -> npt.NDArray[np.int64]:
    """Return integers over all that an integer dtype holds."""
    return noise(rank + 1).astype(dtype.storage).astype(np.int64)


def values(dtype: DType, op: str, rank: int, ranks: int) -> npt.NDArray[np.int64] | npt.NDArray[np.float64]:
    """Return the table of one rank, (PERIOD,), as int64, or as float64 for the product of floats: exact in either."""
    if dtype.significand_bits:
        most = 1 << dtype.significand_bits
        if op == "prod":
            return _powers(rank, ranks, MOST_EXPONENT[dtype.name])
        if op in ("min", "max"):
            return _spread(noise(rank + 1), -most, most)
        return _bounded(rank, ranks, most, signed=True)
    if op in ("sum", "avg"):
        limits = np.iinfo(dtype.storage)
        return _bounded(rank, ranks, int(limits.max), signed=limits.min < 0)
    drawn = _whole_range(rank, dtype)
    return drawn | 1 if op == "prod" else drawn


REDUCE = {"sum": np.add, "avg": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def reduced(dtype: DType, op: str, ranks: int) -> Array:
    """Return the table that all ranks' tables reduce to, (PERIOD,), in float64 or int64."""
    tables: Iterator[Array] = (values(dtype, op, rank, ranks) for rank in range(ranks))
    total: Array = reduce(REDUCE[op], tables)
    if op != "avg":
        return total
    return total / ranks if dtype.significand_bits else _truncated(total, ranks)


def _truncated(total: Array, ranks: int) -> Array:
    """Return `total` divided by `ranks`, rounded toward zero as C does."""
    return np.asarray(np.sign(total) * (abs(total) // ranks))


def encode(table: Array, dtype: DType) -> Array:
    """Return float64 or int64 values in the dtype's storage: integers wrapped, quotients rounded as the kernels do it.

    That is once, to nearest even; for the 16-bit types from the quotient in float32 (docs/numerics.md).
    """
    if dtype.name == "bfloat16":
        return _bfloat16(table)
    return (table.astype(np.float32) if dtype.name == "float16" else table).astype(dtype.storage)


def _bfloat16(table: Array) -> npt.NDArray[np.uint16]:
    """Return the upper halves of float32 patterns, rounded to nearest even."""
    word = table.astype(np.float32).view(np.uint32)
    return ((word + np.uint32(0x7FFF) + ((word >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(np.uint16)


def bits(array: Array) -> Array:
    """Return a view of the elements' bit patterns: equal bits are the only equality that is checked."""
    return array.view(f"u{array.dtype.itemsize}")


@dataclass(frozen=True)
class Pattern:
    """What one rank sends and what all ranks must get, each a table of bit patterns twice over, (2·PERIOD,)."""

    sent: Array
    expected: Array


@lru_cache(maxsize=64)
def pattern(dtype: DType, op: str, rank: int, ranks: int) -> Pattern:
    """Return the pattern of `rank` among `ranks`."""
    tables = values(dtype, op, rank, ranks), reduced(dtype, op, ranks)
    sent, expected = (np.tile(bits(encode(table, dtype)), 2) for table in tables)
    return Pattern(sent, expected)


def _blocks(count: int) -> Iterator[tuple[slice, slice]]:
    """Yield (place in the vector, place in the doubled table) of each block.

    The start moves by a quadratic, so that no shift of the vector lays it over itself.
    """
    for block, begin in enumerate(range(0, count, PERIOD)):
        start = 17 * block * block % PERIOD
        length = min(PERIOD, count - begin)
        yield slice(begin, begin + length), slice(start, start + length)


def fill(array: Array, table: Array) -> None:
    """Lay the doubled `table` of bit patterns over `array`, any number of elements of the table's width."""
    target = bits(array)
    for place, source in _blocks(array.size):
        target[place] = table[source]


def count_wrong(array: Array, table: Array) -> int:
    """Return how many elements of `array` differ in any bit from what `fill` would put there."""
    found = bits(array)
    return sum(int(np.count_nonzero(found[place] != table[source])) for place, source in _blocks(array.size))


@dataclass(frozen=True)
class WrongElement:
    """An element that is not what it must be: its index, and the bit patterns that it must have and has."""

    index: int
    expected: int
    got: int

    def told(self, dtype: DType) -> str:
        """Return the element in words, each value as a number and as its bits."""
        return f"element {self.index}: expected {shown(self.expected, dtype)}, got {shown(self.got, dtype)}"


def first_wrong(array: Array, table: Array) -> WrongElement | None:
    """Return the first element of `array` that differs in any bit from what `fill` would put there."""
    found = bits(array)
    for place, source in _blocks(array.size):
        differing = np.flatnonzero(found[place] != table[source])
        if len(differing):
            at = int(differing[0])
            return WrongElement(place.start + at, int(table[source][at]), int(found[place][at]))
    return None


def shown(pattern_: int, dtype: DType) -> str:
    """Return the value with this bit pattern as a number, and the pattern: `6.5 (0x40d00000)`."""
    word = np.array([pattern_], f"u{dtype.itemsize}")
    if dtype.name == "bfloat16":
        word = word.astype(np.uint32) << np.uint32(16)
    value = word.view(np.float32 if dtype.name == "bfloat16" else dtype.storage)[0]
    return f"{value} (0x{pattern_:0{2 * dtype.itemsize}x})"


def ordinary(nbytes: int) -> Array:
    """Return new memory of the process, uint8."""
    return np.empty(nbytes, np.uint8)


class Guarded:
    """An array of `count` elements, aligned to a cache line, between two guards of `GUARD_NBYTES` sentinels.

    `take` gives the memory, uint8, so many bytes of it; it raises `MemoryError` when there is no room.
    """

    def __init__(self, count: int, dtype: DType, take: Take = ordinary) -> None:
        nbytes = count * dtype.itemsize
        raw = self.raw = take(nbytes + 2 * GUARD_NBYTES + ALIGNMENT)
        first = GUARD_NBYTES + -(raw.ctypes.data + GUARD_NBYTES) % ALIGNMENT
        self.array: Array = raw[first : first + nbytes].view(dtype.storage)
        self._guards = (raw[first - GUARD_NBYTES : first], raw[first + nbytes : first + nbytes + GUARD_NBYTES])
        for guard in self._guards:
            guard[:] = SENTINEL

    def poison(self) -> None:
        """Fill the array with sentinels, so that what is not written is seen."""
        self.array.view(np.uint8)[:] = SENTINEL

    def damaged(self) -> int:
        """Return how many bytes of the guards were changed."""
        return sum(int(np.count_nonzero(guard != SENTINEL)) for guard in self._guards)


@dataclass(frozen=True)
class Findings:
    """What a check found: wrong elements of the result, changed elements of the input, changed guard bytes.

    `first` is the first wrong element of a rank's own result.
    """

    wrong: int
    changed: int
    damaged: int
    first: WrongElement | None = None


class Buffers:
    """The send and receive buffer of one point, which are the same array in place, in memory that `take` gives."""

    def __init__(self, count: int, dtype: DType, *, in_place: bool, take: Take = ordinary) -> None:
        self._send = Guarded(count, dtype, take)
        self._receive = self._send if in_place else Guarded(count, dtype, take)
        self.in_place = in_place

    @property
    def memory(self) -> tuple[Array, ...]:
        """What `take` gave."""
        return (self._send.raw,) if self.in_place else (self._send.raw, self._receive.raw)

    @property
    def send(self) -> Array:
        """What is sent."""
        return self._send.array

    @property
    def receive(self) -> Array:
        """Where the result goes."""
        return self._receive.array

    @property
    def result(self) -> Array:
        """The result as the last check saw it."""
        return self._receive.array

    @property
    def nbytes(self) -> int:
        """The bytes of what is sent and where the result goes, one array counted once."""
        return self.send.nbytes * (1 if self.in_place else 2)

    def prepare(self, given: Pattern) -> None:
        """Lay out the input, and sentinels where the result goes."""
        fill(self.send, given.sent)
        if not self.in_place:
            self._receive.poison()

    def check(self, given: Pattern) -> Findings:
        """Return what is wrong after the allreduce of what `prepare` laid out."""
        changed = 0 if self.in_place else count_wrong(self.send, given.sent)
        damaged = self._send.damaged() + (0 if self.in_place else self._receive.damaged())
        wrong = count_wrong(self.receive, given.expected)
        return Findings(wrong, changed, damaged, first_wrong(self.receive, given.expected) if wrong else None)
