"""How the reduction kernels compare with a copy on the device: a part of `make gpu-check`, or alone as a program.

A kernel of k sources of n bytes moves (k + 1) n bytes through memory, one more n with a second destination; it is held
against a device-to-device copy that moves as many. Both take turns on one stream, timed by events, with vectors far
larger than the caches; the medians are compared. The goal is 90 % of the copy's bandwidth. Nothing is asserted.

    python tests/cuda/kernel_speed.py [--nbytes 268435456] [--rounds 15] [--csv reports/gpu/kernels.csv]
"""

import argparse
import csv
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType

from ddlbench.dtypes import DTYPES, OPS

GOAL = 0.9
REPEATS = 10
"""Launches between two events, so that starting one does not count."""
MOST_SOURCES = 8
SPARE_NBYTES = 4096
AVERAGED_RANKS = 8


@dataclass(frozen=True)
class Case:
    """A reduction: `offset` is that of the first source in bytes, `forward` says whether there are two destinations."""

    dtype: str
    op: str
    sources: int
    offset: int = 0
    forward: bool = False

    def moved_nbytes(self, nbytes: int) -> int:
        """Return the bytes read and written for vectors of `nbytes`."""
        return (self.sources + 1 + self.forward) * nbytes


@dataclass(frozen=True)
class Row:
    """A case with its vectors' size and the bandwidths, in bytes per second, of the kernel and of the copy."""

    dtype: str
    op: str
    sources: int
    offset: int
    forward: bool
    nbytes: int
    kernel_bytes_per_s: float
    copy_bytes_per_s: float
    ratio: float

    def __str__(self) -> str:
        more = (", second destination" if self.forward else "") + (f", {self.offset} bytes off" if self.offset else "")
        speed = f"{self.kernel_bytes_per_s / 1e9:9.1f} GB/s, copy {self.copy_bytes_per_s / 1e9:9.1f} GB/s"
        return f"{self.dtype:<9} {self.op:<5} {self.sources} sources {speed} {self.ratio:7.1%}{more}"


def cases() -> list[Case]:
    """Return what is measured: every type and number of sources for sums, and one of each other kind."""
    sums = [Case(dtype, "sum", k) for dtype in DTYPES for k in (2, 4, 8)]
    others = [Case(dtype, op, 2) for dtype in ("float16", "float32") for op in OPS if op != "sum"]
    odd = [Case("float32", "sum", 1), Case("float32", "sum", 2, forward=True), Case("float32", "sum", 2, offset=4)]
    return [*sums, *others, *odd, Case("float16", "sum", 2, offset=2), Case("uint8", "sum", 2, offset=1)]


@contextmanager
def vectors(cuda: ModuleType, count: int, nbytes: int) -> Iterator[list[int]]:
    """Give `count` vectors of device memory, zeroed, with some bytes to spare behind each."""
    addresses: list[int] = []
    try:
        for _ in range(count):
            addresses.append(cuda.malloc(nbytes + SPARE_NBYTES))
            cuda.fill(addresses[-1], 0, nbytes + SPARE_NBYTES)
        cuda.synchronize()
        yield addresses
    finally:
        for address in addresses:
            cuda.free(address)


class Clock:
    """Seconds on the device, between two events on a stream of its own."""

    def __init__(self, cuda: ModuleType) -> None:
        self.cuda, self.stream = cuda, cuda.stream_create()
        self.start, self.end = cuda.event_create(), cuda.event_create()

    def seconds(self, launch: Callable[[], None]) -> float:
        """Return how long one of `REPEATS` launches takes."""
        self.cuda.event_record(self.start, self.stream)
        for _ in range(REPEATS):
            launch()
        self.cuda.event_record(self.end, self.stream)
        self.cuda.event_synchronize(self.end)
        return float(self.cuda.event_seconds(self.start, self.end)) / REPEATS

    def close(self) -> None:
        """Destroy the events and the stream."""
        for event in (self.start, self.end):
            self.cuda.event_destroy(event)
        self.cuda.stream_destroy(self.stream)


