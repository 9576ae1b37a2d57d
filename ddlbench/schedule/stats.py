"""What a schedule costs, counted from its tables: to hold against the closed form, and to price."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ddlbench.schedule.algorithm import Costs
from ddlbench.schedule.lower import Schedule
from ddlbench.schedule.move import ADD, COPY, SEND


def stats(schedule: Schedule) -> Costs:
    """Count rounds, what ranks send, what leaves nodes and what is reduced; amounts in vectors, exact.

    `schedule` holds the tables of all ranks. Every chunk counts as an equal share of the vector.
    """
    table, chunks, x = schedule.table, schedule.chunks, schedule.grid.ranks_per_node
    sends = table[table["kind"] == SEND]
    sent = _per_rank(schedule, SEND)
    across = sends["nchunks"][sends["rank"] // x != sends["peer"] // x].sum(dtype=np.int64)
    moving = table["round"][table["kind"] != COPY]
    rounds = int(moving.max()) + 1 if len(moving) else 0
    return Costs(
        rounds,
        Fraction(int(sent.max()), chunks),
        Fraction(int(sent.sum()), chunks),
        Fraction(int(across), chunks),
        Fraction(int(_per_rank(schedule, ADD).max()), chunks),
    )


def _per_rank(schedule: Schedule, kind: int) -> np.ndarray:
    """Return the chunks each rank moves in steps of `kind`."""
    picked = schedule.table[schedule.table["kind"] == kind]
    return np.bincount(picked["rank"], picked["nchunks"], schedule.ranks).astype(np.int64)


@dataclass(frozen=True)
class Difference:
    """A figure in which a schedule is not what its closed form says."""

    figure: str
    counted: Fraction | int
    stated: Fraction | int


def differences(counted: Costs, stated: Costs) -> list[Difference]:
    """Return where `counted` and `stated` are not exactly equal."""
    pairs = ((name, getattr(counted, name), getattr(stated, name)) for name in vars(counted))
    return [Difference(name, a, b) for name, a, b in pairs if a != b]
