"""The MPI library of this Python, and the launcher that belongs to it.

Each library's ranks find each other only under its own launcher, or under srun and jsrun where these speak its
protocol. Under another one they run as N jobs of one rank, with exit status 0.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ddlbench.errors import UsageError, unknown
from ddlbench.launch.allocation import Scheduler

Family = Literal["openmpi5", "openmpi4", "mpich", "intel", "spectrum"]
Kind = Literal["mpirun", "srun", "jsrun", "other"]

PROGRAM = r"""
import json, re
import mpi4py
mpi4py.rc(initialize=False, finalize=False)
from mpi4py import MPI
name, version = MPI.get_vendor()
with open("/proc/self/maps") as maps:
    paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
files = sorted(path for path in paths if re.search(r"/lib(mpi|mpich|mpi_ibm)[^/]*\.so", path))
print(json.dumps({"vendor": name, "version": ".".join(map(str, version)), "files": files}))
"""
"""What a rank would load, told without starting MPI."""
SECONDS = 60
SCHEDULERS_OWN: Mapping[str, Kind] = {"srun": "srun", "jsrun": "jsrun"}


@dataclass(frozen=True)
class Traits:
    """What is particular to a family of libraries.

    `name` is its own, `programs` its launchers in order of preference, `told` what their --version says, `pmi` the
    protocol that srun must speak to it.
    """

    name: str
    programs: tuple[str, ...]
    told: str
    pmi: str


TRAITS: Mapping[Family, Traits] = {
    "openmpi5": Traits("Open MPI 5", ("mpirun", "mpiexec"), r"\(Open MPI\) (?:[5-9]|[1-9][0-9])\.", "pmix"),
    "openmpi4": Traits("Open MPI 4", ("mpirun", "mpiexec"), r"\(Open MPI\) [1-4]\.", "pmix"),
    "mpich": Traits("MPICH", ("mpiexec.hydra", "mpiexec", "mpirun"), r"HYDRA build details", "pmi2"),
    "intel": Traits("Intel MPI", ("mpiexec.hydra", "mpirun", "mpiexec"), r"Intel\(R\) MPI Library", "pmi2"),
    "spectrum": Traits("Spectrum MPI", ("mpirun", "mpiexec"), r"Spectrum MPI", "pmix"),
}


@dataclass(frozen=True)
class Library:
    """An MPI library: its family, its name and version as in `Open MPI 5.0.11`, and its files."""

    family: Family
    name: str
    files: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Launcher:
    """A launcher: of which kind, and its words, the first being the program.

    "mpirun" is the library's own, whatever its name; "other" is one that does not say whose it is, as a site's script.
    """

    kind: Kind
    words: tuple[str, ...]


def of_family(text: str) -> Library:
    """Return the library that --mpi names, whether it is installed or not; raises `UsageError`."""
    for family, traits in TRAITS.items():
        if family == text:
            return Library(family, traits.name)
    raise unknown("MPI library", text, TRAITS)


def of_this_python() -> Library:
    """Return the MPI library that mpi4py loads here; raises `UsageError` when there is none, or none that is known."""
    argv = [sys.executable, "-c", PROGRAM]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UsageError(f"{sys.executable} has not loaded MPI within {SECONDS} s: is its file system there?") from None
    if done.returncode:
        last = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
        raise UsageError(f"this Python cannot load MPI: {last}; {sys.executable} must be one with mpi4py and its MPI")
    told = json.loads(done.stdout.splitlines()[-1])
    name = f"{told['vendor']} {told['version']}"
    return Library(_family(told["vendor"], told["version"]), name, tuple(map(Path, told["files"])))


def _family(vendor: str, version: str) -> Family:
    """Return the family of what mpi4py calls `vendor`; kin of a library are started like it."""
    if vendor == "Open MPI":
        return "openmpi5" if int(version.split(".")[0]) >= 5 else "openmpi4"
    for part, family in VENDORS.items():
        if part in vendor:
            return family
    raise UsageError(
        f"{vendor} {version} is no MPI library that ddlbench launch knows ({', '.join(TRAITS)}): name its nearest kin"
        " with --mpi and its launcher with --launcher, or start the ranks with its own launcher"
    )


VENDORS: Mapping[str, Family] = {
    "Spectrum": "spectrum",
    "Intel": "intel",
    "MPICH": "mpich",
    "MVAPICH": "mpich",
    "Cray": "mpich",
}


# ---- Launchers -----------------------------------------------------------------------------------------------------


def launcher_of(library: Library, scheduler: Scheduler, asked: str | None, *, must_be_there: bool) -> Launcher:
    """Return the launcher of `library` in a job of `scheduler`: the one `asked` for, else the first that is found.

    Raises `UsageError` when there is none or it is another library's. Without `must_be_there` nothing is looked for.
    """
    if asked is not None:
        return _asked(library, asked, must_be_there=must_be_there)
    if not must_be_there:
        return _by_name(library, scheduler)
    if library.family == "spectrum" and (jsrun := shutil.which("jsrun")):
        return Launcher("jsrun", (jsrun,))
    for path in _candidates(library):
        if _is_of(library, path):
            return Launcher("mpirun", (path,))
    if scheduler == "slurm" and (srun := shutil.which("srun")):
        return Launcher("srun", (srun,))
    raise UsageError(
        f"there is no launcher of {library.name} ({' or '.join(TRAITS[library.family].programs)}) beside the library,"
        f" in {Path(sys.prefix, 'bin')} or on PATH: add it to PATH, or name it with --launcher"
    )


def _by_name(library: Library, scheduler: Scheduler) -> Launcher:
    if library.family == "spectrum" and scheduler == "lsf":
        return Launcher("jsrun", ("jsrun",))
    return Launcher("mpirun", (TRAITS[library.family].programs[0],))


def _asked(library: Library, text: str, *, must_be_there: bool) -> Launcher:
    """Return the launcher that --launcher names; raises `UsageError` when it is not there or another library's."""
    try:
        program, *words = shlex.split(text) or [""]
    except ValueError as error:
        raise UsageError(f"--launcher {text!r} cannot be read: {error}") from None
    found = shutil.which(program)
    if found is None and must_be_there:
        raise UsageError(f"--launcher {text!r}: {program!r} is not a program here")
    return Launcher(_kind(library, Path(program).name, found), (found or program, *words))


