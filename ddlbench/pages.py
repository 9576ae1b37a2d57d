"""Memory in huge pages, asked of Linux, and what came of it, read back from /proc/self/smaps.

Two calls ask for them. `MADV_HUGEPAGE`, before memory is touched, is heard where the system's setting is `madvise`,
`advise` or more. `MADV_COLLAPSE` (Linux 6.1), after it was touched, puts what lies in small pages into huge ones,
whatever the settings are, but for `deny`. Neither is believed: what counts is what smaps has afterwards.

Memory that processes share can only have a huge page where its place in its file and its address are the same modulo
the size of such a page. An MPI library need not map it so (Open MPI has 4 KiB in front); then it is mapped a second
time, at an address that fits.
"""

import ctypes
import mmap
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.errors import UnsupportedError

Bytes = npt.NDArray[np.uint8]

SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
MOUNTS, SHARED = Path("/proc/self/mounts"), "/dev/shm"
MAPS, SMAPS = Path("/proc/self/maps"), Path("/proc/self/smaps")
KINDS = {"arrays": ("ordinary arrays", "enabled"), "windows": ("shared windows", "shmem_enabled")}
"""The kinds of memory: in words, and the setting of the system that is about them."""
MADV_COLLAPSE = 25
MREMAP_MAYMOVE, MREMAP_FIXED = 1, 2
TRIES = 3
"""The kernel gives a page up that somebody else looks at in that moment."""
_HEAD = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) (\S{4}) ([0-9a-f]+) ", re.MULTILINE)
_HUGE = re.compile(r"^(?:AnonHugePages|ShmemPmdMapped|FilePmdMapped): +(\d+) kB", re.MULTILINE)


@dataclass
class Tally:
    """How often memory was asked for, its bytes, and how many of them lay in huge pages once it was there."""

    allocations: int = 0
    nbytes: int = 0
    huge_nbytes: int = 0


@dataclass(frozen=True)
class Mapped:
    """A mapping of this process: its addresses, whether it is shared, its place in its file, its huge pages' bytes."""

    begin: int
    end: int
    shared: bool
    offset: int
    huge_nbytes: int


