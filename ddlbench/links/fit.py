"""Lines through times: seconds = start + slope · x, by robust least squares in relative error, with 95 % intervals.

Of the samples of an amount the lower quartile counts. A residual is the logarithm of that time over that of the line,
so that 1 byte and 4 MiB weigh alike; scipy's soft_l1 loss keeps single outliers from pulling the line. Times may follow
a second line where a shaped link lets a burst pass:

    seconds = start + max(x / fast, (x - burst) · slope)

It is taken only where it explains the times better and at least two amounts lie well beyond the burst. Intervals
are from a bootstrap: pairs are drawn with replacement (where there are three or more), and within each its samples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.errors import DdlbenchError
from ddlbench.links.timing import Curve

Floats = npt.NDArray[np.float64]
Group = list[tuple[float, Floats]]
"""The amounts of a curve, each with its times."""
SCALE = 0.05
"""Relative error up to which the loss is that of least squares; beyond it grows linearly."""
QUANTILE = 0.25
RESAMPLES, SEED = 200, 1
CONFIDENCE = (2.5, 97.5)
LEAST_AMOUNTS = 3
"""Amounts that a line needs: two, and one that can speak against it."""
GAIN, BEYOND, NEAR = 2.0, 1.2, 8
"""A burst is believed when each curve gains so much in loss, as by one amount that a single line misses by some 15 %,
among the amounts above an eighth of it; and when two amounts are well beyond it."""
FASTER = 10.0
"""No line goes up by less than a tenth of the least time for each unit seen: times that only scatter have no slope."""
LEAST_SECONDS = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def inverse(self) -> "Estimate":
        """Return 1 / figure: seconds a byte as bytes a second."""
        return Estimate(*(1 / max(x, LEAST_SECONDS) for x in (self.value, self.high, self.low)))


@dataclass(frozen=True)
class Line:
    """A fitted line: seconds at nothing, seconds for each unit of x, and what passes before the slope holds.

    What passes does so at `peak` units a second (0 where nothing passes). `amounts` and `samples` are how many
    different x and how many times it rests on.
    """

    start: Estimate
    slope: Estimate
    burst: float = 0.0
    peak: float = 0.0
    amounts: int = 0
    samples: int = 0


def fitted(
    curves: Sequence[Curve], *, shaped: bool = False, resamples: int | None = None, quantile: float = QUANTILE
) -> Line:
    """Return the line through the times of `curves`, all of the same thing; `shaped` where a burst may pass first.

    `quantile` says which of a size's times counts. `resamples` None takes `RESAMPLES`; with 0 the intervals are of no
    width. Raises `DdlbenchError` when there are too few amounts.
    """
    groups = [_grouped(curve) for curve in curves]
    amounts = {x for group in groups for x, _ in group}
    if len(amounts) < LEAST_AMOUNTS:
        raise DdlbenchError(
            f"a line needs times of {LEAST_AMOUNTS} sizes or more, the time was enough for {len(amounts)}: "
            "allow more --max-seconds, or ask for smaller --sizes"
        )
    best = _best(*_typical(groups, quantile), shaped=shaped)
    drawn = _bootstrap(groups, best, RESAMPLES if resamples is None else resamples, quantile)
    start, slope = (_estimate(value, [row[at] for row in drawn]) for at, value in enumerate(best[:2]))
    samples = sum(len(times) for group in groups for _, times in group)
    burst, peak = (float(best[3]), 1 / float(best[2])) if len(best) > 2 else (0.0, 0.0)
    return Line(start, slope, burst, peak, len(amounts), samples)


def _grouped(curve: Curve) -> Group:
    """Return the curve's amounts and times, without amounts that have none."""
    return [(x, np.array(times)) for x, times in zip(curve.x, curve.samples, strict=True) if times]


def typical(times: npt.ArrayLike, quantile: float = QUANTILE) -> float:
    """Return what something takes when it is not held up: the lower quartile, for other work makes it slower only."""
    ordered = np.sort(np.asarray(times, np.float64))
    at = quantile * (len(ordered) - 1)
    low = int(at)
    above = ordered[min(low + 1, len(ordered) - 1)]
    return float(ordered[low] + (at - low) * (above - ordered[low]))


def _typical(groups: Sequence[Group], quantile: float) -> tuple[Floats, Floats]:
    """Return the amounts and the typical times of all curves."""
    x = np.array([x for group in groups for x, _ in group])
    t = np.array([typical(times, quantile) for group in groups for _, times in group])
    return x, np.maximum(t, LEAST_SECONDS)


