"""`ddlbench predict … --sweep nic.bandwidth=25gbit,50gbit`: the same on machines of which one figure differs."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlbench import __version__
from ddlbench.cli.predicted import Prediction
from ddlbench.cli.trained import Training
from ddlbench.cost.limits import binding, limits
from ddlbench.cost.machine import Machine
from ddlbench.cost.network import Placement
from ddlbench.errors import UsageError
from ddlbench.records.disk import write_atomically
from ddlbench.report.markup import TextTable
from ddlbench.report.sheet import Chart, sheet
from ddlbench.report.units import counted, ratio_text, size_text, time_text

CSV_FILE, PAGE = "what-if.csv", "what-if.html"
MOST_CHARTS = 24
EXAMPLE = "nic.bandwidth=25gbit,50gbit,100gbit"


@dataclass(frozen=True)
class Variant:
    """A machine with another figure: the figure as it was written, its value, and the machine."""

    text: str
    value: float
    machine: Machine


@dataclass(frozen=True)
class Outcome:
    """What was priced on a variant, and the training of a model there where one was asked for."""

    variant: Variant
    prediction: Prediction
    training: Training | None


def variants_of(machine: Machine, swept: str) -> list[Variant]:
    """Return the machines that `swept` asks for, such as nic.bandwidth=25gbit,50gbit; raises `UsageError`."""
    name, equals, figures = swept.partition("=")
    texts = list(dict.fromkeys(text.strip() for text in figures.split(",")))
    if not equals or not all(texts):
        raise UsageError(f"--sweep {swept!r}: expected NAME=FIGURE,FIGURE,…, such as {EXAMPLE}")
    found = []
    for text in texts:
        try:
            other = machine.with_figure(name.strip(), text, f"--sweep {name.strip()}={text}")
        except UsageError as error:
            raise UsageError(f"--sweep {swept!r}: {error}") from None
        found.append(Variant(text, dict(other.figures())[name.strip()].value, other))
    return sorted(found, key=lambda variant: variant.value)


def what_if_tables(name: str, base: Prediction, outcomes: Sequence[Outcome]) -> Iterator[TextTable]:
    """Yield the best of each placement and size for each figure, and how a model's training changes."""
    yield _best(name, base, outcomes)
    if any(outcome.training for outcome in outcomes):
        yield _trained(name, outcomes)


def _best(name: str, base: Prediction, outcomes: Sequence[Outcome]) -> TextTable:
    titles = ("Nodes", "Ranks", "Type", "Size", name, "Best", "Time", "Of as described", "Bound", "Binds")
    was = {_key(*key): points[0].model_us or 0.0 for key, points in base.ranked.items()}
    rows: list[tuple[str, ...]] = []
    for place, dtype, nbytes in base.ranked:
        for outcome in outcomes:
            rows += _row(outcome, (place, dtype, nbytes), was[_key(place, dtype, nbytes)])
    notes = ("Of as described: the best time over the best on the machine as its file describes it.",)
    return TextTable(titles, frozenset({0, 1, 3, 4, 6, 7, 8}), rows, f"what if: {name}, predicted", notes)


def _key(place: Placement, dtype: str, nbytes: int) -> tuple[int, int, str, int]:
    return place.nodes, place.ranks_per_node, dtype, nbytes


def _row(outcome: Outcome, key: tuple[Placement, str, int], was: float) -> Iterator[tuple[str, ...]]:
    """Yield the line of an outcome; none where no algorithm fits there."""
    for (place, dtype, nbytes), points in outcome.prediction.ranked.items():
        if _key(place, dtype, nbytes) == _key(*key):
            best, least = points[0], limits(outcome.prediction.machine, place, nbytes)
            time = best.model_us or 0.0
            head = (str(place.nodes), str(place.ranks), dtype, size_text(nbytes), outcome.variant.text)
            of = ratio_text(time / was) if was else ""
            bound = (time_text(max(least.values()) * 1e6), binding(least)) if least else ("", "")
            yield (*head, best.algorithm, time_text(time), of, *bound)


