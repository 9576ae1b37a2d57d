"""Which upgrade pays: every figure of a machine made better by itself, and what an iteration takes then."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from ddlbench.algorithms import resolve
from ddlbench.cost.machine import Figure, Machine, unit_of
from ddlbench.cost.network import Placement
from ddlbench.cost.predictor import Predictor
from ddlbench.cost.quantity import AMOUNT, TIME
from ddlbench.training.iteration import Iteration

BETTER = 2
"""How many times as good a figure is made."""


@dataclass(frozen=True)
class Upgrade:
    """A figure made better: its name, what it is and what it becomes, with units, and the iteration then."""

    name: str
    now: str
    then: str
    iteration: Iteration


def upgrades(
    machine: Machine,
    placement: Placement,
    algorithms: Sequence[str],
    iteration: Callable[[Callable[[int], float]], Iteration],
) -> list[Upgrade]:
    """Return what each figure is worth on `placement`, the shortest iteration first.

    `iteration(seconds)` says what an iteration comes to when an allreduce takes `seconds(nbytes)`: that of the fastest
    of `algorithms` for each size.
    """
    predictor = Predictor(machine)
    found = []
    for name, now, changed in _improved(machine):
        seconds = _fastest(predictor, changed, placement, algorithms)
        found.append(Upgrade(name, _text(name, now), _text(name, dict(changed.figures())[name]), iteration(seconds)))
    return sorted(found, key=lambda upgrade: upgrade.iteration.seconds)


def _improved(machine: Machine) -> Iterator[tuple[str, Figure, Machine]]:
    """Yield each figure that can be made better, and the machine in which it is."""
    for name, figure in machine.figures():
        unit = unit_of(name)
        if unit is not AMOUNT and (unit is not None or name == "nic.count"):
            yield name, figure, machine.with_value(name, _better(machine, name, figure.value), "what if")


def _better(machine: Machine, name: str, value: float) -> float:
    """Return the figure made better: a time is shorter, but no latency below the overheads in it; all else is more."""
    if unit_of(name) is not TIME:
        return value * BETTER
    return max(value / BETTER, 2 * machine.message_overhead if name.endswith("latency") else 0.0)


def _fastest(
    predictor: Predictor, machine: Machine, placement: Placement, algorithms: Sequence[str]
) -> Callable[[int], float]:  # fmt: skip
    place = Placement.on(machine, placement.nodes, placement.ranks_per_node)
    bound = [resolve(text, place.grid) for text in algorithms]

    @cache
    def seconds(nbytes: int) -> float:
        return min(predictor.price(one, place, nbytes, machine).seconds for one in bound)

    return seconds


def _text(name: str, figure: Figure) -> str:
    unit = unit_of(name)
    return str(int(figure.value)) if unit is None else unit.written(figure.value)
