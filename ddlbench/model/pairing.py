"""What was predicted beside what was measured, point by point, and how far the two are apart.

error     predicted / measured − 1
choice    at each size, the algorithm that is predicted to be the best: how much longer it took, as measured, than
          the one that was the best
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from ddlbench.cost.limits import binding
from ddlbench.errors import DdlbenchError

GOAL_MEDIAN, GOAL_WORST, GOAL_CHOSEN = 0.10, 0.30, 0.90
"""The median and the greatest absolute error, and the share of right choices, that are to be reached."""
NEAR = 0.05
"""A choice is right that took at most so much longer than the best."""


@dataclass(frozen=True)
class Measured:
    """A time as measured, in microseconds: the median of so many samples, with its 95 % interval."""

    median_us: float
    low_us: float
    high_us: float
    samples: int


@dataclass(frozen=True)
class Predicted:
    """A time as predicted, in microseconds, and the lower bounds by name, in the same model."""

    model_us: float
    limits_us: Mapping[str, float]

    @property
    def bound_us(self) -> float:
        """The greatest of the lower bounds."""
        return max(self.limits_us.values(), default=0.0)

    @property
    def binds(self) -> str:
        """Which limit that is."""
        return binding(dict(self.limits_us))


@dataclass(frozen=True)
class Pair:
    """A point that was both measured and predicted, never mixed: each side keeps its name."""

    shape: str
    algorithm: str
    nbytes: int
    measured: Measured
    predicted: Predicted

    @property
    def error(self) -> float:
        """The error of the prediction, as a share of what was measured."""
        return self.predicted.model_us / self.measured.median_us - 1


@dataclass(frozen=True)
class Choice:
    """The algorithm that is predicted to be the best at a size, and that which was; `behind` as a share of the best."""

    shape: str
    nbytes: int
    predicted: str
    measured: str
    behind: float

    @property
    def right(self) -> bool:
        """Whether it was as good as the best."""
        return self.behind <= NEAR


@dataclass(frozen=True)
class Agreement:
    """How far predictions are from measurements, over the points of a shape or of all of them (`shape` "all").

    `worst` is the pair with the greatest absolute error; `chosen` the share of sizes whose choice is right.
    """

    shape: str
    pairs: tuple[Pair, ...]
    choices: tuple[Choice, ...]

    @property
    def median(self) -> float:
        """The median absolute error."""
        return median(abs(pair.error) for pair in self.pairs)

    @property
    def quantile(self) -> float:
        """The absolute error that nine points of ten stay below."""
        return float(np.quantile([abs(pair.error) for pair in self.pairs], 0.9))

    @property
    def bias(self) -> float:
        """The median error with its sign: above 0 where predictions are too slow."""
        return median(pair.error for pair in self.pairs)

    @property
    def worst(self) -> Pair:
        """The pair that is furthest apart."""
        return max(self.pairs, key=lambda pair: abs(pair.error))

    @property
    def chosen(self) -> float:
        """The share of sizes whose choice is right."""
        return sum(choice.right for choice in self.choices) / len(self.choices)

    @property
    def reached(self) -> bool:
        """Whether all three goals are reached."""
        return self.median <= GOAL_MEDIAN and abs(self.worst.error) <= GOAL_WORST and self.chosen >= GOAL_CHOSEN


def choices(pairs: Sequence[Pair]) -> list[Choice]:
    """Return the choice at each shape and size, in their order."""
    found: dict[tuple[str, int], list[Pair]] = {}
    for pair in pairs:
        found.setdefault((pair.shape, pair.nbytes), []).append(pair)
    return [_choice(*key, of) for key, of in found.items()]


def _choice(shape: str, nbytes: int, pairs: Sequence[Pair]) -> Choice:
    best = min(pairs, key=lambda pair: pair.measured.median_us)
    chosen = min(pairs, key=lambda pair: pair.predicted.model_us)
    behind = chosen.measured.median_us / best.measured.median_us - 1
    return Choice(shape, nbytes, chosen.algorithm, best.algorithm, behind)


def agreements(pairs: Sequence[Pair]) -> list[Agreement]:
    """Return the agreement of each shape, and of all of them where there are several.

    Raises `DdlbenchError` when nothing was measured and predicted alike.
    """
    if not pairs:
        raise DdlbenchError("no point was both measured and predicted: there is nothing to compare")
    made = choices(pairs)
    shapes = list(dict.fromkeys(pair.shape for pair in pairs))
    parts = [(shape, {shape}) for shape in shapes] + ([("all", {*shapes})] if len(shapes) > 1 else [])
    return [
        Agreement(
            name,
            tuple(pair for pair in pairs if pair.shape in members),
            tuple(choice for choice in made if choice.shape in members),
        )
        for name, members in parts
    ]
