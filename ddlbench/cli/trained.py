"""The training of a model, predicted: how it scales, which upgrade pays, and what others reported."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from ddlbench.cli.predicted import Prediction
from ddlbench.cost.network import Placement
from ddlbench.report.markup import TextTable
from ddlbench.report.units import counted, digits
from ddlbench.training import published
from ddlbench.training.compute import Compute
from ddlbench.training.iteration import Bucket, Iteration, Ready, buckets, iterate
from ddlbench.training.published import Published
from ddlbench.training.upgrades import BETTER, upgrades


@dataclass(frozen=True)
class Row:
    """An iteration on a placement, and the same with its buffers reduced after backward.

    `efficiency` is samples a second and rank over those of N₀, `of_compute` over those of a rank that only computes.
    """

    place: Placement
    iteration: Iteration
    without_overlap: Iteration
    samples_per_s: float
    efficiency: float
    of_compute: float


@dataclass(frozen=True)
class Training:
    """The training of the workload of a prediction, each buffer reduced by the fastest algorithm of its size."""

    prediction: Prediction
    compute: Compute
    ready: Ready
    overlap: bool

    @property
    def workload(self) -> str:
        """The name of the model."""
        found = self.prediction.config.workload
        return "" if found is None else found.name

    @cached_property
    def parts(self) -> list[Bucket]:
        """The buffers that are reduced, in the order in which they become ready."""
        config, dtype = self.prediction.config, self.prediction.config.dtypes[0]
        if config.workload is None:
            raise ValueError("a training without a workload")
        whole = config.workload
        gathered = whole if config.fuse is None else whole.fused(config.fuse // dtype.itemsize)
        return buckets(whole.numels, gathered.numels, dtype.itemsize, self.ready)

    def algorithms(self, place: Placement) -> Counter[str]:
        """Return how many buffers each algorithm reduces."""
        ranked, dtype = self.prediction.ranked, self.prediction.config.dtypes[0].name
        return Counter(ranked[place, dtype, part.nbytes][0].algorithm for part in self.parts)

    def iteration(self, seconds: Callable[[int], float], *, overlap: bool) -> Iteration:
        """Return what an iteration comes to when an allreduce takes `seconds(nbytes)`."""
        return iterate(self.parts, self.compute, seconds, overlap=overlap)

    @cached_property
    def rows(self) -> list[Row]:
        """The iteration on each placement, the first being N₀."""
        base = self._row(self.prediction.placements[0], None)
        return [base, *(self._row(place, base) for place in self.prediction.placements[1:])]

    def _row(self, place: Placement, base: Row | None) -> Row:
        ranked, dtype = self.prediction.ranked, self.prediction.config.dtypes[0].name

        def seconds(nbytes: int) -> float:
            return (ranked[place, dtype, nbytes][0].model_us or 0.0) / 1e6

        whole, without = (self.iteration(seconds, overlap=overlap) for overlap in (self.overlap, False))
        each = self.compute.batch / whole.seconds
        efficiency = 1.0 if base is None else each / (base.samples_per_s / base.place.ranks)
        return Row(place, whole, without, each * place.ranks, efficiency, self.compute.seconds / whole.seconds)


def training_tables(training: Training) -> Iterator[TextTable]:
    """Yield how the training scales, what each link is worth, and what others reported."""
    yield _scaling(training)
    yield _upgrades(training)
    reported = published.of_model(published.read(), training.workload)
    if reported:
        yield _reported(training, reported)


def _milliseconds(seconds: float) -> str:
    return digits(seconds * 1e3) if seconds < 0.1 else f"{seconds * 1e3:.1f}"


def _percent(share: float) -> str:
    """Return a share to a tenth of a per cent: efficiencies near one differ by no more."""
    return f"{100 * share:.1f} %"


def _layout(place: Placement) -> str:
    return f"{counted(place.nodes, 'node')} of {counted(place.ranks_per_node, 'rank')}"


def _scaling(training: Training) -> TextTable:
    titles = (
        *("Nodes", "Ranks", "Iteration (ms)", "Compute (ms)", "Communication (ms)", "Exposed (ms)", "Samples/s"),
        *("Speed-up", "Efficiency", "Of compute alone", "Without overlap", "Algorithms"),
    )
    rows = [_scaling_row(training, row) for row in training.rows]
    caption = f"training {training.workload}, predicted: {counted(training.compute.batch, 'sample')} on each rank"
    return TextTable(titles, frozenset(range(len(titles) - 1)), rows, caption, tuple(_scaling_notes(training)))


def _scaling_row(training: Training, row: Row) -> tuple[str, ...]:
    base = training.rows[0]
    used = training.algorithms(row.place).most_common() if row.place.ranks > 1 else []
    return (
        *(str(row.place.nodes), str(row.place.ranks), _milliseconds(row.iteration.seconds)),
        *(_milliseconds(training.compute.seconds), _milliseconds(row.iteration.communication_s)),
        *(_milliseconds(row.iteration.exposed_s), digits(row.samples_per_s)),
        *(f"{row.samples_per_s / base.samples_per_s:.2f}", "N₀" if row is base else _percent(row.efficiency)),
        *(_percent(row.of_compute), _percent(training.compute.seconds / row.without_overlap.seconds)),
        ", ".join(f"{name} {times}" for name, times in used),
    )


def _scaling_notes(training: Training) -> Iterator[str]:
    yield f"N₀ is {_layout(training.rows[0].place)}; efficiency: samples/s and rank over those of N₀."
    yield "Of compute alone: those over a rank that never communicates; without overlap: that, reduced after backward."
    yield f"Compute: {training.compute.source}."
    spread = {"even": "every tensor takes as long as another", "size": "a tensor takes as long as it has elements"}
    order = "while backward goes on" if training.overlap else "after backward"
    parts = counted(len(training.parts), "buffer")
    yield f"{parts} reduced one by one, {order}; in backward {spread[training.ready]} (--ready)."
    yield "Algorithms: how many buffers each reduces, the fastest for each size."


def _upgrades(training: Training) -> TextTable:
    """Return what each figure of the machine is worth on the largest placement."""
    row = max(training.rows, key=lambda row: row.place.ranks)
    found = upgrades(
        training.prediction.machine,
        row.place,
        list(training.algorithms(row.place)),
        lambda seconds: training.iteration(seconds, overlap=training.overlap),
    )
    whole = row.iteration.seconds
    rows = [
        (
            *(upgrade.name, upgrade.now, upgrade.then, _milliseconds(upgrade.iteration.seconds)),
            *(_percent(1 - upgrade.iteration.seconds / whole), _milliseconds(upgrade.iteration.exposed_s)),
        )
        for upgrade in found
    ]
    titles = ("Figure", "Is", "Made", "Iteration (ms)", "Saves", "Exposed (ms)")
    notes = (
        f"One figure at a time is made {BETTER} times as good.",
        "Each buffer then takes the fastest of the algorithms in the table above.",
    )
    caption = (
        f"which upgrade pays, on {_layout(row.place)}, where {_milliseconds(row.iteration.exposed_s)} ms are exposed"
    )
    return TextTable(titles, frozenset({1, 2, 3, 4, 5}), rows, caption, notes)


def _reported(training: Training, rows: list[Published]) -> TextTable:
    """Return what others reported, beside what the model says of the same system, where it is the same."""
    columns = {
        "System": [row.system for row in rows],
        "Year": [row.year for row in rows],
        "GPUs": [row.gpus for row in rows],
        "Nodes": [row.nodes for row in rows],
        "GPU": [row.gpu for row in rows],
        "Network": [row.network for row in rows],
        "Framework": [row.framework for row in rows],
        "Metric": [row.metric for row in rows],
        "Reported": [f"{row.value} {row.unit}" for row in rows],
        "This model": [_beside(training, row) for row in rows],
        "Source": [row.source for row in rows],
    }
    cells = list(zip(*columns.values(), strict=True))
    caption = "published results, and the model beside those of this machine"
    return TextTable(tuple(columns), frozenset({1, 2, 3}), cells, caption, tuple(_differences(training, rows)))


def _same_system(training: Training, row: Published) -> Row | None:
    """Return the prediction for the GPUs, nodes and kind of GPU of a published figure; None where there is none."""
    if not row.gpu or row.gpu not in training.prediction.machine.device:
        return None
    shape = (row.gpus, row.nodes)
    return next((one for one in training.rows if (str(one.place.ranks), str(one.place.nodes)) == shape), None)


def _beside(training: Training, row: Published) -> str:
    same = _same_system(training, row)
    return _percent(same.efficiency) if same is not None and row.is_efficiency else ""


def _differences(training: Training, rows: list[Published]) -> Iterator[str]:
    """Say why the model's figures and those reported differ."""
    pairs = [(row, same) for row in rows if row.is_efficiency and (same := _same_system(training, row)) is not None]
    for row, same in pairs:
        apart = f"{100 * same.efficiency - float(row.value):+.1f} points"
        yield f"{row.system}, {row.gpus} GPUs: {row.value} % reported, {_percent(same.efficiency)} predicted: {apart}."
    if not pairs:
        yield "No efficiency here is of as many ranks on as many nodes of this device: none stands beside the model."
    yield f"The model's baseline is {_layout(training.rows[0].place)}; a source may mean another."
    yield (
        "Not in the model, and in every real run: input of data, ranks that differ, the framework's own time, and "
        "computation slowed down by communication."
    )
    yield "The compute time is of another framework, and may be of another batch, than those reported."
    figures = [figure for _, figure in training.prediction.machine.figures()]
    yield f"Of the machine's {len(figures)} figures {sum(figure.estimated for figure in figures)} are estimates."
    yield "PowerAI DDL's own iteration times from 4 to 256 GPUs were not available; nothing stands in their place."


