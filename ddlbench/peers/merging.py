"""From the passes of all contenders to one run: a point holds the samples of its passes and says how many each gave."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ddlbench.peers.passes import Harvest
from ddlbench.peers.process import PeerError
from ddlbench.records import Point, Run, Stated, TrustFlag

WORST_FIRST = ("wrong", "failed", "skipped", "ok")
BUSY = "busy"


def merged(points: Sequence[Point]) -> Point:
    """Return the points that the passes gave of one cell as one.

    Its status is the worst of them, with that one's reason. Its lower bound is the least; each rank's own times stay in
    the runs of the passes.
    """
    worst = min(points, key=lambda point: WORST_FIRST.index(point.status))
    wrong = [point.wrong for point in points if point.wrong is not None]
    bounds = [point.bound_us for point in points if point.bound_us is not None]
    return replace(
        worst,
        samples_ns=tuple(sample for point in points for sample in point.samples_ns),
        passes=tuple(len(point.samples_ns) for point in points if point.kind == "measured"),
        late=sum(point.late for point in points),
        wrong=max(wrong, default=None),
        bound_us=min(bounds, default=None),
        per_rank_ns=None,
        stated=stated([point.stated for point in points if point.stated is not None]),
    )


def stated(parts: Sequence[Stated]) -> Stated | None:
    """Return the mean over all repetitions of several means; None of none.

    The slowest and fastest rank may be another one in each, so they are not told of all.
    """
    if not parts:
        return None
    weights = [part.repetitions or 1 for part in parts]
    mean = sum(part.mean_us * weight for part, weight in zip(parts, weights, strict=True)) / sum(weights)
    known = all(part.repetitions for part in parts)
    return Stated(mean_us=mean, repetitions=sum(weights) if known else None)


def absent(title: str, error: PeerError, blank: Sequence[Point]) -> list[Point]:
    """Return `blank`, points of all sizes, as those of one that could not take part, with the reason."""
    return [replace(point, algorithm=title, status=error.status, reason=str(error)) for point in blank]


def blanks(points: Iterable[Point]) -> list[Point]:
    """Return a point without a result for each size of `points`, in their setting."""
    sizes = {point.nbytes: point for point in points}
    return [
        replace(
            point,
            transport="",
            samples_ns=(),
            passes=(),
            late=0,
            stopped="",
            wrong=None,
            bound_us=None,
            model_us=None,
            per_rank_ns=None,
        )
        for point in sizes.values()
    ]


def trust(first: Run, harvests: Sequence[Harvest]) -> tuple[TrustFlag, ...]:
    """Return what speaks against the figures, each with the library that it was seen with.

    That the machine was busy before it began is taken from `first`; before later runs it was with the one before.
    """
    found = [flag for flag in first.trust if flag.flag == BUSY]
    for harvest in harvests:
        seen = [flag for run in harvest.runs for flag in run.trust if flag.flag not in (BUSY, "imported")]
        found += [TrustFlag(flag.flag, f"{harvest.contender.name}: {flag.detail}") for flag in seen]
        found += _lost(harvest)
    return tuple(dict.fromkeys(found))


def _lost(harvest: Harvest) -> Iterator[TrustFlag]:
    if harvest.failure is not None and harvest.passes:
        detail = f"{harvest.contender.name}: pass {harvest.failed_in} and those after it: {harvest.failure}"
        yield TrustFlag("incomplete", detail)
