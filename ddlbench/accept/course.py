"""An acceptance in order: nodes alone, pairs, all for a while, growing groups; suspects are measured again first.

Every rank goes through it alike: each figure is known to all, and what follows from it is the same arithmetic.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ddlbench.accept.examine import Examiner, Vigil
from ddlbench.accept.expect import Expectation
from ddlbench.accept.growing import Growing
from ddlbench.accept.judge import (
    Check,
    Readings,
    alone_checks,
    bad_links,
    bad_nodes,
    late_checks,
    meeting_checks,
    pair_checks,
    stall_checks,
    without_links,
)
from ddlbench.accept.rules import Rules
from ddlbench.links.pairs import Pair

Look = Callable[[Collection[int], Collection[Pair], str], None]
"""Measures suspect nodes and pairs again; the text says which look it is."""
SUSPECT_WINDOWS = 2
"""So many times the windows are for suspects: where others use the processors too, few windows are undisturbed."""
CONTROLS = 2
"""So many good nodes are measured again beside suspects, and so many pairs of each suspect with good nodes."""


@dataclass(frozen=True)
class Outcome:
    """What came of an acceptance.

    checks
        every figure and what came of it
    bad
        the nodes that failed, by the checks that say why
    links
        pairs that failed although both nodes are good
    spoilers
        nodes that are sound alone and in pairs, and make a group fall short
    left_out
        good nodes that are not in the group because of a bad link
    good
        the largest good group
    stopped
        why the group could not grow further, "" where it could
    vigil
        the last while in which all nodes were watched, None of a launch without
    """

    checks: tuple[Check, ...]
    bad: dict[int, tuple[Check, ...]]
    links: tuple[Pair, ...]
    spoilers: tuple[int, ...]
    left_out: tuple[int, ...]
    good: tuple[int, ...]
    stopped: str
    vigil: Vigil | None

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not any(check.failed for check in self.checks)


class Course:
    """The course of an acceptance over the nodes of `examiner` (collective over all ranks)."""

    def __init__(self, examiner: Examiner, expectation: Expectation, rules: Rules) -> None:
        self._examiner, self._expectation, self._rules = examiner, expectation, rules
        self._nodes = range(examiner.topology.nodes)
        self._readings = Readings()
        self._bad: set[int] = set()
        self._vigil: Vigil | None = None

    def run(self) -> Outcome:
        """Go through all of it and return what came of it."""
        self._alone()
        self._pairs()
        self._watched()
        checks = self._checks()
        bad = bad_nodes(checks)
        links = bad_links(checks, bad)
        nodes, left = without_links([node for node in self._nodes if node not in bad], links)
        rules = self._rules
        growth = Growing(self._examiner.group, self._expectation, rules.group.min_fraction, rules.looks).run(nodes)
        reasons = {node: tuple(why) for node, why in bad.items()}
        return Outcome(
            (*checks, *growth.checks), reasons, tuple(links), growth.spoilers, tuple(left), growth.good, growth.stopped,
            self._vigil,
        )  # fmt: skip

    def _checks(self) -> list[Check]:
        """Return all figures of nodes and pairs, judged."""
        of = (self._readings, self._expectation, self._rules)
        compared = self._examiner.compared
        nodes = [
            *alone_checks(*of), *meeting_checks(*of, compared), *late_checks(self._readings, self._rules),
        ]  # fmt: skip
        stalls = stall_checks(self._readings, self._rules)
        return [*nodes, *stalls, *pair_checks(*of, compared, bad_nodes([*nodes, *stalls]))]

    def _again(self, judged: Callable[[], Sequence[Check]], look: Look) -> None:
        """Look again at suspects until each was measured as often as the rules say, or is none any more.

        Those that are left are bad.
        """
        counts: Counter[object] = Counter()
        while True:
            checks = judged()
            nodes = set(bad_nodes(checks)) - self._bad
            links = bad_links(checks, {*nodes, *self._bad})
            nodes = {node for node in nodes if counts[node] < self._rules.looks - 1}
            links = [pair for pair in links if counts[pair] < self._rules.looks - 1]
            if not nodes and not links:
                break
            counts.update([*nodes, *links])
            look(nodes, links, f" (suspects, look {1 + max(counts.values())})")
        self._bad |= set(bad_nodes(checks))

    def _alone(self) -> None:
        self._readings = self._readings.with_alone(self._examiner.alone(self._nodes))

        def look(nodes: Collection[int], _: Collection[Pair], text: str) -> None:
            good = [node for node in self._nodes if node not in nodes and node not in self._bad]
            chosen = sorted({*good[:CONTROLS], *nodes})
            self._readings = self._readings.with_alone(self._examiner.alone(chosen, text, SUSPECT_WINDOWS))

        self._again(lambda: alone_checks(self._readings, self._expectation, self._rules), look)

    def _pairs(self) -> None:
        pairs = self._examiner.partners(self._rules.pair.partners)
        if not pairs:
            return
        self._readings = self._readings.with_pairs(self._examiner.pairs(pairs))

        def look(nodes: Collection[int], links: Collection[Pair], text: str) -> None:
            chosen = again(nodes, links, pairs, self._bad)
            self._readings = self._readings.with_pairs(self._examiner.pairs(chosen, text))

        def judged() -> list[Check]:
            of = (self._readings, self._expectation, self._rules, self._examiner.compared)
            nodes = meeting_checks(*of)
            return [*nodes, *pair_checks(*of, {*bad_nodes(nodes), *self._bad})]

        self._again(judged, look)

    def _watched(self) -> None:
        def look(_: Collection[int], __: Collection[Pair], text: str) -> None:
            self._vigil = self._examiner.vigil(text)
            self._readings = self._readings.with_vigil(self._vigil)

        look((), (), "")
        of = self._rules
        self._again(lambda: [*late_checks(self._readings, of), *stall_checks(self._readings, of)], look)


def again(
    nodes: Collection[int], links: Collection[Pair], pairs: Sequence[Pair], bad: Collection[int]
) -> list[Pair]:  # fmt: skip
    """Return which of `pairs` to measure again: of suspect nodes with good ones, suspected links, and of good nodes.

    `bad` are nodes that are bad by now.
    """
    doubtful = {*nodes, *bad, *(node for pair in links for node in pair)}
    chosen = [*links]
    for node in sorted(nodes):
        own = [pair for pair in pairs if node in pair]
        good = [pair for pair in own if not ({*pair} - {node}) & doubtful]
        chosen += (good or own)[:CONTROLS]
    return [*dict.fromkeys([*chosen, *[pair for pair in pairs if not {*pair} & doubtful][:CONTROLS]])]
