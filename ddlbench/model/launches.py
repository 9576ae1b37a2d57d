"""The launches of `make bench-model`: on each virtual cluster the links are fitted, then all algorithms are measured.

Ranks send messages only, inside nodes too (`--transport p2p`): these are what a fit measures and a prediction prices.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddlbench.algorithms import available, resolve
from ddlbench.cost import described
from ddlbench.cost.limits import limits
from ddlbench.cost.machine import Machine
from ddlbench.cost.network import Placement
from ddlbench.cost.predictor import Predictor
from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.lab.spec import Rate
from ddlbench.model.pairing import Measured, Pair, Predicted
from ddlbench.peers.process import run
from ddlbench.records import Point, load
from ddlbench.statistics import summarise

Say = Callable[[str], None]
LARGE_NBYTES = 1 << 20
"""From this size on a point has a set number of samples: time for as many as of a small one there is not."""
SMALL = ("--max-seconds", "0.15", "--passes", "2", "-w", "3")
LARGE = ("-n", "8", "--passes", "2", "-w", "1")
FIT_SECONDS, SWEEP_SECONDS = 90, 240
"""How long one fit and one sweep may take until they are ended; each takes a third of that."""
TOPOLOGY, PARTS = "topology.toml", ("small", "large")


@dataclass(frozen=True)
class Shape:
    """A virtual cluster: nodes, ranks on each, and what each network card carries."""

    nodes: int
    ranks_per_node: int
    rate: Rate

    @classmethod
    def parse(cls, text: str, rate: Rate) -> "Shape":
        """Return the shape that `text` says, such as 4x2; raises `UsageError`."""
        parts = text.split("x")
        if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise UsageError(f"shape {text!r}: expected nodes x ranks on each, such as 4x2")
        if int(parts[0]) < 2:
            raise UsageError(f"shape {text!r}: one node has no links to others; expected 2x1 or more nodes")
        return cls(int(parts[0]), int(parts[1]), rate)

    @property
    def name(self) -> str:
        """What it is called: 4x2."""
        return f"{self.nodes}x{self.ranks_per_node}"

    def command(self, *words: str) -> list[str]:
        """Return the command that makes the cluster and runs ddlbench with `words` on all its ranks."""
        program = [sys.executable, "-I", "-m", "ddlbench"]
        shape = ("--nodes", str(self.nodes), "--ranks-per-node", str(self.ranks_per_node), "--rate", str(self.rate))
        return [*program, "lab", "run", *shape, "--", *program, *words]


def measure(shape: Shape, sizes: Sequence[int], seconds: float, folder: Path, say: Say) -> None:
    """Fit the links of the cluster `shape` and measure all algorithms there, everything going into `folder`.

    Raises `DdlbenchError` when a launch does not come to its end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    say(f"{shape.name}: the links")
    fit = ("fit", "--out", str((folder / TOPOLOGY).resolve()), "--overwrite", "--max-seconds", f"{seconds:g}")
    run(shape.command(*fit), folder / "fit.log", {}, seconds=FIT_SECONDS + 2 * seconds, cwd=folder)
    names = ",".join(algorithm.name for algorithm in available())
    small = [size for size in sizes if size < LARGE_NBYTES]
    large = [size for size in sizes if size >= LARGE_NBYTES]
    for part, of, how in zip(PARTS, (small, large), (SMALL, LARGE), strict=True):
        if of:
            say(f"{shape.name}: {len(of)} {part} sizes")
            what = ("-a", names, "--sizes", ",".join(map(str, of)), "--transport", "p2p")
            out = ("--out", str((folder / part).resolve()), "--overwrite")
            run(
                shape.command("sweep", *what, *how, *out), folder / f"{part}.log", {}, seconds=SWEEP_SECONDS, cwd=folder
            )


def topology(folder: Path) -> Machine:
    """Return what was fitted there; raises `UsageError`."""
    return described.read(folder / TOPOLOGY)


def points(folder: Path) -> list[Point]:
    """Return what was measured there; raises `DdlbenchError` for results that are wrong or no messages."""
    found = [point for part in PARTS if (folder / part).is_dir() for point in load(folder / part).points]
    for point in found:
        if point.status != "ok" or point.kind != "measured" or point.transport != "p2p":
            raise DdlbenchError(
                f"{folder}: {point.algorithm} at {point.nbytes} B is {point.kind}, {point.status}, {point.transport}: "
                f"expected right times of messages{f'; {point.reason}' if point.reason else ''}"
            )
    return found


def pairs(name: str, machine: Machine, measured: Sequence[Point]) -> list[Pair]:
    """Return each point of a shape with what is predicted for it, sizes ascending, algorithms in their order."""
    predictor, found = Predictor(machine), []
    for point in sorted(measured, key=lambda point: point.nbytes):
        place = Placement.on(machine, point.nodes, int(point.ranks_per_node))
        seconds = predictor.price(resolve(point.algorithm, place.grid), place, point.nbytes).seconds
        least = {limit: bound * 1e6 for limit, bound in limits(machine, place, point.nbytes).items()}
        seen = summarise(point.samples_ns, point.passes)
        time = Measured(seen.median_us, seen.ci_low_us, seen.ci_high_us, seen.samples)
        found.append(Pair(name, point.algorithm, point.nbytes, time, Predicted(seconds * 1e6, least)))
    return found
