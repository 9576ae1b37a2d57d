"""ddlbench against Open MPI on a virtual cluster, and against what the nodes' links allow: docs/direct.md.

Each shape is a contender that starts one launch in `ddlbench lab`, in which all take turns. Who takes part at which
size is decided by a launch of its own: ddlbench's best algorithm, and the settings of Open MPI that are near its best.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ddlbench.lab import start
from ddlbench.lab.spec import Lab, Rate
from ddlbench.peers.comparison import Library
from ddlbench.peers.contender import started
from ddlbench.peers.figures import Figure, column
from ddlbench.peers.goals import Race
from ddlbench.peers.passes import Harvest, Say
from ddlbench.peers.process import PeerError
from ddlbench.peers.settings import AS_IT_COMES, SETTINGS
from ddlbench.records import Point, Run

RATE = Rate.parse("1gbit")
SIZES = tuple(1 << bits for bits in (3, 10, 14, 16, 18, 20, 22, 24))
LARGE, LARGEST = 1 << 20, 1 << 24
NEAR, MOST_NEAR = 1.25, 3
"""Settings of Open MPI within so many times its best at a size take part there, at most so many of them."""
DROP, CHOOSING_TURNS, TURNS = 2.0, 2, 3
SECONDS = 150
"""How long one launch may take; it takes a tenth of that."""
WITHIN_BOUND, TWICE = 1 / 1.08, 1.8

SHORT = ("recursive-doubling", "halving-doubling", "direct")
SHORT_IN_NODES = (
    "recursive-doubling",
    "halving-doubling",
    "leader",
    "leader:recursive-doubling",
    "hierarchical:recursive-doubling",
    "hierarchical:halving-doubling",
)
LONG = ("ring", "multi-ring")
LONG_IN_NODES = ("ring", "multi-ring", "hierarchical")
BETWEEN = range(1 << 16, (1 << 20) + 1)
"""Bytes at which those for short vectors and those for long ones may be the best."""
TWO_CARDS = ("ring", "multi-ring", "multi-ring:2", "halving-doubling")


@dataclass(frozen=True)
class Row:
    """What is measured at one size: algorithms of ddlbench and settings of Open MPI, `samples` of each in a turn.

    On a slow machine they are fewer.
    """

    nbytes: int
    ours: tuple[str, ...]
    theirs: tuple[str, ...]

    @property
    def samples(self) -> int:
        """Fewer of what takes long."""
        return max(1, min(40, (2 << 20) // self.nbytes))

    def to_json(self) -> dict[str, Any]:
        """Return the row as `lab_rank` reads it."""
        return {**vars(self), "samples": self.samples}


@dataclass(frozen=True)
class LabContender:
    """One launch on the virtual cluster `lab`, of ddlbench's ranks over the library in use; implements `Contender`."""

    lab: Lab
    library: Library
    source: Path
    rows: tuple[Row, ...]
    turns: int = TURNS
    drop: float | None = None

    @property
    def label(self) -> str:
        """The cluster in the names of points."""
        cards = f", {self.lab.nics} cards" if self.lab.nics > 1 else ""
        return f"lab {self.lab.nodes} x {self.lab.ranks_per_node}{cards}"

    @property
    def name(self) -> str:
        """What it is called while it runs."""
        return f"{self.label}, {self.lab.rate}"

    @property
    def title(self) -> str:
        """What its points are called where it left none."""
        return self.label

    @property
    def key(self) -> str:
        """The name of its folder."""
        return self.label.replace(" x ", "x").replace(", ", "-").replace(" ", "-")

    @property
    def task(self) -> dict[str, Any]:
        """What `lab_rank` is told."""
        rows = [row.to_json() for row in self.rows]
        return {"label": self.label, "turns": self.turns, "drop": self.drop, "check": self.drop is None, "rows": rows}

    def command(self, task: Path, folder: Path) -> list[str]:
        """Return the command that makes the cluster and measures what the file `task` says, into `folder`."""
        python = [str(self.library[0].python), "-I", "-m"]
        lab = self.lab
        shape = ["--nodes", str(lab.nodes), "--ranks-per-node", str(lab.ranks_per_node), "--nics", str(lab.nics)]
        # mpi4py's own runner ends all ranks when one of them fails.
        rank = [*python, "mpi4py", "-m", "ddlbench.peers.lab_rank", str(task.resolve()), str(folder.resolve())]
        return [*python, "ddlbench", "lab", "run", *shape, "--rate", str(lab.rate), "--", *rank]

    def measure(self, folder: Path) -> tuple[Run, list[Point]]:
        """Measure once, everything going into `folder`; raises `PeerError`."""
        task = folder.with_suffix(".json")
        task.parent.mkdir(parents=True, exist_ok=True)
        task.write_text(json.dumps(self.task, indent=1), encoding="utf-8")
        environment = replace(self.library[0], variables={})  # the lab has its own, which pin nothing
        loaded = started(self.command(task, folder), folder, environment, self.source, SECONDS)
        return loaded.run, [*loaded.points]


