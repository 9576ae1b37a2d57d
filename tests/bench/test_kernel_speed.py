"""How the engine's reductions compare with a plain C add of the same arrays: `make microbench` prints the tables.

The C loops are compiled here, with the flags of the extension, and once more for this very processor
(`-march=native`): that is more than asked for, since one build of the engine must run on all processors of an
architecture. Both take turns in one process. Nothing here asserts a time.

Goals: 85 % of the plain add; of float16 and bfloat16, which C does not add, 80 % of our float32 on as many bytes.
"""

import ast
import ctypes
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ddlbench.dtypes import DTYPES

SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
SOURCES = (1, 2, 3, 4)
TURN_NBYTES = 4 << 20
"""A turn takes so many bytes of each source, or one run."""
ROUNDS = 15
PLAIN = ("float32", "float64", "int32")
SHORT = ("float16", "bfloat16")


@dataclass(frozen=True)
class Row:
    """One line of a table: nanoseconds of a run, one for each turn, of the reference and of the engine."""

    size: str
    sources: int
    reference: np.ndarray
    engine: np.ndarray

    def __str__(self):
        return f"{self.size:>8} {self.sources:>7}   {_two(self.reference)}   {_two(self.engine)}   {self._ratios()}"

    def _ratios(self):
        median, least = (pick(self.reference) / pick(self.engine) for pick in (np.median, np.min))
        return f"{median:>8.0%} {least:>8.0%}"


def _two(taken):
    return f"{np.median(taken) / 1e3:>10.2f} {taken.min() / 1e3:>10.2f}"


def flags(repository):
    """Return the compiler's flags that stand in setup.py."""
    for node in ast.parse((repository / "setup.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILE_ARGS":
            return ast.literal_eval(node.value)
    raise AssertionError("setup.py has no COMPILE_ARGS")


def build(repository, target, *more):
    """Compile the loops with the engine's own sources as a library, and return it."""
    sources = ["tests/bench/adding.c", "pyx/direct.c", "pyx/kernels.c"]
    command = ["gcc", *flags(repository), *more, "-fPIC", "-shared", "-Ipyx", *sources, "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True, text=True, cwd=repository)
    return declared(ctypes.CDLL(str(target)))


def declared(library):
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    library.plain_add.restype, library.plain_add.argtypes = pointer, [number, number]
    library.measure.restype = library.engine_add.restype = None
    library.measure.argtypes = [pointer, number, number, pointer, size, number, number, pointer, pointer]
    library.engine_add.argtypes = [number, number, pointer, size]
    return library


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Give the engine and the plain loops, compiled with its flags."""
    return build(Path(__file__).resolve().parents[2], tmp_path_factory.mktemp("adding") / "adding.so")


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    """Give the plain loops compiled for this very processor."""
    repository, target = Path(__file__).resolve().parents[2], tmp_path_factory.mktemp("adding") / "native.so"
    try:
        return build(repository, target, "-march=native")
    except subprocess.CalledProcessError:
        return build(repository, target, "-mcpu=native")


def arrays(dtype, nbytes):
    """Return the sources and the target, each at a line of its own, with small whole numbers."""
    numbers = np.arange(nbytes // dtype.itemsize) % 7
    encoded = numbers.astype(np.float32).view(np.uint32) >> 16 if dtype.name == "bfloat16" else numbers
    memory = [np.zeros(nbytes + 64, np.uint8) for _ in range(SOURCES[-1] + 1)]
    views = [one[(skip := -one.ctypes.data % 64) : skip + nbytes].view(dtype.storage) for one in memory]
    for view in views[:-1]:
        view[:] = encoded.astype(dtype.storage)
    return views, numbers


def operands(views, sources):
    return np.array([*(view.ctypes.data for view in views[:sources]), views[-1].ctypes.data], np.uint64)


def measured(library, plain, dtype, nbytes, places, sources):
    """Return the nanoseconds of a run of the reference and of the engine, one for each turn."""
    taken = np.empty((2, ROUNDS), np.int64)
    times = max(1, TURN_NBYTES // nbytes)
    where = places.ctypes.data
    given = (plain, dtype.code, sources, where, nbytes, times, ROUNDS, taken[0].ctypes.data, taken[1].ctypes.data)
    library.measure(*given)
    return taken / times


def table(title, engine, dtype, plain):
    """Return the lines of a table; `plain` gives the address of a plain add of so many sources, or None."""
    head = f"{'bytes':>8} {'sources':>7}   {'reference':>10} {'least':>10}   {'engine':>10} {'least':>10}"
    lines = ["", title, f"{head}   {'ratio':>8} {'of least':>8}"]
    for size, nbytes in SIZES.items():
        views, _ = arrays(dtype, nbytes)
        for sources in SOURCES:
            times = measured(engine, plain(sources), dtype, nbytes, operands(views, sources), sources)
            lines.append(str(Row(size, sources, *times)))
    return "\n".join(lines)


@pytest.mark.parametrize("name", [*PLAIN, *SHORT])
def test_what_is_timed_is_right(engine, name):
    dtype, nbytes = DTYPES[name], SIZES["64 KiB"]
    views, numbers = arrays(dtype, nbytes)
    for sources in SOURCES:
        places = operands(views, sources)
        views[-1][:] = 0
        engine.engine_add(dtype.code, sources, places.ctypes.data, nbytes)
        found = views[-1]
        if name == "bfloat16":
            found = (found.astype(np.uint32) << 16).view(np.float32)
        assert (found == sources * numbers).all()


@pytest.mark.parametrize("name", PLAIN)
def test_sums_beside_a_plain_add(engine, native, name, capsys):
    dtype = DTYPES[name]
    given = "microseconds, median and least; goal 85 %"
    by_flags = {"with the engine's flags": engine, "for this processor": native}
    with capsys.disabled():
        for how, loops in by_flags.items():
            title = f"{name}, the engine beside a plain C add compiled {how} ({given})"
            print(table(title, engine, dtype, lambda sources, loops=loops: loops.plain_add(dtype.code, sources)))


@pytest.mark.parametrize("name", SHORT)
def test_sums_of_short_floats_beside_float32(engine, name, capsys):
    title = f"{name}, beside the engine's float32 on as many bytes (microseconds, median and least; goal 80 %)"
    with capsys.disabled():
        print(table(title, engine, DTYPES[name], lambda _: None))
