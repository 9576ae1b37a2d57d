"""What a lab's first process is told by the one that starts it."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from ddlbench.lab.spec import Lab

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals by which users end programs."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """The lab to make and how its command runs.

    listener
        the file descriptor of the socket by which the lab is found
    terminal
        whether the command has the terminal, and gets the signals that the terminal sends
    interactive
        whether Ctrl-C is for the command alone, as in a shell
    ranks
        whether the command starts ranks, which it must not leave behind
    """

    lab: Lab
    listener: int
    terminal: bool
    interactive: bool
    ranks: bool

    def to_json(self) -> dict[str, Any]:
        """Return the task as a JSON value."""
        return {**vars(self), "lab": self.lab.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(**{**value, "lab": Lab.from_json(value["lab"])})
