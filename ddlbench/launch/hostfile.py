"""Files that list hosts, read and written: Open MPI's (`node0 slots=2`), and MPICH's and Intel MPI's (`node0:2`)."""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ddlbench.errors import UsageError, unknown
from ddlbench.launch.hosts import Host, checked, counted, merged

SLOTS = ("slots", "slot", "cpus", "cpu", "count")
"""The words that Open MPI takes for the number of ranks that a host has room for."""
IGNORED = ("max_slots", "max-slots", "max", "binding", "ifhn")
"""What may stand beside it and does not matter here."""


def read_text(path: Path, what: str) -> str:
    """Return the text of the file `path`; raises `UsageError` saying `what` it should have been."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{what} {path} is not a text file") from None


def read(path: Path) -> tuple[Host, ...]:
    """Return the hosts of the host file `path`; raises `UsageError` with the line that cannot be read."""
    lines = enumerate(read_text(path, "host file").splitlines(), 1)
    words = [(number, found) for number, line in lines if (found := line.partition("#")[0].split())]
    if not words:
        raise UsageError(f"host file {path} names no host")
    return merged(_host(found, f"{path} line {number}") for number, found in words)


def _host(words: list[str], where: str) -> Host:
    name, colon, number = words[0].partition(":")
    slots = counted(number, f"the number after {name}:", where) if colon else None
    for key, value in _pairs(words[1:], where):
        if key in SLOTS:
            slots = counted(value, key, where)
        elif key not in IGNORED:
            raise unknown(f"word in {where}:", key, (*SLOTS, *IGNORED))
    return Host(checked(name, where), slots)


def _pairs(words: list[str], where: str) -> list[tuple[str, str]]:
    """Return what stands behind a host as keys and values; blanks around `=` are fine, as Open MPI takes them."""
    text = " ".join(words).replace(" = ", "=").replace("= ", "=").replace(" =", "=")
    pairs = [word.partition("=") for word in text.split()]
    if bare := [key for key, equals, _ in pairs if not equals]:
        raise UsageError(f"{where}: {bare[0]!r} cannot be read, expected such as slots=2")
    return [(key, value) for key, _, value in pairs]


def rendered(hosts: tuple[Host, ...], *, colon: bool) -> str:
    """Return the text of a host file: `node0:2` with a `colon`, else `node0 slots=2`."""
    return "".join(f"{host.name}{':' if colon else ' slots='}{host.slots}\n" for host in hosts)


def write(text: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Write a host file and return where: one name for each text, so that a printed command can be run again."""
    from ddlbench.records.disk import write_atomically

    name = f"hosts-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    path = _folder(environ) / name
    write_atomically(path, text)
    return path


def _folder(environ: Mapping[str, str]) -> Path:
    """Return a folder of the user's own, below the cache or, where there can be none, new among temporary files."""
    cache = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME") or "/nonexistent", ".cache")
    folder = Path(cache, "ddlbench")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="ddlbench-"))
    return folder if os.access(folder, os.W_OK) else Path(tempfile.mkdtemp(prefix="ddlbench-"))
