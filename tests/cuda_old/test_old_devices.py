"""The kernels compiled for devices that a new nvcc no longer knows, by NVRTC of CUDA 12; and the host's part with it.

`make test-cuda-old` installs the wheels: cuda_nvrtc, cuda_nvcc (for headers), cuda_runtime and cuda_cccl. This shows
that everything compiles, for the paper's P100 (sm_60) and its successor V100 (sm_70) among others; it runs nothing.
"""

import ctypes
import os
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
FLOATS = ("Float16", "BFloat16", "Float32", "Float64")
INTEGERS = ("Int32", "Int64", "UInt8")


@pytest.fixture(scope="module")
def wheels() -> Path:
    """Give the folder of NVIDIA's wheels, with cuda_nvrtc, cuda_runtime and cuda_cccl in it."""
    folder = Path(os.environ.get("DDLBENCH_CUDA12", "build/cuda12"), "nvidia")
    if not (TOP / folder).exists():
        pytest.skip(f"there is no {folder}: run make test-cuda-old, which installs CUDA 12's compiler from PyPI")
    return TOP / folder


def rules() -> list[tuple[str, str]]:
    """Return each rule that cuda/reduce.cu uses, with what is done last."""
    of_floats = ("FloatSum<{}>", "FloatProd<{}>", "FloatExtreme<{}, -1>", "FloatExtreme<{}, 1>")
    of_integers = tuple(rule.replace("Float", "Integer") for rule in of_floats)
    plain = [rule.format(element) for rule, element in [*product(of_floats, FLOATS), *product(of_integers, INTEGERS)]]
    averages = [f"FloatAvg<{element}>" for element in FLOATS] + [f"IntegerAvg<{element}>" for element in INTEGERS]
    return [(rule, "Undivided") for rule in plain] + [(rule, "Divided") for rule in averages]


def program() -> str:
    """Return CUDA C++ that makes every kernel of cuda/kernels.cuh."""
    lines = ['#include "kernels.cuh"', "namespace ddl {"]
    for (rule, last), room in product(rules(), (2, 8)):
        lines.append(f"template __global__ void reduce_aligned<{rule}, {room}, {last}<{rule}>>(DDL_TASK task);")
    for rule, last in rules():
        lines.append(f"template __global__ void reduce_at_any_alignment<{rule}, {last}<{rule}>>(DDL_TASK task);")
    return "\n".join([*lines, "}"])


class Nvrtc:
    """NVIDIA's compiler as a library, through ctypes."""

    def __init__(self, wheels: Path) -> None:
        self.library = ctypes.CDLL(str(next((wheels / "cuda_nvrtc" / "lib").glob("libnvrtc.so.*"))))
        self.options = ["-std=c++17", "-fmad=false", f"-I{TOP / 'cuda'}"]
        self.options += [f"-I{wheels / part / 'include'}" for part in ("cuda_runtime", "cuda_cccl")]

    def text_of(self, what: str, handle: ctypes.c_void_p) -> bytes:
        """Return the log, PTX or machine code of a program."""
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(handle, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(handle, text)
        return text.raw

    def compiled(self, source: str, arch: str, what: str = "CUBIN") -> bytes:
        """Return the machine code of `source` for `arch`, such as sm_60, or the PTX for one such as compute_80."""
        handle = ctypes.c_void_p()
        self.library.nvrtcCreateProgram(ctypes.byref(handle), source.encode(), b"all.cu", 0, None, None)
        options = [option.encode() for option in (*self.options, f"-arch={arch}")]
        status = self.library.nvrtcCompileProgram(handle, len(options), (ctypes.c_char_p * len(options))(*options))
        log = self.text_of("ProgramLog", handle).decode(errors="replace")
        assert status == 0, log[-4000:]
        warnings = [line for line in log.splitlines() if "warning" in line and "are deprecated" not in line]
        assert warnings == []
        return self.text_of(what, handle)


@pytest.mark.parametrize("arch", ["sm_60", "sm_70", "sm_80"])
def test_every_kernel_compiles(wheels: Path, arch: str) -> None:
    code = Nvrtc(wheels).compiled(program(), arch)
    assert code.startswith(b"\x7fELF")
    assert len(set(re.findall(rb"\.text\.(_ZN3ddl\w+)", code))) == 3 * len(rules())


def test_aligned_memory_is_accessed_16_bytes_at_a_time_and_nothing_is_spilt(wheels: Path) -> None:
    kernels = Nvrtc(wheels).compiled(program(), "compute_80", what="PTX").decode().split(".entry ")[1:]
    aligned = [text for text in kernels if "reduce_aligned" in text.split("(")[0]]
    assert len(aligned) == 2 * len(rules())
    for text in aligned:
        assert "ld.global.v4" in text
        assert "st.global.v4" in text
        assert ".local" not in text, text[:200]


def test_what_nvrtc_refuses_fails(wheels: Path) -> None:
    with pytest.raises(AssertionError, match="error"):
        Nvrtc(wheels).compiled(program() + "\n__global__ void wrong() { no_such_function(); }", "sm_60")


def test_the_hosts_part_compiles_against_cuda_12(wheels: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    headers = [f"-isystem{wheels / part / 'include'}" for part in ("cuda_runtime", "cuda_nvcc", "cuda_cccl")]
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{TOP / 'cuda'}", f"-I{TOP / 'pyx'}"]
    done = subprocess.run(
        ["g++", *flags, *headers, str(TOP / "cuda" / "runtime.cpp")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
