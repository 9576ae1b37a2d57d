"""The verdict on every point of two runs, and what they come to."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ddlbench.compare.likeness import Difference, Likeness, likeness
from ddlbench.compare.margin import Margin
from ddlbench.compare.pairing import Pair, pairs, time_us
from ddlbench.compare.shift import LEAST_SAMPLES, Shift, shift
from ddlbench.errors import UsageError
from ddlbench.records import Loaded, Point

SIGNIFICANCE = 0.05
"""Expected share of differences that are none among those called significant, at most."""

Verdict = Literal["slower", "faster", "same", "unclear", "lost", "gained"]


@dataclass(frozen=True)
class Finding:
    """What became of one point.

    `p` is the p-value of the shift, adjusted for the number of points; NaN where there is no test. `verdict` is
    "slower", "faster", "same" or "unclear"; "lost" where only BASE has a right result and "gained" where only NEW has.
    `why` says more where a verdict needs it.
    """

    pair: Pair
    shift: Shift
    verdict: Verdict
    p: float = math.nan
    why: str = ""

    @property
    def point(self) -> Point:
        """Either point, for what both share."""
        return self.pair.point


@dataclass(frozen=True)
class Mean:
    """The geometric mean of the ratios of one algorithm over `points` points; NaN where a point has no interval."""

    algorithm: str
    points: int
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two runs compared: `findings` by size, then algorithm; `neither` counts the points that are right in neither."""

    margin: Margin
    findings: tuple[Finding, ...]
    neither: int
    likeness: Likeness

    def of(self, verdict: Verdict) -> tuple[Finding, ...]:
        """Return the findings of a verdict, the greatest changes first."""
        found = (finding for finding in self.findings if finding.verdict == verdict)
        return tuple(sorted(found, key=_change, reverse=True))

    @property
    def tested(self) -> int:
        """How many points have samples enough in both runs."""
        return sum(finding.shift.known for finding in self.findings)

    def means(self) -> list[Mean]:
        """Return the geometric mean of the ratios of each algorithm that both runs have, by name.

        Its interval is the geometric mean of the intervals' ends. That is wide enough however the errors of points hang
        together: a standard deviation of a mean is at most the mean of the standard deviations.
        """
        shifts: dict[str, list[Shift]] = {}
        for finding in self.findings:
            if finding.shift.ratio > 0:
                shifts.setdefault(finding.point.algorithm, []).append(finding.shift)
        return [_mean(name, found) for name, found in sorted(shifts.items())]


def _change(finding: Finding) -> float:
    """Return by how much a point changed, either way, as a logarithm; 0 where that is not known."""
    return abs(math.log(finding.shift.ratio)) if finding.shift.ratio > 0 else 0.0


def _mean(algorithm: str, shifts: Sequence[Shift]) -> Mean:
    ends = (_geometric(getattr(one, end) for one in shifts) for end in ("ratio", "low", "high"))
    return Mean(algorithm, len(shifts), *ends)