@dataclass
class Shape:
    """A cluster that takes part: its harvest, and ddlbench's series at each size in bytes."""

    contender: LabContender
    best: Mapping[int, str]
    harvest: Harvest = field(init=False)

    def __post_init__(self) -> None:
        self.harvest = Harvest(self.contender)

    @property
    def ours(self) -> dict[int, Figure]:
        """The figures of ddlbench's best at each size."""
        cells = [self.harvest.series.get((name, nbytes), []) for nbytes, name in self.best.items()]
        return dict(column(self.contender.label, cells, vendor=False).figures)

    @property
    def theirs(self) -> dict[int, Figure]:
        """The figures of the best setting of Open MPI at each size."""
        cells = [points for points in self.harvest.series.values() if points[0].transport == "vendor"]
        figures = [figure for one in cells for figure in column("", [one], vendor=True).figures.values()]
        return {nbytes: best_of(figures, nbytes) for nbytes in sorted({one.nbytes for one in figures})}


def best_of(figures: Iterable[Figure], nbytes: int) -> Figure:
    """Return the figure of the least median at a size."""
    return min((one for one in figures if one.nbytes == nbytes), key=lambda one: one.median_us)


class LabPart:
    """The clusters of one `make bench-fast`: 4 nodes of one rank and of two, and 4 nodes with two network cards.

    `absent` says of each that cannot take part why.
    """

    def __init__(self, library: Library, source: Path, say: Say) -> None:
        self._library, self._source, self._say = library, source, say
        self.absent: dict[str, PeerError] = {}
        self.shapes: dict[tuple[int, int], Shape] = {}

    def choose(self, folder: Path) -> list[Harvest]:
        """Decide who takes part, by launches that leave their runs in `folder`, and return what is to be measured."""
        if reason := start.missing():
            self.absent["the virtual cluster"] = PeerError(f"no lab can run here: {reason}")
            return []
        for lab in (Lab(rate=RATE), Lab(rate=RATE, nics=2), Lab(rate=RATE, ranks_per_node=2)):
            trial = self._trial(lab)
            self._say(f"which algorithm and which setting is best at which size: {trial.name}")
            try:
                _, points = trial.measure(folder / f"choosing-{trial.key}")
                self.shapes[lab.ranks_per_node, lab.nics] = chosen(trial, points)
            except PeerError as error:
                self.absent[trial.label] = error
                self._say(f"left out: {trial.label}: {error}")
        return [shape.harvest for shape in self.shapes.values()]

    def _trial(self, lab: Lab) -> LabContender:
        """Return the launch that decides who takes part on `lab`."""
        theirs = tuple(SETTINGS) if self._library[1].vendor == "Open MPI" else (AS_IT_COMES,)
        if lab.nics > 1:
            rows = [Row(LARGEST, TWO_CARDS, ())]
        else:
            rows = [Row(nbytes, candidates(nbytes, lab.ranks_per_node), theirs) for nbytes in SIZES]
        return LabContender(lab, self._library, self._source, tuple(rows), CHOOSING_TURNS, DROP)

    def races(self) -> list[Race]:
        """Return what came of it."""
        found = [race for (_, cards), one in self.shapes.items() if cards == 1 for race in self._one_card(one)]
        one, two = self.shapes.get((1, 1)), self.shapes.get((1, 2))
        return [*found, cards_race(two.ours, one.ours)] if one and two else found

    def _one_card(self, shape: Shape) -> list[Race]:
        lab = shape.contender.lab
        where = f"{lab.nodes} nodes of {lab.ranks_per_node} at {lab.rate}"
        return [
            bound_race(where, shape.ours, lab),
            settings_race(where, self._library[1].name, shape.ours, shape.theirs),
        ]


