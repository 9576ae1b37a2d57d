"""From the rows of logs to points and a run: what a log does not say is given by the user, or taken and told."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ddlbench import __version__
from ddlbench.errors import UsageError
from ddlbench.foreign.elements import element_count
from ddlbench.foreign.log import Log, Unread
from ddlbench.foreign.section import Row, Section, UnreadError
from ddlbench.records import Point, Run, TrustFlag


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the user says of logs that do not say it; what a log says goes before.

    `nodes` are those of the largest number of ranks in a log. `name` is what the results are called in tables; None:
    after the program.
    """

    ranks: int | None = None
    nodes: int | None = None
    dtype: str | None = None
    device: str | None = None
    in_place: bool = False
    name: str | None = None


@dataclass
class Imported:
    """The points of a log, and what there is to know of them: `assumed` is what neither the log nor the user said."""

    log: Log
    points: list[Point] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)

    @property
    def notices(self) -> list[str]:
        """What of the log is not used, and what was assumed, each with the name of the log."""
        name = self.log.name
        unread = [f"{name}:{unread}" for unread in self.unread]
        return [*self.log.notices, *unread, *(f"{name}: taken to be {what}" for what in self.assumed)]

    @property
    def programs(self) -> list[str]:
        """The programs with their versions that the points come from."""
        return list(dict.fromkeys(section.label for section in self.log.sections if section.rows))


def points_of(log: Log, given: Given) -> Imported:
    """Return the points of a log.

    Raises `UsageError` when neither the log nor `given` says how many ranks there were, or on how few.
    """
    imported = Imported(log)
    for section in log.sections:
        if section.rows:
            _Conversion(imported, section, given).run()
    return imported


class _Conversion:
    """The rows of one section on their way into `imported`."""

    def __init__(self, imported: Imported, section: Section, given: Given) -> None:
        self._imported, self._section, self._given = imported, section, given
        self._most = max(self._ranks(row) for row in section.rows)
        if given.nodes is not None and given.nodes > self._most and not section.rows[0].hosts:
            raise UsageError(f"--nodes {given.nodes}: {imported.log.name} is of {self._most} ranks")

    def run(self) -> None:
        """Add each row as a point, or to the lines that could not be read."""
        for row in self._section.rows:
            try:
                self._imported.points.append(self._point(row))
            except UnreadError as why:
                self._imported.unread.append(Unread(row.line, why=str(why)))

    def _point(self, row: Row) -> Point:
        given = self._given
        dtype = self._dtype(row)
        nodes, per_node = self._placement(row)
        return Point(
            kind="imported",
            algorithm=given.name or self._section.program,
            nbytes=row.nbytes,
            count=element_count(row.nbytes, dtype) if row.count is None else row.count,
            dtype=dtype,
            op=row.op,
            in_place=given.in_place if row.in_place is None else row.in_place,
            nodes=nodes,
            ranks_per_node=per_node,
            ranks=self._ranks(row),
            device=row.device or given.device or "cpu",
            transport="vendor",
            sync="",
            samples_ns=(),
            stated=row.stated,
            wrong=row.wrong,
            status=row.status,
            reason=row.reason,
        )

    def _ranks(self, row: Row) -> int:
        ranks = row.ranks or self._given.ranks
        if ranks is None:
            what = f"a log of {self._section.label} does not say how many ranks there were"
            raise UsageError(f"{self._imported.log.name}: {what}: give --ranks N")
        return ranks

    def _dtype(self, row: Row) -> str:
        known = row.dtype or self._given.dtype or self._section.usual_dtype
        if known is None:
            self._assume("of float32", "--dtype")
        return known or "float32"

    def _placement(self, row: Row) -> tuple[int, str]:
        """Return the nodes of a row and the ranks on each ("" where they differ).

        Where the log names no hosts, fewer ranks than the most of the section fill its nodes one after the other.
        """
        if row.hosts:
            on_each = Counter(row.hosts)
            return len(on_each), str(on_each[row.hosts[0]]) if len(set(on_each.values())) == 1 else ""
        ranks, nodes = self._ranks(row), self._given.nodes
        if nodes is None:
            self._assume("on 1 node", "--nodes")
            return 1, str(ranks)
        used = -(-ranks // -(-self._most // nodes))
        return used, str(ranks // used) if ranks % used == 0 else ""

    def _assume(self, what: str, option: str) -> None:
        text = f"{what}, which the log does not say ({option} does)"
        if text not in self._imported.assumed:
            self._imported.assumed.append(text)


def run_of(imported: Sequence[Imported], command: Sequence[str]) -> Run:
    """Return the run that holds the points: its machine is that of the logs, of which little is known."""
    return Run(
        ddlbench=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=tuple(command),
        config={"imported": [_source(one) for one in imported]},
        environment={},
        mpi={},
        topology=_topology(imported),
        trust=tuple(_flag(one) for one in imported if one.points),
    )


def _source(one: Imported) -> dict[str, Any]:
    unread = len(one.log.unread) + one.log.more_unread + len(one.unread)
    return {"log": one.log.name, "programs": one.programs, "points": len(one.points), "unread_lines": unread}


def _flag(one: Imported) -> TrustFlag:
    means = f"{one.log.name} holds means from {', '.join(one.programs)}: no samples, so no intervals and no winner"
    return TrustFlag("imported", "; ".join([means, *(f"taken to be {what}" for what in one.assumed)]))


def _topology(imported: Sequence[Imported]) -> dict[str, Any]:
    """Return ranks, nodes and hosts where all logs agree on them."""
    points = [point for one in imported for point in one.points]
    if not points:
        return {}
    largest = max(points, key=lambda point: point.ranks)
    hosts = {row.hosts for one in imported for section in one.log.sections for row in section.rows}
    known = {"hosts": list(next(iter(hosts)))} if len(hosts) == 1 and hosts != {()} else {}
    return {"ranks": largest.ranks, "nodes": largest.nodes, **known}


def repeated(imported: Iterable[Imported]) -> list[str]:
    """Return a notice for each log with points that were there before, under the same name."""
    seen: set[tuple[Any, ...]] = set()
    found = []
    for one in imported:
        keys = [(p.algorithm, p.nbytes, p.dtype, p.op, p.in_place, p.nodes, p.ranks, p.device) for p in one.points]
        again = sum(count - (key not in seen) for key, count in Counter(keys).items())
        if again:
            found.append(f"{one.log.name}: points read before: {again}; reports show the last (NAME=LOG tells apart)")
        seen.update(keys)
    return found
