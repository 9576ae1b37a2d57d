"""`ddlbench._cuda` built against tests/cuda_shim, whose device is the host: an emulation for tests, no proof of a GPU.

The same sources as the real extension, compiled by g++. `build(folder)` makes it, once for all processes that name one
folder; `load(path)` imports it, and `install(path)` makes it this process's `ddlbench._cuda`. Tests ask for the fixture
`emulated_cuda`, which is the path. Device memory is memory of this process, so numpy can look at it (`seen`); nothing
put into a stream happens before somebody waits for that stream. tests/cuda_shim/cuda_runtime.h says what its
environment variables are: another number of devices, less memory, no driver.
"""

import ctypes
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

TOP = Path(__file__).resolve().parents[1]
SOURCES = ("cuda/reduce.cu", "cuda/runtime.cpp")
HEADERS = tuple(f"-I{TOP / folder}" for folder in ("tests/cuda_shim", "cuda", "pyx"))
CXX = ("g++", "-x", "c++", "-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", *HEADERS)


def missing() -> str | None:
    """Return what keeps the emulation from being built here, or None."""
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return "the emulation of CUDA needs Linux"
    lacks = [program for program in ("gcc", "g++") if shutil.which(program) is None]
    lacks += [] if importlib.util.find_spec("Cython") else ["Cython"]
    lacks += [] if Path(sysconfig.get_path("include"), "Python.h").exists() else ["Python.h"]
    return f"the emulation of CUDA needs {' and '.join(lacks)}" if lacks else None


def build(folder: Path, *flags: str) -> Path:
    """Compile the extension in `folder`, unless another process has, with more `flags`, and return its path."""
    target = folder / f"_cuda{sysconfig.get_config_var('EXT_SUFFIX')}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _compile(folder, flags).rename(target)
    return target


def _compile(folder: Path, flags: tuple[str, ...]) -> Path:
    objects = [folder / f"{Path(source).stem}.o" for source in SOURCES]
    commands = [[*CXX, *flags, "-c", str(TOP / s), "-o", str(o)] for s, o in zip(SOURCES, objects, strict=True)]
    commands.append(_of_the_module(folder, flags))
    started = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for c in commands]
    said = [process.communicate()[0] for process in started]
    failed = [text for process, text in zip(started, said, strict=True) if process.returncode]
    if failed:
        raise RuntimeError("\n".join(failed))
    linked, parts = folder / "linked.so", [*map(str, objects), str(folder / "cuda.o")]
    subprocess.run(["g++", "-shared", *flags, *parts, "-o", str(linked)], check=True)
    return linked


def _of_the_module(folder: Path, flags: tuple[str, ...]) -> list[str]:
    """Return the command that compiles pyx/cuda.pyx to cuda.o."""
    made = folder / "cuda.c"
    cython = [sys.executable, "-m", "cython", "-3", "--module-name", "ddlbench._cuda", "-I", str(TOP / "pyx")]
    source = str(TOP / "pyx" / "cuda.pyx")
    subprocess.run([*cython, source, "-o", str(made)], check=True, capture_output=True, text=True)
    python = f"-I{sysconfig.get_path('include')}"
    return ["gcc", "-O0", "-fPIC", *flags, python, *HEADERS[1:], "-c", str(made), "-o", str(folder / "cuda.o")]


def load(path: Path | str) -> ModuleType:
    """Import the extension at `path`; what `import ddlbench._cuda` gives stays as it is."""
    spec = importlib.util.spec_from_file_location("ddlbench._cuda", path)
    assert spec is not None
    assert spec.loader is not None
    module, before = importlib.util.module_from_spec(spec), sys.modules.get("ddlbench._cuda")
    spec.loader.exec_module(module)  # which enters it in sys.modules: modules of Cython do
    sys.modules.pop("ddlbench._cuda", None)
    if before is not None:
        sys.modules["ddlbench._cuda"] = before
    return module


def install(path: Path | str) -> ModuleType:
    """Make the extension at `path` this process's `ddlbench._cuda` and return it."""
    import ddlbench

    module = load(path)
    sys.modules["ddlbench._cuda"] = module
    ddlbench._cuda = module  # type: ignore[attr-defined]
    return module


def seen(address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of emulated device memory as an array over that memory."""
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
