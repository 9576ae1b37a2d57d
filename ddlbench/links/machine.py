"""A survey as a topology: each figure fitted, with its interval and what it rests on."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from ddlbench.cost.machine import Figure, Link, Machine, Nic, Rack, Rank, Shape
from ddlbench.errors import UsageError
from ddlbench.links.fit import Estimate, Line, fitted
from ddlbench.links.judge import Slow
from ddlbench.links.survey import Survey
from ddlbench.links.timing import Curve

HALF = 0.499
"""Of a latency both sides' overheads are a part: a little less than a half is left for each, whatever is rounded."""
METHOD = "95 % interval by bootstrap"


@dataclass(frozen=True)
class Fits:
    """The lines of a survey by the class of link; `left_out` are the pairs of slow nodes, which no line rests on."""

    pings: Mapping[str, Line]
    pairs: Mapping[str, int]
    both: Mapping[str, Line]
    bursts: Mapping[str, Line]
    shared: Mapping[str, Line]
    shared_both: Mapping[str, Line]
    reduction: Line
    left_out: int


def check_shape(ranks_per_node: Collection[int]) -> None:
    """Refuse nodes with different numbers of ranks, and one rank alone; raises `UsageError`."""
    if sum(ranks_per_node) < 2:
        raise UsageError("one rank has no links: start it with several, as in mpirun -n 4 ddlbench fit")
    if len(set(ranks_per_node)) > 1:
        counts = ", ".join(map(str, ranks_per_node))
        raise UsageError(f"a topology has as many ranks on each node, here they have {counts}: start it with as many")


def fit(survey: Survey, slow: Collection[Slow]) -> Fits:
    """Return the lines of `survey` without the pairs of slow nodes; raises `DdlbenchError` for too few times."""
    kept = _kept(survey, {found.node for found in slow})
    fits = {
        name: {kind: fitted([curve], shaped=_shaped(kind)) for kind, curve in getattr(survey, name).items()}
        for name in ("both", "shared", "shared_both")
    }
    return Fits(
        pings={kind: fitted(curves, shaped=_shaped(kind)) for kind, curves in kept.items()},
        pairs={kind: len(curves) for kind, curves in kept.items()},
        bursts={kind: fitted([curve]) for kind, curve in survey.bursts.items()},
        reduction=fitted(survey.reductions),
        left_out=len(survey.pings) - sum(map(len, kept.values())),
        **fits,
    )


def _kept(survey: Survey, slow: Collection[int | None]) -> dict[str, list[Curve]]:
    """Return the curves of each class without those of slow nodes; where a class has no others, all of them."""
    node_of = survey.places.topology.node_of
    whole: dict[str, list[Curve]] = {}
    sound: dict[str, list[Curve]] = {}
    for pair, curve in survey.pings.items():
        kind = survey.places.class_of(pair)
        whole.setdefault(kind, []).append(curve)
        if not {node_of[rank] for rank in pair} & {*slow}:
            sound.setdefault(kind, []).append(curve)
    return whole | sound


def _shaped(kind: str) -> bool:
    return kind in ("nic", "rack")


def described(survey: Survey, fits: Fits, name: str, summary: str) -> Machine:
    """Return the machine that the lines describe."""
    return Machine(
        name=name,
        summary=summary,
        shape=_shape(survey),
        rank=_rank(survey, fits),
        island=_inside(fits, "island") if "island" in fits.pings else None,
        node=_inside(fits, "node") if "node" in fits.pings else None,
        nic=_nic(fits) if "nic" in fits.pings else None,
        rack=_rack(fits) if "rack" in fits.pings else None,
    )


def _shape(survey: Survey) -> Shape:
    topology, launched = survey.places.topology, "as launched"
    islands, rack = survey.places.islands, survey.places.rack
    return Shape(
        nodes=Figure(topology.nodes, launched),
        ranks_per_node=Figure(topology.ranks_per_node[0], launched),
        islands_per_node=Figure(islands, "ranks that share a last-level cache") if islands > 1 else None,
        nodes_per_rack=Figure(rack, "as given by --nodes-per-rack") if rack else None,
    )