def candidates(nbytes: int, ranks_per_node: int) -> tuple[str, ...]:
    """Return the algorithms that may be the best at a size; with one rank per node the hierarchical ones are others."""
    short, long = (SHORT, LONG) if ranks_per_node == 1 else (SHORT_IN_NODES, LONG_IN_NODES)
    if nbytes in BETWEEN:
        return (*short, *long)
    return short if nbytes < BETWEEN.start else long


def chosen(trial: LabContender, points: Sequence[Point]) -> Shape:
    """Return the cluster of `trial` with those that were best in its `points`; raises `PeerError` without any."""
    rows, best = [], {}
    by_title = {f"mpi {setting}": setting for setting in SETTINGS}
    for row in trial.rows:
        right = [point for point in points if point.nbytes == row.nbytes and point.status == "ok" and point.samples_ns]
        ours = sorted((point for point in right if point.transport != "vendor"), key=_median)
        theirs = sorted((point for point in right if point.transport == "vendor"), key=_median)
        if ours:
            near = [point for point in theirs if _median(point) <= NEAR * _median(theirs[0])][:MOST_NEAR]
            name = ours[0].algorithm
            best[row.nbytes] = name
            rows.append(Row(row.nbytes, (_word(name),), tuple(by_title[_word(point.algorithm)] for point in near)))
    if not rows:
        bad = next((point.reason for point in points if point.status != "ok"), "no size was timed")
        raise PeerError(f"nothing to choose from: {bad}", "failed")
    return Shape(replace(trial, rows=tuple(rows), turns=TURNS, drop=None), best)


def _median(point: Point) -> float:
    return float(np.median(point.samples_ns))


def _word(name: str) -> str:
    """Return the name of an algorithm or setting in that of a series."""
    return name.partition(" (")[0]


def bound_us(nbytes: int, lab: Lab) -> float:
    """Return the least time in microseconds that the nodes' links allow at the rate they were given.

    All nodes' cards together carry 2(N-1) n bytes each way, as many as cards: 2(N-1)/N n each.
    """
    return 2 * (lab.nodes - 1) / lab.nodes * nbytes / (lab.nics * lab.rate.bytes_per_s) * 1e6


def bound_race(where: str, ours: Mapping[int, Figure], lab: Lab) -> Race:
    """Return ddlbench against the links, from 1 MiB on."""
    large = {nbytes: one for nbytes, one in ours.items() if nbytes >= LARGE}
    bounds = {nbytes: bound_us(nbytes, lab) for nbytes in large}
    return Race(f"lab, {where}, against what the links allow", large, bounds, WITHIN_BOUND, WITHIN_BOUND)


def settings_race(where: str, library: str, ours: Mapping[int, Figure], theirs: Mapping[int, Figure]) -> Race:
    """Return ddlbench against the best setting of Open MPI at each size."""
    times = {nbytes: one.median_us for nbytes, one in theirs.items()}
    names = {nbytes: _word(one.algorithm) for nbytes, one in theirs.items()}
    return Race(f"lab, {where}, against {library} at its best setting", ours, times, 1.0, 1.0, names)


def cards_race(two: Mapping[int, Figure], one: Mapping[int, Figure]) -> Race:
    """Return two network cards per node against one: the bus bandwidth is so many times as much."""
    times = {nbytes: figure.median_us for nbytes, figure in one.items()}
    names = {nbytes: _word(figure.algorithm) for nbytes, figure in one.items()}
    return Race("lab, 4 nodes of 1 with two network cards, against one", two, times, TWICE, TWICE, names)


def lines(absent: Mapping[str, PeerError]) -> list[str]:
    """Return a line for each cluster that is absent."""
    return [line for what, error in absent.items() for line in ("", f"# {what}: not measured: {error}")]
