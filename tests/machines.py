"""Made-up machines for tests of predictions: round figures, so that times can be worked out by hand."""

from dataclasses import replace

from ddlbench.algorithms import resolve
from ddlbench.cost.machine import Figure, Link, Machine, Nic, Rack, Rank, Shape
from ddlbench.cost.network import Placement
from ddlbench.cost.rounds import prepare
from ddlbench.cost.simulate import seconds
from ddlbench.schedule import Grid

LATENCY, RATE, ADDING = 10e-6, 1e9, 4e9
"""What every link and rank of `machine` has where nothing else is said."""


def figure(value: float | None) -> Figure | None:
    return None if value is None else Figure(value, "a test")


def machine(nodes=1, each=1, *, islands=1, rack=0, overhead=None, eager=None, adding=ADDING, **links) -> Machine:
    """A machine of `nodes` nodes of `each` ranks; `links` changes figures, such as nic_bandwidth=2e9."""
    found = Machine(
        name="made-up",
        summary="for tests",
        shape=Shape(
            nodes=figure(nodes),
            ranks_per_node=figure(each),
            islands_per_node=figure(islands) if islands > 1 else None,
            nodes_per_rack=figure(rack) if rack else None,
        ),
        rank=Rank(reduction=figure(adding), message_overhead=figure(overhead), eager=figure(eager)),
        island=Link(latency=figure(LATENCY), bandwidth=figure(RATE)) if islands > 1 else None,
        node=Link(latency=figure(LATENCY), bandwidth=figure(RATE)) if each > 1 else None,
        nic=Nic(latency=figure(LATENCY), bandwidth=figure(RATE), count=figure(1)) if nodes > 1 else None,
        rack=Rack(latency=figure(LATENCY), uplink=figure(RATE)) if rack else None,
    )
    for name, value in links.items():
        section, _, key = name.partition("_")
        found = replace(found, **{section: replace(getattr(found, section), **{key: figure(value)})})
    return found


def price(text, on: Machine, nbytes, *, nodes=None, each=None, grid=None, segments=1, fold=True) -> float:
    """The seconds that the algorithm `text` takes on all of the machine, or on some of it, on a `grid` such as 1x8."""
    placement = Placement.on(on, nodes or on.nodes, each or on.ranks_per_node)
    bound = resolve(text, placement.grid if grid is None else Grid.parse(grid))
    return seconds(prepare(bound, placement, fold=fold), on, nbytes, segments=segments)
