"""A survey as a topology: each figure fitted, with its interval and what it rests on."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from ddlbench.cost.machine import Figure, Link, Machine, Nic, Processors, Rack, Rank, Shape
from ddlbench.errors import UsageError
from ddlbench.links.crowd import Crowd
from ddlbench.links.fit import LEAST_AMOUNTS, Estimate, Line, fitted, typical
from ddlbench.links.judge import Slow
from ddlbench.links.survey import Survey
from ddlbench.links.timing import Curve

HALF = 0.499
"""Of a latency both sides' overheads are a part: a little less than a half is left for each, whatever is rounded."""
METHOD = "95 % interval by bootstrap"
STRETCH = 1.2
"""Messages are large for a shared machine when they take so many times what the card needs for their bytes."""


@dataclass(frozen=True)
class Fits:
    """The lines of a survey by the class of link; `left_out` are the pairs of slow nodes, which no line rests on.

    `awake` are the lines of small messages while every rank is awake, by class; none where nodes share no processors.
    """

    pings: Mapping[str, Line]
    pairs: Mapping[str, int]
    both: Mapping[str, Line]
    bursts: Mapping[str, Line]
    shared: Mapping[str, Line]
    shared_both: Mapping[str, Line]
    reduction: Line
    left_out: int
    awake: Mapping[str, Line] = field(default_factory=dict)


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
        awake=_awake(survey.crowd),
        **fits,
    )


def _awake(crowd: Crowd | None) -> dict[str, Line]:
    """Return the lines of small messages with every rank awake, as far as enough of them are under way at once.

    Of their medians: what holds such a message up is the other ranks, and they are always there.
    """
    curves = {} if crowd is None else {"nic": crowd.between, "node": crowd.inside}
    return {
        kind: fitted([curve], quantile=0.5)
        for kind, curve in curves.items()
        if curve is not None and len(set(curve.x)) >= LEAST_AMOUNTS
    }


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
        processors=_processors(survey.crowd, fits) if "nic" in fits.awake else None,
    )


def _processors(crowd: Crowd | None, fits: Fits) -> Processors | None:
    """Return what messages cost the processors that all nodes share, and what large ones get of their cards."""
    if crowd is None:
        return None
    busy = {kind: _figure(line.slope, _at_once(line)) for kind, line in fits.awake.items()}
    rate = 1 / fits.pings["nic"].slope.value
    return Processors(
        count=Figure(crowd.processors, "what all ranks may use together"),
        message=busy["nic"],
        inside=busy.get("node"),
        **large_from(crowd.around, crowd.exchange, rate, _latency_of_all(crowd, fits.awake["nic"])),
    )


def _latency_of_all(crowd: Crowd, line: Line) -> float:
    """Return what small messages take when all that were tried are under way at once."""
    return line.start.value + line.slope.value * max(crowd.between.x)


def _at_once(line: Line) -> str:
    return f"fitted: 8 B from more and more ranks at once, all awake, {line.samples} samples; {METHOD}"


def large_from(around: Curve, exchange: Curve, rate: float, latency: float) -> dict[str, Figure]:
    """Return from what size on messages take longer than `rate` says, with all nodes at work, and what they get then.

    Of each time the `latency` is no part of what their bytes take.

    Bytes a second of a node: one way, when all send around; both ways together, when they exchange in pairs. The
    intervals are the sizes' range. Nothing where even the largest size is as fast as it should be.
    """
    sent, exchanged = _stretches(around, rate, latency), _stretches(exchange, rate, latency)
    both = [x for x in exchanged if x in sent]
    fine = [x for x in both if max(sent[x], exchanged[x]) <= STRETCH]
    large = [x for x in both if x > max(fine, default=0.0)]
    if not large:
        return {}
    return {
        "large": Figure(large[0], f"fitted: from here on, {STRETCH} times what the card needs for the bytes or more"),
        "one_way": _figure(_gets([sent[x] for x in large], rate), "fitted: each node sends to the next, from there on"),
        "both_ways": _figure(_gets([exchanged[x] for x in large], 2 * rate), "fitted: nodes exchange, from there on"),
    }


def _gets(stretches: Sequence[float], rate: float) -> Estimate:
    """Return what is left of a rate, the median over sizes with their range."""
    found = [rate / max(1.0, stretch) for stretch in stretches]
    return Estimate(median(found), min(found), max(found))


def _stretches(curve: Curve, rate: float, latency: float) -> dict[float, float]:
    """Return how many times what its bytes need each size takes."""
    pairs = zip(curve.x, curve.samples, strict=True)
    return {x: max(typical(times) - latency, 0.0) * rate / x for x, times in pairs}


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
    lines = [*fits.pings.values(), *fits.awake.values()]
    found, most = fits.bursts[kind].slope, HALF * min(line.start.value for line in lines)
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
    whole_both = _both_ways(whole if held else alone) if fits.awake else _rate(both, "both ways at once")
    return Nic(
        latency=_latency(fits, "nic"),
        bandwidth=whole if held else alone,
        count=Figure(1, "all cards of a node as one"),
        both_ways=whole_both,
        per_rank=alone if held else None,
        burst=_burst(fits.pings["nic"]),
        peak=_peak(fits.pings["nic"]),
    )


def _both_ways(bandwidth: Figure) -> Figure:
    """Return what a card carries both ways, where nodes share a machine: each way its bandwidth.

    What two nodes get of it there is what the processors let through, and that is measured with all nodes at work.
    """
    whole = Figure(2 * bandwidth.value, "twice the bandwidth; what the shared processors let through is theirs to say")
    return whole if bandwidth.low is None else replace(whole, low=2 * bandwidth.low, high=2 * (bandwidth.high or 0.0))


def _burst(line: Line) -> Figure | None:
    return Figure(float(f"{line.burst:.6g}"), "fitted: where the ping-pong's line bends") if line.burst else None


def _peak(line: Line) -> Figure | None:
    return Figure(float(f"{line.peak:.6g}"), "fitted: the ping-pong's line before it bends") if line.burst else None


def _less(a: Figure, b: Figure) -> bool:
    """Say whether `a` is less than `b` beyond both intervals."""
    return (a.value if a.high is None else a.high) < (b.value if b.low is None else b.low)


def _rack(fits: Fits) -> Rack:
    together = fits.shared.get("rack")
    uplink = _rate(together, "all facing ranks of two racks at once, one way") if together else None
    return Rack(latency=_latency(fits, "rack"), uplink=uplink or _bandwidth(fits, "rack"))


def _latency(fits: Fits, kind: str) -> Figure:
    if kind in fits.awake:
        awake = fits.awake[kind]
        return _figure(awake.start, f"fitted: 8 B, every rank awake, {awake.samples} samples; {METHOD}")
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
