"""The whole of `make bench-fast`: ddlbench against the fastest MPI library and memory itself, and on a virtual cluster.

Everything that is compared is measured in the same passes, in turns. Which of ddlbench's algorithms is used at which
size is decided before them, by a short sweep of its own.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path

from ddlbench.peers import lab
from ddlbench.peers.choice import candidates, fastest
from ddlbench.peers.comparison import Comparison, Library, Request
from ddlbench.peers.contender import Job, SweepContender, series
from ddlbench.peers.figures import Column, Figure, column, fastest_vendor, sizes
from ddlbench.peers.goals import Race
from ddlbench.peers.library import Environment
from ddlbench.peers.merging import merged
from ddlbench.peers.outcome import VENDOR, Outcome
from ddlbench.peers.passes import Harvest, Say, one_pass
from ddlbench.peers.process import PeerError, run
from ddlbench.peers.tables import aligned
from ddlbench.records import Point, Store, load
from ddlbench.records.disk import write_atomically
from ddlbench.report import write_csv, write_html
from ddlbench.report.units import counted, digits, ratio_text, size_text
from ddlbench.statistics import Summary, summarise

CROWDS = (3, 4, 8)
"""Rank counts that are more than the cores of a small machine: they take turns."""
CROWDED = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
CHOOSING = ("-n", "10", "-w", "2", "--passes", "5")
"""Few samples of each, but in turns: a machine that is slow for seconds must not decide."""
FLOOR_SIZES = tuple(1 << bits for bits in (20, 22, 24, 26))
FLOOR_SECONDS = 120
ALLREDUCE = "allreduce"
"""What `memory_rank` calls ddlbench's samples among those of the ways to copy."""
SHORT_FLOATS = ("float16", "bfloat16")
SHORT_SIZE = 1 << 20
FILE = "fast.csv"
OURS = ("ours_us", "ours_us_ci_low", "ours_us_ci_high")
TITLES = ("race", "against", "nbytes", "algorithm", "theirs_us", *OURS, "ratio")


@dataclass(frozen=True)
class Entry:
    """One of ddlbench's sides: a harvest, and the series to use at each size in bytes."""

    harvest: Harvest
    best: dict[int, str]

    def column(self, title: str) -> Column:
        """Return its figures, of the algorithm chosen for each size."""
        cells = [self.harvest.series.get((name, nbytes), []) for nbytes, name in self.best.items()]
        return column(title, cells, vendor=False)


@dataclass(frozen=True)
class Node:
    """Who takes part on this node: MPI libraries, and ddlbench on two ranks, on more than the cores, in 16 bits."""

    vendors: list[Harvest]
    pair: dict[str, Entry]
    crowds: dict[int, Entry]
    short: Harvest

    @property
    def harvests(self) -> list[Harvest]:
        """All of them."""
        return [*self.vendors, *(entry.harvest for entry in (*self.pair.values(), *self.crowds.values())), self.short]


