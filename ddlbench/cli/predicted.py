"""What a prediction says: the lines above its tables, and the best algorithm of each size."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from ddlbench.bench.config import SweepConfig
from ddlbench.cost.limits import binding, limits
from ddlbench.cost.machine import Machine
from ddlbench.cost.network import Placement
from ddlbench.records import Point, Run
from ddlbench.report.markup import TextTable
from ddlbench.report.units import counted, ratio_text, size_text, time_text

LIMITS = ("latency", "bandwidth", "cards", "uplink", "reduction")
"""The lower bounds, by their names."""


@dataclass(frozen=True)
class Prediction:
    """The points that were priced, placement by placement, and on what."""

    machine: Machine
    config: SweepConfig
    placements: tuple[Placement, ...]
    points: tuple[Point, ...]

    @cached_property
    def ranked(self) -> dict[tuple[Placement, str, int], list[Point]]:
        """The points of each placement, dtype and size in bytes, the fastest first; those without a time left out."""
        placed = {(place.nodes, str(place.ranks_per_node)): place for place in self.placements}
        found: dict[tuple[Placement, str, int], list[Point]] = {}
        for point in self.points:
            if point.status == "ok":
                place = placed[point.nodes, point.ranks_per_node]
                found.setdefault((place, point.dtype, point.nbytes), []).append(point)
        return {key: sorted(points, key=lambda point: point.model_us or 0.0) for key, points in found.items()}


def header(run: Run, prediction: Prediction) -> Iterator[str]:
    """Yield the lines above the tables."""
    machine, config = prediction.machine, prediction.config
    yield f"ddlbench {run.ddlbench}: predicted for {machine.name}; nothing ran"
    yield f"{machine.name}: {machine.summary}"
    figures = list(machine.figures())
    guessed = [name for name, figure in figures if figure.estimated]
    told = f": {', '.join(guessed)}" if guessed else ""
    yield f"of {counted(len(figures), 'figure')}, {len(guessed)} are estimates{told}"
    for _, figure in figures:
        if figure.source.startswith("--set "):
            yield f"what if: {figure.source.removeprefix('--set ')}"
    shapes = ", ".join(f"{place.nodes} x {place.ranks_per_node}" for place in prediction.placements)
    yield f"nodes x ranks on each: {shapes}"
    if config.workload is not None:
        fused = f", gathered into buffers of up to {size_text(config.fuse)}" if config.fuse else ", not gathered"
        yield f"workload {config.workload.name}: {counted(len(config.workload.numels), 'tensor')}{fused}"
    skipped = {point.algorithm: point.reason for point in prediction.points if point.status != "ok"}
    yield from (f"left out, where it does not fit: {name}: {reason}" for name, reason in skipped.items())


def best_table(prediction: Prediction, only: Placement | None = None) -> TextTable:
    """Return the fastest algorithm of each placement (or `only` one) and size, the next, and the lower bound."""
    dtypes = len({dtype for _, dtype, _ in prediction.ranked}) > 1
    rows = [_best(prediction, *key, dtypes=dtypes) for key in prediction.ranked if only in (None, key[0])]
    titles = ("Nodes", "Ranks", *(["Type"] if dtypes else []), "Size", "Best", "Time", "Next", "Lead", "Bound", "Times")
    left = {"Type", "Best", "Next", "Binds"}
    titles = (*titles, "Binds")
    notes = (
        "Bound: the least time on this machine, in this model; Times: time over bound; Binds: which limit that is.",
        "Lead: time of the next over that of the best. The model's error is larger than a small lead.",
    )
    right = frozenset(at for at, title in enumerate(titles) if title not in left)
    return TextTable(titles, right, rows, "best algorithm of each size, predicted", notes)


def _best(prediction: Prediction, place: Placement, dtype: str, nbytes: int, *, dtypes: bool) -> tuple[str, ...]:
    first, *others = prediction.ranked[place, dtype, nbytes]
    best = first.model_us or 0.0
    bounds = limits(prediction.machine, place, nbytes)
    bound = max(bounds.values(), default=0.0) * 1e6
    following = others[0].algorithm if others else ""
    lead = ratio_text((others[0].model_us or 0.0) / best) if others and best else ""
    limit = (time_text(bound), ratio_text(best / bound), binding(bounds)) if bound else ("", "", "")
    head = (str(place.nodes), str(place.ranks), *([dtype] if dtypes else []), size_text(nbytes))
    return (*head, _name(first), time_text(best), following, lead, *limit)


def limits_table(prediction: Prediction, only: Placement | None = None) -> TextTable:
    """Return each lower bound of each placement (or `only` one) and size, and which of them binds."""
    rows = []
    for place, nbytes in dict.fromkeys((place, nbytes) for place, _, nbytes in prediction.ranked):
        least = limits(prediction.machine, place, nbytes)
        if least and only in (None, place):
            bounds = (time_text(least[name] * 1e6) if name in least else "" for name in LIMITS)
            rows.append((str(place.nodes), str(place.ranks), size_text(nbytes), *bounds, binding(least)))
    titles = ("Nodes", "Ranks", "Size", *(name.capitalize() for name in LIMITS), "Binds")
    notes = ("Each is the least time that one thing alone allows: docs/model.md derives them.",)
    return TextTable(titles, frozenset(range(len(titles) - 1)), rows, "limits that no algorithm can beat", notes)


def limits_csv(prediction: Prediction) -> str:
    """Return the lower bounds of every point as CSV, in microseconds, beside its predicted time."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    head = ("kind", "nodes", "ranks_per_node", "ranks", "dtype", "nbytes", "algorithm", "time_us")
    lines.writerow((*head, *(f"bound_{name}_us" for name in LIMITS), "bound_us", "binds"))
    for (place, dtype, nbytes), points in prediction.ranked.items():
        least = {name: bound * 1e6 for name, bound in limits(prediction.machine, place, nbytes).items()}
        bounds = [f"{least[name]:.6g}" if name in least else "" for name in LIMITS]
        greatest = f"{max(least.values()):.6g}" if least else ""
        for point in points:
            where = (place.nodes, place.ranks_per_node, place.ranks, dtype, nbytes, point.algorithm)
            lines.writerow((point.kind, *where, f"{point.model_us or 0.0:.6g}", *bounds, greatest, binding(least)))
    return text.getvalue()


def _name(point: Point) -> str:
    """Return the algorithm, and what a mode that explores chose."""
    return f"{point.algorithm} ({point.reason.removeprefix('chose ')})" if point.reason else point.algorithm
