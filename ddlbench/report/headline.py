"""The answer of a report in a sentence or two: which algorithm wins at which sizes, by how much, how near the bound."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from ddlbench.report.contest import Contest, Floats, Verdict
from ddlbench.report.units import rate_text, ratio_text, size_text, time_text
from ddlbench.statistics import bus_bandwidth

PIECES = 3
"""At most so many ranges of sizes: more is no answer."""
SWITCH = float(np.log(1.10))
"""A further range must save this much: 10 % at one size, or the same in all."""
LARGE = 2**20
BASELINE = "mpi"


Standing = Literal["wins", "mostly wins", "par", "open"]


class Name(str):
    """The name of an algorithm inside a sentence, which a page sets apart from the words."""

    __slots__ = ()


Sentence = list[str]
"""Words and `Name`s in turn; joined, they are the sentence."""


@dataclass(frozen=True)
class Piece:
    """A range of sizes, rows `first` to `last` of the contest, and the algorithm (a column) to use there.

    `standing`: "par" when `alike` names algorithms whose intervals overlap its own at every size. Otherwise, when it
    clearly wins at half of the sizes or more, "wins", or "mostly wins" if another clearly wins at one; else "open".
    """

    first: int
    last: int
    column: int
    standing: Standing
    alike: tuple[int, ...]


def choice(contest: Contest) -> list[int]:
    """Return the algorithm (a column) to use at each size, as few changes as pay.

    The choice minimises the summed log of its time over the best time of each size, plus `SWITCH` for every change. An
    algorithm whose interval overlaps the best one's costs next to nothing. The price of a change rises until there are
    at most `PIECES` ranges.
    """
    best = contest.median[np.arange(len(contest.nbytes)), contest.best]
    behind = np.log(contest.median / best[:, None])
    behind = np.where(contest.overlaps(contest.best), behind * 1e-6, behind)
    cost = np.where(np.isnan(behind), np.inf, behind)
    price = SWITCH
    while len(_changes(picked := _cheapest_path(cost, price))) > PIECES and price < 1e3:
        price *= 1.5
    return [int(column) for column in picked]


def _cheapest_path(cost: Floats, price: float) -> npt.NDArray[np.int64]:
    """Return the column of each row on the path of least cost, a change of column costing `price` (Viterbi)."""
    rows, columns = cost.shape
    total, came = cost[0], np.zeros((rows, columns), dtype=np.int64)
    for row in range(1, rows):
        cheapest = int(np.argmin(total))
        stays = total <= total[cheapest] + price
        came[row] = np.where(stays, np.arange(columns), cheapest)
        total = np.where(stays, total, total[cheapest] + price) + cost[row]
    path = np.empty(rows, dtype=np.int64)
    path[-1] = np.argmin(total)
    for row in range(rows - 1, 0, -1):
        path[row - 1] = came[row, path[row]]
    return path


def _changes(path: npt.NDArray[np.int64]) -> list[int]:
    """Return the rows at which a range of one column begins."""
    return [0, *(int(row) + 1 for row in np.flatnonzero(np.diff(path)))]


def pieces(contest: Contest, wins: list[Verdict]) -> list[Piece]:
    """Return the ranges of sizes of a contest of two algorithms or more, with what can be said of each."""
    path = np.asarray(choice(contest))
    starts = _changes(path)
    ends = [start - 1 for start in starts[1:]] + [len(path) - 1]
    overlaps = contest.overlaps(path)
    found = [_piece(first, last, int(path[first]), wins, overlaps) for first, last in zip(starts, ends, strict=True)]
    return _merged(found)


def _merged(found: list[Piece]) -> list[Piece]:
    """Return the pieces with neighbours that have no winner made one."""
    merged = found[:1]
    for piece in found[1:]:
        if piece.standing == merged[-1].standing == "open":
            merged[-1] = replace(merged[-1], last=piece.last)
        else:
            merged.append(piece)
    return merged


def _piece(first: int, last: int, column: int, wins: list[Verdict], overlaps: npt.NDArray[np.bool_]) -> Piece:
    always = np.flatnonzero(overlaps[first : last + 1].all(axis=0))
    alike = tuple(int(other) for other in always if other != column)
    won = [win.winner == column for win in wins[first : last + 1] if win.outcome == "clear"]
    standing: Standing = "wins" if all(won) else "mostly wins"
    if 2 * sum(won) <= last - first:
        standing = "open"
    return Piece(first, last, column, "par" if alike else standing, alike)


def _range(contest: Contest, piece: Piece) -> str:
    low, high = size_text(int(contest.nbytes[piece.first])), size_text(int(contest.nbytes[piece.last]))
    last = len(contest.nbytes) - 1
    if piece.first == piece.last:
        return f"at {low}"
    if (piece.first, piece.last) == (0, last):
        each = {"open": "at any size ", "mostly wins": ""}.get(piece.standing, "at every size ")
        return f"{each}from {low} to {high}"
    if piece.first == 0:
        return f"up to {high}"
    return f"from {low}" if piece.last == last else f"from {low} to {high}"


def _listed(names: list[str]) -> Sentence:
    """Return two names or more as a list in words; of more than three, the first two."""
    items = [Name(name) for name in names] if len(names) <= 3 else [*map(Name, names[:2]), f"{len(names) - 2} others"]
    words: Sentence = [items[0]]
    for item in items[1:-1]:
        words += [", ", item]
    return [*words, " and ", items[-1]]


def _clause(contest: Contest, piece: Piece, before: Piece | None) -> Sentence:
    name, where = contest.names[piece.column], _range(contest, piece)
    if piece.standing == "par":
        return [*_listed([name, *(contest.names[other] for other in piece.alike)]), f" are on a par {where}"]
    if piece.standing == "open":
        return [f"no clear winner {where}"]
    return [Name(name), f" {where}" if before and before.standing == piece.standing else f" {piece.standing} {where}"]


def _sentence(clauses: Iterable[Sentence]) -> Sentence:
    """Join clauses to a sentence: a capital at its start unless an algorithm's name stands there, a full stop."""
    words: Sentence = []
    for clause in clauses:
        words += [", ", *clause] if words else clause
    if not isinstance(words[0], Name):
        words[0] = words[0][0].upper() + words[0][1:]
    return [*words, "."]


