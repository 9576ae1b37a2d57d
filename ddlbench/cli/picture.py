"""A schedule as a picture, with its figures: in the terminal, as SVG, and as a file to run."""

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from inspect import cleandoc
from pathlib import Path

from ddlbench.algorithms import resolve
from ddlbench.algorithms.naming import written_grid
from ddlbench.cli.catalogue import EXAMPLE, grid_of
from ddlbench.errors import ProofError, UsageError
from ddlbench.schedule.algorithm import Algorithm, BoundAlgorithm, Costs
from ddlbench.schedule.draw import PLAIN, Scene, ranks_in_words, scene, text, view
from ddlbench.schedule.format import to_text
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import Schedule, lower
from ddlbench.schedule.stats import differences, stats
from ddlbench.schedule.svg import svg
from ddlbench.schedule.verify import verify

MOST_RANKS = 1024
PAGE_COLUMNS = 100
"""Width where there is no terminal to ask."""
FIGURES = {
    "rounds": "rounds",
    "sent": "sent by a rank, at most",
    "reduced": "added by a rank, at most",
    "total": "sent by all ranks",
    "between_nodes": "of that, between nodes",
}


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for, as it was typed."""

    algorithm: str
    ranks: str | None = None
    grid: str | None = None
    rounds: str | None = None
    only: str | None = None
    explain: bool = False
    svg: str | None = None
    json: str | None = None


def show(wanted: Wanted) -> int:
    """Draw what is wanted, or write it to files; return 1, with the proof's reason, for what is no allreduce."""
    bound = _bound(wanted)
    try:
        schedule = lower(bound)
        refusal = _refusal(schedule)
        drawn = scene(schedule, view(schedule, _range("--rounds", wanted.rounds, schedule.rounds, "rounds"),
                                     _range("--only", wanted.only, schedule.ranks, "ranks")))  # fmt: skip
    except ProofError as error:
        return _refused(wanted, bound, str(error))
    if wanted.svg or wanted.json:
        _write(wanted.svg, lambda: svg(drawn, _caption(schedule)))
        _write(wanted.json, lambda: to_text(schedule))
    else:
        _say(_page(wanted, bound, drawn, refusal))
    return _refused(wanted, bound, refusal) if refusal else 0


def _bound(wanted: Wanted) -> BoundAlgorithm:
    otherwise = written_grid(wanted.algorithm) or Grid((EXAMPLE.size,))
    bound = resolve(wanted.algorithm, grid_of(wanted.ranks, wanted.grid, otherwise))
    if bound.explore:
        many, first = len(bound.explore), bound.explore[0].name
        raise UsageError(f"mode {wanted.algorithm!r} tries {many} schedules; show one of them, such as {first}")
    if bound.vendor:
        raise UsageError(f"algorithm {wanted.algorithm!r} is a vendor's own code: there is no schedule to draw")
    if bound.grid.size > MOST_RANKS:
        raise UsageError(f"grid {bound.grid} has {bound.grid.size} ranks; up to {MOST_RANKS} can be drawn")
    return bound


def _refusal(schedule: Schedule) -> str:
    """Return why the schedule is no allreduce, or ""."""
    try:
        verify(schedule)
    except ProofError as error:
        return str(error)
    return ""


def _range(option: str, given: str | None, limit: int, what: str) -> range | None:
    """Return the numbers that an option such as `--rounds 3-5` means."""
    if given is None:
        return None
    found = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", given)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
    if limit == 0:
        raise UsageError(f"{option} {given!r}: there are no {what}")
    if not first <= last < limit:
        raise UsageError(f"{option} {given!r}: expected {what} from 0 to {limit - 1}, one or as FIRST-LAST")
    return range(first, last + 1)


def _refused(wanted: Wanted, bound: BoundAlgorithm, reason: str) -> int:
    sys.stderr.write(f"ddlbench: {wanted.algorithm} on {bound.grid} is refused: {reason}\n")
    return ProofError.exit_status


def _write(path: str | None, content: Callable[[], str]) -> None:
    """Write a file and say where it is."""
    if path is None:
        return
    try:
        Path(path).write_text(content(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path!r}: {error.strerror}") from error
    sys.stdout.write(f"{path}\n")


def _say(page: str) -> None:
    """Write the page, in ASCII where the output cannot show its signs."""
    try:
        page.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        page = page.translate(PLAIN)
    sys.stdout.write(page)


# ---- The page --------------------------------------------------------------------------------------------------------


def _page(wanted: Wanted, bound: BoundAlgorithm, drawn: Scene, refusal: str) -> str:
    schedule, algorithm = drawn.schedule, bound.builder
    lines = [f"{bound.name} on {ranks_in_words(schedule.ranks)}, grid {bound.grid}", _about(algorithm), ""]
    if wanted.explain:
        lines += [prose(algorithm), ""]
    lines += [*_figures(stats(schedule), bound.costs()), ""]
    proved = "Proved to be an allreduce, with equal bits on all ranks."
    lines += [f"NOT an allreduce: {refusal}" if refusal else proved, _cut(schedule), ""]
    columns = shutil.get_terminal_size((PAGE_COLUMNS, 24)).columns
    return "\n".join([*lines, text(drawn, columns) if schedule.rounds else "Nothing moves."]) + "\n"


def _about(algorithm: Algorithm) -> str:
    return f"{algorithm.summary} ({algorithm.source})" if algorithm.source else algorithm.summary


def prose(algorithm: Algorithm) -> str:
    """Return what the file of an algorithm says at its top, or that it says nothing."""
    inside = (algorithm.flat.pieces, algorithm.flat.allreduce) if algorithm.flat else ()
    for function in (algorithm.costs, *inside, algorithm.chunks, algorithm.phases):
        found = getattr(function, "__globals__", {})
        if found.get("__doc__") and not str(found["__name__"]).startswith("ddlbench.schedule."):
            return cleandoc(found["__doc__"])
    return f"{algorithm.name} comes without an explanation."


def _figures(counted: Costs, stated: Costs | None) -> list[str]:
    """Return the table of what the schedule costs, beside what its closed form says."""
    differ = {difference.figure for difference in differences(counted, stated)} if stated else set()
    lines = [f"{'':26}{'counted':>12}{'closed form':>14}"]
    for name, words in FIGURES.items():
        form = _exact(getattr(stated, name)) if stated else "-"
        remark = "   differs" if name in differ else ""
        lines.append(f"{words:26}{_short(getattr(counted, name)):>12}{form:>14}{remark}")
    return lines


def _short(amount: Fraction | int) -> str:
    return str(amount) if isinstance(amount, int) else f"{float(amount):.6g} n"


def _exact(amount: Fraction | int) -> str:
    return str(amount) if isinstance(amount, int) else f"{amount} n"


def _cut(schedule: Schedule) -> str:
    """Say how the vector of n bytes is cut, and which chunks are whose."""
    plural = "s" if schedule.chunks > 1 else ""
    lanes = len(set(schedule.table["lane"].tolist()))
    shared = f", on {lanes} lanes" if lanes > 1 else ""
    return f"n is the vector's bytes; it is cut into {schedule.chunks} chunk{plural}{shared}."


def _caption(schedule: Schedule) -> str:
    counted = stats(schedule)
    nodes = f", {_exact(counted.between_nodes)} between nodes" if schedule.grid.nodes > 1 else ""
    return (
        f"{counted.rounds} rounds; a rank sends up to {_exact(counted.sent)} and adds up to {_exact(counted.reduced)};"
        f" {_exact(counted.total)} in all{nodes}, for a vector of n bytes"
    )
