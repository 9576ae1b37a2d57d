"""A comparison of two runs as people read it: a table, what it comes to, and the exit status of a guard."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from ddlbench.compare import Comparison, Finding, Margin, compare, write_csv
from ddlbench.compare.comparison import Mean, Verdict
from ddlbench.compare.pairing import SETTING, time_us
from ddlbench.compare.shift import Shift
from ddlbench.errors import UsageError, unknown
from ddlbench.records import Loaded, Point, load
from ddlbench.report.facts import facts
from ddlbench.report.markup import FORMS, TextTable, markdown_text
from ddlbench.report.units import SPACE, counted, digits, size_text, time_text

DEFAULT_MARGIN = "5%"
NAMED = 5
"""Points that a summary names before the rest are only counted."""
PLACES = {True: "in", False: "out"}
NOTABLE: tuple[Verdict, ...] = ("slower", "lost", "faster")
STYLES = {"slower": "bold red", "lost": "bold red", "faster": "green", "unclear": "yellow"}


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for."""

    base: str
    new: str
    margin: str | None = None
    fail_if_slower: str | None = None
    anyway: bool = False
    csv: str | None = None
    table: str | None = None

    @property
    def limit(self) -> Margin:
        """The margin asked for; raises `UsageError`."""
        if self.margin is not None and self.fail_if_slower is not None:
            raise UsageError("--margin and --fail-if-slower are one figure: give either")
        if self.fail_if_slower is not None:
            return Margin.parse(self.fail_if_slower, "--fail-if-slower")
        return Margin.parse(DEFAULT_MARGIN if self.margin is None else self.margin, "--margin")

    @property
    def form(self) -> str:
        """The form of the table asked for; raises `UsageError`."""
        if self.table is not None and self.table not in FORMS:
            raise unknown("table", self.table, FORMS)
        return self.table or "plain"


def show(wanted: Wanted) -> int:
    """Write the comparison that is wanted; return 1 when it was to fail on a regression and there is one.

    Raises `UsageError` for options, for directories without a run and for runs that cannot be compared.
    """
    limit, form = wanted.limit, wanted.form
    base, new = _read(wanted.base), _read(wanted.new)
    found = compare(base, new, limit, anyway=wanted.anyway)
    if wanted.fail_if_slower is not None and not found.tested and not found.of("lost"):
        raise UsageError(f"--fail-if-slower {wanted.fail_if_slower}: no point has samples enough in both runs")
    before = [*_about("BASE", wanted.base, base), *_about("NEW", wanted.new, new), *_conditions(found)]
    _write(before, found, form)
    if wanted.csv is not None:
        write_csv(found, wanted.csv)
    return 0 if wanted.fail_if_slower is None else _guard(found)


def _read(directory: str) -> Loaded:
    """Return the run in `directory`, after warnings of what could not be read."""
    loaded = load(directory)
    for problem in loaded.problems:
        sys.stderr.write(f"ddlbench: warning: {Path(directory)}: {problem}\n")
    return loaded


def _about(name: str, directory: str, loaded: Loaded) -> Iterator[str]:
    """Yield what a run is, and what speaks against its figures."""
    told = dict(facts(loaded))
    parts = [told[label] for label in ("Ranks", "MPI", "Program", "Date") if label in told]
    yield f"{name}: {directory}: {', '.join(parts)}".replace(SPACE, " ")
    if not loaded.run.finished:
        yield f"to mind in {name}: the run did not finish; {counted(len(loaded.points), 'point')} stored"
    for flag in loaded.run.trust:
        yield f"to mind in {name}: {flag.flag}: {flag.detail}"


def _conditions(found: Comparison) -> Iterator[str]:
    for obstacle in found.likeness.obstacles:
        yield f"compared anyway: {obstacle}"
    for change in found.likeness.changes:
        yield f"differs: {change}"
    yield (
        "ratio: time in NEW over time in BASE, with its 95 % interval; p: rank-sum test, corrected for the number of "
        f"points; same: within {found.margin}"
    )


def _table(found: Comparison) -> TextTable:
    """Return the table, with the columns of the setting in which points differ."""
    varied = _varied(found)
    titles = ("size", "algorithm", *(_title(field) for field in varied), "BASE", "NEW", "ratio", "interval", "p")
    rows = [(*_setting(finding.point, varied), *_figures(finding)) for finding in found.findings]
    first = len(varied) + 2
    return TextTable((*titles, "verdict", ""), frozenset({0, *range(first, first + 5)}), rows)


def _varied(found: Comparison) -> list[str]:
    """Return the fields of the setting, but size and algorithm, in which the points differ."""
    points = [finding.point for finding in found.findings]
    return [field for field in SETTING[2:] if len({getattr(point, field) for point in points}) > 1]


def _title(field: str) -> str:
    return {"in_place": "place", "ranks_per_node": "per node"}.get(field, field)


def _setting(point: Point, varied: Iterable[str]) -> tuple[str, ...]:
    cells = (PLACES[point.in_place] if field == "in_place" else str(getattr(point, field)) for field in varied)
    return (_spaced(size_text(point.nbytes)), point.algorithm, *cells)


def _spaced(text: str) -> str:
    return text.replace(SPACE, " ")


