"""The comparison as text for a terminal, and as CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite

from ddlbench.peers.figures import Agreement, Column, Figure, fastest_vendor, sizes
from ddlbench.report.units import digits, ratio_text, size_text

FIGURES = (
    "nbytes",
    "column",
    "algorithm",
    "time_us_median",
    "time_us_ci_low",
    "time_us_ci_high",
    "samples",
    "passes",
    "fastest_vendor_us",
    "times_fastest_vendor",
)
MEANS = ("nbytes", "program", "algorithm", "program_us_mean", "ddlbench_us_mean", "ratio")


def comparison(columns: Sequence[Column]) -> list[str]:
    """Return the lines of the table of medians: a row for each size, a column for each contender."""
    rows = [[size_text(nbytes), *_cells(columns, nbytes)] for nbytes in sizes(columns)]
    return aligned([["bytes", *(one.title for one in columns)], *rows])


def _cells(columns: Sequence[Column], nbytes: int) -> Iterator[str]:
    fastest = fastest_vendor(columns, nbytes)
    for one in columns:
        found = one.figures.get(nbytes)
        yield "-" if found is None else _cell(found, fastest, one.title)


def _cell(found: Figure, fastest: float | None, title: str) -> str:
    """Return median, interval and ratio, and the algorithm where the title does not say it."""
    times = "" if fastest is None else f"{ratio_text(found.median_us / fastest):>5}"
    algorithm = "" if found.algorithm == title else found.algorithm.partition(" (")[0]
    spread = f" ±{100 * found.spread:2.0f} %" if isfinite(found.spread) else ""
    return "  ".join(filter(None, (algorithm, f"{digits(found.median_us)}{spread}", times)))


def agreement(means: Sequence[Agreement]) -> list[str]:
    """Return the lines of the tables of means, one for each program; none without programs."""
    lines = []
    for program in dict.fromkeys(one.program for one in means):
        found = [one for one in means if one.program == program]
        rows = [[size_text(a.nbytes), digits(a.ours_us), digits(a.theirs_us), ratio_text(a.ratio)] for a in found]
        lines += [
            "",
            "# means in µs over repetitions and ranks, of the middle pass; ddlbench's as a multiple of the other",
        ]
        lines += aligned([["bytes", f"ddlbench {found[0].partner}", program, "ratio"], *rows])
    return lines


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines, each column as wide as its widest cell and set to the right."""
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def figures_csv(columns: Sequence[Column]) -> str:
    """Return all figures as CSV, a line for each cell of the table."""
    return _csv(FIGURES, (_line(one, nbytes, columns) for nbytes in sizes(columns) for one in columns))


def _line(one: Column, nbytes: int, columns: Sequence[Column]) -> list[object] | None:
    found, fastest = one.figures.get(nbytes), fastest_vendor(columns, nbytes)
    if found is None:
        return None
    times = [found.median_us, found.low_us, found.high_us]
    ratio = "" if fastest is None else f"{found.median_us / fastest:.4f}"
    against = ["" if fastest is None else _us(fastest), ratio]
    return [nbytes, one.title, found.algorithm, *map(_us, times), found.samples, found.passes, *against]


def means_csv(found: Iterable[Agreement]) -> str:
    """Return the means of all programs as CSV."""
    return _csv(
        MEANS,
        ([a.nbytes, a.program, a.partner, _us(a.theirs_us), _us(a.ours_us), f"{a.ratio:.4f}"] for a in found),
    )


def _us(value: float) -> str:
    return f"{value:.3f}" if isfinite(value) else ""


def _csv(titles: Sequence[str], rows: Iterable[Sequence[object] | None]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(titles)
    writer.writerows(row for row in rows if row is not None)
    return text.getvalue()