def training_csv(training: Training) -> str:
    """Return the iterations as CSV, a line for each placement, figures to six digits."""
    text = io.StringIO()
    lines = csv.DictWriter(text, [*_csv_row(training, training.rows[0])], lineterminator="\n")
    lines.writeheader()
    lines.writerows(_csv_row(training, row) for row in training.rows)
    return text.getvalue()


def _csv_row(training: Training, row: Row) -> dict[str, str]:
    counts = {
        "nodes": row.place.nodes,
        "ranks_per_node": row.place.ranks_per_node,
        "ranks": row.place.ranks,
        "batch_per_rank": training.compute.batch,
        "buffers": len(training.parts),
    }
    figures = {
        "compute_ms": training.compute.seconds * 1e3,
        "iteration_ms": row.iteration.seconds * 1e3,
        "communication_ms": row.iteration.communication_s * 1e3,
        "exposed_ms": row.iteration.exposed_s * 1e3,
        "samples_per_s": row.samples_per_s,
        "efficiency": row.efficiency,
        "efficiency_of_compute": row.of_compute,
        "efficiency_without_overlap": training.compute.seconds / row.without_overlap.seconds,
    }
    return {name: str(n) for name, n in counts.items()} | {name: f"{value:.6g}" for name, value in figures.items()}
