"""Writing files so that a crash, a full disk or a second writer never leaves half of one."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ddlbench.errors import DdlbenchError


@contextmanager
def naming(path: Path, doing: str = "write") -> Iterator[None]:
    """Turn an `OSError` inside into a `DdlbenchError` that names `path` and the errno."""
    try:
        yield
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "unknown")
        raise DdlbenchError(f"cannot {doing} {path}: {error.strerror} (errno {error.errno}, {code})") from error


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data` to the open file and have it on disk on return; raises `OSError`."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """Have the names in `directory` on disk on return, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_atomically(path: Path, text: str) -> None:
    """Replace the file `path` by `text` (UTF-8) in one step: a reader sees the old file or the new one, whole.

    A character that UTF-8 has no bytes for is written as its escape. Raises `DdlbenchError` naming the path and the
    errno; the old file is then as it was.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with naming(path):
        try:
            _write_new(temporary, text.encode("utf-8", "backslashreplace"))
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    sync_directory(path.parent)


def remove_leftovers(directory: Path, names: Iterable[str]) -> None:
    """Remove what `write_atomically` left of the files `names` when it was killed."""
    for name in names:
        for path in directory.glob(f".{name}.*.tmp"):
            with suppress(OSError):
                path.unlink()


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        write_all(descriptor, data)
    finally:
        os.close(descriptor)
