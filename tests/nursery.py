"""Many short runs of ddlbench without mpirun, each forked from a process that has imported the heavy parts already."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from launch import environment

# The child starts MPI itself: what was forked after that could not. It is killed before it is waited for, so that its
# number is still its own.
PROGRAM = """
import json, os, resource, signal, sys, time
import ddlbench.bench.environment, ddlbench.bench.progress, ddlbench.bench.timer, ddlbench.cli.outputs, ddlbench.comm
import ddlbench.cost.links, ddlbench.records, ddlbench.report.csv, ddlbench.report.html, ddlbench.report.printed

def ended(child):
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT | os.WNOHANG)

def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0

for line in sys.stdin:
    argv, cwd, out, err, delay, growing, most_nbytes = json.loads(line)
    before = growing and size(growing)
    child = os.fork()
    if not child:
        os.chdir(cwd)
        for stream, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), stream)
        if most_nbytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_nbytes, most_nbytes))
        from ddlbench.cli import main
        sys.argv[1:] = argv
        sys.exit(main(argv))
    if delay is not None:
        while growing and size(growing) <= before and not ended(child):
            time.sleep(0.0005)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
SPARE = {"OMPI_MCA_btl": "^ofi", "OPENBLAS_NUM_THREADS": "1"}
"""Open MPI's ofi sleeps for a second when it finds no network, in each start; threads do not survive a fork."""


@dataclass(frozen=True)
class Grown:
    """How a run ended: exit status, -9 when it was killed, and what it wrote."""

    status: int
    stdout: str
    stderr: str

    @property
    def errors(self) -> list[str]:
        """The lines of standard error that are ddlbench's own."""
        return [line for line in self.stderr.splitlines() if line.startswith(("ddlbench:", "Traceback"))]


class Nursery:
    """Runs ddlbench as one rank, again and again; a context manager. Files of the runs' output go to `directory`."""

    def __init__(self, directory: Path) -> None:
        self._files = (directory / "stdout", directory / "stderr")

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(SPARE),
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:
            self._process.stdin.close()

    def __call__(
        self,
        argv: Sequence[str],
        cwd: Path,
        *,
        kill_after: float | None = None,
        growing: Path | None = None,
        most_nbytes: int | None = None,
    ) -> Grown:
        """Run `ddlbench argv` in `cwd`; no file gets longer than `most_nbytes`.

        It is killed after some seconds, counted from its start or from the moment the file `growing` does.
        """
        files = [*map(str, self._files), kill_after, growing and str(growing), most_nbytes]
        self._process.stdin.write(json.dumps([[*map(str, argv)], str(cwd), *files]) + "\n")
        self._process.stdin.flush()
        status = self._process.stdout.readline()
        assert status, "the nursery ended"
        return Grown(int(status), *(path.read_text() for path in self._files))
