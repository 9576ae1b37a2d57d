"""`ddlbench predict … --timeline FILE`: one predicted run, message by message, as a picture or a trace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ddlbench.cost.limits import binding, limits
from ddlbench.cost.machine import Machine
from ddlbench.cost.network import Placement
from ddlbench.errors import UsageError
from ddlbench.records.disk import write_atomically
from ddlbench.report.units import counted, size_text
from ddlbench.schedule.algorithm import BoundAlgorithm
from ddlbench.timeline.course import Course, course
from ddlbench.timeline.picture import picture, time_text
from ddlbench.timeline.trace import trace

FORMS = (".svg", ".json")


@dataclass(frozen=True)
class Asked:
    """What a timeline is asked of: the file, and all that the command line prices."""

    file: Path
    machine: Machine
    algorithms: Mapping[tuple[str, Placement], BoundAlgorithm | str]
    sizes: Sequence[int]
    overwrite: bool


@dataclass(frozen=True)
class Follow:
    """What is to be followed: an algorithm, or the fastest of those a mode explores, on a placement, at a size."""

    file: Path
    machine: Machine
    algorithms: Sequence[BoundAlgorithm]
    placement: Placement
    nbytes: int


def checked(asked: Asked) -> Follow:
    """Return what is to be followed; raises `UsageError` where that is not one run, or the file cannot be."""
    told = f"--timeline {asked.file}"
    if asked.file.suffix not in FORMS:
        raise UsageError(f"{told}: expected a name that ends in .svg (a picture) or .json (a trace for Perfetto)")
    if asked.file.exists() and not asked.overwrite:
        raise UsageError(f"{told}: it exists; --overwrite replaces it")
    found = [(bound, place) for (_, place), bound in asked.algorithms.items() if not isinstance(bound, str)]
    if len(found) != 1 or len(asked.sizes) != 1:
        asks = f"{counted(len(found), 'algorithm and placement', 'algorithms and placements')}"
        raise UsageError(
            f"{told} follows one run, these are {asks} at {counted(len(asked.sizes), 'size')}: name one algorithm, "
            "--nodes N and --sizes SIZE"
        )
    bound, place = found[0]
    return Follow(asked.file, asked.machine, bound.explore or (bound,), place, asked.sizes[0])


def draw(follow: Follow) -> Path:
    """Write the timeline and return where it is; raises `UsageError` for too many messages."""
    make = partial(course, machine=follow.machine, placement=follow.placement, nbytes=follow.nbytes)
    found = min((make(algorithm) for algorithm in follow.algorithms), key=lambda one: one.seconds)
    if follow.file.suffix == ".json":
        text = trace(found)
    else:
        least = limits(follow.machine, follow.placement, follow.nbytes)
        text = picture(found, _caption(found), (binding(least), max(least.values())) if least else None)
    write_atomically(follow.file, text)
    return follow.file


def _caption(found: Course) -> str:
    place = found.placement
    where = f"{counted(place.nodes, 'node')} of {counted(place.ranks_per_node, 'rank')} of {found.machine}"
    return f"{size_text(found.nbytes)} on {where}: {time_text(found.seconds)}, as the model has it; nothing ran"
