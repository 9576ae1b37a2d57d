"""The measurement of kernels against a copy runs, on an emulated GPU: its figures mean nothing there, its bytes do."""

import csv
import importlib.util
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from ddlbench.dtypes import DTYPES
from emulated_cuda import load

NBYTES = 4096
SPEEDS = {"kernel_bytes_per_s": 1e12, "copy_bytes_per_s": 1e12}


@pytest.fixture(scope="module")
def speed() -> ModuleType:
    path = Path(__file__).resolve().parents[1] / "cuda" / "kernel_speed.py"
    spec = importlib.util.spec_from_file_location("kernel_speed", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["kernel_speed"] = module
    spec.loader.exec_module(module)
    return module


def test_every_case_is_measured_and_written(speed, emulated_cuda, tmp_path):
    cuda = load(emulated_cuda)
    before = cuda.memory()
    rows = speed.measure(cuda, NBYTES, rounds=2)
    assert cuda.memory() == before
    assert [(row.dtype, row.op, row.sources, row.offset, row.forward) for row in rows] == [
        (case.dtype, case.op, case.sources, case.offset, case.forward) for case in speed.cases()
    ]
    speed.write_csv(tmp_path / "gpu" / "kernels.csv", rows)
    written = list(csv.DictReader((tmp_path / "gpu" / "kernels.csv").read_text().splitlines()))
    assert [float(line["ratio"]) for line in written] == [row.ratio for row in rows]
    assert str(rows[0]).startswith("float16   sum   2 sources")
    assert "2 bytes off" in "\n".join(map(str, rows))


def counting() -> tuple[SimpleNamespace, list[int]]:
    """Return a device that does nothing but note the bytes that its copies and reductions move."""
    moved: list[int] = []

    def reduce(dtype, _op, _dst, sources, count, *, forward, **_):
        itemsize = next(d.itemsize for d in DTYPES.values() if d.code == dtype)
        moved.append((len(sources) + 1 + bool(forward)) * count * itemsize)

    return SimpleNamespace(copy=lambda _to, _of, nbytes, _stream: moved.append(2 * nbytes), reduce=reduce), moved


def test_kernel_and_copy_move_the_same_bytes(speed):
    places = [1 << 20 << k for k in range(10)]
    for case in speed.cases():
        (kernel, by_kernel), (copy, by_copy) = counting(), counting()
        speed.reduction(kernel, case, places, NBYTES, 0)()
        speed.copying(copy, case.moved_nbytes(NBYTES), places, NBYTES, 0)()
        assert sum(by_kernel) == sum(by_copy) == case.moved_nbytes(NBYTES)


def test_the_verdict_names_the_slowest_kernel(speed):
    case = speed.Case("float32", "sum", 2)
    fast, slow = (speed.Row(**asdict(case), nbytes=1, **SPEEDS, ratio=ratio) for ratio in (0.95, 0.5))
    assert speed.verdict([fast]) == "all 1 kernels reach 90% of a copy's bandwidth"
    assert speed.verdict([fast, slow]).startswith("1 of 2 kernels are below 90% of a copy's bandwidth; least: float32")