def _kind(library: Library, name: str, path: str | None) -> Kind:
    """Return the kind of the launcher called `name`; raises `UsageError` when that at `path` is another library's."""
    if name in SCHEDULERS_OWN:
        return SCHEDULERS_OWN[name]
    if path is None or _is_of(library, path):
        return "mpirun"
    if other := _other(path):
        raise UsageError(
            f"{path} is the launcher of {other}, but this Python uses {library.name}: under it every rank would be"
            " alone; name the launcher of the same library"
        )
    return "other"


def _candidates(library: Library) -> Iterator[str]:
    """Yield where the launcher may be: in the tree of the library's file, in this environment, and on PATH."""
    roots = [parent for file in library.files for parent in file.resolve().parents[1:3]]
    folders = [*(str(root / "bin") for root in roots), str(Path(sys.prefix, "bin")), os.environ.get("PATH", "")]
    for folder in folders:
        for program in TRAITS[library.family].programs:
            if found := shutil.which(program, path=folder):
                yield found


def _version(path: str) -> str:
    """Return what the launcher says of itself, "" when it says nothing."""
    folder = str(Path(path).parent)
    environ = os.environ | {"PATH": f"{folder}:{os.environ.get('PATH', '')}"}  # Intel's mpirun is a script
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False, env=environ
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _is_of(library: Library, path: str) -> bool:
    return re.search(TRAITS[library.family].told, _version(path)) is not None


def _other(path: str) -> str | None:
    """Return which library the launcher is of, None when it does not say."""
    text = _version(path)
    return next((traits.name for traits in TRAITS.values() if re.search(traits.told, text)), None)
