"""How a running lab is found and told something: by a socket that the kernel forgets together with the lab.

The socket's name is in the abstract namespace, which has no files, so a lab that was killed leaves nothing. The name
holds the user and the number of the process that started the lab. Anyone may take a name, therefore each end looks
whether the other is of the same user.
"""

import json
import os
import re
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.errors import DdlbenchError, UsageError, unknown
from ddlbench.lab import hosts, network
from ddlbench.lab.commands import run
from ddlbench.lab.spec import Lab, Rate

ANSWER_SECONDS = 10.0
REQUEST_SECONDS = 1.0
MOST_NBYTES = 65536
INSIDE = "DDLBENCH_LAB_CONTROL"
"""The variable that names the lab's own socket to programs in the lab, who cannot see the one outside."""
STATES = ("up", "down")


# ---- The lab's end -------------------------------------------------------------------------------------------------


def listen() -> socket.socket:
    """Return the socket of the lab that this process is about to start."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(_name(os.getpid()))
    listener.listen()
    return listener


class Server:
    """Answers requests, one JSON object in a line each, by the socket outside and one inside the lab."""

    def __init__(self, lab: Lab, listener: socket.socket, signal_command: Callable[[int], None]) -> None:
        inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        inside.bind(str(hosts.CONTROL))
        inside.listen()
        self.listeners = (listener, inside)
        self._lab, self._signal_command = lab, signal_command
        self._links: dict[str, str] = {}

    def answer(self, listener: socket.socket) -> None:
        """Answer the next request that came to `listener`; one of another user, or that is none, gets no answer."""
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(REQUEST_SECONDS)
                if _user_of_peer(connection) == os.getuid():
                    connection.sendall(_line(self._reply(_received(connection))))
        except (OSError, ValueError):
            return  # whoever asked is gone, or did not ask in JSON

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"done": self._done(request)}
        except DdlbenchError as error:
            return {"error": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"this lab does not understand the request {request}: {error}"}

    def _done(self, request: dict[str, Any]) -> Any:
        match request["do"]:
            case "signal":
                return self._signal_command(int(request["number"]))
            case "link":
                return self._linked(request["node"], request["card"], request["state"])
            case "describe":
                return {"lab": self._lab.describe(), "links": self._links}
        raise ValueError(request["do"])

    def _linked(self, host: str, card: str | None, state: str) -> str:
        """Bring the links of the node `host`, or the one of its network card, to `state`."""
        if host not in self._lab.hosts:
            raise unknown("node", host, self._lab.hosts)
        cards = [f"eth{nic}" for nic in range(self._lab.nics)]
        if card is not None and card not in cards:
            raise unknown("network card", card, cards)
        for nic, name in enumerate(cards):
            if card in (None, name):
                for command in link_commands(self._lab.hosts.index(host), nic, state):
                    run(command)
        changed = f"{host} {card}" if card else host
        self._links[changed] = state
        return f"{changed}: {state}"


def link_commands(node: int, nic: int, state: str) -> Sequence[Sequence[str]]:
    """Return the commands that bring a link to `state`: up, down or a rate; raises `UsageError`."""
    if state in STATES:
        return [network.plug(node, nic, up=state == "up")]
    return [*network.rate_commands(node, nic, Rate.parse(state))]


# ---- The other end -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Running:
    """A lab that runs: `identity` is the number of the process that started it, "" for the one this process is in."""

    identity: str
    address: str

    def ask(self, **request: Any) -> Any:
        """Send a request and return the answer.

        Raises `UsageError` with the lab's own words when it refuses, `DdlbenchError` when it does not answer.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_SECONDS)
            try:
                connection.connect(self.address)
                if _user_of_peer(connection) != os.getuid():
                    raise UsageError(f"the lab {self.identity} is another user's")
                connection.sendall(_line(request))
                reply = _received(connection)
            except (OSError, ValueError) as error:
                raise DdlbenchError(f"the lab {self.identity} does not answer: {error}") from error
        if "error" in reply:
            raise UsageError(reply["error"])
        return reply["done"]


def own() -> Running:
    """Return the lab that this process starts."""
    return Running(str(os.getpid()), _name(os.getpid()))


def running() -> list[Running]:
    """Return the labs of this user that run on this machine; in a lab, that one alone."""
    if inside := os.environ.get(INSIDE):
        return [Running("", inside)]
    listed = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
    # A line for each socket, also for connections to one: 00010000 says that it listens.
    pattern = rf"^\S+ \S+ \S+ 00010000 .* @ddlbench-lab/{os.getuid()}/([0-9]+)$"
    numbers = sorted(map(int, re.findall(pattern, listed, re.MULTILINE)))
    return [Running(str(number), _name(number)) for number in numbers]


def chosen(identity: str | None) -> Running:
    """Return the lab that is meant: the one `identity` names, or the only one; raises `UsageError`."""
    found = running()
    if not found:
        raise UsageError("no lab of this user runs on this machine; start one with: ddlbench lab run -- COMMAND")
    if identity is None and len(found) > 1:
        raise UsageError(f"several labs run, say which one with --lab: {', '.join(lab.identity for lab in found)}")
    for lab in found:
        if identity in (None, lab.identity):
            return lab
    if not found[0].identity:
        raise UsageError(f"--lab {identity}: within a lab no other can be reached, and this one needs no --lab")
    raise UsageError(f"--lab {identity}: no such lab runs; those that do: {', '.join(lab.identity for lab in found)}")


def _name(identity: int) -> str:
    return f"\0ddlbench-lab/{os.getuid()}/{identity}"


def _user_of_peer(connection: socket.socket) -> int:
    """Return the user at the other end, as this process's user namespace numbers it."""
    layout = struct.Struct("3i")  # struct ucred: process, user, group
    _, user, _ = layout.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, layout.size))
    return int(user)


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _received(connection: socket.socket) -> Any:
    """Return the JSON value that comes, up to the end of its line; raises `OSError` and `ValueError`."""
    text = b""
    while not text.endswith(b"\n"):
        more = connection.recv(4096)
        if not more or len(text) > MOST_NBYTES:
            raise ConnectionError("the line was cut short")
        text += more
    return json.loads(text)
