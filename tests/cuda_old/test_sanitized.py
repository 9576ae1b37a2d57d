"""The emulated kernels under AddressSanitizer and UndefinedBehaviorSanitizer: no byte outside a source is touched."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulated_cuda import build, missing

PROGRAM = """
import ctypes, itertools, sys
from ddlbench.dtypes import DTYPES, OPS
from emulated_cuda import load

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
poison, unpoison = libc.__asan_poison_memory_region, libc.__asan_unpoison_memory_region
poison.argtypes = unpoison.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
cuda = load(sys.argv[1])
too_far = int(sys.argv[2])


def memory(offset, nbytes):
    # Exactly these bytes: those before are poisoned, by eights, and those behind are not ours.
    base = libc.malloc(offset + nbytes)
    poison(base, offset // 8 * 8)
    ctypes.memset(base + offset, 1, nbytes)
    return base


for name, op in itertools.product(DTYPES, OPS):
    size = DTYPES[name].itemsize
    for to, off, n in itertools.product((0, 1, 8), (0, 1, 4, 8, 13), (1, 2, 7, 16, 31, 64, 129)):
        bases = [memory(to, n * size), memory(off, n * size), memory(0, n * size)]
        sources = [bases[1] + off, bases[2]]
        cuda.reduce(DTYPES[name].code, OPS[op], bases[0] + to, sources, n + too_far)
        cuda.synchronize()
        for base, before in zip(bases, (to, off, 0)):
            unpoison(base, before // 8 * 8)
            libc.free(base)
"""


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the emulation with both sanitizers in it."""
    if reason := missing():
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("sanitized"), "-fsanitize=address,undefined", "-fno-sanitize-recover", "-g")


def run(extension: Path, too_far: int) -> subprocess.CompletedProcess[str]:
    assert shutil.which("gcc")
    asked = ["gcc", "-print-file-name=libasan.so"]
    library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    tests = Path(__file__).resolve().parents[1]
    env = os.environ | {
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": f"{tests}:{tests.parent}",
    }
    argv = [sys.executable, "-c", PROGRAM, str(extension), str(too_far)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env)


def test_no_kernel_touches_what_is_not_its_own(sanitized: Path) -> None:
    done = run(sanitized, 0)
    assert done.returncode == 0, done.stderr[:4000]


def test_one_element_too_many_is_found(sanitized: Path) -> None:
    assert "AddressSanitizer: heap-buffer-overflow" in run(sanitized, 1).stderr
