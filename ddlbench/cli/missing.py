"""What a run that was not finished lacks, from its record alone."""

from collections.abc import Iterator
from pathlib import Path

from ddlbench.algorithms import resolve
from ddlbench.bench.config import SweepConfig
from ddlbench.bench.shapes import shape_text, shapes
from ddlbench.bench.sweep import Key, Layout, groups, key_of, key_of_point
from ddlbench.cli.resuming import config_of
from ddlbench.errors import UsageError
from ddlbench.launch.verdict import points_kept
from ddlbench.records import load
from ddlbench.topology import Topology


def missing(directory: Path) -> str:
    """Return how many points of the run in `directory` are there, how many belong there, and which is missing first.

    Where the record does not say exactly what was to be measured, it is only what is there.
    """
    loaded = load(directory)
    there = {key_of_point(point) for point in loaded.points if point.status != "failed"}
    try:
        wanted = dict.fromkeys(_wanted(config_of(directory), Topology.from_json({**loaded.run.topology})))
    except (UsageError, KeyError):
        return points_kept(directory)
    lacking = [key for key in wanted if key not in there]
    first = f", the first that is missing is {_named(lacking[0])}" if lacking else ""
    return f"{len(wanted) - len(lacking)} of {len(wanted)} points are kept in {directory}{first}"


def _wanted(config: SweepConfig, topology: Topology) -> Iterator[Key]:
    """Yield what tells the points of a sweep over `topology` apart, in the order of its table."""
    for shape in shapes(topology, config.nodes, config.ranks_per_node):
        layout = Layout(shape.ranks, shape.nodes, shape.ranks_per_node, neighbours=0)
        grid = config.grid or shape.topology.grid()
        algorithms = tuple(resolve(text, grid) for text in config.algorithms)
        for group in groups(config, algorithms, layout):
            yield from (key_of(group, algorithm) for algorithm in group.algorithms)


def _named(key: Key) -> str:
    algorithm, count, dtype, op, in_place, nodes, each, ranks = key
    vector = f"{count} x {dtype}, {op}{', in place' if in_place else ''}"
    return f"{algorithm} ({vector}) on {shape_text(nodes, each, ranks)}"