def mappings(text: str) -> Iterator[Mapped]:
    """Yield the mappings in the text of a smaps file; of a maps file, which does not tell of huge pages, with none."""
    heads = list(_HEAD.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    for head, end in zip(heads, ends, strict=False):
        begin, until, offset = (int(head[group], 16) for group in (1, 2, 4))
        huge = sum(int(kib) for kib in _HUGE.findall(text, head.end(), end))
        yield Mapped(begin, until, head[3].endswith("s"), offset, huge * 1024)


def setting(name: str) -> str:
    """Return what the system's setting `name` is, such as `madvise`; `unknown` where the file does not say."""
    try:
        found = re.search(r"\[(\w+)\]", (SETTINGS / name).read_text())
    except OSError:
        found = None
    return found[1] if found else "unknown"


def mount_setting() -> str:
    """Return what the mount of /dev/shm, where MPI libraries keep windows, says of huge pages; `never` if nothing."""
    try:
        mounts = [line.split() for line in MOUNTS.read_text(errors="replace").splitlines()]
    except OSError:
        return "unknown"
    found = [re.search(r"(?:^|,)huge=([^,]+)", words[3]) for words in mounts if len(words) > 3 and words[1] == SHARED]
    return found[-1][1] if found and found[-1] else "never"


class HugePages:
    """Memory of this process in huge pages of `page_nbytes`, and `tallies` of how much of it really lies there."""

    def __init__(self, page_nbytes: int) -> None:
        self.page_nbytes = page_nbytes
        self.tallies = {kind: Tally() for kind in KINDS}
        self._error = ""

    @classmethod
    def on_all(cls, allgather: Callable[[int], list[int]]) -> "HugePages":
        """Return those of this system; raises `UnsupportedError` on all ranks where a kernel knows none."""
        try:
            mine = int((SETTINGS / "hpage_pmd_size").read_text())
        except (OSError, ValueError):
            mine = 0
        if not all(allgather(mine)):
            raise UnsupportedError(f"this kernel has no huge pages for memory: no {SETTINGS / 'hpage_pmd_size'}")
        return cls(mine)

    def check(self, allgather: Callable[[str], list[str]]) -> None:
        """Raise `UnsupportedError` on all ranks when a kind of memory that any has asked for has no huge page at all.

        Then forget what was asked for until now: it was a trial.
        """
        refusals = [text for text in allgather("; ".join(filter(None, map(self.refusal, KINDS)))) if text]
        if refusals:
            raise UnsupportedError(refusals[0])
        self.tallies.update((kind, Tally()) for kind in KINDS)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a new ordinary array in huge pages."""
        kind = np.dtype(dtype)
        return self.array(int(np.prod(shape)) * kind.itemsize).view(kind).reshape(shape)

    def rounded(self, nbytes: int) -> int:
        """Return the bytes of the huge pages that `nbytes` take, of one at least."""
        return -(-max(nbytes, 1) // self.page_nbytes) * self.page_nbytes

    def array(self, nbytes: int) -> Bytes:
        """Return a new ordinary array in huge pages, all zeros, so that it is touched by who asks for it.

        Raises `MemoryError` when there is no room.
        """
        room = self.rounded(nbytes)
        # Beyond both ends is memory in small pages: so smaps has the huge ones as a mapping of their own.
        length = room + self.page_nbytes + mmap.PAGESIZE
        try:
            whole = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError):
            raise MemoryError(f"no memory for {length} bytes") from None
        memory: Bytes = np.frombuffer(whole, np.uint8)
        skipped = self.page_nbytes - memory.ctypes.data % self.page_nbytes
        self.fill("arrays", memory[skipped : skipped + room])
        return memory[skipped : skipped + nbytes]

    def fill(self, kind: str, memory: Bytes) -> None:
        """Put `memory`, whole pages that nobody has touched, into huge ones, all zeros; its tally tells how much is."""
        address, nbytes = memory.ctypes.data, memory.nbytes
        self._advise(address, nbytes, mmap.MADV_HUGEPAGE)
        memory[:] = 0
        found = huge_nbytes(address, nbytes)
        for _ in range(TRIES):
            if found == nbytes:
                break
            self._advise(address, nbytes, MADV_COLLAPSE)
            found = huge_nbytes(address, nbytes)
        tally = self.tallies[kind]
        tally.allocations += 1
        tally.nbytes += nbytes
        tally.huge_nbytes += found

    def _advise(self, address: int, nbytes: int, advice: int) -> None:
        if _libc().madvise(address, nbytes, advice):
            self._error = os.strerror(ctypes.get_errno())

    def refusal(self, kind: str) -> str:
        """Return why the memory of `kind` has no huge page at all; "" when it has, or there was none."""
        tally, (words, name) = self.tallies[kind], KINDS[kind]
        if tally.huge_nbytes or not tally.allocations:
            return ""
        said = f", and madvise says: {self._error}" if self._error else ""
        mount = f", {SHARED} is mounted with huge={mount_setting()}" if kind == "windows" else ""
        return f"{words} cannot have huge pages here: {SETTINGS / name} is {setting(name)}{mount}{said}"

    def to_json(self, everyone: "Sequence[Mapping[str, Tally]]") -> dict[str, Any]:
        """Return what is stored of a run: the sums over the tallies of all ranks, and what the system is set to."""
        sums = {kind: asdict(_sum([tallies[kind] for tallies in everyone])) for kind in KINDS}
        settings = {name: setting(name) for _, name in KINDS.values()} | {"mount": mount_setting()}
        return {"page_nbytes": self.page_nbytes, "settings": settings, **sums}


def _sum(tallies: Sequence[Tally]) -> Tally:
    return Tally(
        sum(tally.allocations for tally in tallies),
        sum(tally.nbytes for tally in tallies),
        sum(tally.huge_nbytes for tally in tallies),
    )


def huge_nbytes(address: int, nbytes: int) -> int:
    """Return how many bytes of huge pages the mappings have that lie between `address` and `address + nbytes`."""
    inside = (one for one in _mapped(SMAPS) if address <= one.begin and one.end <= address + nbytes)
    return sum(one.huge_nbytes for one in inside)


def _mapped(path: Path) -> list[Mapped]:
    try:
        return list(mappings(path.read_text(errors="replace")))
    except OSError:
        return []


class Again:
    """Memory that an MPI library has mapped for this process, seen where it can have huge pages.

    `address` is the first place in it that may begin a huge page. Where the library's own mapping does not fit, that
    lies in a second mapping of the same memory, which lasts until `close`; where there can be none, in the first.
    """

    def __init__(self, address: int, nbytes: int, page_nbytes: int) -> None:
        found = next((one for one in _mapped(MAPS) if one.begin <= address < one.end), None)
        place = found.offset + address - found.begin if found and found.shared else address
        self._second: tuple[int, int] | None = None
        if found and found.shared and (place - address) % page_nbytes:
            before = address % mmap.PAGESIZE
            length = -(-(before + nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
            at = _mapped_again(address - before, length, (place - before) % page_nbytes, page_nbytes)
            if at is not None:
                self._second, address = (at, length), at + before
        self.address = address + -place % page_nbytes

    def close(self) -> None:
        """Take the second mapping away, if there is one; nobody may use it any more."""
        if self._second:
            _libc().munmap(*self._second)
        self._second = None


def _mapped_again(address: int, nbytes: int, remainder: int, page_nbytes: int) -> int | None:
    """Map shared memory a second time, at an address with this `remainder`; return it, None where that cannot be."""
    libc = _libc()
    room = nbytes + page_nbytes
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    begin = libc.mmap(None, room, 0, flags, -1, 0)
    if begin == _FAILED:
        return None
    at: int = begin + (remainder - begin) % page_nbytes
    # An old size of 0 leaves the first mapping where it is.
    done = libc.mremap(address, 0, nbytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at
    kept = (at, at + nbytes) if done else (begin + room, begin + room)
    for start, end in ((begin, kept[0]), (kept[1], begin + room)):
        if start < end:
            libc.munmap(start, end - start)
    return at if done else None


_FAILED = ctypes.c_void_p(-1).value


def _libc() -> ctypes.CDLL:
    """Return the C library, told what its calls take: sizes and addresses would be cut off otherwise."""
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.madvise.argtypes = [pointer, size, number]
    libc.munmap.argtypes = [pointer, size]
    libc.mmap.restype = libc.mremap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.mremap.argtypes = [pointer, size, size, number, pointer]
    return libc


def memory_at(address: int, nbytes: int) -> Bytes:
    """Return `nbytes` of memory at `address`, which somebody else keeps there."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
