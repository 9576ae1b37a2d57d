"""What a sweep measures: a TOML file and the flags over it, made into one frozen, validated `SweepConfig`.

Keys and flags are the same words. A value may be written as TOML's own type or as the text a flag would hold, so each
key has one parser, and one message when it is wrong.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ddlbench.bench import axes, workload
from ddlbench.bench.axes import Cell
from ddlbench.bench.workload import Workload
from ddlbench.dtypes import DTYPES, OPS, DType, dtype_named, op_code
from ddlbench.errors import UsageError, unknown
from ddlbench.schedule.grid import Grid


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """One sweep.

    `sizes` are bytes as asked for; with a `workload` they are empty and its tensors are the sizes, gathered into
    buffers of up to `fuse` bytes where that is not None. `iterations` None means samples until the 95 % interval of the
    median is narrower than `ci` of it, at least 20 and for at most `max_seconds`, taken in `passes` passes over the
    sweep in the orders that `seed` gives. `sync` is auto, barrier or window. `in_place` holds the forms to measure.
    `grid` None means the one the machine has. The shapes measured are the first ranks of each node (`ranks_per_node`,
    empty: all) on the first nodes (`nodes`, empty: all). `transport` is auto, direct or p2p, and `buffers` says whether
    they are ordinary arrays or such that all ranks of a node can address; `huge_pages` asks for huge pages under them
    and under the memory that ranks share. `device` is host, or cuda for vectors in the memory of GPUs, which several
    ranks of a node may use where `share_device` says so. `timeout` is for how many seconds nothing may move, None for
    the usual time; it is no part of what is measured, and not of `to_json`.
    """

    algorithms: tuple[str, ...] = ("ring", "mpi")
    dtypes: tuple[DType, ...] = (DTYPES["float32"],)
    ops: tuple[str, ...] = ("sum",)
    sizes: tuple[int, ...] = ()
    workload: Workload | None = None
    fuse: int | None = None
    in_place: tuple[bool, ...] = (False,)
    iterations: int | None = None
    warmup: int = 5
    ci: float = 0.05
    max_seconds: float = 0.5
    passes: int = 5
    seed: int = 1
    sync: str = "auto"
    cache: Literal["warm", "cold"] = "warm"
    per_rank: bool = False
    check: bool = True
    grid: Grid | None = None
    nodes: tuple[int, ...] = ()
    ranks_per_node: tuple[int, ...] = ()
    transport: str = "auto"
    buffers: str = "ordinary"
    huge_pages: bool = False
    device: str = "host"
    share_device: bool = False
    timeout: float | None = None

    def cells(self, dtype: DType) -> tuple[Cell, ...]:
        """Return the vectors to reduce in `dtype`, each element count once."""
        if self.workload is None:
            return axes.cells_of_sizes(self.sizes, dtype.itemsize)
        gathered = self.workload if self.fuse is None else self.workload.fused(self.fuse // dtype.itemsize)
        return axes.cells_of_tensors(gathered.numels, dtype.itemsize)

    def too_small(self, dtype: DType) -> tuple[int, ...]:
        """Return the sizes that hold no element of `dtype` and are left out."""
        return axes.too_small(self.sizes, dtype.itemsize)

    def to_json(self) -> dict[str, Any]:
        """Return the configuration as a JSON object, for the record of the run."""
        return {
            "algorithms": list(self.algorithms),
            "dtypes": [dtype.name for dtype in self.dtypes],
            "ops": list(self.ops),
            "sizes": list(self.sizes),
            "workload": self.workload and self.workload.to_json(),
            "fuse": self.fuse,
            "in_place": list(self.in_place),
            "iterations": self.iterations,
            "warmup": self.warmup,
            "ci": self.ci,
            "max_seconds": self.max_seconds,
            "passes": self.passes,
            "seed": self.seed,
            "sync": self.sync,
            "cache": self.cache,
            "per_rank": self.per_rank,
            "check": self.check,
            "grid": self.grid and str(self.grid),
            "nodes": list(self.nodes),
            "ranks_per_node": list(self.ranks_per_node),
            "transport": self.transport,
            "buffers": self.buffers,
            "huge_pages": self.huge_pages,
            "device": self.device,
            "share_device": self.share_device,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "SweepConfig | None":
        """Return the configuration that `to_json` made `data` of; None where it cannot be had back exactly."""
        try:
            config = cls(**{name: _stored(name, value) for name, value in data.items() if value is not None})
            return config if config.to_json() == data else None
        except (AttributeError, KeyError, TypeError, ValueError, UsageError):
            return None


def _stored(name: str, value: Any) -> Any:
    """Return the value of the field `name` from what the record of a run holds for it."""
    if name == "workload":
        return Workload.from_json(value)
    return tuple(value) if name in ("in_place", "sizes", "nodes", "ranks_per_node") else PARSERS[name](value)


def _words(value: object) -> tuple[str, ...]:
    """Return the texts in a list, or between the commas of one text, each once."""
    items = value if isinstance(value, list | tuple) else [value]
    words = [word.strip() for item in items for word in str(item).split(",")]
    if not words or not all(words):
        raise UsageError(f"{_shown(value)}: expected one or more names, separated by commas")
    return tuple(dict.fromkeys(words))


def _shown(value: object) -> str:
    return repr(",".join(map(str, value)) if isinstance(value, list | tuple) else value)


def _dtypes(value: object) -> tuple[DType, ...]:
    words = _words(value)
    return tuple(DTYPES.values()) if words == ("all",) else tuple(dict.fromkeys(map(dtype_named, words)))


def _ops(value: object) -> tuple[str, ...]:
    words = _words(value)
    if words == ("all",):
        return tuple(OPS)
    for word in words:
        op_code(word)
    return words


def _size(value: object) -> int:
    if isinstance(value, bool):
        raise UsageError(f"size {value!r}: expected bytes, such as 64M")
    return axes.parse_size(str(value))


def _step(value: object) -> int:
    size = _size(value)
    if size == 0:
        raise UsageError(f"size {value!r}: expected at least one byte")
    return size


def _sizes(value: object) -> tuple[int, ...]:
    return tuple(map(_size, _words(value)))


def _whole(least: int) -> Callable[[object], int]:
    """Return the parser of a whole number from `least` on."""

    def parse(value: object) -> int:
        text = str(value).strip()
        if not (WHOLE.fullmatch(text) and least <= int(text) <= MOST_WHOLE):
            raise UsageError(f"{value!r}: expected a whole number of at least {least} and at most {MOST_WHOLE}")
        return int(text)

    return parse


def _counts(value: object) -> tuple[int, ...]:
    return tuple(dict.fromkeys(map(_whole(1), _words(value))))


def _seconds(value: object) -> float:
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < MOST_SECONDS:  # as it is not for nan
        raise UsageError(f"{value!r}: expected {SECONDS}, such as 0.5")
    return seconds


def _timeout(value: object) -> float:
    if str(value).lower() == NO_LIMIT:
        return math.inf
    try:
        return _seconds(value)
    except UsageError:
        raise UsageError(f"{value!r}: expected {SECONDS}, such as 120, or {NO_LIMIT}") from None


def _fraction(value: object) -> float:
    """Return what `5%` or `0.05` says."""
    text = str(value).strip()
    try:
        fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        fraction = -1.0
    if not 0 < fraction < 1:
        raise UsageError(f"{value!r}: expected a share of the median above 0 and below 100%, such as 5% or 0.05")
    return fraction


def _choice(choices: Mapping[str, Any], expected: str) -> Callable[[object], Any]:
    """Return the parser of one of the words `choices`, which gives what stands beside the word."""

    def parse(value: object) -> Any:
        word = str(value).lower()
        if word not in choices:
            raise UsageError(f"{value!r}: expected {expected}{_FILE_HINT if word.endswith('.toml') else ''}")
        return choices[word]

    return parse


def _grid(value: object) -> Grid:
    return Grid.parse(str(value))


WHOLE = re.compile(r"[0-9]{1,18}")
"""As many digits as can be meant: Python reads no number of thousands."""
MOST_WHOLE = (1 << 31) - 1
MOST_SECONDS = 1e6
SECONDS = f"seconds above 0 and below {MOST_SECONDS:,.0f}"
NO_LIMIT = "none"
"""What `timeout` is when a sweep may wait for ever."""
_FILE_HINT = "; write the value out before a configuration file"
_BOTH_WAYS = {"0": False, "1": True, "no": False, "yes": True, "false": False, "true": True, "off": False, "on": True}
_PLACES = {"no": (False,), "yes": (True,), "both": (False, True), "false": (False,), "true": (True,)}

HOST_TRANSPORTS, DEVICE_TRANSPORTS = ("auto", "direct", "p2p"), ("cuda-ipc", "cuda-aware", "staged")

PARSERS: dict[str, Callable[[object], Any]] = {
    "min_bytes": _size,
    "max_bytes": _size,
    "step_bytes": _step,
    "step_factor": _whole(2),
    "sizes": _sizes,
    "workload": str,
    "fuse": _step,
    "algorithms": _words,
    "dtypes": _dtypes,
    "ops": _ops,
    "in_place": _choice(_PLACES, "no, yes or both"),
    "iterations": _whole(1),
    "warmup": _whole(0),
    "ci": _fraction,
    "max_seconds": _seconds,
    "passes": _whole(1),
    "seed": _whole(0),
    "sync": _choice({"auto": "auto", "barrier": "barrier", "window": "window"}, "auto, barrier or window"),
    "cache": _choice({"warm": "warm", "cold": "cold"}, "warm or cold"),
    "per_rank": _choice(_BOTH_WAYS, "0 or 1"),
    "check": _choice(_BOTH_WAYS, "0 or 1"),
    "grid": _grid,
    "nodes": _counts,
    "ranks_per_node": _counts,
    "transport": _choice(
        {name: name for name in (*HOST_TRANSPORTS, *DEVICE_TRANSPORTS)},
        f"{', '.join(HOST_TRANSPORTS[:-1])} or {HOST_TRANSPORTS[-1]}, or on a device {', '.join(DEVICE_TRANSPORTS)}",
    ),
    "buffers": _choice({"ordinary": "ordinary", "registered": "registered"}, "ordinary or registered"),
    "huge_pages": _choice(_BOTH_WAYS, "0 or 1"),
    "device": _choice({"host": "host", "cuda": "cuda"}, "host or cuda"),
    "share_device": _choice(_BOTH_WAYS, "0 or 1"),
    "timeout": _timeout,
}
"""What a configuration file may say, and how each value is read."""

FLAGS = {
    "min_bytes": "-b",
    "max_bytes": "-e",
    "step_bytes": "-i",
    "step_factor": "-f",
    "algorithms": "-a",
    "dtypes": "-d",
    "ops": "-o",
    "iterations": "-n",
    "warmup": "-w",
    "check": "-c",
    "in_place": "--in-place",
    "max_seconds": "--max-seconds",
    "per_rank": "--per-rank",
    "huge_pages": "--huge-pages",
    "share_device": "--share-device",
    "ranks_per_node": "--ranks-per-node",
}
"""How each key is spelt on the command line, where not `--key`."""

RANGE = ("min_bytes", "max_bytes", "step_bytes", "step_factor")
AXES = {"a range of sizes": RANGE, "sizes": ("sizes",), "a workload": ("workload", "fuse")}
"""The three ways to say what sizes are measured; a source uses one of them, and flags that do replace the file's."""


