"""How long a rank computes in an iteration: as the user says, or as a published source does for a model and a device.

The table is `configs/workloads/compute_times.tsv`; the README beside it says what its sources are.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ddlbench.errors import UsageError

BACKWARD_SHARE = 2 / 3
"""Share of a step that is backward where nobody measured the two apart: it does twice the work of the forward pass."""


@dataclass(frozen=True)
class Compute:
    """One iteration of one rank without communication: forward and backward, for `batch` samples.

    `source` says where the times come from, and what was assumed.
    """

    forward_s: float
    backward_s: float
    batch: int
    source: str

    @property
    def seconds(self) -> float:
        """Both passes."""
        return self.forward_s + self.backward_s


@dataclass(frozen=True)
class Row:
    """A line of the table; times in milliseconds, None where the source does not say."""

    model: str
    device: str
    batch: int | None
    forward_ms: float | None
    backward_ms: float | None
    step_ms: float | None
    per_sample_ms: float | None
    what: str
    source: str


def read(path: Path) -> list[Row]:
    """Return the table of compute times; raises `UsageError` when it cannot be read."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return [_row(line) for line in csv.DictReader(file, delimiter="\t")]
    except (OSError, KeyError, ValueError) as error:
        raise UsageError(f"table of compute times {str(path)!r} cannot be read: {error}") from None


def _row(line: Mapping[str, str]) -> Row:
    times = {name: _number(line[name]) for name in ("forward_ms", "backward_ms", "step_ms", "per_sample_ms")}
    batch = int(line["batch"]) if line["batch"].isdecimal() else None
    return Row(line["model"], line["gpu"], batch, **times, what=line["what"], source=line["source"])


def _number(text: str) -> float | None:
    return float(text) if text else None


def given(forward_s: float, backward_s: float, batch: int) -> Compute:
    """Return the times that the user gives."""
    return Compute(forward_s, backward_s, batch, "as given")


def published(rows: Iterable[Row], model: str, device: str, batch: int | None) -> Compute:
    """Return the published times of `model` on `device`, for `batch` samples (None: the largest batch there is).

    Raises `UsageError` when nobody published one, naming what there is.
    """
    known = list(rows)
    found = [row for row in known if (row.model, row.device) == (model, device) and row.per_sample_ms and row.batch]
    if not found:
        raise UsageError(_lacking(known, model, device))
    row = min(found, key=lambda row: abs((row.batch or 0) - batch) if batch else -(row.batch or 0))
    samples = batch or row.batch or 1
    step = (row.per_sample_ms or 0.0) * samples / 1e3
    share, how = _backward_share(known, row)
    scaled = "" if samples == row.batch else f", scaled from {row.batch} samples to {samples}"
    source = f"{row.what} at batch {row.batch} on {device} (source {row.source} of compute_times.tsv){scaled}; {how}"
    return Compute(step * (1 - share), step * share, samples, source)


def _backward_share(rows: Iterable[Row], row: Row) -> tuple[float, str]:
    """Return the share of a step that is backward, and whose it is: the row's, the model's elsewhere, or 2/3."""
    same = sorted((other for other in rows if other.model == row.model), key=lambda other: other != row)
    for other in same:
        if other.forward_ms and other.backward_ms:
            share = other.backward_ms / (other.forward_ms + other.backward_ms)
            return share, f"{share:.0%} of it backward, as on {other.device} (source {other.source})"
    return BACKWARD_SHARE, "two thirds of it backward (estimate)"


def _lacking(rows: Iterable[Row], model: str, device: str) -> str:
    there = sorted({row.device for row in rows if row.model == model and row.per_sample_ms and row.batch})
    known = f"; there are times of it on {', '.join(there)}" if there else ""
    where = f"on {device!r}" if device else "on this machine, whose topology names no device"
    return f"no compute time of {model!r} {where} is known{known}: give --forward-ms, --backward-ms and --batch"
