"""From measured runs to a table: the contest of the algorithms at each size, and as few ranges as pay.

At each size an algorithm costs the logarithm of its median over the best one's. It costs nothing where the 95 %
intervals of both overlap, for then neither is known to be faster. The ranges are those of least cost in sum, where each
change of algorithm costs as much as being slower by `WORTH` once: so a neighbour's winner is kept as long as it cannot
be told from the best, and where it is worse by too little. What is still equal goes to the lower median, then by name.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench import __version__
from ddlbench.errors import UsageError
from ddlbench.records import Loaded, Point, Run
from ddlbench.statistics import Summary, summarise
from ddlbench.tuning.table import Machine, Range, Rule, Source, Table, counted

WORTH = 1.05
"""A change of algorithm must save 5 % at one size, or the same in all."""
UNTOLD = 1e-6
"""What of a difference counts where the intervals overlap: enough to prefer the lower median, if nothing else does."""
VENDOR = "vendor"
"""The transport of a vendor's allreduce."""
LISTED = 5

WhyNot = Callable[[str, str], str]
"""From an algorithm's name and a grid to why nobody could use it later, "" where nothing is in the way."""


@dataclass(frozen=True)
class Tuned:
    """A table, and what was left out of it or is to be minded, in words."""

    table: Table
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Contest:
    """What was measured of one size: the summary of each algorithm's samples."""

    nbytes: int
    found: Mapping[str, Summary]

    @property
    def best(self) -> str:
        """The algorithm with the lowest median; of equals the first by name."""
        return min(sorted(self.found), key=lambda name: self.found[name].median_us)

    def alike(self) -> set[str]:
        """Return the algorithms that cannot be told from the best: their intervals overlap its own."""
        best = self.found[self.best]
        return {name for name, one in self.found.items() if _overlap(one, best)}

    def cost(self, name: str) -> float:
        """Return what using `name` here costs, infinite where it gave no right result."""
        if name not in self.found:
            return math.inf
        behind = math.log(self.found[name].median_us / self.found[self.best].median_us)
        return behind * UNTOLD if name in self.alike() else behind


def _overlap(one: Summary, other: Summary) -> bool:
    return one.ci_low_us <= other.ci_high_us and other.ci_low_us <= one.ci_high_us


def tune(runs: Mapping[str, Loaded], why_not: WhyNot, created: datetime | None = None) -> Tuned:
    """Return the table that the measured points of `runs`, by the names of their directories, give.

    Raises `UsageError` naming the run when it has nothing to give, when runs are of different machines, and when two
    of them measured the same: times of two runs are not compared.
    """
    machine = _machine(runs)
    rules: dict[tuple[Any, ...], Rule] = {}
    notes: list[str] = []
    for number, (directory, loaded) in enumerate(runs.items()):
        found, told = _rules(directory, loaded, number, why_not)
        notes += [f"{directory}: {note}" for note in (*_doubts(loaded), *told)]
        for rule in found:
            _check_new(rules, rule, list(runs))
            rules[_key(rule)] = rule
    made = (created or datetime.now(UTC)).isoformat(timespec="seconds")
    sources = tuple(_source(directory, loaded) for directory, loaded in runs.items())
    table = Table(ddlbench=__version__, created=made, **vars(machine), runs=sources, rules=tuple(rules.values()))
    return Tuned(table, tuple(notes))


def _key(rule: Rule) -> tuple[Any, ...]:
    return rule.shape, rule.what


def _check_new(there: Mapping[tuple[Any, ...], Rule], rule: Rule, directories: Sequence[str]) -> None:
    other = there.get(_key(rule))
    if other is not None:
        raise UsageError(
            f"{directories[other.run]} and {directories[rule.run]} both measured {rule.shape}, {rule.what}: times of "
            "two runs are not compared; tune with one of them"
        )


def _machine(runs: Mapping[str, Loaded]) -> Machine:
    """Return the machine of all runs; raises `UsageError` naming two that are of different ones."""
    (first, machine), *others = ((directory, _machine_of(loaded.run)) for directory, loaded in runs.items())
    for directory, other in others:
        if other != machine:
            raise UsageError(f"{first} was measured on {machine}, {directory} on {other}: tune each by itself")
    return machine


