"""One point of a run: a line of `points.jsonl`.

History of the format
    1   the first: what was run, the samples in nanoseconds, the bound and the model, the check and the status.
    2   points imported from another program's log: the kind `imported`, and `stated` for what stands there in the
        place of samples.
    3   how the samples were come by: `passes`, `late`, `stopped`, `cache`, and `per_rank_ns` where asked for.
    4   points that were priced and not run: the kind `predicted`.
    5   over memory that ranks share, a bound and a model of that memory, where older lines have those of messages.
    6   points of vectors on devices: `device_ns`, the samples by events there, and `first_us`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from ddlbench.errors import UsageError
from ddlbench.records.fields import read_fields, read_object, read_version, with_added

VERSION = 6
ADDED: Mapping[int, Mapping[str, Any]] = {
    2: {"stated": None},
    3: {"passes": (), "late": 0, "stopped": "", "cache": "warm", "per_rank_ns": None},
    6: {"device_ns": (), "first_us": None, "limit": ""},
}
"""From a version of the format to the fields it added, with what stands for them in a line of an older version."""

Kind = Literal["measured", "imported", "predicted"]
Status = Literal["ok", "wrong", "skipped", "failed"]
Stop = Literal["", "interval", "samples", "time"]
Cache = Literal["warm", "cold"]


@dataclass(frozen=True, kw_only=True)
class Stated:
    """The times of a point as another program's log states them, in microseconds; None for what it leaves out.

    `mean_us` is the mean over `repetitions` and over the ranks. `fastest_rank_us` and `slowest_rank_us` are the least
    and the greatest of the ranks' own means: they say nothing of single repetitions.
    """

    mean_us: float
    repetitions: int | None = None
    fastest_rank_us: float | None = None
    slowest_rank_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class Point:
    """One cell of a sweep and what came of it.

    `nbytes` and `count` are the size of the vector in bytes and in elements; `ranks_per_node` is "" where nodes hold
    different numbers of ranks. `samples_ns` are the timed repetitions in the order they ran, each the time of the
    slowest rank. `bound_us` is the lower bound from the probed links, `limit` which limit that is, and `model_us` the
    predicted time, in microseconds. `wrong` counts wrong elements over all ranks and is None where the result was not
    checked. `multiplicity` says how many tensors of a workload have this size. `reason` says why a status is not ok.

    `passes` says how many of the samples each pass over the sweep gave, in order. `late` samples were left out because
    a rank was not ready at their start. `stopped` says what ended the point: its interval was narrow enough, it had all
    its samples, or its time was up ("" when it was not timed). `cache` is "cold" when caches were emptied before each
    sample. `per_rank_ns`, where it was asked for, has each rank's own time for each of the samples.

    Of a point on a device `device_ns` are the same samples by events there, each that of the slowest rank, and
    `first_us` is how many microseconds the slowest rank took to make the first plan and run it once.

    A point of the kind "imported" was read from another program's log. It has no samples but, when it was timed, the
    times `stated` there; its `sync` is "", for no log says how the ranks' starts were aligned.

    A point of the kind "predicted" never ran: it was priced on a described machine. Its time is `model_us`, and it has
    no samples. Its `sync` is "model": there all ranks start at once.
    """

    algorithm: str
    nbytes: int
    count: int
    dtype: str
    op: str
    in_place: bool
    nodes: int
    ranks_per_node: str
    ranks: int
    device: str
    transport: str
    sync: str
    samples_ns: tuple[int, ...]
    status: Status
    reason: str = ""
    wrong: int | None = None
    bound_us: float | None = None
    limit: str = ""
    model_us: float | None = None
    multiplicity: int = 1
    passes: tuple[int, ...] = ()
    late: int = 0
    stopped: Stop = ""
    cache: Cache = "warm"
    per_rank_ns: tuple[tuple[int, ...], ...] | None = None
    kind: Kind = "measured"
    stated: Stated | None = None
    device_ns: tuple[int, ...] = ()
    first_us: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the point as the JSON object of its line."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        stated = None if self.stated is None else asdict(self.stated)
        per_rank = None if self.per_rank_ns is None else [list(samples) for samples in self.per_rank_ns]
        lists = {"samples_ns": list(self.samples_ns), "passes": list(self.passes), "per_rank_ns": per_rank}
        lists["device_ns"] = list(self.device_ns)
        return {"version": VERSION, **values, **lists, "stated": stated}

    @classmethod
    def from_json(cls, data: Any, where: str = "point") -> "Point":
        """Return the point that the JSON object `data` holds; `where` names the file and line in messages.

        Raises `UsageError` naming the field that is unknown, missing or wrong, or a version that is newer.
        """
        line: Mapping[str, Any] = read_object(data, where)
        read_version(line, VERSION, where)
        line = _without_foreign_bound(with_added(line, ADDED))
        point = cls(**read_fields(cls, line, where, besides=("version",)))
        if (point.samples_ns and point.kind != "measured") or (point.stated and point.kind != "imported"):
            raise UsageError(f"{where}: a measured point has samples, and an imported one stated times instead")
        if point.kind == "predicted" and point.status == "ok" and point.model_us is None:
            raise UsageError(f"{where}: a predicted point has its time in model_us, which is null")
        _check_samples(point, where)
        return point


def _without_foreign_bound(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the line without a bound and a model that are of another transport.

    Before version 5 points over memory that ranks share had those of messages.
    """
    if line["version"] >= 5 or not str(line.get("transport")).startswith("direct"):
        return line
    return {**line, "bound_us": None, "limit": "", "model_us": None}


def _check_samples(point: Point, where: str) -> None:
    """Refuse a point whose parts are not of the same samples; raises `UsageError`."""
    samples = len(point.samples_ns)
    if point.kind == "measured" and point.status == "ok" and not samples:
        raise UsageError(f"{where}: status is 'ok', but samples_ns is empty")
    if point.passes and sum(point.passes) != samples:
        raise UsageError(f"{where}: passes have {sum(point.passes)} samples together, samples_ns has {samples}")
    if point.device_ns and len(point.device_ns) != samples:
        raise UsageError(f"{where}: device_ns has {len(point.device_ns)} samples, samples_ns has {samples}")
    if point.per_rank_ns is not None and [*map(len, point.per_rank_ns)] != [samples] * point.ranks:
        raise UsageError(f"{where}: per_rank_ns is not {samples} samples for each of {point.ranks} ranks")