def _geometric(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


def compare(base: Loaded, new: Loaded, margin: Margin, *, anyway: bool = False) -> Comparison:
    """Return what became of each point of the run `base` in the run `new`.

    Raises `UsageError` when the runs were measured on different machines or in different ways, unless `anyway`, and
    when they have nothing in common that could be compared.
    """
    found = likeness(base, new)
    if found.obstacles and not anyway:
        raise UsageError(f"not comparable: {_joined(found.obstacles)}; --anyway compares them all the same")
    made = pairs(base.points, new.points, found.apart)
    _check_comparable(base, new, made)
    right = [pair for pair in made if _is_ok(pair.base) or _is_ok(pair.new)]
    findings = tuple(_judged([_finding(pair) for pair in right], margin))
    return Comparison(margin, findings, len(made) - len(right), found)


def _joined(differences: Iterable[Difference]) -> str:
    return "; ".join(map(str, differences))


def _is_ok(point: Point | None) -> bool:
    return point is not None and point.status == "ok"


def _check_comparable(base: Loaded, new: Loaded, made: Sequence[Pair]) -> None:
    if not any(map(_is_ok, base.points)):
        raise UsageError("BASE has no right result to compare with")
    if new.points and not any(pair.base and pair.new for pair in made):
        fields = [
            f"{field} {_values(base, field)} in BASE, {_values(new, field)} in NEW"
            for field in ("algorithm", "nbytes", "dtype", "op", "in_place")
            if _values(base, field) != _values(new, field)
        ]
        raise UsageError(f"no point of BASE is in NEW: {'; '.join(fields) or 'their settings differ'}")


def _values(loaded: Loaded, field: str) -> str:
    """Return the values of a field in a run, the first few of many."""
    values = sorted({getattr(point, field) for point in loaded.points})
    more = f" … ({len(values)})" if len(values) > 3 else ""
    return ", ".join(map(str, values[:3])) + more


def _finding(pair: Pair) -> Finding:
    """Return what the two points of a pair say, without a verdict on a difference."""
    if not _is_ok(pair.new):
        return Finding(pair, Shift(math.nan), "lost", why=_fate(pair.new, "NEW"))
    if not _is_ok(pair.base):
        return Finding(pair, Shift(math.nan), "gained", why=_fate(pair.base, "BASE"))
    if pair.torn and pair.base and pair.new:
        starts = f"starts from a {pair.base.sync} in BASE, from a {pair.new.sync} in NEW"
        return Finding(pair, Shift(math.nan), "unclear", why=starts)
    found = _shift(pair)
    return Finding(pair, found, "unclear", why="" if found.known else _unknown(pair))


def _fate(point: Point | None, run: str) -> str:
    if point is None:
        return f"missing in {run}"
    return f"{point.status} in {run}{': ' if point.reason else ''}{point.reason}"


def _shift(pair: Pair) -> Shift:
    """Return the shift of two right points; only its ratio where one has no samples."""
    if pair.base and pair.new and pair.base.samples_ns and pair.new.samples_ns:
        return shift(pair.base.samples_ns, pair.new.samples_ns)
    base_us, new_us = time_us(pair.base), time_us(pair.new)
    return Shift(new_us / base_us if base_us > 0 and new_us > 0 else math.nan)


def _unknown(pair: Pair) -> str:
    """Return why a pair has no interval."""
    samples = [len(point.samples_ns) for point in (pair.base, pair.new) if point]
    if not min(samples):
        return "no samples"
    return f"too few samples: {samples[0]} and {samples[1]}, {LEAST_SAMPLES} are needed"


def _judged(findings: Sequence[Finding], margin: Margin) -> list[Finding]:
    """Return the findings with the verdicts that their tests and intervals allow."""
    tests = [finding.shift.p for finding in findings if finding.shift.known]
    adjusted = iter(_adjusted(tests))
    return [_verdict(one, next(adjusted), margin) if one.shift.known else one for one in findings]


def _adjusted(p_values: Sequence[float]) -> Sequence[float]:
    """Return p-values adjusted for their number after Benjamini and Hochberg."""
    from scipy.stats import false_discovery_control

    return [float(p) for p in false_discovery_control(p_values)] if p_values else []


def _verdict(finding: Finding, p: float, margin: Margin) -> Finding:
    """Return a tested finding with its verdict."""
    low, high, differs = finding.shift.low, finding.shift.high, p < SIGNIFICANCE
    if differs and low > margin.high:
        return replace(finding, p=p, verdict="slower")
    if differs and high < margin.low:
        return replace(finding, p=p, verdict="faster")
    if margin.low <= low and high <= margin.high:
        return replace(finding, p=p, verdict="same")
    return replace(finding, p=p, verdict="unclear", why=_doubt(finding.shift, margin, differs=differs))


def _doubt(found: Shift, margin: Margin, *, differs: bool) -> str:
    """Return why neither a difference beyond the margin nor equality within it is shown."""
    if found.low > margin.high or found.high < margin.low:
        return "may be chance among so many points"
    if differs and not found.low <= 1 <= found.high:
        return f"{'slower' if found.ratio > 1 else 'faster'}, perhaps by less than {margin}"
    return f"interval reaches beyond {margin}"
