"""Names of hosts: read from lists as people and schedulers write them, and refused when they are no names."""

import math
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product

from ddlbench.errors import UsageError

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252}[A-Za-z0-9])?")
"""What a host name or an IPv4 address may look like: nothing a shell or a launcher takes for anything else."""
ITEM = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
LIST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,\[\]-]*")
RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
MOST_HOSTS = 100_000
SCONTROL_SECONDS = 10
RESOLVERS = 32


@dataclass(frozen=True)
class Host:
    """A host and how many ranks it has room for; None where nobody has said so."""

    name: str
    slots: int | None = None


def checked(name: str, where: str) -> str:
    """Return `name`; raises `UsageError` naming it, and `where` it stands, when it cannot be a host's."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{where}: {name!r} is no name of a host: it takes letters, digits, '.', '-' and '_', or an IPv4 address"
        )
    return name


def counted(text: str, what: str, where: str) -> int:
    """Return the number of ranks that `text` stands for, 1 or more; raises `UsageError`."""
    if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
        raise UsageError(f"{where}: {what} is {text!r}, expected a number of ranks from 1 on")
    return int(text)


def merged(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Return each host once, in the order of first mention, with the slots of all its mentions; each counts for one."""
    slots: dict[str, list[int | None]] = {}
    for host in hosts:
        slots.setdefault(host.name, []).append(host.slots)
    return tuple(Host(name, _sum(found)) for name, found in slots.items())


def _sum(found: list[int | None]) -> int | None:
    return None if found == [None] else sum(1 if number is None else number for number in found)


def read_list(text: str, where: str) -> tuple[Host, ...]:
    """Return the hosts of a list such as `node0,node1:2` or `rack[0-1]-node[00-31]:4`; raises `UsageError`."""
    return merged(_host(item, where) for item in expanded(text, where))


def _host(item: str, where: str) -> Host:
    name, colon, slots = item.partition(":")
    return Host(checked(name, where), counted(slots, f"the number after {name}:", where) if colon else None)


def slurm_names(text: str, where: str) -> list[str]:
    """Return the names of a list of SLURM's as SLURM itself reads it, or as `expanded` does where it is not there."""
    names = _as_scontrol_says(text) or expanded(text, where)
    return [checked(name, where) for name in names]


def _as_scontrol_says(text: str) -> list[str]:
    scontrol = shutil.which("scontrol")
    if scontrol is None or not LIST.fullmatch(text):
        return []
    try:
        done = subprocess.run(
            [scontrol, "show", "hostnames", text],
            capture_output=True,
            text=True,
            timeout=SCONTROL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def expanded(text: str, where: str) -> list[str]:
    """Return the items of a comma-separated list with its ranges written out: `n[1-2,08-09]` is n1, n2, n08, n09.

    Raises `UsageError` naming the item that cannot be read, or when there are more than `MOST_HOSTS`.
    """
    items = ITEM.findall(text)
    if not items or ",".join(items) != text:
        raise UsageError(f"{where}: {text!r} is not a list of hosts such as node0,node1 or node[0-3]")
    names: list[str] = []
    for item in items:
        names.extend(_spelt_out(item, where, MOST_HOSTS - len(names)))
    return names


def _spelt_out(item: str, where: str, room: int) -> list[str]:
    """Return the names that one item stands for: the text outside brackets stays, each bracket takes all its values."""
    parts = re.split(r"\[([^\[\]]*)\]", item)
    brackets = [[_range(text, item, where) for text in part.split(",")] for part in parts[1::2]]
    total = math.prod(sum(len(numbers) for numbers, _ in bracket) for bracket in brackets)
    if total > room:  # before they are written out: a slip of a digit stands for more than memory holds
        raise UsageError(f"{where}: {item!r} stands for more than {MOST_HOSTS} hosts")
    choices = [[part] if at % 2 == 0 else _values(brackets[at // 2]) for at, part in enumerate(parts)]
    return ["".join(words) for words in product(*choices)]


def _range(text: str, item: str, where: str) -> tuple[range, int]:
    """Return the numbers of `08-11` or `7`, and with how many digits they are written: those of the first."""
    found = RANGE.fullmatch(text)
    numbers = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if found is None or not numbers:
        raise UsageError(f"{where}: the range {text!r} in {item!r} cannot be read, expected such as 0-3 or 08")
    return numbers, len(found[1])


def _values(bracket: list[tuple[range, int]]) -> list[str]:
    return [f"{number:0{digits}d}" for numbers, digits in bracket for number in numbers]


def this_host() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def is_here(name: str) -> bool:
    """Say whether `name` is this machine under one of its own names."""
    own = this_host()
    return name in (own, own.split(".")[0], "localhost", "127.0.0.1") or name.split(".")[0] == own


def check_resolve(hosts: Iterable[Host]) -> None:
    """Raise `UsageError` with the names that no address is known for."""
    names = [host.name for host in hosts if not is_here(host.name)]
    with ThreadPoolExecutor(RESOLVERS) as pool:
        lost = [name for name, known in zip(names, pool.map(_resolves, names), strict=True) if not known]
    if lost:
        raise UsageError(f"no address is known for {shown(lost)}: check the spelling, or add it to /etc/hosts or DNS")


def _resolves(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError):
        return False
    return True


def shown(names: list[str], most: int = 8) -> str:
    """Return the names as a list for a message, the first `most` of them."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
