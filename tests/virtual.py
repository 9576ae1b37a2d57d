"""Start labs for tests: with a time limit, what they leave behind looked for, ended with the test."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from ddlbench.lab import control
from launch import Finished, environment, start, stop
from processes import eventually

PROGRAM = [sys.executable, "-m", "ddlbench", "lab"]
MARK = "DDLBENCH_TEST_MARK"
# The leader of a session gets the terminal that it opens first.
IN_FOREGROUND = "import os, sys; os.dup2(os.open(sys.argv[1], os.O_RDWR), 0); os.execvp(sys.argv[2], sys.argv[2:])"


@dataclass(frozen=True)
class Lab:
    """A `ddlbench lab` that a test started; all its processes have `mark` in their environment.

    `keyboard` is where to write what is typed at its terminal, when it has one.
    """

    process: subprocess.Popen[bytes]
    mark: str
    out: Path
    err: Path
    keyboard: int | None = None

    def wait(self, seconds: float = 60) -> Finished:
        """Return its end; fails the test, with the output, when it has not ended after `seconds`."""
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the lab did not end in {seconds} s\n{self.out.read_text()}\n{self.err.read_text()}")
        return Finished(status, self.out.read_text(), self.err.read_text())

    def says(self, text: str) -> None:
        """Wait until `text` is in its standard output; fails the test when it does not come."""
        if not eventually(lambda: text in self.out.read_text() or self.process.poll() is not None):
            pytest.fail(f"no {text!r} in the lab's output\n{self.out.read_text()}\n{self.err.read_text()}")
        assert text in self.out.read_text(), self.err.read_text()

    @property
    def processes(self) -> dict[int, str]:
        """Its processes, without those that have ended but not been waited for: their numbers and command lines."""
        return {pid: line for pid in _numbers() if (line := self._line(pid))}

    def _line(self, pid: int) -> str:
        """Return the command line of the process `pid` if it is one of this lab's, else an empty text."""
        try:
            ours = f"{MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode() if ours else ""
        except OSError:
            return ""

    def process_of(self, pattern: str) -> int:
        """Return the first of its processes whose command line matches, waiting for it."""

        def found() -> int | None:
            lines = sorted(self.processes.items())
            return next((pid for pid, line in lines if re.search(pattern, line)), None)

        return eventually(found) or pytest.fail(f"no process {pattern!r} among {self.processes}")

    @property
    def daemon(self) -> int:
        """The process of one of Open MPI's daemons: one that leads a session, as those that started it do not."""
        self.process_of(r"^\S*prted ")
        named = (pid for pid, line in self.processes.items() if re.match(r"\S*prted ", line))
        return next(pid for pid in named if os.getsid(pid) == pid)

    @property
    def listed(self) -> bool:
        """Whether it is among the labs that run."""
        return str(self.process.pid) in {lab.identity for lab in control.running()}


def ending_with_us() -> tuple[str, ...]:
    """Return the words that have a program killed when this process ends, however it does; none without setpriv."""
    return ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()


class Labs:
    """Start labs; `labs("run", …)` runs one to its end, `labs.start("run", …)` returns while it runs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.started: list[Lab] = []

    def start(self, *arguments: str, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()) -> Lab:
        """Start `ddlbench lab` with `arguments`, behind the words of `prefix`, with the variables `env`."""
        mark = f"{self._directory.name}-{os.getpid()}-{len(self.started)}"  # another pytest may run labs, too
        out, err = (self._directory / f"{mark}.{stream}" for stream in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            environ = environment({MARK: mark, **(env or {})})
            process = start([*ending_with_us(), *prefix, *PROGRAM, *arguments], stdout, stderr, env=environ)
        self.started.append(Lab(process, mark, out, err))
        return self.started[-1]

    def at_a_terminal(self, *arguments: str) -> Lab:
        """Start `ddlbench lab` with `arguments` as a shell does: in the foreground of a terminal that it reads."""
        keyboard, terminal = os.openpty()
        try:
            lab = self.start(*arguments, prefix=(sys.executable, "-c", IN_FOREGROUND, os.ttyname(terminal)))
        finally:
            os.close(terminal)
        self.started[-1] = replace(lab, keyboard=keyboard)
        return self.started[-1]

    def __call__(self, *arguments: str, timeout: float = 60, **how: Any) -> Finished:
        """Run `ddlbench lab` with `arguments` to its end and return that."""
        return self.start(*arguments, **how).wait(timeout)

    def answers(self, *arguments: str, **how: Any) -> list[Any]:
        """Run it as a call does; return what it wrote, a JSON value in each line. Fails the test for another status."""
        done = self(*arguments, **how)
        assert done.status == 0, done.stderr + done.stdout
        return [json.loads(line) for line in done.stdout.splitlines()]

    def close(self) -> None:
        """End those that still run."""
        for lab in self.started:
            stop(lab.process)
            if lab.keyboard is not None:
                os.close(lab.keyboard)


def everything_of_the_network() -> list[str]:
    """Return what this machine's network and mounts look like, in lines that change only with them."""
    shown = (["ip", "-o", "link"], ["ip", "-o", "address"], ["ip", "route"], ["ip", "netns"], ["tc", "qdisc"])
    texts = [subprocess.run(argv, capture_output=True, text=True, check=True).stdout for argv in shown]
    texts += [Path("/proc/mounts").read_text(), os.uname().nodename]
    return [re.sub(r" (?:valid_lft|preferred_lft) \S+", "", line) for text in texts for line in text.splitlines()]


def _numbers() -> list[int]:
    """Return the numbers of this machine's processes."""
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]


def namespaces_in_use(kind: str) -> Iterator[str]:
    """Yield the namespaces of a kind (net, mnt, pid) that processes are in."""
    for pid in _numbers():
        try:
            yield str(Path(f"/proc/{pid}/ns/{kind}").readlink())
        except OSError:
            continue
