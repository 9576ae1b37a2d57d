"""What came of a comparison: its points and record for one run directory, and its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddlbench.peers import tables
from ddlbench.peers.contender import GlooContender, SweepContender, series
from ddlbench.peers.figures import Agreement, Column, agreements, column
from ddlbench.peers.merging import absent, blanks, merged, trust
from ddlbench.peers.passes import Harvest
from ddlbench.peers.process import PeerError
from ddlbench.peers.programs import ProgramContender
from ddlbench.records import Loaded, Point, Run
from ddlbench.records.disk import write_atomically
from ddlbench.report import write_csv, write_html

VENDOR = "mpi"
OWN = "ddlbench's best"
RESULTS_FILE, PAGE_FILE, FIGURES_FILE, MEANS_FILE = "results.csv", "report.html", "peers.csv", "programs.csv"


@dataclass(frozen=True)
class Absence:
    """One that cannot take part, its title in tables, and why."""

    title: str
    reason: PeerError


@dataclass(frozen=True)
class Outcome:
    """The harvests of all contenders, the one over the MPI in use first, and those that could not take part.

    `first` and `points` are the sweep before the passes, of which nothing is shown; `best` is the series of ddlbench's
    best algorithm at each size in bytes, as that sweep found.
    """

    first: Run
    points: Sequence[Point]
    best: Mapping[int, str]
    harvests: Sequence[Harvest]
    absences: Sequence[Absence] = field(default_factory=list)

    def known(self) -> dict[str, Any]:
        """Return the fields of the whole's run that are known from the parts."""
        libraries = [one.contender.name for one in self.harvests if isinstance(one.contender, SweepContender)]
        return {
            "mpi": {"library": " / ".join(libraries), "version": ""},
            "topology": self.first.topology,
            "trust": trust(self.first, self.harvests),
            "proofs": next((run.proofs for one in self.harvests for run in one.runs if run.proofs), ()),
        }

    def all_points(self) -> list[Point]:
        """Return the merged points of all, and blank ones with the reason for those that left none."""
        found = [point for harvest in self.harvests for point in self._merged(harvest)]
        blank = blanks(self.points)
        for one in self.absences:
            found += absent(one.title, one.reason, blank)
        return found

    def _merged(self, harvest: Harvest) -> list[Point]:
        found = [merged(points) for points in harvest.series.values()]
        if not found and harvest.failure is not None:
            return absent(harvest.contender.title, harvest.failure, blanks(self.points))
        return [self._placed(harvest, point) for point in found]

    def _placed(self, harvest: Harvest, point: Point) -> Point:
        """Return the point of another program on the nodes of its partner, which its log does not tell."""
        if not isinstance(harvest.contender, ProgramContender) or not harvest.contender.program.over_mpi:
            return point
        beside = self._series.get((series(VENDOR, harvest.contender.partner.name), point.nbytes))
        return replace(point, nodes=beside[0].nodes, ranks_per_node=beside[0].ranks_per_node) if beside else point

    @property
    def _series(self) -> dict[tuple[str, int], list[Point]]:
        return {key: points for harvest in self.harvests for key, points in harvest.series.items()}

    def unpinned(self) -> list[str]:
        """Return those of whose ranks some could move between cores; other programs do not tell."""
        return [one.contender.name for one in self.harvests if any(map(_free, one.runs))]

    def columns(self) -> list[Column]:
        """Return the columns of the table: each library, gloo, and ddlbench's best."""
        found = []
        for harvest in self.harvests:
            if not isinstance(harvest.contender, ProgramContender):
                title = _title(harvest)
                cells = [points for (name, _), points in harvest.series.items() if name == title]
                found.append(column(title, cells, vendor=isinstance(harvest.contender, SweepContender)))
        every = self._series
        return [
            *found,
            column(OWN, [every.get((name, nbytes), []) for nbytes, name in self.best.items()], vendor=False),
        ]

    def means(self) -> list[Agreement]:
        """Return the means of other programs beside ours."""
        found = []
        for harvest in self.harvests:
            if isinstance(harvest.contender, ProgramContender):
                partner = series(VENDOR, harvest.contender.partner.name)
                found += agreements(harvest.series, self._series, partner)
        return found


def _free(run: Run) -> bool:
    return any(flag.flag in ("unpinned", "oversubscribed") for flag in run.trust)


def _title(harvest: Harvest) -> str:
    """Return the name that a harvest's own allreduce has in tables; torch tells its version when it runs."""
    if isinstance(harvest.contender, GlooContender) and harvest.passes:
        return harvest.passes[0][0].algorithm
    return harvest.contender.title


def write(outcome: Outcome, loaded: Loaded, out: Path) -> list[str]:
    """Write the tables and the page of the run `loaded` into `out`, and return the lines to show."""
    columns, means = outcome.columns(), outcome.means()
    write_csv(loaded, out / RESULTS_FILE)
    write_html(loaded, out / PAGE_FILE)
    write_atomically(out / FIGURES_FILE, tables.figures_csv(columns))
    write_atomically(out / MEANS_FILE, tables.means_csv(means))
    where = f"# results: {out / FIGURES_FILE}   report: {out / PAGE_FILE}"
    return [*tables.comparison(columns), *tables.agreement(means), *complaints(loaded.points), where]


def complaints(points: Sequence[Point]) -> list[str]:
    """Return a line for each contender and reason of points that are not ok."""
    bad = dict.fromkeys((point.algorithm, point.status, point.reason) for point in points if point.status != "ok")
    return [f"# {name}: {status}: {reason}" for name, status, reason in bad]
