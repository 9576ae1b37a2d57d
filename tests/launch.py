"""Start programs under mpirun for tests: found like setup.py finds mpicc, with a time limit, ended with the test."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

ROOT_VARIABLES = (
    "OMPI_ALLOW_RUN_AS_ROOT",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
    "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
)
# Tests share a machine and outnumber its cores: no rank is pinned, more ranks than cores are fine, who waits yields.
# Without a network of its own kind the component btl/ofi sleeps for a second at each start.
OPEN_MPI = {
    "OMPI_MCA_btl": "^ofi",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_osc": "^ucx",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
PATIENCE = float(os.environ.get("DDLBENCH_TEST_PATIENCE", "1"))
"""What every time limit of an MPI test is multiplied by: an emulated processor is many times slower."""
NO_MPIRUN = "no mpirun beside this Python or on PATH (make test installs one)"


def find_mpirun() -> str | None:
    """Return the command of $MPIRUN, else the mpirun beside this Python, else the one on PATH, else None.

    Raises `pytest.UsageError` when the one that was asked for is not there: tests must not skip then.
    """
    named, beside = os.environ.get("MPIRUN"), Path(sys.executable).parent
    if named:
        if not shutil.which(named.split()[0]):
            raise pytest.UsageError(f"MPIRUN={named} is not a program")
        return named
    return shutil.which("mpirun", path=beside) or shutil.which("mpirun")


def command(ranks: int, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs `argv` on `ranks` ranks; skips the test when there is no mpirun."""
    mpirun = find_mpirun()
    if mpirun is None:
        pytest.skip(NO_MPIRUN)
    return [*mpirun.split(), "-n", str(ranks), *argv]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment with what MPI needs for tests; `extra` wins over both."""
    defaults = OPEN_MPI | (dict.fromkeys(ROOT_VARIABLES, "1") if os.geteuid() == 0 else {})
    return {"PYTHONUNBUFFERED": "1"} | defaults | os.environ | (extra or {})


def start(
    argv: Sequence[str],
    stdout: IO[bytes],
    stderr: IO[bytes] | int = subprocess.STDOUT,
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `argv` as the leader of a process group of its own, without standard input."""
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=env, cwd=cwd, start_new_session=True
    )


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process of `start` and the group it leads: politely, so that mpirun ends its ranks, then for certain."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@dataclass(frozen=True)
class Finished:
    """What a program under mpirun left: exit status, and standard output and error as text."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class MpiRun:
    """Run programs under mpirun from an ordinary test; files go to `directory`."""

    directory: Path

    def __call__(
        self, ranks: int, *argv: str, timeout: float = 60, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Finished:
        """Run `argv` on `ranks` ranks and return its end; fails the test, with the output, after `timeout` seconds."""
        timeout *= PATIENCE
        line = command(ranks, argv)
        out, err = self.directory / "stdout", self.directory / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = start(line, stdout, stderr, env=environment(env), cwd=cwd)
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                stop(process)
        if status is None:
            pytest.fail(f"{' '.join(line)}\ndid not end in {timeout} s\n{out.read_text()}\n{err.read_text()}")
        return Finished(status, out.read_text(), err.read_text())
