"""Settings that differ in their ranks alone: who wins as ranks are added, and how efficiency falls.

N ranks must send and receive 2(N - 1)/N vectors each, so the bus bandwidth of a machine without limits stays the same
as ranks are added. The efficiency at N against a baseline N₀ is the ratio of bus bandwidths, busbw(N) / busbw(N₀), of
one algorithm at one size; the speed-up is N/N₀ times that. `docs/measurement.md` derives both.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import numpy as np

from ddlbench.report.contest import Contest, Setting
from ddlbench.report.headline import Name, Sentence, choice
from ddlbench.report.shapes import Shape, least
from ddlbench.report.units import counted, percent_text, size_text
from ddlbench.statistics import bus_bandwidth

Unit = Literal["node", "rank"]


@dataclass(frozen=True)
class Line:
    """Settings along which one number grows and another stays.

    `unit` is what grows and `at` how many there are in each setting, ascending; `places` are the settings' positions in
    the list of all, and `fixed` says what stays the same. The first is the baseline N₀.
    """

    unit: Unit
    fixed: str
    at: tuple[int, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """A shape, and the settings that have its points: positions in the list of all, that with the most right first.

    More than one are of one run and differ in how starts were aligned.
    """

    shape: Shape
    places: tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """Settings alike but for their ranks and nodes, how starts were aligned, and the run.

    `members` are their positions in the list of all settings. `places` are those of them that are columns of a map, by
    ranks: of those that differ only in how starts were aligned, the one with the most right results. `heads` is what
    each column is called, in two parts; `lines` the ways to look at efficiency, empty where there is but one rank
    count. `layouts` are the shapes of a table of efficiency, by ranks, and `base` is the position among them of N₀;
    None where it is not there.
    """

    members: tuple[int, ...]
    places: tuple[int, ...]
    heads: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    layouts: tuple[Layout, ...]
    base: int | None

    @property
    def spread(self) -> bool:
        """Whether there is more than one rank count, so that a map says something."""
        return len({ranks for ranks, _ in self.heads}) > 1


def efficiency(time_us: float, ranks: int, base_time_us: float, base_ranks: int) -> float:
    """Return the bus bandwidth over that of the baseline for vectors of one size; NaN where either has none."""
    return bus_bandwidth(1, time_us, ranks) / bus_bandwidth(1, base_time_us, base_ranks)


def families(settings: Sequence[Setting], right: Sequence[int], baseline: Shape | None = None) -> list[Family]:
    """Return the families of settings, in the order of their first ones; `right` counts the right results of each.

    `baseline` is N₀; None means the least shape of each family.
    """
    places: dict[tuple[str, ...], list[int]] = {}
    for place, setting in enumerate(settings):
        key = (setting.dtype, setting.op, str(setting.in_place), setting.device, setting.cache)
        places.setdefault(key, []).append(place)
    return [_family(settings, right, members, baseline) for members in places.values()]


def _family(settings: Sequence[Setting], right: Sequence[int], members: list[int], baseline: Shape | None) -> Family:
    fewest_first = sorted(members, key=lambda place: right[place])
    columns = {(settings[place].run, _layout(settings[place])): place for place in fewest_first}
    ordered = sorted(columns.values(), key=lambda place: (settings[place].ranks, settings[place].nodes, place))
    of = [settings[place] for place in ordered]
    fullest = [place for place in fewest_first if place in ordered]
    lines = _lines([settings[place] for place in fullest], fullest)
    layouts = _layouts(settings, fewest_first, fullest)
    shapes = [layout.shape for layout in layouts]
    base = baseline or least(shapes)
    at = shapes.index(base) if base in shapes else None
    return Family(tuple(members), tuple(ordered), tuple(_heads(of)), tuple(lines), tuple(layouts), at)


def _layouts(settings: Sequence[Setting], members: Sequence[int], fullest: Sequence[int]) -> list[Layout]:
    """Return the shapes of a family by ranks; of runs with one shape, that of the last in `fullest` counts."""
    first = {_layout(settings[place]): place for place in fullest}

    def places(chosen: int) -> Iterator[int]:
        run, shape = settings[chosen].run, _layout(settings[chosen])
        yield chosen
        for place in reversed(members):
            if place != chosen and (settings[place].run, _layout(settings[place])) == (run, shape):
                yield place

    return [Layout(shape, tuple(places(first[shape]))) for shape in sorted(first)]


def _layout(setting: Setting) -> Shape:
    return Shape(setting.ranks, setting.nodes, setting.ranks_per_node)


def _heads(of: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    """Yield the heads of columns: the ranks, and below them what else tells the column from the others."""
    over_nodes = any(setting.nodes > 1 for setting in of)
    starts = {setting.sync for setting in of}
    layouts = [_layout(setting) for setting in of]
    for setting in of:
        parts = [counted(setting.nodes, "node")] if over_nodes else []
        parts += [setting.sync] if len(starts) > 1 and setting.sync else []
        parts += [setting.run] if setting.run and layouts.count(_layout(setting)) > 1 else []
        yield counted(setting.ranks, "rank"), ", ".join(parts)


def _lines(of: Sequence[Setting], places: Sequence[int]) -> list[Line]:
    """Return the lines of a family, longest first, nodes before ranks; of settings with one layout, the last counts.

    One rank has no bus bandwidth and is on none.
    """
    last = {_layout(setting): (setting, place) for setting, place in zip(of, places, strict=True) if setting.ranks > 1}
    members = list(last.values())
    found = [*_along("node", members), *_along("rank", members)]
    if not found and len({setting.ranks for setting, _ in members}) > 1:
        found = [_line("rank", "on different numbers of nodes", {s.ranks: place for s, place in members})]
    return sorted(found, key=lambda line: -len(line.at))


def _along(unit: Unit, members: Iterable[tuple[Setting, int]]) -> Iterator[Line]:
    """Yield the lines along which nodes grow with the same ranks on each, or ranks on the same nodes."""

    def fixed(member: tuple[Setting, int]) -> str:
        setting = member[0]
        if unit == "rank":
            return f"on {counted(setting.nodes, 'node')}"
        return f"of {counted(int(setting.ranks_per_node), 'rank')}" if setting.ranks_per_node.isdecimal() else ""

    for words, group in groupby(sorted(members, key=fixed), key=fixed):
        numbers = {setting.nodes if unit == "node" else setting.ranks: place for setting, place in group}
        if words and len(numbers) > 1:
            yield _line(unit, words, numbers)


def _line(unit: Unit, fixed: str, numbers: dict[int, int]) -> Line:
    at = tuple(sorted(numbers))
    return Line(unit, fixed, at, tuple(numbers[number] for number in at))


def fall(line: Line, settings: Sequence[Setting], contests: Sequence[Contest]) -> Iterator[Sentence]:
    """Say how much of its bus bandwidth the headline's choice for large vectors keeps along a line, if it is known."""
    start = _start(line, settings)
    (base, first), (_, last) = ((settings[place], contests[place]) for place in (line.places[start], line.places[-1]))
    if not first.names or not last.names:
        return
    name = last.names[choice(last)[-1]]
    found = _common(first, last, name)
    if found is None:
        return
    nbytes, base_us, time_us = found
    share = efficiency(time_us, settings[line.places[-1]].ranks, base_us, base.ranks)
    there = f"on {line.at[start]:,}" if line.unit == "rank" or base.nodes > 1 else "inside one"
    where = f" reaches {percent_text(share)} of its bus bandwidth {there} ({size_text(nbytes)})."
    yield [f"On {counted(line.at[-1], line.unit)} ", Name(name), where]


def _start(line: Line, settings: Sequence[Setting]) -> int:
    """Return where on a line the sentence of its fall begins: at the first shape over the network, if two are."""
    over = [at for at, place in enumerate(line.places) if settings[place].nodes > 1]
    return over[0] if len(over) > 1 else 0


def _common(first: Contest, last: Contest, name: str) -> tuple[int, float, float] | None:
    """Return the largest size at which both contests have a time of an algorithm, and the two times in µs."""
    columns = (first.column(name), last.column(name))
    if columns[0] is None or columns[1] is None:
        return None
    here = dict(zip(first.nbytes.tolist(), first.median[:, columns[0]].tolist(), strict=True))
    there = dict(zip(last.nbytes.tolist(), last.median[:, columns[1]].tolist(), strict=True))
    both = [size for size in here.keys() & there.keys() if size and np.isfinite(here[size] + there[size])]
    return (max(both), here[max(both)], there[max(both)]) if both else None