def headline(contest: Contest, wins: list[Verdict]) -> Sentence:
    """Return the sentence that answers which algorithm wins where."""
    if not contest.names:
        return ["No algorithm gave a right result here."]
    if len(contest.names) == 1:
        return ["Only ", Name(contest.names[0]), " gave results, so there is nothing to compare it with."]
    ranges = pieces(contest, wins)
    return _sentence(_clause(contest, piece, before) for piece, before in zip(ranges, [None, *ranges], strict=False))


def lede(contest: Contest, wins: list[Verdict], ranks: int) -> list[Sentence]:
    """Return the sentences that stand below the headline: by how much, how sure, how near the bound."""
    if not contest.names:
        return []
    if len(contest.names) == 1:
        return [*_reached(contest, 0, ranks), *_against_bound(contest, 0)]
    path = choice(contest)
    return [*_speed_up(contest, path), *_doubts(contest, path, wins), *_against_bound(contest, path[-1])]


def _reached(contest: Contest, column: int, ranks: int) -> Iterator[Sentence]:
    """Say what the only algorithm reaches at its largest size."""
    row = int(np.flatnonzero(~np.isnan(contest.median[:, column]))[-1])
    nbytes, time_us = int(contest.nbytes[row]), float(contest.median[row, column])
    rate = f", a bus bandwidth of {rate_text(bus_bandwidth(nbytes, time_us, ranks))}" if ranks > 1 and nbytes else ""
    yield [f"It takes {time_text(time_us)} at {size_text(nbytes)}{rate}."]