class Fast:
    """One `make bench-fast`; `source` is the source tree, `say` tells a person what goes on."""

    def __init__(self, request: Request, source: Path, say: Say) -> None:
        self._request, self._source, self._say = request, source, say
        self._comparison = Comparison(request, source, say)
        self._moved: dict[int, list[dict[str, list[int]]]] = {}

    def run(self) -> tuple[list[str], int]:
        """Measure and store; return the lines to show, and 1 when a result was wrong or someone failed, else 0.

        Raises `PeerError` when nobody came through the first pass.
        """
        comparison, out, only = self._comparison, self._request.out, self._request.only
        with Store.create(out, comparison.record(), overwrite=True) as store:
            folder = comparison.cleared()
            in_use = comparison.in_use()
            node = self._node(comparison.libraries(in_use), folder) if only != "lab" else None
            cluster = lab.LabPart(in_use, self._source, self._say)
            harvests = [*(node.harvests if node else ()), *(cluster.choose(folder) if only != "node" else ())]
            for number in range(1, self._request.passes + 1):
                one_pass(harvests, number, self._request.passes, folder, self._say)
                if node:
                    self._move(in_use[0], node.pair["registered"].best, folder / f"floor-{number}")
            self._store(store, harvests, cluster)
        races = [*(self._races(node) if node else ()), *cluster.races()]
        loaded = load(out)
        write_csv(loaded, out / "results.csv")
        write_html(loaded, out / "report.html")
        write_atomically(out / FILE, as_csv(races))
        failed = any(one.failure for one in harvests) or any(one.status == "failed" for one in cluster.absent.values())
        bad = failed or any(one.status in ("wrong", "failed") for one in loaded.points)
        where = f"# results: {out / FILE}   report: {out / 'report.html'}"
        return [*lines(races), *lab.lines(cluster.absent), where], int(bad)

    def _store(self, store: Store, harvests: Sequence[Harvest], cluster: lab.LabPart) -> None:
        """Store what is known of the whole, and all points; raises `PeerError` when there are none."""
        first = next((one for one in harvests if one.runs), None)
        if first is None:
            failures = [*(one.failure for one in harvests), *cluster.absent.values()]
            raise next(filter(None, failures), PeerError("nobody took part"))
        outcome = Outcome(first.runs[0], first.passes[0], {}, harvests, self._comparison.absences)
        store.update(replace(store.run, **outcome.known()))
        for point in self._points(harvests):
            store.append(point)
        store.finish()

    # ---- Who takes part -------------------------------------------------------------------------------------------

    def _node(self, libraries: Sequence[Library], folder: Path) -> Node:
        """Return who takes part on this node; which algorithms do is decided by short sweeps."""
        vendors = [self._vendor(library) for library in libraries]
        pair = {kind: self._own(libraries[0], 2, kind, folder) for kind in ("registered", "ordinary")}
        crowds = {ranks: self._own(libraries[0], ranks, "registered", folder) for ranks in CROWDS}
        return Node(vendors, pair, crowds, Harvest(self._short(libraries[0])))

    def _vendor(self, library: Library) -> Harvest:
        job = Job(self._request.config.resolve(), 2, self._source)
        key = library[1].vendor.lower().replace(" ", "-")
        return Harvest(SweepContender(job, *library, (VENDOR,), key))

    def _own(self, library: Library, ranks: int, buffers: str, folder: Path) -> Entry:
        """Return ddlbench over shared memory on `ranks` ranks, with its best algorithms; with `mpi` where crowded."""
        job = Job(self._request.config.resolve(), ranks, self._source)
        environment, identity = library
        crowded = ranks != 2
        if crowded:
            environment = crowd(environment)
        label, key = f"{counted(ranks, 'rank')}, {buffers} buffers", f"{ranks}-{buffers}"
        flags = ("--buffers", buffers, "--transport", "direct")
        names = candidates(ranks)
        self._say(f"which algorithm is best at which size: {label}")
        trial = SweepContender(job, environment, identity, names, f"choosing-{key}", (*flags, *CHOOSING), label)
        _, points = trial.measure(folder / trial.key)
        best = fastest(points)
        own = tuple(dict.fromkeys(name.partition(" (")[0] for name in best.values()))
        both = (VENDOR, *own) if crowded else own
        return Entry(Harvest(SweepContender(job, environment, identity, both, key, flags, label)), best)

    def _short(self, library: Library) -> SweepContender:
        """Return the sweep of 16-bit floats beside float32 of the same bytes."""
        job = Job(self._request.config.resolve(), 2, self._source)
        types = ("-d", ",".join(("float32", *SHORT_FLOATS)), "--sizes", str(SHORT_SIZE))
        flags = ("--buffers", "registered", "--transport", "direct", *types)
        return SweepContender(job, *library, ("direct",), "16-bit", flags, "2 ranks, 16-bit floats")

    def _move(self, environment: Environment, best: Mapping[int, str], folder: Path) -> None:
        """Time ddlbench beside the least that must be moved, in turns, and keep the samples of each size."""
        self._say("the least time to move the bytes")
        folder.mkdir()
        result = folder / "floor.json"
        asked = [f"{nbytes}:{name.partition(' (')[0]}" for nbytes, name in best.items() if nbytes in FLOOR_SIZES]
        command = environment.ranks(2, "-m", "ddlbench.peers.memory_rank", str(result.resolve()), *asked)
        run(command, folder / "floor.log", environment.variables, seconds=FLOOR_SECONDS, cwd=self._source)
        for nbytes, samples in json.loads(result.read_text()).items():
            self._moved.setdefault(int(nbytes), []).append(samples)

    # ---- What came of it ------------------------------------------------------------------------------------------

    def _points(self, harvests: Sequence[Harvest]) -> list[Point]:
        found: dict[tuple[str, str, int], list[Point]] = {}
        for harvest in harvests:
            for points in harvest.passes:
                for point in points:
                    found.setdefault((point.algorithm, point.dtype, point.nbytes), []).append(point)
        return [merged(points) for points in found.values()]

    def _races(self, node: Node) -> list[Race]:
        columns, pair = [_vendor_column(one) for one in node.vendors], node.pair
        known = {nbytes: fastest_vendor(columns, nbytes) for nbytes in sizes(columns)}
        fastest = {nbytes: time for nbytes, time in known.items() if time is not None}
        registered = pair["registered"].column("registered").figures
        names = " and ".join(dict.fromkeys(one.title.partition("(")[2].rstrip(")") for one in columns))
        found = [
            Race(f"2 ranks, registered buffers, against the fastest of {names}", registered, fastest, 2.5, 1.15),
            Race(
                f"2 ranks, ordinary arrays, against the fastest of {names}",
                pair["ordinary"].column("ordinary").figures,
                fastest,
                1.6,
                1.0,
            ),
            moved_race(self._moved, pair["registered"].best),
        ]
        for ranks, entry in node.crowds.items():
            own = entry.column(f"{ranks} ranks").figures
            theirs = {nbytes: one.median_us for nbytes, one in _vendor_column(entry.harvest).figures.items()}
            title = f"{ranks} ranks, registered buffers, against {entry.harvest.contender.name.partition(',')[0]}"
            found.append(Race(title, own, theirs, 2.5, 1.1))
        return [*found, *_short_races(node.short)]