def _best(x: Floats, t: Floats, *, shaped: bool) -> Floats:
    """Return start and slope of the better line, and where that is the one with a burst, fast slope and burst."""
    plain, _ = _solved(_plain, _guess(x, t), x, t)
    tried = [_solved(_bent, guess, x, t) for guess in _guesses_of_burst(x, t)] if shaped else []
    if not tried:
        return plain
    bent, _ = min(tried, key=lambda found: found[1])
    large = x > bent[3] / NEAR  # what the burst is about; small messages only add noise
    gain = _loss(_plain(plain, x[large]), t[large]) - _loss(_bent(bent, x[large]), t[large])
    beyond = len(np.unique(x[x > BEYOND * bent[3]]))
    return bent if gain > GAIN * len(x) / len(np.unique(x)) and beyond >= 2 and bent[2] < bent[1] else plain


def _loss(model: Floats, t: Floats) -> float:
    """Return the soft_l1 loss of times against what a line says."""
    residuals = np.log(np.maximum(model, LEAST_SECONDS) / t) / SCALE
    return float(np.sum(np.sqrt(1 + residuals**2) - 1))


def _plain(p: Floats, x: Floats) -> Floats:
    line: Floats = p[0] + p[1] * x
    return line


def _bent(p: Floats, x: Floats) -> Floats:
    bent: Floats = p[0] + np.maximum(p[2] * x, p[1] * (x - p[3]))
    return bent


def _solved(model: Callable[[Floats, Floats], Floats], guess: Floats, x: Floats, t: Floats) -> tuple[Floats, float]:
    """Return the parameters, all positive, that fit best, and their loss."""
    from scipy.optimize import least_squares

    def residuals(logs: Floats) -> Floats:
        return np.log(np.maximum(model(np.exp(logs), x), LEAST_SECONDS) / t)

    least = np.full(len(guess), -np.inf)
    least[1] = np.log(np.min(t[x > 0] / x[x > 0]) / FASTER)
    start = np.maximum(np.log(np.maximum(guess, 1e-18)), least + 0.01)
    how: dict[str, Any] = {"loss": "soft_l1", "f_scale": SCALE, "ftol": 1e-6, "xtol": 1e-6, "max_nfev": 100}
    found: Any = least_squares(residuals, start, bounds=(least, np.inf), **how)
    return np.exp(found.x), float(found.cost)


def _guess(x: Floats, t: Floats) -> Floats:
    """Return a start and a slope to begin with: the least amount's time, and the median slope from there."""
    low, high = x == x.min(), x == x.max()
    start = float(np.median(t[low]))
    end = float(np.median(t[high]))
    return np.array([start, max(end - start, 0.01 * end) / (x.max() - x.min())])


def _guesses_of_burst(x: Floats, t: Floats) -> Iterator[Floats]:
    """Yield what start, slope, fast slope and burst may be: each amount but the largest two may be the burst."""
    amounts = np.unique(x)
    times = np.array([np.median(t[x == amount]) for amount in amounts])
    for burst, time in zip(amounts[1:-2], times[1:-2], strict=True):
        slope = max(times[-1] - times[0], 0.01 * times[-1]) / (amounts[-1] - burst)
        fast = max(time - times[0], 0.01 * slope * burst) / burst
        yield np.array([times[0], slope, fast, burst])


def _bootstrap(groups: Sequence[Group], best: Floats, resamples: int, quantile: float) -> list[Floats]:
    """Return the parameters of so many resamples, by the same kind of line."""
    generator = np.random.default_rng(SEED)
    model = _plain if len(best) == 2 else _bent
    return [_solved(model, best, *_typical(_drawn(groups, generator), quantile))[0] for _ in range(resamples)]


def _drawn(groups: Sequence[Group], generator: np.random.Generator) -> list[Group]:
    count = len(groups)
    chosen = generator.integers(count, size=count) if count > 2 else range(count)
    return [[(x, t[generator.integers(len(t), size=len(t))]) for x, t in groups[at]] for at in chosen]


def _estimate(value: float, drawn: Sequence[float]) -> Estimate:
    """Return the figure with the interval that holds it."""
    low, high = np.percentile([*drawn], CONFIDENCE) if len(drawn) else (value, value)
    return Estimate(float(value), min(float(low), float(value)), max(float(high), float(value)))
