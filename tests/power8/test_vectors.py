"""The reductions as compiled for POWER8; `make test-power8` runs this in its Debian system."""

import os
import platform
import re
import subprocess
import sys
from collections import defaultdict

import pytest

from ddlbench import _reduce

KERNEL = re.compile(r"^[0-9a-f]+ <baseline_(\w+)>:$")
ANY_FUNCTION = re.compile(r"^[0-9a-f]+ <")
VECTOR = re.compile(r"\t(?:xv|v[a-z]|lxv|stxv)\w*")
WITHOUT = {"i64_div", "i64_prod", "i64_prod_3", "i64_prod_4"}
"""POWER8 multiplies and divides no vectors of 64-bit integers."""
REDUCE_RANDOM_BYTES = """
import hashlib, random
from ddlbench import _reduce
drawn, digest = random.Random(1), hashlib.sha256()
def memory():
    return bytearray(drawn.randbytes(8 * 1003))
for dtype in _reduce.DTYPE_CODES.values():
    for op in _reduce.OP_CODES.values():
        to, sources = memory(), [memory() for _ in range(4)]
        _reduce.reduce(dtype, op, to, *sources[:2])
        digest.update(to)
        for many in (3, 4):
            _reduce.reduce_many(dtype, op, to, sources[:many])
            digest.update(to)
    _reduce.divide(dtype, to, 3)
    digest.update(to)
print(digest.hexdigest())
"""
ON_X86_64 = "a2cfd614885738dd1061c901d3383794e7f0d1656c0f7e7367e02801d055a9a8"
"""What that prints there, at every SIMD level."""


def vector_instructions(disassembly: str) -> dict[str, int]:
    """Return how many vector instructions each kernel has."""
    found: dict[str, int] = defaultdict(int)
    kernel = None
    for line in disassembly.splitlines():
        if ANY_FUNCTION.match(line):
            head = KERNEL.match(line)
            kernel = head[1] if head else None
        elif kernel:
            found[kernel] += bool(VECTOR.search(line))
    return found


def test_every_kernel_computes_on_vectors_where_power8_can():
    if platform.machine() != "ppc64le":
        pytest.skip("only ppc64le has VSX: make test-power8")
    done = subprocess.run(["objdump", "-d", _reduce.__file__], capture_output=True, text=True, check=True)
    found = vector_instructions(done.stdout)
    assert len(found) > 80
    assert {kernel for kernel, vectors in found.items() if not vectors} == WITHOUT


def test_kernels_give_the_bits_of_x86_64_on_a_processor_that_refuses_what_is_newer_than_power8():
    # QEMU's; the other tests cannot run so: there Debian's numpy ends with an illegal instruction when it is imported.
    power8 = os.environ | {"QEMU_CPU": "power8"}
    argv = [sys.executable, "-c", REDUCE_RANDOM_BYTES]
    done = subprocess.run(argv, capture_output=True, text=True, env=power8, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ON_X86_64), done.stderr
