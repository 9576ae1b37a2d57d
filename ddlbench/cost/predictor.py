"""Times of many algorithms, sizes and placements on one machine: each schedule is made ready once."""

from dataclasses import dataclass, field

from ddlbench.cost.machine import Machine
from ddlbench.cost.network import Placement
from ddlbench.cost.rounds import Program, prepare
from ddlbench.cost.simulate import seconds
from ddlbench.schedule.algorithm import BoundAlgorithm


@dataclass(frozen=True)
class Priced:
    """A predicted time in seconds, and the name of what takes it: of a mode that explores, what it chose."""

    seconds: float
    chosen: str


@dataclass
class Predictor:
    """Prices schedules on `machine`, keeping those that are ready."""

    machine: Machine
    _programs: dict[tuple[str, Placement], tuple[Program, ...]] = field(default_factory=dict)

    def price(
        self, algorithm: BoundAlgorithm, placement: Placement, nbytes: int, machine: Machine | None = None
    ) -> Priced:  # fmt: skip
        """Return what an allreduce of `nbytes` takes, on another `machine` of the same shape where one is given.

        Raises as `ddlbench.cost.rounds.prepare` does.
        """
        on = self.machine if machine is None else machine
        found = [Priced(seconds(one, on, nbytes), one.name) for one in self._ready(algorithm, placement)]
        return min(found, key=lambda priced: priced.seconds)

    def _ready(self, algorithm: BoundAlgorithm, placement: Placement) -> tuple[Program, ...]:
        key = (algorithm.name, placement)
        if key not in self._programs:
            candidates = algorithm.explore or (algorithm,)
            self._programs[key] = tuple(prepare(one, placement) for one in candidates)
        return self._programs[key]