def _trained(name: str, outcomes: Sequence[Outcome]) -> TextTable:
    titles = ("Nodes", "Ranks", name, "Iteration (ms)", "Exposed (ms)", "Samples/s", "Efficiency")
    rows = [
        (
            *(str(row.place.nodes), str(row.place.ranks), outcome.variant.text),
            *(f"{1e3 * seconds:.4g}" for seconds in (row.iteration.seconds, row.iteration.exposed_s)),
            *(f"{row.samples_per_s:.4g}", f"{100 * row.efficiency:.1f} %"),
        )
        for outcome in outcomes
        if outcome.training
        for row in outcome.training.rows
    ]
    notes = ("Efficiency: samples/s and rank over those of the first number of nodes, on the same machine.",)
    return TextTable(titles, frozenset(range(len(titles))), rows, f"what if: {name}, training, predicted", notes)


def what_if_files(name: str, base: Prediction, outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Write all points as CSV and the curves as a page into `folder`; return the files."""
    texts = {CSV_FILE: _csv(name, outcomes), PAGE: _page(name, base, outcomes)}
    for file, text in texts.items():
        write_atomically(folder / file, text)
    return [folder / file for file in texts]


def _csv(name: str, outcomes: Sequence[Outcome]) -> str:
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    head = ("kind", "figure", "value", "nodes", "ranks_per_node", "ranks", "dtype", "nbytes", "algorithm", "status")
    lines.writerow((*head, "time_us", "bound_us", "binds", "reason"))
    for outcome in outcomes:
        for point in outcome.prediction.points:
            place = Placement.on(outcome.variant.machine, point.nodes, int(point.ranks_per_node))
            least = limits(outcome.variant.machine, place, point.nbytes)
            where = (point.nodes, point.ranks_per_node, point.ranks, point.dtype, point.nbytes, point.algorithm)
            time = "" if point.model_us is None else f"{point.model_us:.6g}"
            bound = f"{max(least.values()) * 1e6:.6g}" if least else ""
            row = (point.kind, name, outcome.variant.text, *where, point.status, time, bound, binding(least))
            lines.writerow((*row, " ".join(point.reason.split())))
    return text.getvalue()


def _page(name: str, base: Prediction, outcomes: Sequence[Outcome]) -> str:
    keys = [_key(*key) for key in base.ranked]
    charts = [_chart(name, key, outcomes) for key in keys[:MOST_CHARTS]]
    more = len(keys) - len(charts)
    lede = [f"{base.machine.name}: {base.machine.summary}", "Every time is predicted; nothing ran."]
    lede += [f"Curves of {counted(more, 'more size')} are left out; {CSV_FILE} has all points."] if more else []
    figures = dict(base.machine.figures())
    told = ", ".join(outcome.variant.text for outcome in outcomes)
    source = figures[name].source if name in figures else "the file says nothing of it"
    facts = [("Figure", name), ("Values", told), ("As described", source)]
    parts: list[TextTable | Chart] = [*charts, *what_if_tables(name, base, outcomes)]
    return sheet(f"What if {name} were another", "What if", lede, facts, parts, f"ddlbench {__version__}")


def _chart(name: str, key: tuple[int, int, str, int], outcomes: Sequence[Outcome]) -> Chart:
    """Return the curves of one placement, dtype and size: the time of each algorithm, and the lower bound."""
    nodes, each, dtype, nbytes = key
    found: dict[str, dict[str, list[object]]] = {}
    bounds: dict[str, list[object]] = {"x": [], "y": []}
    for outcome in outcomes:
        place = Placement.on(outcome.variant.machine, nodes, each)
        least = limits(outcome.variant.machine, place, nbytes)
        bounds["x"].append(outcome.variant.value)
        bounds["y"].append(max(least.values(), default=0.0) or None)
        points = outcome.prediction.ranked.get((place, dtype, nbytes), [])
        for point in sorted(points, key=lambda point: point.algorithm):  # the same colours in every chart
            curve = found.setdefault(point.algorithm, {"x": [], "y": []})
            curve["x"].append(outcome.variant.value)
            curve["y"].append((point.model_us or 0.0) / 1e6)
    traces = [{"name": algorithm, "mode": "lines+markers", **curve} for algorithm, curve in found.items()]
    dashed = {"name": "lower bound", "mode": "lines", "line": {"dash": "dash", "color": "#888"}, **bounds}
    ticks = {outcome.variant.value: outcome.variant.text for outcome in outcomes}
    caption = f"{size_text(nbytes)} of {dtype} on {counted(nodes, 'node')} of {counted(each, 'rank')}, predicted"
    return Chart(caption, [*traces, dashed], name, "time", "", "xy", ticks, seconds=True)
