"""Environments for the libraries: made once, kept beside the one that make uses, and made anew when they would differ.

They hold the library and mpi4py alone. The other packages come from the environment that runs this, by a line in a
`.pth` file, and ddlbench is compiled for the library into their folder `site`.
"""

import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlbench.peers.library import Environment, Identity, Wheel, checked, identify, this_python
from ddlbench.peers.process import PeerError, run

MARKER = ".made-for"
PATHS = "ddlbench-peers.pth"
SETUP_SECONDS = 1800
UNFINISHED = "unfinished"
BUILD = """
import runpy, sys, setuptools
sys.argv[0] = "setup.py"
runpy.run_path("setup.py", run_name="__main__")
"""


@dataclass(frozen=True)
class Workshop:
    """Where environments are made: the source tree, the environment they stand beside, and the log of all set-up."""

    source: Path
    beside: Path
    log: Path

    def folder(self, key: str) -> Path:
        """Return the folder of the environment `key`: .venv-mpich."""
        return self.beside.with_name(f"{self.beside.name}-{key}")

    def library(self, wheel: Wheel, *, pinned: bool) -> tuple[Environment, Identity]:
        """Return the environment of `wheel`, made where it is not there, and the library that it loads.

        Raises `PeerError` when it cannot be had here, does not compile, or loads another library.
        """
        folder = self.folder(wheel.key)
        self._made(folder, wheel.requirements, (folder / "site", packages()))
        environment = wheel.environment(folder, pinned=pinned)
        self._compiled(folder, environment)
        return environment, checked(wheel, folder, identify(environment))

    def torch(self, requirement: str | None) -> Environment:
        """Return an environment with torch; `requirement` None makes none.

        Raises `PeerError` when there is none, or it cannot be made.
        """
        folder = self.folder("torch")
        if requirement is not None:
            self._made(folder, (requirement,), (self.source, packages()))
        elif not finished(folder):
            raise PeerError("left out by PEERS_TORCH=0, and no earlier make peers installed torch")
        return Environment(folder / "bin" / "python", ())

    def _made(self, folder: Path, requirements: Sequence[str], paths: Sequence[Path]) -> None:
        """See that `folder` is an environment with `requirements`, whose Python also looks into `paths`."""
        wanted = "\n".join((sys.version, str(folder), *requirements, *map(str, paths)))
        if state(folder) == wanted:
            return
        if folder.exists() and state(folder) is None:
            raise PeerError(f"{folder} was not made by make peers: move it away")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / MARKER).write_text(UNFINISHED)
        self._run([str(this_python()), "-I", "-m", "venv", "--without-pip", str(folder)], {})
        self._install(folder, requirements)
        # Not before: pip would take packages found there for installed, and so an mpi4py compiled for another MPI.
        _site_packages(folder).joinpath(PATHS).write_text("".join(f"{path}\n" for path in paths))
        (folder / MARKER).write_text(wanted)

    def _install(self, folder: Path, requirements: Sequence[str]) -> None:
        # Wheels only: an mpi4py that is compiled here would be for whichever mpicc is on PATH.
        pip = [str(this_python()), "-I", "-m", "pip", "--python", str(folder / "bin" / "python"), "install"]
        options = ["--disable-pip-version-check", "--no-input", "--only-binary", ":all:"]
        try:
            self._run([*pip, *options, *requirements], {})
        except PeerError as error:
            raise PeerError(f"{' '.join(requirements)} cannot be installed: {error}") from None

    def _compiled(self, folder: Path, environment: Environment) -> None:
        """See that ddlbench is compiled for the library in `folder`, as its source is now.

        By the environment's own Python, since setuptools puts that one's include folder before all others. It is loaded
        first, for Cython needs distutils, which newer Pythons have only from setuptools.
        """
        places = ["--build-lib", str(folder / "site"), "--build-temp", str(folder / "build")]
        variables = {**environment.variables, "MPICC": str(folder / "bin" / "mpicc")}
        try:
            self._run([str(environment.python), "-I", "-c", BUILD, "-q", "build", *places], variables)
        except PeerError as error:
            raise PeerError(f"ddlbench does not compile with it: {error}", "failed") from None

    def _run(self, command: Sequence[str], variables: dict[str, str]) -> None:
        run(command, self.log, variables, seconds=SETUP_SECONDS, cwd=self.source)


def packages() -> Path:
    """Return the folder of the packages of the Python that runs this."""
    return Path(sysconfig.get_path("purelib"))


def _site_packages(folder: Path) -> Path:
    """Return the folder of the packages of the environment in `folder`."""
    return folder / packages().relative_to(sys.prefix)


def state(folder: Path) -> str | None:
    """Return what the environment in `folder` was made for; None when it is none of ours."""
    marker = folder / MARKER
    return marker.read_text() if marker.is_file() else None


def finished(folder: Path) -> bool:
    """Return whether there is a whole environment in `folder`."""
    return state(folder) not in (None, UNFINISHED)