def _machine_of(run: Run) -> Machine:
    return Machine(processor=str(run.environment.get("processor", "")), mpi=str(run.mpi.get("library", "")))


def _source(directory: str, loaded: Loaded) -> Source:
    run = loaded.run
    return Source(
        directory=directory,
        created=run.created,
        ddlbench=run.ddlbench,
        mpi_version=str(run.mpi.get("version", "")),
        hosts=tuple(dict.fromkeys(map(str, _listed(run.topology.get("hosts"))))),
        finished=run.finished,
        cache="/".join(sorted({point.cache for point in loaded.points})),
        trust=run.trust,
    )


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _doubts(loaded: Loaded) -> Iterator[str]:
    """Yield what speaks against the figures of a run."""
    yield from loaded.problems
    if not loaded.run.finished:
        yield "the run did not finish"
    for flag in loaded.run.trust:
        yield f"to mind: {flag.flag}: {flag.detail}"


def _rules(directory: str, loaded: Loaded, number: int, why_not: WhyNot) -> tuple[list[Rule], list[str]]:
    """Return the rules of one run and what was left out; raises `UsageError` when there is none."""
    points = _measured(directory, loaded)
    grid = loaded.run.config.get("grid")
    blank = [_blank(point, number, str(grid or ""), virtual=_virtual(loaded.run)) for point in points]
    kept, notes = _usable(list(zip(blank, points, strict=True)), why_not)
    rules = []
    for rule, own in _groups(kept).items():
        contests, told = _contests(own)
        names = {name for contest in contests for name in contest.found}
        notes += [f"{rule.shape}, {rule.what}: {note}" for note in told]
        if len(names) > 1:
            rules.append(replace(rule, ranges=tuple(ranges(contests))))
        else:
            alone = f"only {next(iter(names))} was measured" if names else "no algorithm is left"
            notes.append(f"{rule.shape}, {rule.what}: left out: {alone}, there is nothing to choose from")
    if not rules:
        raise UsageError(f"{directory} gives no rule: {_shortened(notes)}; measure two algorithms or more")
    return rules, notes


def _shortened(notes: Sequence[str]) -> str:
    more = f"; and {len(notes) - LISTED} more" if len(notes) > LISTED else ""
    return "; ".join(notes[:LISTED]) + more


def _measured(directory: str, loaded: Loaded) -> list[Point]:
    """Return the points that were measured; raises `UsageError` when none of them is right."""
    kinds = Counter(point.kind for point in loaded.points)
    found = [point for point in loaded.points if point.kind == "measured"]
    if not found:
        held = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "no points at all"
        raise UsageError(f"{directory} holds no measured point: it has {held}; a table takes samples of ddlbench sweep")
    if not any(point.status == "ok" for point in found):
        raise UsageError(f"{directory}: none of its {len(found)} measured points gave a right result")
    return found


def _virtual(run: Run) -> bool:
    """Say whether nodes of the run shared a machine."""
    nodes, machines = (set(_listed(run.topology.get(name))) for name in ("node_of", "machine_of"))
    return 0 < len(machines) < len(nodes)


def _blank(point: Point, number: int, grid: str, *, virtual: bool) -> Rule:
    """Return the rule that a point belongs to, without its ranges and, for a vendor's, with the vendor's transport."""
    several = point.nodes > 1 and point.ranks_per_node
    usual = f"{point.ranks_per_node}x{point.nodes}" if several else str(point.ranks)
    return Rule(
        nodes=point.nodes,
        ranks_per_node=point.ranks_per_node,
        ranks=point.ranks,
        grid=grid or usual,
        virtual=virtual and point.nodes > 1,
        device=point.device,
        transport=point.transport,
        dtype=point.dtype,
        op=point.op,
        in_place=point.in_place,
        run=number,
        ranges=(),
    )


Placed = list[tuple[Rule, Point]]


