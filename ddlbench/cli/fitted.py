"""What `ddlbench fit` makes of a survey: the machine, what is slow, and how they are shown and stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ddlbench.cost.machine import Machine
from ddlbench.links import heat
from ddlbench.links.judge import FACTORS, Measured, Slow, slow_links, slow_nodes
from ddlbench.links.machine import described, fit
from ddlbench.links.survey import Survey
from ddlbench.report.markup import TextTable
from ddlbench.report.plain import plain
from ddlbench.report.units import counted

WORST, MOST_SLOW = 10, 12
"""Lines of the table of pairs, and of what is slow."""


@dataclass(frozen=True)
class Found:
    """What came of it: the machine, its pairs, and what of them is slow."""

    machine: Machine
    pairs: Sequence[Measured]
    slow: Sequence[Slow]
    left_out: int


def found(survey: Survey, name: str, made: str) -> Found:
    """Return what a survey comes to; `made` says by what and when. Raises `DdlbenchError` for too few times."""
    pairs = survey.measured()
    compared = survey.places.compared
    nodes = slow_nodes(pairs, compared)
    fits = fit(survey, nodes)
    topology = survey.places.topology
    hosts = topology.hosts[0] + f" … {topology.hosts[-1]}" * (topology.nodes > 1)
    out = f", {counted(fits.left_out, 'pair')} of slow nodes left out" * bool(fits.left_out)
    summary = f"{topology.nodes} x {topology.ranks_per_node[0]} ranks on {hosts}, {made}{out}"
    return Found(described(survey, fits, name, summary), pairs, [*nodes, *slow_links(pairs, compared)], fits.left_out)


def picture(survey: Survey, seen: Found) -> str:
    """Return the map of the pairs, SVG."""
    title = f"Links of {_where(survey)}, the darker the slower among those of its kind"
    return heat.svg(survey.places.topology, seen.pairs, seen.slow, verdict(survey, seen), title)


def told(survey: Survey, seen: Found, library: str) -> str:
    """Return what the screen shows: the figures, the worst pairs, what is slow."""
    text = f"# ddlbench fit: {_where(survey)}, {counted(len(seen.pairs), 'pair')}, {library}\n"
    text += plain(_figures(seen.machine)) + plain(_worst(survey, seen.pairs))
    return text + "".join(f"# {line}\n" for line in verdict(survey, seen))


def _where(survey: Survey) -> str:
    topology = survey.places.topology
    return f"{counted(topology.ranks, 'rank')} on {counted(topology.nodes, 'node')}"


def _figures(machine: Machine) -> TextTable:
    """Return the fitted figures with their intervals."""
    rows = []
    for name, figure in machine.figures():
        if figure.low is not None and figure.high is not None:
            scale, unit = (1e6, "us") if name.endswith(("latency", "overhead", "message", "inside")) else (1e-9, "GB/s")
            numbers = (f"{x * scale:.4g}" for x in (figure.value, figure.low, figure.high))
            rows.append((name, *numbers, unit, figure.source.removeprefix("fitted: ").partition(";")[0]))
    return TextTable(("figure", "value", "low", "high", "unit", "from"), frozenset((1, 2, 3)), rows)


def _excess(pair: Measured, pairs: Sequence[Measured]) -> float:
    """Return how far a pair is behind the median of its class, the worse of latency and bandwidth."""
    own = [other for other in pairs if other.kind == pair.kind]
    return max(pair.cost(what) - median(other.cost(what) for other in own) for what in FACTORS)


def _worst(survey: Survey, pairs: Sequence[Measured]) -> TextTable:
    worst = sorted(pairs, key=lambda pair: -_excess(pair, pairs))[:WORST]
    hosts = survey.places.topology.hosts
    rows = [
        (
            f"{pair.ranks[0]}-{pair.ranks[1]}", f"{hosts[pair.ranks[0]]}-{hosts[pair.ranks[1]]}", pair.kind,
            heat.figure(pair, "latency"), heat.figure(pair, "bandwidth"),
        )
        for pair in worst
    ]  # fmt: skip
    caption = f"the worst of {len(pairs)} pairs" if len(pairs) > len(worst) else "all pairs, the worst first"
    titles = ("ranks", "hosts", "link", "latency (us)", "GB/s")
    return TextTable(titles, frozenset((3, 4)), rows, caption)


def verdict(survey: Survey, seen: Found) -> list[str]:
    """Return a line for each slow node and link, or one that says there is none."""
    topology = survey.places.topology
    lines = [_slow_line(survey, slow) for slow in seen.slow[:MOST_SLOW]]
    if (more := len(seen.slow) - MOST_SLOW) > 0:
        lines.append(f"and {more} more slow links, all in the file of the pairs")
    if seen.left_out:
        lines.append(f"the topology rests on the other pairs; {counted(seen.left_out, 'pair')} of slow nodes left out")
    if lines:
        return lines
    if topology.nodes == 2:
        return ["of two nodes neither can be called slow: there is no third to compare with"]
    return ["no node and no link stands out as slow"]


def _slow_line(survey: Survey, slow: Slow) -> str:
    topology = survey.places.topology
    by = f"{slow.what} {slow.factor:.1f} times worse than the others' (score {slow.score:.0f})"
    if slow.pair is None:
        ranks = topology.ranks_of(slow.node or 0)
        named = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks[:8]))}{', …' * (len(ranks) > 8)}"
        return f"slow node: {topology.hosts[ranks[0]]} ({named}): {by}, with every other node"
    a, b = slow.pair.ranks
    return f"slow link: ranks {a} and {b} ({topology.hosts[a]} and {topology.hosts[b]}): {by}"