def _rank(survey: Survey, fits: Fits) -> Rank:
    rate = fits.reduction.slope.inverse()
    source = f"fitted: float32 sum, all {survey.places.topology.ranks} ranks at once, 4 KiB to 1 MiB; {METHOD}"
    return Rank(reduction=_figure(rate, source), message_overhead=_overhead(fits))


def _overhead(fits: Fits) -> Figure:
    """Return what a message costs a rank: the least of all classes, and less than half of any latency."""
    kind = min(fits.bursts, key=lambda kind: fits.bursts[kind].slope.value)
    found, most = fits.bursts[kind].slope, HALF * min(line.start.value for line in fits.pings.values())
    capped = "" if found.value <= most else ", held to half of the least latency"
    source = f"fitted: up to 16 messages of 8 B at once to one rank ({kind}){capped}; {METHOD}"
    return _figure(Estimate(*(min(x, most) for x in (found.value, found.low, found.high))), source)


def _inside(fits: Fits, kind: str) -> Link:
    shared = fits.shared_both.get(kind)
    return Link(
        latency=_latency(fits, kind),
        bandwidth=_bandwidth(fits, kind),
        both_ways=_rate(fits.both[kind], "one pair, both ways at once") if kind in fits.both else None,
        shared=_rate(shared, "all its pairs at once, both ways") if shared else None,
    )


def _nic(fits: Fits) -> Nic:
    """Return a node's cards as one: what all its ranks get through it, and what one does where that is less."""
    alone, together = _bandwidth(fits, "nic"), fits.shared.get("nic")
    whole = _rate(together, "all ranks of two nodes at once, one way") if together else alone
    held = _less(alone, whole)  # one rank cannot fill the cards; where it can, its many pairs say more than one crowd
    both = fits.shared_both.get("nic") or fits.both["nic"]
    return Nic(
        latency=_latency(fits, "nic"),
        bandwidth=whole if held else alone,
        count=Figure(1, "all cards of a node as one"),
        both_ways=_rate(both, "both ways at once"),
        per_rank=alone if held else None,
    )


def _less(a: Figure, b: Figure) -> bool:
    """Say whether `a` is less than `b` beyond both intervals."""
    return (a.value if a.high is None else a.high) < (b.value if b.low is None else b.low)


def _rack(fits: Fits) -> Rack:
    together = fits.shared.get("rack")
    uplink = _rate(together, "all facing ranks of two racks at once, one way") if together else None
    return Rack(latency=_latency(fits, "rack"), uplink=uplink or _bandwidth(fits, "rack"))


def _latency(fits: Fits, kind: str) -> Figure:
    return _figure(fits.pings[kind].start, f"fitted: half a ping-pong at 0 B, {_basis(fits, kind)}")


def _bandwidth(fits: Fits, kind: str) -> Figure:
    line = fits.pings[kind]
    burst = f"; a burst of {line.burst:.0f} B passes faster" if line.burst else ""
    return _figure(line.slope.inverse(), f"fitted: ping-pong, {_basis(fits, kind)}{burst}")


def _basis(fits: Fits, kind: str) -> str:
    line, pairs = fits.pings[kind], fits.pairs[kind]
    return f"{pairs} pair{'s' * (pairs > 1)}, {line.amounts} sizes, {line.samples} samples; {METHOD}"


def _rate(line: Line, what: str) -> Figure:
    return _figure(line.slope.inverse(), f"fitted: {what}, {line.amounts} sizes, {line.samples} samples; {METHOD}")


def _figure(found: Estimate, source: str) -> Figure:
    rounded = replace(found, **{side: float(f"{getattr(found, side):.6g}") for side in ("value", "low", "high")})
    return Figure(rounded.value, source, rounded.low, rounded.high)
