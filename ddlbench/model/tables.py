"""How far predictions are from measurements, as tables and charts: every column says which of the two it is of."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan

from ddlbench.cost.machine import Machine, unit_of
from ddlbench.model.pairing import GOAL_CHOSEN, GOAL_MEDIAN, GOAL_WORST, NEAR, Agreement, Pair
from ddlbench.report.markup import TextTable
from ddlbench.report.sheet import Chart
from ddlbench.report.units import counted, size_text, time_text

WORST = 10
"""Rows of the table of the worst points."""


@dataclass(frozen=True)
class Seen:
    """All that came of it: the agreement of each shape and of all, and what was fitted on each shape."""

    agreements: Sequence[Agreement]
    machines: Mapping[str, Machine]

    @property
    def whole(self) -> Agreement:
        """The agreement over all points."""
        return self.agreements[-1]


def verdict(seen: Seen) -> str:
    """Return what came of it in a sentence."""
    whole = seen.whole
    goals = f"goals {_percent(GOAL_MEDIAN)}, {_percent(GOAL_WORST)} and {_percent(GOAL_CHOSEN)}"
    return (
        f"Of {counted(len(whole.pairs), 'point')} the median absolute error is {_percent(whole.median)}, the worst "
        f"{_signed(whole.worst.error)}, and the choice is right at {_percent(whole.chosen)} of sizes "
        f"({goals}: {'reached' if whole.reached else 'not reached'})"
    )


def summary(seen: Seen) -> TextTable:
    """Return the agreement of each shape and of all."""
    columns = ("Shape", "Points", "Median error", "90 %", "Bias", "Worst", "Where", "Sizes", "Choice right")
    rows = [_summary_row(one) for one in seen.agreements]
    notes = (
        "Error: predicted over measured median, minus 1. Median, 90 % and worst are of its absolute value.",
        "Bias: the median of the error with its sign, above 0 where predictions are too slow.",
        f"Choice right: the predicted best took, as measured, at most {_percent(NEAR)} longer than the measured best.",
    )
    right = frozenset({1, 2, 3, 4, 5, 7, 8})
    return TextTable(columns, right, rows, "predicted against measured", notes)


def _summary_row(one: Agreement) -> tuple[str, ...]:
    worst = one.worst
    where = f"{worst.algorithm}, {size_text(worst.nbytes)}, {worst.shape}"
    errors = (_percent(one.median), _percent(one.quantile), _signed(one.bias), _signed(worst.error))
    return (one.shape, str(len(one.pairs)), *errors, where, str(len(one.choices)), _percent(one.chosen))


def by_size(seen: Seen) -> TextTable:
    """Return what was chosen at each size of each shape."""
    rows = [
        (
            *(choice.shape, size_text(choice.nbytes), choice.predicted, choice.measured, _signed(choice.behind)),
            *("yes" if choice.right else "no", _percent(_median_at(seen, choice.shape, choice.nbytes))),
        )
        for choice in seen.whole.choices
    ]
    titles = ("Shape", "Size", "Predicted best", "Measured best", "Behind", "Right", "Median error")
    notes = ("Behind: how much longer, as measured, the predicted best took than the measured best.",)
    return TextTable(titles, frozenset({1, 4, 6}), rows, "the best algorithm of each size", notes)


def _median_at(seen: Seen, shape: str, nbytes: int) -> float:
    of = tuple(pair for pair in seen.whole.pairs if (pair.shape, pair.nbytes) == (shape, nbytes))
    return Agreement(shape, of, ()).median


def worst(seen: Seen) -> TextTable:
    """Return the points that are furthest apart."""
    pairs = sorted(seen.whole.pairs, key=lambda pair: -abs(pair.error))[:WORST]
    return _points(pairs, f"the {len(pairs)} points that are furthest apart")


def every(seen: Seen) -> TextTable:
    """Return all points."""
    return _points(seen.whole.pairs, "all points")


def _points(pairs: Sequence[Pair], caption: str) -> TextTable:
    titles = ("Shape", "Size", "Algorithm", "Measured", "95 % interval", "Predicted", "Error", "Bound", "Binds")
    rows = [
        (
            *(pair.shape, size_text(pair.nbytes), pair.algorithm, time_text(pair.measured.median_us)),
            _interval(pair),
            *(time_text(pair.predicted.model_us), _signed(pair.error), time_text(pair.predicted.bound_us)),
            pair.predicted.binds,
        )
        for pair in pairs
    ]
    notes = ("Measured: median of the samples. Predicted, bound and which limit binds: by the fitted topology.",)
    return TextTable(titles, frozenset({1, 3, 4, 5, 6, 7}), rows, caption, notes)


def _interval(pair: Pair) -> str:
    low, high = pair.measured.low_us, pair.measured.high_us
    return "" if isnan(low) else f"{time_text(low)} – {time_text(high)}"  # too few samples for one


def fitted(machine: Machine, shape: str) -> TextTable:
    """Return the figures that were fitted on a shape, each with its interval and what it rests on."""
    rows = [
        (name, *(_figure(name, value) for value in (figure.value, figure.low, figure.high)), figure.source)
        for name, figure in machine.figures()
    ]
    titles = ("Figure", "Value", "Low", "High", "From")
    return TextTable(titles, frozenset({1, 2, 3}), rows, f"links as fitted on {shape}")


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return ""
    unit = unit_of(name)
    if unit is None:
        return str(int(value))
    number, _, word = unit.written(value).partition(" ")
    return f"{float(number):.4g} {word}"


def charts(seen: Seen) -> Iterator[Chart]:
    """Yield the errors of each shape over the sizes, a curve for each algorithm."""
    for shape in seen.machines:
        pairs = [pair for pair in seen.whole.pairs if pair.shape == shape]
        names = list(dict.fromkeys(pair.algorithm for pair in pairs))
        traces = [_trace(name, [pair for pair in pairs if pair.algorithm == name]) for name in names]
        ticks = {float(pair.nbytes): size_text(pair.nbytes) for pair in pairs}
        note = "Above 0 the prediction is too slow."
        caption = f"error of the prediction on {shape}"
        yield Chart(caption, traces, "size of the vector", "predicted over measured, minus 1 (%)", note, "x", ticks)


def _trace(name: str, pairs: Sequence[Pair]) -> dict[str, object]:
    told = [
        f"measured {time_text(pair.measured.median_us)}, predicted {time_text(pair.predicted.model_us)}"
        for pair in pairs
    ]
    return {
        "name": name,
        "x": [pair.nbytes for pair in pairs],
        "y": [100 * pair.error for pair in pairs],
        "text": told,
        "mode": "lines+markers",
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"
