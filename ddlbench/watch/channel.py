"""Connections between ranks that are none of MPI's: they work on when MPI is stuck, and end when a process does.

A leading rank listens; every other rank connects to it and both prove that they know the token of the job, without
sending it. Messages are JSON objects, one a line. Nothing here ever waits for the other side but `connect`.
"""

import fcntl
import hmac
import json
import secrets
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

Address = tuple[str, int]
Message = dict[str, Any]

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 2.0
"""How long one address is tried: a packet filter may swallow what is sent to it."""
LONGEST_LINE = 1 << 14
MOST_UNSENT = 1 << 16
"""Bytes that wait for a peer that does not read; what comes after them is dropped, as newer news will follow."""
_SIOCGIFADDR = 0x8915
_GLOBAL_SCOPE = "00"


def own_addresses() -> list[str]:
    """Return the addresses of this host's interfaces, IPv4 before IPv6, without those that only work on this host."""
    return [address for address in (*_ipv4(), *_ipv6()) if not address.startswith("127.")]


def _ipv4() -> Iterable[str]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):  # an interface without one
                request = struct.pack("256s", name.encode()[:15])
                yield socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])


def _ipv6() -> Iterable[str]:
    with suppress(OSError):  # no IPv6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, _, _, scope, _, _ = line.split()
            if scope == _GLOBAL_SCOPE:
                yield socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))


class Wire:
    """One end of a connection: whole messages in and out, without waiting."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)  # noqa: FBT003
        self.socket = connection
        self._in = self._out = b""

    def send(self, message: Message) -> None:
        """Send a message, or keep it for `flush`; one that nobody may ever read is dropped."""
        if len(self._out) < MOST_UNSENT:
            self._out += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what the other side has room for."""
        with suppress(OSError):  # a connection that broke is found out by `receive`
            while self._out:
                self._out = self._out[self.socket.send(self._out) :]

    def receive(self) -> list[Message]:
        """Return the messages that came.

        Raises `EOFError` when the other side's process is gone, `OSError` when it cannot be reached or talks nonsense.
        """
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except ConnectionResetError:
            raise EOFError from None
        if not data:
            raise EOFError
        *lines, self._in = (self._in + data).split(b"\n")
        if len(self._in) > LONGEST_LINE:
            raise OSError("a message without an end")
        return [_parsed(line) for line in lines]

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def _parsed(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except ValueError:
        raise OSError("a message that is no JSON") from None
    if not isinstance(message, dict):
        raise OSError("a message that is no object")
    return message


def listen(*, beyond_this_host: bool) -> socket.socket:
    """Return a listening socket on a free port: on all interfaces, or where that will do on this host's own."""
    if not beyond_this_host:
        return socket.create_server((LOOPBACK, 0))
    if socket.has_dualstack_ipv6():
        with suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=1024)
    return socket.create_server(("", 0), backlog=1024)


def addresses_of(server: socket.socket) -> tuple[Address, ...]:
    """Return where the listening `server` can be reached."""
    host, port = server.getsockname()[:2]
    return tuple((address, port) for address in ([host] if host == LOOPBACK else own_addresses()))


def _mac(token: bytes, role: str, nonce: str, rank: int) -> str:
    return hmac.new(token, f"{role} {nonce} {rank}".encode(), "sha256").hexdigest()


class Guest:
    """A connection that a leading rank accepted, until it has shown which rank it is."""

    def __init__(self, connection: socket.socket, token: bytes, ranks: int) -> None:
        self.wire = Wire(connection)
        self._token, self._ranks = token, ranks
        self._nonce = secrets.token_hex(16)
        self.wire.send({"nonce": self._nonce})

    def admit(self, message: Message) -> int:
        """Return the rank that `message` is the introduction of, after showing who we are; raises `OSError`."""
        rank, mac = message.get("rank"), message.get("mac")
        if not (isinstance(rank, int) and 0 <= rank < self._ranks and isinstance(mac, str)):
            raise OSError("no introduction")
        if not hmac.compare_digest(mac.encode(), _mac(self._token, "hello", self._nonce, rank).encode()):
            raise OSError("not of this job")
        self.wire.send({"mac": _mac(self._token, "welcome", self._nonce, rank)})
        return rank


def connect(addresses: Iterable[Address], token: bytes, rank: int) -> Wire | None:
    """Return a connection of `rank` to who listens at one of `addresses` and knows the token; None when there is none.

    Addresses such as those of container bridges are the same on many hosts: whoever answers there is not trusted
    before it has shown the token. Raises `TimeoutError` when somebody listens and never answers.
    """
    silent = False
    for address in addresses:
        with suppress(OSError, ValueError):
            connection = socket.create_connection(address, timeout=CONNECT_SECONDS)
            try:
                return _introduced(connection, token, rank)
            except TimeoutError:
                silent = True
                connection.close()
            except BaseException:
                connection.close()
                raise
    if silent:
        raise TimeoutError("who listens there does not answer")
    return None


def _introduced(connection: socket.socket, token: bytes, rank: int) -> Wire:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection.makefile("rb", buffering=0) as lines:
        nonce = str(_parsed(lines.readline(LONGEST_LINE)).get("nonce"))
        connection.sendall(json.dumps({"rank": rank, "mac": _mac(token, "hello", nonce, rank)}).encode() + b"\n")
        shown = str(_parsed(lines.readline(LONGEST_LINE)).get("mac"))
    if not hmac.compare_digest(shown.encode(), _mac(token, "welcome", nonce, rank).encode()):
        raise OSError("not of this job")
    return Wire(connection)
