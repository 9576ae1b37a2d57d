"""Workloads: the gradient tensors of a real model, from a CSV of `index,name,numel,shape` in the order of sending."""

import csv
import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlbench.errors import UsageError, unknown

COLUMNS = ["index", "name", "numel", "shape"]
MOST_NUMEL = 1 << 50
"""As many elements as the largest size has bytes; more are taken for a slip of the keyboard."""
SHIPPED = Path(__file__).parents[2] / "configs" / "workloads"
"""Where the workloads of a source tree lie. An editable install finds them; a wheel does not carry them."""


@dataclass(frozen=True)
class Workload:
    """A model's gradient: the elements of each tensor, in the order in which they become ready."""

    name: str
    numels: tuple[int, ...]

    def fused(self, limit: int) -> "Workload":
        """Return the workload with its tensors gathered, in order, into buffers of up to `limit` elements.

        A tensor larger than that has a buffer of its own.
        """
        return Workload(self.name, tuple(_fuse(self.numels, limit)))

    def to_json(self) -> dict[str, Any]:
        """Return the workload as a JSON object, for the record of a run."""
        return {"name": self.name, "tensors": len(self.numels), "numels": list(self.numels)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Workload":
        """Read what `to_json` wrote; raises `KeyError` for what it did not."""
        return cls(data["name"], tuple(data["numels"]))


def _fuse(numels: Iterable[int], limit: int) -> Iterator[int]:
    filled = 0
    for numel in numels:
        if filled and filled + numel > limit:
            yield filled
            filled = 0
        filled += numel
    if filled:
        yield filled


def find(text: str, beside: Path) -> Path:
    """Return the file of the workload `text`: a path that ends in .csv, from `beside`, or the name of a shipped one.

    Raises `UsageError`, with the nearest right spelling.
    """
    if text.endswith(".csv"):
        return beside / text
    path = SHIPPED / f"{text}.csv"
    if path.is_file():
        return path
    if not SHIPPED.is_dir():
        raise UsageError(f"workload {text!r}: only a source tree has workloads by name; give the path of a CSV file")
    raise unknown("workload", text, sorted(file.stem for file in SHIPPED.glob("*.csv")))


def read(path: Path) -> Workload:
    """Return the workload in the file `path`; raises `UsageError` naming the line that is wrong."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return Workload(path.stem, tuple(_numels(csv.DictReader(file), path)))
    except OSError as error:
        raise UsageError(f"workload {str(path)!r}: {error.strerror}{_nearest(path)}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"workload {str(path)!r} is no CSV file: {error}") from None


def _nearest(path: Path) -> str:
    siblings = [file.name for file in path.parent.glob("*.csv")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, siblings, n=1)
    return f"; did you mean {str(path.parent / near[0])!r}?" if near else ""


def _numels(rows: "csv.DictReader[str]", path: Path) -> Iterator[int]:
    if rows.fieldnames != COLUMNS:
        raise UsageError(f"workload {str(path)!r}: the columns are {rows.fieldnames}, expected {COLUMNS}")
    empty = True
    for row in rows:
        empty = False
        yield _numel(row, f"workload {str(path)!r}, line {rows.line_num}")
    if empty:
        raise UsageError(f"workload {str(path)!r} has no tensor")


def _numel(row: Mapping[str, str | None], where: str) -> int:
    """Return the row's elements, after checking them against its shape."""
    try:
        numel = int(row["numel"] or "")
        sides = [int(side) for side in (row["shape"] or "").split("x")]
    except ValueError:
        raise UsageError(
            f"{where}: numel {row['numel']!r}, shape {row['shape']!r}: expected such as 9408, 64x3x7x7"
        ) from None
    if numel < 1 or math.prod(sides) != numel:
        raise UsageError(f"{where}: numel {numel} is not the product of shape {row['shape']!r}")
    if numel > MOST_NUMEL:
        raise UsageError(f"{where}: numel {numel}: expected at most {MOST_NUMEL}")
    return numel
