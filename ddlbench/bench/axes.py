"""The axes of a sweep: sizes in bytes as nccl-tests users write them, and the points they become for one dtype.

Sizes are written `8`, `4K`, `64M`, `1.5G`, with or without `iB`: K, M and G are 1024, 1024² and 1024³. `KB`, `MB` and
`GB` are refused, because half of their readers take them for 1000ⁿ.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from ddlbench.errors import UsageError

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LARGEST_NBYTES = 1 << 50
MOST_DIGITS = 40
"""No size has more before the point; with more behind it, the last not 0, none is whole, as the largest unit is 2⁴⁰."""
MOST_SIZES = 10_000
"""More sizes than this in one sweep are taken for a slip of the keyboard."""

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([KMGT]?)(I?B)?", re.IGNORECASE)


@dataclass(frozen=True)
class Cell:
    """A vector to reduce: its elements, its bytes, and how many tensors of a workload it stands for."""

    count: int
    nbytes: int
    multiplicity: int = 1


def parse_size(text: str) -> int:
    """Return the bytes that `text` says: `64M`, `64MiB` and `67108864` are the same; raises `UsageError`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"size {text!r}: expected bytes, with K, M or G for 1024, 1024² or 1024³, such as 8, 64K or 1.5G"
        )
    number, unit, suffix = found[1], found[2].upper(), (found[3] or "").upper()
    if unit and suffix == "B":
        raise UsageError(
            f"size {text!r} is 1000ⁿ to some and 1024ⁿ to others: write {number}{unit} for 1024ⁿ, or the bytes"
        )
    return _whole_bytes(text, number, unit)


def _whole_bytes(text: str, number: str, unit: str) -> int:
    """Return `number` units in bytes, in exact arithmetic: a double would lose bytes of a long number."""
    whole, _, decimals = number.partition(".")
    whole, decimals = whole.lstrip("0"), decimals.rstrip("0")
    known = max(len(whole), len(decimals)) <= MOST_DIGITS  # or Python may refuse to read them
    digits, scale = (int(f"0{whole}{decimals}"), 10 ** len(decimals)) if known else (0, 1)
    nbytes, rest = divmod(digits * UNITS[unit], scale)
    if rest or len(decimals) > MOST_DIGITS:
        raise UsageError(f"size {text!r} is no whole number of bytes")
    if nbytes > LARGEST_NBYTES or len(whole) > MOST_DIGITS:
        raise UsageError(f"size {text!r} is beyond the largest that can be asked for, {format_size(LARGEST_NBYTES)}")
    return nbytes


def format_size(nbytes: int) -> str:
    """Return the shortest exact spelling, in the largest unit that divides `nbytes`: 65536 is `64K`, 1000 is `1000`."""
    unit = max((u for u in UNITS if nbytes and nbytes % UNITS[u] == 0), key=UNITS.__getitem__, default="")
    return f"{nbytes // UNITS[unit]}{unit}"


def geometric(begin: int, end: int, factor: int) -> tuple[int, ...]:
    """Return `begin`, `begin`·factor, … up to `end`; 0 is followed by 1. Raises `UsageError`."""
    _check_order(begin, end)
    powers = tuple(takewhile(lambda size: size <= end, _powers(max(begin, 1), factor)))
    return powers if begin else (0, *powers)


def _powers(size: int, factor: int) -> Iterator[int]:
    while True:
        yield size
        size *= factor


def arithmetic(begin: int, end: int, step: int) -> tuple[int, ...]:
    """Return `begin`, `begin` + step, … up to `end`; raises `UsageError`."""
    _check_order(begin, end)
    sizes = range(begin, end + 1, step)
    if len(sizes) > MOST_SIZES:
        raise UsageError(f"a step of {format_size(step)} makes {len(sizes)} sizes: expected at most {MOST_SIZES}")
    return tuple(sizes)


def _check_order(begin: int, end: int) -> None:
    if begin > end:
        raise UsageError(f"the first size, {format_size(begin)}, is above the last, {format_size(end)}")


def cells_of_sizes(sizes: Iterable[int], itemsize: int) -> tuple[Cell, ...]:
    """Return one cell for each element count that `sizes` (bytes) come to, in their order, each count once.

    A size is rounded down to whole elements. One that is not 0 but holds no element is left out: it would be measured
    as the empty vector nobody asked for.
    """
    counts = dict.fromkeys(size // itemsize for size in sizes if size == 0 or size >= itemsize)
    return tuple(Cell(count, count * itemsize) for count in counts)


def too_small(sizes: Iterable[int], itemsize: int) -> tuple[int, ...]:
    """Return the sizes that `cells_of_sizes` leaves out."""
    return tuple(size for size in sizes if 0 < size < itemsize)


def cells_of_tensors(numels: Iterable[int], itemsize: int) -> tuple[Cell, ...]:
    """Return one cell for each different number of elements, ascending, with how many tensors have it."""
    return tuple(Cell(numel, numel * itemsize, times) for numel, times in sorted(Counter(numels).items()))
