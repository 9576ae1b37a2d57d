"""What `ddlbench fit` is asked for, checked before minutes are spent on measuring."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite
from pathlib import Path

from ddlbench.bench.axes import format_size, parse_size
from ddlbench.cost.machine import whole
from ddlbench.errors import UsageError
from ddlbench.links.judge import SMALL_NBYTES
from ddlbench.links.timing import RATE_NBYTES, RATE_SIZES

SIZES = (1, 8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
LEAST_SIZES, LARGEST_NBYTES = 4, 64 << 20
"""A line needs so many sizes to be believed; larger messages add nothing to it but memory."""
SECONDS = 60.0


@dataclass(frozen=True)
class Request:
    """What the command line asks for, as it was written."""

    out: str | None
    overwrite: bool
    sizes: str | None
    max_seconds: str | None
    nodes_per_rack: str | None


@dataclass(frozen=True)
class Asked:
    """The same, checked: bytes ascending, seconds, nodes of a rack (0: all stand in one), the topology's file."""

    out: Path
    sizes: tuple[int, ...]
    seconds: float
    rack: int

    @property
    def files(self) -> tuple[Path, Path, Path]:
        """The topology, the pairs and their map."""
        return (self.out, self.out.with_suffix(".links.json"), self.out.with_suffix(".links.svg"))


def checked(request: Request) -> Asked:
    """Return the request checked; raises `UsageError` naming what is wrong, and where files cannot be written."""
    asked = Asked(
        out=Path(request.out or "topology.toml"),
        sizes=sizes_of(request.sizes),
        seconds=_seconds(request.max_seconds),
        rack=_rack(request.nodes_per_rack),
    )
    _check_out(asked, overwrite=request.overwrite)
    if find_spec("scipy") is None:
        raise UsageError("a fit needs scipy, which this Python lacks: python -m pip install scipy")
    return asked


def sizes_of(text: str | None) -> tuple[int, ...]:
    """Return the sizes that `text` lists, ascending, 0 as 1; raises `UsageError` for too few to fit a line."""
    if text is None:
        return SIZES
    found = tuple(sorted({max(parse_size(part), 1) for part in text.split(",")}))
    if len(found) < LEAST_SIZES:
        raise UsageError(f"--sizes {text}: a fit needs {LEAST_SIZES} different sizes or more, these are {len(found)}")
    if found[-1] > LARGEST_NBYTES:
        raise UsageError(f"--sizes {text}: expected sizes up to {format_size(LARGEST_NBYTES)}")
    if found[0] > SMALL_NBYTES:
        raise UsageError(f"--sizes {text}: a latency needs a size of up to {format_size(SMALL_NBYTES)}")
    if sum(size >= RATE_NBYTES for size in found) < RATE_SIZES:
        raise UsageError(
            f"--sizes {text}: a bandwidth needs {RATE_SIZES} sizes from {format_size(RATE_NBYTES)} on, such as "
            "64K,512K,4M"
        )
    return found


def _seconds(text: str | None) -> float:
    try:
        found = SECONDS if text is None else float(text)
    except ValueError:
        found = -1.0
    if not (found > 0 and isfinite(found)):
        raise UsageError(f"--max-seconds {text}: expected a number of seconds above 0, such as 60")
    return found


def _rack(text: str | None) -> int:
    if text is None:
        return 0
    try:
        found = whole(text)
    except UsageError:
        found = 0
    if found < 2:
        raise UsageError(f"--nodes-per-rack {text}: expected a whole number from 2 on")
    return found


def _check_out(asked: Asked, *, overwrite: bool) -> None:
    """Refuse what cannot be written, before minutes are spent on measuring it."""
    if asked.out.suffix != ".toml":
        raise UsageError(f"--out {asked.out}: expected a name that ends in .toml, by which predict knows a topology")
    for file in asked.files:
        if file.is_dir():
            raise UsageError(f"--out {asked.out}: {file} is a folder")
        if file.exists() and not overwrite:
            raise UsageError(f"--out {asked.out}: {file} exists; --overwrite replaces it")
    trial = asked.out.with_name(f".{asked.out.name}.{os.getpid()}.tmp")
    try:
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise UsageError(f"--out {asked.out}: cannot write there: {error.strerror}") from None
