"""The first process of a lab: it makes the network, runs the command on node0 and serves `ddlbench lab link`.

It is process 1 of a process namespace: when it ends, however it ends, the kernel ends all others and takes the network
and the file systems with them.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from ddlbench.errors import DdlbenchError
from ddlbench.lab import hosts, launcher, network
from ddlbench.lab.commands import run
from ddlbench.lab.control import Server
from ddlbench.lab.spec import Lab
from ddlbench.lab.task import ENDING, Task

GRACE_SECONDS = 2.5
"""How long a command that is told to end has for it."""
LINGER_SECONDS = 2.0
"""How long ranks have that the command has left behind, to say and store what they know of that."""
LINGER_POLL_SECONDS = 0.05
LEFT_BEHIND = 3
"""The exit status where a launcher says 0 although it has left ranks behind."""
OF_RANKS = (b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")
"""How the variables begin that launchers give to ranks, and to nobody else."""


def main(arguments: Sequence[str]) -> int:
    """Make the lab that the first argument describes and run the command of the others in it; return its status."""
    task = Task.from_json(json.loads(arguments[0]))
    try:
        build(task.lab)
        return Init(task, socket.socket(fileno=task.listener)).run(arguments[1:])
    except DdlbenchError as error:
        sys.stderr.write(f"ddlbench: error: {error}\n")
        return error.exit_status
    except KeyboardInterrupt:  # at the terminal, before there is anything to pass it on to
        return 128 + signal.SIGINT


def build(lab: Lab) -> None:
    """Make hosts and network of `lab`; raises `LabError`."""
    run(["mount", "-t", "tmpfs", "-o", "mode=755", "ddlbench-lab", "/run"])
    hosts.write(lab)
    (hosts.TOP / "hosts").write_text(f"127.0.0.1 localhost\n::1 localhost\n{hosts.names(lab)}", encoding="utf-8")
    run(["mount", "--bind", str(hosts.TOP / "hosts"), "/etc/hosts"])
    for host in lab.hosts:
        renamed = [sys.executable, "-I", "-S", "-c", "import socket, sys; socket.sethostname(sys.argv[1])", host]
        run(["unshare", f"--uts={hosts.uts_of(host)}", "--", *renamed])
    for command in network.wire(lab):
        run(command)


class Init:
    """Process 1: starts the command, passes signals on to it, collects what ends and answers requests."""

    def __init__(self, task: Task, listener: socket.socket) -> None:
        self._task = task
        self._server = Server(task.lab, listener, self.signal_command)
        self._command: subprocess.Popen[bytes] | None = None
        self._last_moment = float("inf")
        self._status = 0
        self._orphans: dict[int, int] = {}

    def run(self, command: Sequence[str]) -> int:
        """Run `command` on node0 and return its exit status, 128 and the signal when one ended it."""
        with selectors.DefaultSelector() as selector:
            for listener in self._server.listeners:
                selector.register(listener, selectors.EVENT_READ, self._server.answer)
            selector.register(_woken_by_signals(self._got), selectors.EVENT_READ, _emptied)
            self._command = subprocess.Popen(
                hosts.entered("node0", command),
                env=launcher.environment(self._task.lab, os.environ),
                start_new_session=not self._task.terminal,
            )
            return self._told(self._waited(selector), self._lingered())

    def signal_command(self, number: int) -> None:
        """Pass a signal on to the command; it then has `GRACE_SECONDS` to end."""
        self._set_last_moment(number)
        if self._command is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._command.pid, number)

    def _got(self, number: int, _: FrameType | None) -> None:
        """Note a signal: from the terminal, which sends it to the command as well."""
        if number in ENDING and not (number == signal.SIGINT and self._task.interactive):
            self._set_last_moment(number)

    def _set_last_moment(self, number: int) -> None:
        if self._last_moment == float("inf"):
            self._last_moment, self._status = time.monotonic() + GRACE_SECONDS, 128 + number

    def _waited(self, selector: selectors.BaseSelector) -> int:
        while (status := self._collected()) is None:
            left = self._last_moment - time.monotonic()
            if left <= 0:
                return self._status
            for key, _ in selector.select(min(left, 3600.0)):
                key.data(key.fileobj)
        return status

    def _lingered(self) -> int:
        """Give ranks whose launcher is gone a moment; return how many that were left fail, or have not ended then.

        Open MPI's launcher that lost a host ends with 0 and leaves the ranks beside it to themselves.
        """
        there, deadline = dict(ranks()), time.monotonic() + LINGER_SECONDS
        while os.getpid() in dict(ranks()).values() and time.monotonic() < deadline:
            self._collected()
            time.sleep(LINGER_POLL_SECONDS)
        self._collected()
        return sum(1 for process in there if self._orphans.get(process) != 0)

    def _told(self, status: int, lost: int) -> int:
        """Return the exit status, not 0 for a launcher of ranks that were `lost`, and say so."""
        if status or not lost or not self._task.ranks:
            return status
        had = "rank that had" if lost == 1 else "ranks that had"
        sys.stderr.write(f"ddlbench: error: the launcher ended with status 0 and left {lost} {had} not ended\n")
        return LEFT_BEHIND

    def _collected(self) -> int | None:
        """Collect processes that have ended, orphans too; return the command's status when it is one of them."""
        found = None
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                code = os.waitstatus_to_exitcode(ended[1])
                if self._command is not None and ended[0] == self._command.pid:
                    found = code if code >= 0 else 128 - code
                else:
                    self._orphans[ended[0]] = code
        return found


def ranks() -> Iterator[tuple[int, int]]:
    """Yield what launchers of this process namespace started as ranks, and what those started, each with its parent."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if any(text.startswith(OF_RANKS) for text in (path / "environ").read_bytes().split(b"\0")):
                yield int(path.name), int((path / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])


def _woken_by_signals(handler: "signal._HANDLER") -> socket.socket:
    """Set the `handler` of the signals that matter and return a socket that becomes readable when one comes."""
    woken, waker = socket.socketpair()
    for end in (woken, waker):
        end.settimeout(0)
    signal.set_wakeup_fd(waker.detach(), warn_on_full_buffer=False)
    for number in (*ENDING, signal.SIGCHLD):
        signal.signal(number, handler)
    return woken


def _emptied(woken: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        woken.recv(4096)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