def _figures(finding: Finding) -> tuple[str, ...]:
    times = (time_us(finding.pair.base), time_us(finding.pair.new))
    shown = [_spaced(time_text(time)) if time > 0 else "-" for time in times]
    shift = finding.shift
    p = "" if math.isnan(finding.p) else "<0.001" if finding.p < 0.001 else f"{finding.p:.3f}"
    return (*shown, _ratio(shift.ratio), _interval(shift), p, finding.verdict, finding.why)


def _ratio(ratio: float) -> str:
    if math.isnan(ratio):
        return "-"
    return f"{ratio:.3f}" if ratio < 10 else digits(ratio)


def _interval(found: Shift | Mean) -> str:
    return "" if math.isnan(found.low) else f"{_ratio(found.low)} to {_ratio(found.high)}"


def _summary(found: Comparison) -> Iterator[str]:
    """Yield what the points come to, the worst of them by name."""
    means = found.means()
    if means:
        yield "geometric mean of the ratios:"
        width = max(len(mean.algorithm) for mean in means)
        for mean in means:
            interval = _interval(mean) and f" ({_interval(mean)})"
            over = f"over {counted(mean.points, 'point')}"
            yield f"  {mean.algorithm:<{width}}  {_ratio(mean.ratio)}{interval} {over}"
    yield _tally(found)
    for verdict in NOTABLE:
        if named := _named(found, verdict):
            yield f"{verdict}: {named}"


def _tally(found: Comparison) -> str:
    counts = [(verdict, len(found.of(verdict))) for verdict in get_args(Verdict)]
    parts = [f"{number} {verdict}" for verdict, number in counts if number]
    neither = f"; {counted(found.neither, 'point')} right in neither run" if found.neither else ""
    return f"{counted(len(found.findings), 'point')}: {', '.join(parts)}{neither}"


def _named(found: Comparison, verdict: Verdict) -> str:
    """Return the points of a verdict by name, the greatest changes first, and how many more there are."""
    findings = found.of(verdict)
    varied = _varied(found)
    names = [_name(finding, varied) for finding in findings[:NAMED]]
    more = f"; and {len(findings) - NAMED} more" if len(findings) > NAMED else ""
    return "; ".join(names) + more


def _name(finding: Finding, varied: Sequence[str]) -> str:
    size, algorithm, *setting = _setting(finding.point, varied)
    plain = ("dtype", "op", "device", "sync", "cache")
    words = (cell if field in plain else f"{_title(field)} {cell}" for field, cell in zip(varied, setting, strict=True))
    shift = finding.shift
    figure = f"{_ratio(shift.ratio)} ({_interval(shift)})" if shift.known else finding.why
    return f"{' '.join((algorithm, size, *words))}: {figure}"


def _write(before: Sequence[str], found: Comparison, form: str) -> None:
    """Write the notes, the table and the summary to standard output."""
    if form == "plain":
        _write_plain(before, found)
        return
    note = _markdown_note if form == "markdown" else _latex_note
    notes, after = ("".join(map(note, lines)) for lines in (before, _summary(found)))
    sys.stdout.write(f"{notes}\n{FORMS[form](_table(found))}\n{after}")


def _markdown_note(line: str) -> str:
    """Return a line as an item of a list, under the one above when it is indented."""
    return f"{'  ' if line.startswith(' ') else ''}- {markdown_text(line)}\n"


def _latex_note(line: str) -> str:
    return f"% {_printable(line)}\n"


def _write_plain(before: Sequence[str], found: Comparison) -> None:
    notes, after = ([(f"# {line}", "") for line in some] for some in (before, _summary(found)))
    titles, *rows = _aligned(_table(found))
    verdicts = [STYLES.get(finding.verdict, "") for finding in found.findings]
    _print([*notes, (titles, "bold"), *zip(rows, verdicts, strict=True), *after])


def _printable(line: str) -> str:
    """Return a line without what would make a terminal do more than show it."""
    return "".join(sign if sign.isprintable() else " " for sign in line)


def _print(lines: Iterable[tuple[str, str]]) -> None:
    """Write lines to standard output, in their styles when it is a terminal."""
    lines = [(_printable(line), style) for line, style in lines]
    if not sys.stdout.isatty():
        sys.stdout.write("".join(f"{line}\n" for line, _ in lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for line, style in lines:
        console.print(Text(line, style=style), soft_wrap=True)


def _aligned(table: TextTable) -> list[str]:
    rows = [table.titles, *table.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        pairs = enumerate(zip(row, widths, strict=True))
        cells = (cell.rjust(width) if at in table.right else cell.ljust(width) for at, (cell, width) in pairs)
        lines.append("  ".join(cells).rstrip())
    return lines


def _guard(found: Comparison) -> int:
    """Say on standard error which points make a guard fail, and what it could not see; return its exit status."""
    slower, lost = found.of("slower"), found.of("lost")
    unseen = sum(not finding.shift.known for finding in found.of("unclear"))
    if unseen:
        sys.stderr.write(f"ddlbench: warning: {counted(unseen, 'point')} without what a verdict takes\n")
    if slower:
        number = counted(len(slower), "point")
        sys.stderr.write(
            f"ddlbench: {number} slower than BASE by more than {found.margin}: {_named(found, 'slower')}\n"
        )
    if lost:
        sys.stderr.write(
            f"ddlbench: {counted(len(lost), 'point')} lost since BASE: {_printable(_named(found, 'lost'))}\n"
        )
    return 1 if slower or lost else 0