def _speed_up(contest: Contest, path: list[int]) -> Iterator[Sentence]:
    """Say how many times as fast as the baseline, or else as the next best, the choice for large vectors is.

    Nothing is said where their intervals overlap at half of the sizes.
    """
    column = path[-1]
    rows = _large(contest, path)
    other = contest.column(BASELINE)
    if other is None or other == column:
        other = _next_best(contest, rows, column)
    if other is None:
        return
    rows = rows[~np.isnan(contest.median[rows, other])]
    if not _mostly_apart(contest, rows, column, other):
        return
    mean = float(np.exp(np.log(contest.median[rows, other] / contest.median[rows, column]).mean()))
    how = "geometric mean, " if len(rows) > 1 else ""
    next_best = "" if contest.names[other] == BASELINE else ", the next best"
    faster = f" is {ratio_text(mean)} as fast as "
    where = f"{next_best} ({how}{size_text(int(contest.nbytes[rows[0]]))} and above)."
    yield [Name(contest.names[column]), faster, Name(contest.names[other]), where]


def _mostly_apart(contest: Contest, rows: npt.NDArray[np.int64], column: int, other: int) -> bool:
    """Return whether the intervals of two algorithms are known and apart at more than half of some sizes."""
    low, high = contest.low[rows], contest.high[rows]
    faster, slower = high[:, column] < low[:, other], high[:, other] < low[:, column]
    return bool(2 * (faster | slower).sum() > len(rows))


def _large(contest: Contest, path: list[int]) -> npt.NDArray[np.int64]:
    """Return the rows of the last range of a choice: those from 1 MiB on, or all when there is none so large."""
    rows = np.arange(_changes(np.asarray(path))[-1], len(path))
    large = rows[contest.nbytes[rows] >= LARGE]
    return large if len(large) else rows


def _next_best(contest: Contest, rows: npt.NDArray[np.int64], column: int) -> int | None:
    """Return the algorithm (a column) next to `column` in the geometric mean over `rows`, measured at all of them."""
    means = np.log(contest.median[rows]).mean(axis=0)
    means[column] = np.nan
    return None if np.isnan(means).all() else int(np.nanargmin(means))


def _doubts(contest: Contest, path: list[int], wins: list[Verdict]) -> Iterator[Sentence]:
    """Say where the headline's choice is behind the best of a size, and at how many sizes no winner can be called."""
    rows = np.arange(len(path))
    best = contest.best
    behind = contest.median[rows, path] / contest.median[rows, best]
    behind[contest.overlaps(np.asarray(path))[rows, best]] = 1
    worst = int(np.argmax(behind))
    if behind[worst] > 1.005:
        size, faster = size_text(int(contest.nbytes[worst])), ratio_text(float(behind[worst]))
        yield [
            f"That choice is at its worst at {size}: ",
            Name(contest.names[best[worst]]),
            f" is {faster} as fast there.",
        ]
    alike = sum(win.outcome == "alike" for win in wins)
    if alike:
        yield [f"At {alike} of {len(wins)} sizes the best intervals overlap: no clear winner there."]
    unknown = sum(win.outcome == "unknown" for win in wins)
    if unknown:
        yield [f"At {unknown} of {len(wins)} sizes there is no interval to tell by: no winner called."]


def _against_bound(contest: Contest, column: int) -> Iterator[Sentence]:
    """Say how many times the lower bound the algorithm takes at its largest size that has one.

    Where it is clearly faster, the bound is none.
    """
    bound = contest.bound_us[:, column]
    ratio = contest.median[:, column] / np.where(bound > 0, bound, np.nan)
    known = np.flatnonzero(~np.isnan(ratio))
    if len(known):
        row = int(known[-1])
        beaten = ", which is none, then" if contest.high[row, column] < bound[row] else ""
        where = f" takes {ratio_text(float(ratio[row]))} the lower bound{beaten}."
        yield [f"At {size_text(int(contest.nbytes[row]))} ", Name(contest.names[column]), where]