def _usable(placed: Placed, why_not: WhyNot) -> tuple[Placed, list[str]]:
    """Return the points that a table can rest on, and what was left out."""
    wrong = {point.algorithm for _, point in placed if point.status == "wrong"}
    tried = dict.fromkeys((point.algorithm, rule.grid) for rule, point in placed)
    reasons = {pair: "it gave wrong results" if pair[0] in wrong else why_not(*pair) for pair in tried}
    notes = dict.fromkeys(f"left out: {name}: {reason}" for (name, _), reason in reasons.items() if reason)
    right = [(rule, point) for rule, point in placed if point.status == "ok"]
    return [(rule, point) for rule, point in right if not reasons[point.algorithm, rule.grid]], list(notes)


def _groups(placed: Placed) -> dict[Rule, list[Point]]:
    """Return the points of each rule; those of a vendor take part in the rules of every transport."""
    found: dict[Rule, list[Point]] = {rule: [] for rule, _ in placed if rule.transport != VENDOR}
    for rule, point in placed:
        for other, points in found.items():
            if rule in (other, replace(other, transport=VENDOR)):
                points.append(point)
    return found


def _contests(points: Iterable[Point]) -> tuple[list[Contest], list[str]]:
    """Return the contest of each size, ascending, and what was left out of them."""
    sizes: dict[int, list[Point]] = {}
    for point in points:
        sizes.setdefault(point.nbytes, []).append(point)
    pairs = [_contest(nbytes, sizes[nbytes]) for nbytes in sorted(sizes)]
    few, apart = (sum(counts[at] for _, counts in pairs) for at in (0, 1))
    notes = [f"left out: {counted(few, 'point')} with too few samples for an interval"] if few else []
    notes += (
        [f"left out: {counted(apart, 'point')} whose ranks started in another way than the others"] if apart else []
    )
    return [contest for contest, _ in pairs if contest.found], notes


def _contest(nbytes: int, points: Sequence[Point]) -> tuple[Contest, tuple[int, int]]:
    """Return the contest of one size, and how many points were left out: for few samples, and for their start.

    Times from a barrier and from a window are not comparable: those that fewer points have are left out.
    """
    known = [(point, summarise(point.samples_ns, point.passes)) for point in points]
    known = [(point, summary) for point, summary in known if not math.isnan(summary.ci_low_us)]
    starts = Counter(point.sync for point, _ in known)
    usual = max(sorted(starts), key=starts.__getitem__, default="")
    found = {point.algorithm: summary for point, summary in known if point.sync == usual and summary.median_us > 0}
    return Contest(nbytes, found), (len(points) - len(known), len(known) - starts[usual])


def ranges(contests: Sequence[Contest]) -> Iterator[Range]:
    """Yield the ranges of least cost for contests of ascending sizes, as the head of this file says."""
    path = _cheapest(contests)
    starts = [at for at, name in enumerate(path) if at == 0 or name != path[at - 1]]
    for start, end in zip(starts, [*starts[1:], len(path)], strict=True):
        own = contests[start:end]
        clear = tuple(one.nbytes for one in own if one.best == path[start] and len(one.alike()) == 1)
        begin = _between(contests[start - 1].nbytes, contests[start].nbytes) if start else 0
        yield Range(from_nbytes=begin, algorithm=path[start], measured=tuple(one.nbytes for one in own), clear=clear)


def _between(below: int, above: int) -> int:
    """Return the first size that is nearer to `above` than to `below`, on a scale of factors."""
    return max(below + 1, math.isqrt(below * above - 1) + 1) if below else 1


def _cheapest(contests: Sequence[Contest]) -> list[str]:
    """Return the algorithm for each contest on the path of least cost (Viterbi)."""
    names = sorted({name for contest in contests for name in contest.found})
    cost = np.array([[contest.cost(name) for name in names] for contest in contests])
    total, came = cost[0], np.zeros(cost.shape, np.int64)
    for row in range(1, len(cost)):
        total, came[row] = _step(total)
        total = total + cost[row]
    at = int(np.argmin(total))
    path = [at]
    for row in range(len(cost) - 1, 0, -1):
        at = int(came[row, at])
        path.append(at)
    return [names[column] for column in reversed(path)]


def _step(total: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the least cost of coming to each column, and from which: from itself, or changed from the cheapest."""
    cheapest = int(np.argmin(total))
    changed = total[cheapest] + math.log(WORTH)
    stays = total <= changed
    return np.where(stays, total, changed), np.where(stays, np.arange(len(total)), cheapest)
