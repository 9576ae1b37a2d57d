"""Groups of good nodes that double, 2, 4, 8 …; where one falls short, halving finds the node whose coming made it so.

Nodes that are sound alone and in pairs may spoil a crowd: a link that fails under load, a switch that is shared. The
groups grow from the best of a few pairs, each by as many nodes as it has. Of a group that falls short the added nodes
are halved until one is left: without it the group is good, with it it is not. Unless it is sound among other nodes,
which says that the spoiler was in the group before, it is set aside, and growing goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import nan

from ddlbench.accept.expect import Expectation
from ddlbench.accept.judge import Bar, Check, usual
from ddlbench.links.judge import LEAST

FEWEST_SEEDS, MOST_SEEDS = 3, 4
"""Pairs that growing begins with, where there are so many."""
MOST_SPOILERS = 8
"""After so many nodes that spoil it a group is taken to be short for a reason of its own."""
WHAT = "bus bandwidth"

MOST_TURNS = 2
"""So often growing may begin anew, because a node that seems to spoil the group is sound in other company."""

Measure = Callable[[Sequence[int]], float]


@dataclass(frozen=True)
class Growth:
    """What came of growing: the groups in the order in which they were measured, the good one, who spoils it."""

    checks: tuple[Check, ...]
    good: tuple[int, ...]
    spoilers: tuple[int, ...]
    stopped: str = ""


class Growing:
    """Grows groups of `nodes`; `measure` returns the bus bandwidth of a group, bytes a second."""

    def __init__(self, measure: Measure, expectation: Expectation, min_fraction: float, looks: int) -> None:
        self._measure, self._expectation, self._looks = measure, expectation, looks
        self._worst = 1 / min_fraction
        self._bar = Bar(WHAT, self._worst, (), nan, several=False, basis="")
        self._checks: list[Check] = []
        self._control: tuple[int, ...] = ()

    def run(self, nodes: Sequence[int]) -> Growth:
        """Return the largest good group that was found, and how."""
        if len(nodes) < 2:
            return Growth((), tuple(nodes), ())
        good = self._seed(nodes)
        if len(good) < 2:
            return Growth(tuple(self._checks), good, (), "no two nodes together are as fast as expected")
        waiting = [node for node in nodes if node not in good]
        spoilers: list[int] = []
        turns, stopped = 0, ""
        while waiting and not stopped:
            added = waiting[: len(good)]
            if self._good((*good, *added)):
                good, waiting = self._grown((*good, *added)), waiting[len(added) :]
                continue
            node = self._spoiler(good, added)
            sound = self._sound_company(node, good, waiting)
            if sound is None and len(spoilers) < MOST_SPOILERS:
                spoilers.append(node)
                waiting.remove(node)
            elif sound is not None and len(sound) >= LEAST and turns < MOST_TURNS:
                turns += 1
                good, waiting = self._grown(sound), [one for one in nodes if one not in (*sound, *spoilers)]
            else:
                stopped = "a larger one is slower than expected, and no single node is why"
        return Growth(tuple(self._checks), tuple(sorted(good)), tuple(spoilers), stopped)

    def _grown(self, group: tuple[int, ...]) -> tuple[int, ...]:
        self._control = group
        return group

    def _sound_company(self, node: int, good: tuple[int, ...], waiting: Sequence[int]) -> tuple[int, ...] | None:
        """Return a group with `node` that is sound though the `good` one is not with it; None where there is none.

        Then the spoiler is among those that were there before.
        """
        others = tuple(other for other in waiting if other != node)
        half, most = len(good) // 2, max(len(good) - 1, 2)  # no larger than what is known to be good
        own = [(*good[half:], *others), (*good[: len(good) - half], *others)]
        companies = [others[:most]] if len(others) > 1 else own
        return next((group for company in companies if self._good(group := (*company, node))), None)

    def _seed(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """Measure a few pairs, take their median for what is normal, and return the best if it is good."""
        pairs = seeds(nodes)
        figures = {pair: self._measure(pair) for pair in pairs}
        bar = Bar.of(WHAT, self._worst, [*figures.values()], "groups of 2")
        self._bar = replace(bar, several=len(pairs) > 1, middle=usual(figures.values()))
        self._control = max(pairs, key=lambda pair: figures[pair])
        for pair, figure in figures.items():
            self._judged(pair, figure)
        seed = next(check for check in self._checks if check.nodes == self._control)
        # Later groups are held against this: of a single pair there is nothing else to go by.
        self._bar = replace(self._bar, several=True)
        return self._control if not seed.failed else ()

    def _good(self, group: tuple[int, ...]) -> bool:
        return not self._judged(group, self._measure(group)).failed

    def _judged(self, group: tuple[int, ...], figure: float) -> Check:
        """Judge a group, after measuring one that falls short again, in turns with one that is good."""
        expected = self._expectation.of(WHAT, group)
        check = self._bar.check("group", group, figure, expected)
        for _ in range(self._looks - 1):
            if not check.failed:
                break
            if self._control != group:
                self._measure(self._control)
            figure = max(figure, self._measure(group))
            check = self._bar.check("group", group, figure, expected)
        self._checks.append(check)
        return check

    def _spoiler(self, good: tuple[int, ...], added: Sequence[int]) -> int:
        """Return the first of `added` that makes the `good` group fall short, by halving."""
        low, high = 0, len(added)  # with the first `low` it is good, with the first `high` it is not
        while high - low > 1:
            middle = (low + high) // 2
            if self._good((*good, *added[:middle])):
                low = middle
            else:
                high = middle
        return added[high - 1]


def seeds(nodes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return a few pairs to begin with: neighbours, and where those are fewer than three, others among the first."""
    places = [(at, at + 1) for at in range(0, len(nodes) - 1, 2)]
    if len(places) < FEWEST_SEEDS:
        places += [(a, b) for a, b in ((0, 2), (1, 2)) if b < len(nodes)]
    return [(nodes[a], nodes[b]) for a, b in places[:MOST_SEEDS]]
