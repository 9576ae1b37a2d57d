"""Schedules: what moves when, proved, counted, lowered, drawn and stored. Nothing here knows MPI or buffers."""

from ddlbench.schedule.algorithm import Algorithm, BoundAlgorithm, Costs, Halves, Parameter, flat_algorithm, from_halves
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.group import Group
from ddlbench.schedule.lower import Schedule, lower
from ddlbench.schedule.move import Phase
from ddlbench.schedule.stats import stats
from ddlbench.schedule.verify import Proof, verify

__all__ = [
    "Algorithm",
    "BoundAlgorithm",
    "Costs",
    "Grid",
    "Group",
    "Halves",
    "Parameter",
    "Phase",
    "Proof",
    "Schedule",
    "flat_algorithm",
    "from_halves",
    "lower",
    "stats",
    "verify",
]
