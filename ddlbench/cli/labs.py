"""What the verbs of `ddlbench lab` do."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddlbench.cli.program import judged, program_of
from ddlbench.errors import UsageError
from ddlbench.lab import control, launcher, start
from ddlbench.lab.spec import Lab, Rate, parse_node_rates
from ddlbench.launch.running import Ended


def run_on_ranks(shape: Mapping[str, Any], words: tuple[str, ...], own: tuple[str, ...]) -> int:
    """Run `words` on every rank of a lab; `own` are the words of the command line before them.

    Return the launcher's exit status, but for a sweep that its record does not call finished.
    """
    lab = _lab(shape)
    mpirun, kind = launcher.find(start.search_path())
    program = program_of(tuple(_program(words)))
    expected = program.expected(own)
    ended = start.start(lab, launcher.on_all_ranks(lab, mpirun, kind, program.words), ranks=expected is None)
    if ended.interrupted is not None:
        return ended.status or 128 + ended.interrupted
    return judged(Ended(ended.status), expected)


def run_on_node0(shape: Mapping[str, Any], words: Sequence[str]) -> int:
    """Run `words`, or the user's shell, on the first node of a lab and return the exit status."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    return start.start(_lab(shape), _program(words or [shell]), interactive=True).status


def set_link(node: str, card: str | None, state: str, identity: str | None) -> int:
    """Bring a link of a lab that runs to another state, and say so."""
    if state not in control.STATES:
        Rate.parse(state)
    done = control.chosen(identity).ask(do="link", node=node, card=card, state=state)
    sys.stdout.write(f"{done}\n")
    return 0


def list_running() -> int:
    """Write a line for each lab that runs."""
    for lab in control.running():
        found = lab.ask(do="describe")
        links = "".join(f"; {link} {state}" for link, state in found["links"].items())
        sys.stdout.write(f"{lab.identity or 'this'}  {found['lab']}{links}\n")
    return 0


def _lab(shape: Mapping[str, Any]) -> Lab:
    rates = {
        "rate": Rate.parse(shape["rate"]),
        "rack_rate": None if shape["rack_rate"] is None else Rate.parse(shape["rack_rate"]),
        "node_rates": parse_node_rates(shape["node_rates"]),
    }
    return Lab(**{**shape, **rates})


def _program(words: Sequence[str]) -> list[str]:
    """Return the command of `words`, its program found as a lab will find it; raises `UsageError`."""
    folders = f"{Path(sys.executable).parent}:{start.search_path()}"
    if shutil.which(words[0], path=folders) is None:
        raise UsageError(f"{words[0]!r} is not a program here")
    return [*words]