def crowd(environment: Environment) -> Environment:
    """Return `environment` for more ranks than cores: none has a core of its own, and who waits yields."""
    kept = {name: value for name, value in environment.variables.items() if "binding_policy" not in name}
    return replace(environment, variables={**kept, **CROWDED})


def moved_race(moved: Mapping[int, Sequence[Mapping[str, list[int]]]], best: Mapping[int, str]) -> Race:
    """Return ddlbench against the faster way to copy the bytes that must move; `moved` are the passes' samples in ns.

    Both took turns within one launch of each pass.
    """
    ours, floor = {}, {}
    for nbytes, passes in moved.items():
        known = {name: _pooled([one[name] for one in passes]) for name in passes[0]}
        own = known.pop(ALLREDUCE)
        ours[nbytes] = Figure(
            best[nbytes], nbytes, own.median_us, own.ci_low_us, own.ci_high_us, own.samples, len(passes)
        )
        floor[nbytes] = min(way.median_us for way in known.values())
    return Race("2 ranks, registered buffers, against the least time to move the bytes", ours, floor, 0.8, 0.8)


def _pooled(passes: Sequence[Sequence[int]]) -> Summary:
    """Return what the samples of all passes say together."""
    return summarise([sample for one in passes for sample in one], [len(one) for one in passes])


def _vendor_column(harvest: Harvest) -> Column:
    title = series(VENDOR, harvest.contender.name)
    cells = [points for (name, _), points in harvest.series.items() if name == title]
    return column(title, cells, vendor=True)


def _short_races(harvest: Harvest) -> list[Race]:
    """Return the races of 16-bit floats against float32 of the same bytes."""

    def figures(dtype: str) -> dict[int, Figure]:
        points = [point for found in harvest.passes for point in found if point.dtype == dtype]
        return dict(column(dtype, [points], vendor=False).figures)

    theirs = {nbytes: one.median_us for nbytes, one in figures("float32").items()}
    return [Race(f"2 ranks, {name}, against float32", figures(name), theirs, 0.8, 0.8) for name in SHORT_FLOATS]


def lines(races: Sequence[Race]) -> list[str]:
    """Return the tables for a terminal, each with its goals."""
    return [line for race in races for line in _race_lines(race)]


def _race_lines(race: Race) -> list[str]:
    rows = [_cells(race, nbytes, ratio) for nbytes, ratio in race.ratios.items()]
    if not rows:
        return ["", f"# {race.title}: nothing to compare"]
    verdict = "reached" if race.reached else "NOT reached"
    mean, least = ratio_text(race.reached_mean), ratio_text(min(race.ratios.values()))
    goals = f"geometric mean {mean} (goal {race.mean:.3g}), least {least} (goal {race.least:.3g})"
    behind = ", ".join(map(size_text, race.behind))
    return [
        "",
        f"# {race.title}: medians in µs",
        *aligned([["bytes", "theirs", "ours", "ahead", "algorithm", *(["against"] if race.names else [])], *rows]),
        f"# {goals}: {verdict}" + (f"; behind at {behind}" if behind else ""),
    ]


def _cells(race: Race, nbytes: int, ratio: float) -> list[str]:
    """Return the line of a size in the table of a race."""
    ours = race.ours[nbytes]
    cells = [size_text(nbytes), digits(race.theirs_us[nbytes]), _figure_text(ours), ratio_text(ratio)]
    against = [race.names.get(nbytes, "")] if race.names else []
    return [*cells, ours.algorithm.partition(" (")[0], *against]


def _figure_text(figure: Figure) -> str:
    return digits(figure.median_us) + (f" ±{100 * figure.spread:2.0f} %" if isfinite(figure.spread) else "")


def as_csv(races: Sequence[Race]) -> str:
    """Return all ratios as CSV, a line for each race and size."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(TITLES)
    for race in races:
        for nbytes, ratio in race.ratios.items():
            ours = race.ours[nbytes]
            times = (race.theirs_us[nbytes], ours.median_us, ours.low_us, ours.high_us)
            against = race.names.get(nbytes, "")
            figures = (*(f"{time:.3f}" for time in times), f"{ratio:.4f}")
            writer.writerow((race.title, against, nbytes, ours.algorithm, *figures))
    return text.getvalue()
