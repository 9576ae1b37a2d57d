"""Runs commands that make or change a lab, and says in users' words why one fails."""

import re
import shlex
import subprocess
from collections.abc import Sequence

from ddlbench.errors import DdlbenchError


class LabError(DdlbenchError):
    """The lab cannot be made or changed here; the message says what is missing, or what a command said."""

    exit_status = 2


def run(command: Sequence[str]) -> None:
    """Run a command; raises `LabError`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise LabError(f"no lab can run here: {command[0]}: {error.strerror}") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
        raise LabError(explained(command, said))


def explained(command: Sequence[str], said: str) -> str:
    """Return why `command` failed when it `said` that: the part that the kernel lacks, where it is that."""
    if "tbf" in command and re.search(r"qdisc kind is unknown|No such file", said):
        return "no lab can run here: this kernel cannot limit a link's rate, it has no tbf (as root: modprobe sch_tbf)"
    if "type" in command and re.search(r"Unknown device type|not supported", said, re.IGNORECASE):
        kind = command[list(command).index("type") + 1]
        return f"no lab can run here: this kernel has no network devices of type {kind} (as root: modprobe {kind})"
    return f"no lab can run here: {shlex.join(command)}: {said}"
