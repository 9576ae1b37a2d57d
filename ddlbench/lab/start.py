"""Starts a lab from outside: looks whether this machine can, and sees to it that nothing outlives this process.

    ddlbench lab run     waits, passes signals on                       dies first: the kernel kills unshare
      └ unshare          makes the namespaces                           dies first: the kernel kills process 1
          └ process 1    `inside`: network, command, requests           dies first: the kernel kills all of the lab
              └ mpirun, its daemons, ranks                              dies first: process 1 ends with its status

The namespaces, and with them network and file systems, go with their last process.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.lab import control
from ddlbench.lab.spec import Lab
from ddlbench.lab.task import ENDING, Task

PROGRAMS = {"unshare": "util-linux", "nsenter": "util-linux", "mount": "mount", "ip": "iproute2", "tc": "iproute2"}
"""Programs that a lab needs, and the packages of Debian that have them."""
ADMINISTRATORS = "/usr/sbin:/sbin"
"""Where some of them are, and users often do not look."""
UNSHARE = ["unshare", "-nm", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
OWN_USERS = ["-Ur"]
"""What makes the lab's users its own: root there is who started it, and may do nothing outside."""
SYSCTLS = {
    "kernel.unprivileged_userns_clone": "0",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
    "user.max_user_namespaces": "0",
}
"""Settings that forbid user namespaces to ordinary users, and the value that does."""
FROM_THE_TERMINAL = 0x80
"""SI_KERNEL: the kernel sent a signal by itself, to all processes of the terminal's foreground group."""
PR_SET_PDEATHSIG = 1


def missing(*, own_users: bool = True) -> str | None:
    """Return what keeps this machine from running a lab, in one line; None when nothing does."""
    if not sys.platform.startswith("linux"):
        return f"network namespaces are Linux's, this is {sys.platform}"
    for program, package in PROGRAMS.items():
        if shutil.which(program, path=search_path()) is None:
            return f"there is no program {program} (package {package})"
    done = subprocess.run([*_unshare(own_users), "true"], capture_output=True, text=True, check=False, env=_environ())
    return None if done.returncode == 0 else forbidden(" ".join(done.stderr.split()), Path("/proc/sys"))


def forbidden(said: str, settings: Path) -> str:
    """Return why `unshare` failed when it `said` that; `settings` is the folder of the kernel's."""
    for name, forbids in SYSCTLS.items():
        setting = settings.joinpath(*name.split("."))
        if setting.exists() and setting.read_text(encoding="ascii").strip() == forbids:
            return f"user namespaces are forbidden by sysctl {name} = {forbids} ({said})"
    return f"namespaces are forbidden, as in most containers ({said})"


def search_path() -> str:
    """Return the folders in which programs are looked for."""
    return f"{os.environ.get('PATH', os.defpath)}:{ADMINISTRATORS}"


@dataclass(frozen=True)
class Ended:
    """How a lab's command ended: its exit status, and the first signal that asked for the end."""

    status: int
    interrupted: int | None = None


def start(
    lab: Lab,
    command: Sequence[str],
    *,
    interactive: bool = False,
    ranks: bool = False,
    own_users: bool = True,
) -> Ended:
    """Run `command` on node0 of a lab and return how it ended; with `ranks` it is a launcher, which may go too early.

    Signals that end programs are passed on to the command, except that Ctrl-C at the terminal is left to one that is
    `interactive`. Without `own_users`, which only root may do, users and rights in the lab are those of the machine.
    Raises `UsageError` when this machine cannot run a lab.
    """
    if reason := missing(own_users=own_users):
        raise UsageError(f"no lab can run here: {reason}")
    terminal = os.isatty(0)
    with control.listen() as listener:
        task = Task(
            lab=lab,
            listener=listener.fileno(),
            terminal=terminal,
            interactive=interactive and terminal,
            ranks=ranks,
        )
        inside = [sys.executable, "-m", "ddlbench.lab.inside", json.dumps(task.to_json()), *command]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {*ENDING, signal.SIGCHLD})
        process = subprocess.Popen(
            [*_unshare(own_users), "--", *inside],
            env=_environ(),
            pass_fds=[listener.fileno()],
            start_new_session=not terminal,
            preexec_fn=_bound_to(os.getpid(), before),  # noqa: PLW1509 - there are no threads here
        )
    ended = _ended(process, terminal=terminal)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return ended


def _unshare(own_users: bool) -> list[str]:
    return UNSHARE + OWN_USERS * own_users


def _environ() -> dict[str, str]:
    return {**os.environ, "PATH": search_path()}


def _bound_to(parent: int, mask: Iterable[int]) -> Callable[[], None]:
    """Return what a child does before it becomes another program, so that it is killed when its `parent` dies."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def bind() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before that
            os.kill(os.getpid(), signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return bind


def _ended(process: "subprocess.Popen[bytes]", *, terminal: bool) -> Ended:
    """Wait for the end of the lab, passing on what the terminal does not, and return how it ended."""
    interrupted: int | None = None
    while process.poll() is None:
        got = signal.sigwaitinfo({*ENDING, signal.SIGCHLD})
        if got.si_signo in ENDING:
            interrupted = interrupted or got.si_signo
        if got.si_signo in ENDING and not (terminal and got.si_code == FROM_THE_TERMINAL):
            try:
                control.own().ask(do="signal", number=got.si_signo)
            except DdlbenchError:
                process.kill()  # its first process is stuck
    status: int = process.returncode
    return Ended(status if status >= 0 else 128 - status, interrupted)