def load(path: Path | None, flags: Mapping[str, Any]) -> SweepConfig:
    """Return the sweep that the file `path` (None: none) describes, with `flags` (by keys of `PARSERS`) over it.

    Raises `UsageError` naming the file or flag, the value, and what was expected.
    """
    given = {name: _parsed(FLAGS.get(name, f"--{name}"), name, value) for name, value in flags.items()}
    axis = _axis(given, "the command line")
    written = {} if path is None else _read(path)
    if path is not None:
        _axis(written, str(path))
        written["workload"] = _found(written.get("workload"), path.parent)
    given["workload"] = _found(given.get("workload"), Path())
    return _merged(written, given, axis)


def timeout_of(flags: Mapping[str, Any]) -> float | None:
    """Return the time limit in seconds that `flags` give, None where they give none; raises `UsageError`."""
    given: float | None = _parsed("--timeout", "timeout", flags["timeout"]) if "timeout" in flags else None
    return given


def _parsed(where: str, name: str, value: object) -> Any:
    try:
        return PARSERS[name](value)
    except (UsageError, ValueError) as error:  # ValueError: a number of a file that is too long to be shown
        raise UsageError(f"{where}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
    """Return the parsed values of the file."""
    for key in (table := _table(path)):
        if key not in PARSERS:
            raise UsageError(f"{path}: {unknown('configuration key', key, PARSERS)}")
    return {key: _parsed(f"{path}: {key}", key, value) for key, value in table.items()}


def _table(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise UsageError(f"configuration file {str(path)!r}: {error.strerror}{_nearest(path)}") from None
    except (ValueError, RecursionError) as error:  # no TOML, no text, a number of thousands of digits
        raise UsageError(f"configuration file {str(path)!r} is not TOML: {error}") from None


def _nearest(path: Path) -> str:
    siblings = [file.name for file in path.parent.glob("*.toml")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, siblings, n=1)
    return f"; did you mean {str(path.parent / near[0])!r}?" if near else ""


def _axis(values: Mapping[str, Any], where: str) -> str | None:
    """Return which of `AXES` the source `where` uses; raises `UsageError` when it uses two, or steps in two ways."""
    used = [axis for axis, names in AXES.items() if any(name in values for name in names)]
    if len(used) > 1:
        raise UsageError(f"{where} gives {' and '.join(used)}: expected one of them")
    if "step_bytes" in values and "step_factor" in values:
        raise UsageError(f"{where} gives a step in bytes (-i) and a factor (-f): expected one of them")
    return used[0] if used else None


def _found(name: str | None, beside: Path) -> Workload | None:
    return None if name is None else workload.read(workload.find(name, beside))


def _merged(written: dict[str, Any], given: dict[str, Any], axis: str | None) -> SweepConfig:
    """Return the configuration with the flags over the file's values; a way to give sizes takes the others' place."""
    others = {name for other, names in AXES.items() if axis not in (None, other) for name in names}
    steps = {"step_bytes", "step_factor"} if {"step_bytes", "step_factor"} & given.keys() else set()
    values = {name: value for name, value in written.items() if name not in others | steps}
    values.update((name, value) for name, value in given.items() if value is not None)
    return _built(values)


def _built(values: dict[str, Any]) -> SweepConfig:
    span = {name: values.pop(name) for name in RANGE if name in values}
    if values.get("workload") is None:
        if "fuse" in values:
            raise UsageError("fuse gathers the tensors of a workload: expected a workload beside it")
        values.setdefault("sizes", _span(**span))
    return _measurable(SweepConfig(**values))


def _span(
    min_bytes: int | None = None, max_bytes: int | None = None, step_bytes: int | None = None, step_factor: int = 4
) -> tuple[int, ...]:
    """Return the sizes of a range: from 8 bytes to 64 MiB where not said; an end beyond that moves the other along."""
    begin = min(8, 8 if max_bytes is None else max_bytes) if min_bytes is None else min_bytes
    end = max(64 << 20, begin) if max_bytes is None else max_bytes
    return axes.geometric(begin, end, step_factor) if step_bytes is None else axes.arithmetic(begin, end, step_bytes)


def _check_device(config: SweepConfig) -> None:
    """Refuse what does not exist where the vectors are to be; raises `UsageError`."""
    on_device = config.device != "host"
    if not on_device and config.transport in DEVICE_TRANSPORTS:
        raise UsageError(f"--transport {config.transport} is for memory of GPUs: add --device cuda")
    if not on_device and "nccl" in config.algorithms:
        raise UsageError("algorithm 'nccl' reduces memory of GPUs: add --device cuda")
    if not on_device and config.share_device:
        raise UsageError("--share-device says that ranks share GPUs: add --device cuda")
    wrong = {
        f"--transport {config.transport}": config.transport in HOST_TRANSPORTS[1:],
        f"--buffers {config.buffers}": config.buffers != "ordinary",
        f"--cache {config.cache}": config.cache != "warm",
        "--huge-pages": config.huge_pages,
    }
    named = [flag for flag, given in wrong.items() if given and on_device]
    if named:
        raise UsageError(f"{named[0]} is for host memory: leave it out with --device {config.device}")


def _measurable(config: SweepConfig) -> SweepConfig:
    """Return `config`; raises `UsageError` when a dtype has no size that holds one of its elements."""
    _check_device(config)
    for dtype in config.dtypes:
        if not config.cells(dtype):
            raise UsageError(
                f"no size holds an element of {dtype.name}: expected at least {dtype.itemsize} bytes, or 0"
            )
    return config
