"""The contenders in turns, A B C A B C: each is started anew, and drift of the machine must not favour one of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddlbench.peers.contender import Contender
from ddlbench.peers.process import PeerError
from ddlbench.records import Point, Run

Say = Callable[[str], None]


@dataclass
class Harvest:
    """What a contender left: a run and points from each pass it came through, and why it did not come through one."""

    contender: Contender
    runs: list[Run] = field(default_factory=list)
    passes: list[list[Point]] = field(default_factory=list)
    failure: PeerError | None = None
    failed_in: int = 0

    @property
    def series(self) -> dict[tuple[str, int], list[Point]]:
        """The points by algorithm and bytes, those of all passes together."""
        found: dict[tuple[str, int], list[Point]] = {}
        for points in self.passes:
            for point in points:
                found.setdefault((point.algorithm, point.nbytes), []).append(point)
        return found


def in_turns(harvests: Sequence[Harvest], passes: int, folder: Path, say: Say) -> None:
    """Run every contender once in each of `passes` passes, in order, into `harvests`.

    One that fails is left out of the passes after that. The folders are `folder`/KEY/pass-N.
    """
    for number in range(1, passes + 1):
        one_pass(harvests, number, passes, folder, say)


def one_pass(harvests: Sequence[Harvest], number: int, passes: int, folder: Path, say: Say) -> None:
    """Run every contender once, in the pass `number` of `passes`."""
    for harvest in [one for one in harvests if one.failure is None]:
        say(f"pass {number} of {passes}: {harvest.contender.name}")
        _measure(harvest, number, folder, say)


def _measure(harvest: Harvest, number: int, folder: Path, say: Say) -> None:
    try:
        run, points = harvest.contender.measure(folder / harvest.contender.key / f"pass-{number}")
    except PeerError as error:
        harvest.failure, harvest.failed_in = error, number
        say(f"{harvest.contender.name} failed: {error}")
    else:
        harvest.runs.append(run)
        harvest.passes.append(points)