def reduction(cuda: ModuleType, case: Case, places: list[int], nbytes: int, stream: int) -> Callable[[], None]:
    """Return what launches the kernel of `case`."""
    dst, forward, first, *others = places
    sources = [first + case.offset, *others][: case.sources]
    dtype, divisor = DTYPES[case.dtype], AVERAGED_RANKS if case.op == "avg" else 0
    second = forward if case.forward else 0

    def launch() -> None:
        count = nbytes // dtype.itemsize
        cuda.reduce(dtype.code, OPS[case.op], dst, sources, count, divisor=divisor, forward=second, stream=stream)

    return launch


def copying(cuda: ModuleType, moved_nbytes: int, arena: list[int], nbytes: int, stream: int) -> Callable[[], None]:
    """Return what launches copies that move as many bytes, half of them reads, from vectors of `nbytes`."""
    to, *sources = arena
    whole, rest = divmod(moved_nbytes // 2, nbytes)
    pieces = [nbytes] * whole + ([rest] if rest else [])

    def launch() -> None:
        for source, piece in zip(sources, pieces, strict=False):
            cuda.copy(to, source, piece, stream)

    return launch


def measured(cuda: ModuleType, case: Case, places: list[int], nbytes: int, rounds: int) -> Row:
    """Return the medians of `rounds` turns of the kernel and of the copy."""
    clock, moved = Clock(cuda), case.moved_nbytes(nbytes)
    kernel = reduction(cuda, case, places, nbytes, clock.stream)
    copy = copying(cuda, moved, places, nbytes, clock.stream)
    for launch in (kernel, copy):
        clock.seconds(launch)
    turns = [(clock.seconds(kernel), clock.seconds(copy)) for _ in range(rounds)]
    clock.close()
    kernel_s, copy_s = (max(statistics.median(of), 1e-12) for of in zip(*turns, strict=True))
    return Row(
        **asdict(case),
        nbytes=nbytes,
        kernel_bytes_per_s=moved / kernel_s,
        copy_bytes_per_s=moved / copy_s,
        ratio=copy_s / kernel_s,
    )


def measure(cuda: ModuleType, nbytes: int, rounds: int) -> list[Row]:
    """Return a row for each of `cases`, on the current device."""
    with vectors(cuda, MOST_SOURCES + 2, nbytes) as places:
        return [measured(cuda, case, places, nbytes, rounds) for case in cases()]


def fitting(cuda: ModuleType, nbytes: int) -> int:
    """Return `nbytes`, or what the device has room for ten times, as whole pages."""
    free_nbytes, _ = cuda.memory()
    return int(min(nbytes, free_nbytes // (MOST_SOURCES + 3) // 4096 * 4096))


def verdict(rows: list[Row]) -> str:
    """Return the last line: whether every kernel reaches the goal."""
    slow = [row for row in rows if row.ratio < GOAL]
    if not slow:
        return f"all {len(rows)} kernels reach {GOAL:.0%} of a copy's bandwidth"
    least = min(slow, key=lambda row: row.ratio)
    return f"{len(slow)} of {len(rows)} kernels are below {GOAL:.0%} of a copy's bandwidth; least: {least}"


def write_csv(path: Path, rows: list[Row]) -> None:
    """Write one line for each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def main() -> None:
    """Measure on the current device and print the table."""
    from ddlbench import _cuda

    parser = argparse.ArgumentParser(description="The reduction kernels against a copy on the device.")
    parser.add_argument("--nbytes", type=int, default=256 << 20, help="of each vector (268435456)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each (15)")
    parser.add_argument("--csv", type=Path, help="a file for the rows")
    options = parser.parse_args()
    device = _cuda.devices()[_cuda.current_device()]
    nbytes = fitting(_cuda, options.nbytes)
    print(f"{device.name}, vectors of {nbytes} bytes, {options.rounds} turns")
    rows = measure(_cuda, nbytes, options.rounds)
    print(*rows, verdict(rows), sep="\n")
    if options.csv:
        write_csv(options.csv, rows)


if __name__ == "__main__":
    main()
