"""The algorithms as a table, and the proof of one, for people at a terminal."""

import re
import sys
import time
from collections.abc import Sequence
from fractions import Fraction

from ddlbench.algorithms import available, resolve
from ddlbench.algorithms.naming import CHOOSING, VENDORS, written_grid
from ddlbench.bench.environment import available_nbytes
from ddlbench.errors import ProofError, UsageError
from ddlbench.schedule.algorithm import Algorithm, BoundAlgorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import lower
from ddlbench.schedule.move import ADD, STEP
from ddlbench.schedule.stats import stats
from ddlbench.schedule.verify import verify

EXAMPLE = Grid((4, 2))
MOST_RANKS = 65_536
WORKING_COPIES = 8
"""How many times a schedule's table the memory of a proof is, about."""


def grid_of(ranks: str | None, grid: str | None, otherwise: Grid) -> Grid:
    """Return the grid that the options `--ranks` and `--grid` ask for; raises `UsageError`."""
    if grid is not None:
        written = Grid.parse(grid)
        if written.size > MOST_RANKS:
            raise UsageError(f"--grid {grid}: {written.size} ranks, expected at most {MOST_RANKS}")
        return written if ranks is None else written.check_size(_ranks(ranks).size)
    return otherwise if ranks is None else _ranks(ranks)


def _ranks(text: str) -> Grid:
    if not (re.fullmatch("[0-9]{1,9}", text) and 1 <= int(text) <= MOST_RANKS):
        raise UsageError(f"--ranks {text!r}: expected a whole number from 1 to {MOST_RANKS}")
    return Grid((int(text),))


def listing(ranks: str | None, grid: str | None) -> int:
    """Write the table of algorithms, with what each costs on the grid asked for; return the exit status."""
    on = grid_of(ranks, grid, EXAMPLE)
    rows = [_row(algorithm, on) for algorithm in available()]
    rows += [(name, "", "-", "-", "-", summary, "") for name, summary in (VENDORS | CHOOSING).items()]
    titles = ("name", "parameters", "rounds", "bytes/rank", "across", "what it is", "restriction")
    text = "".join(f"{line}\n" for line in _aligned([titles, *rows], right={2, 3, 4}))
    notes = f"# on a grid of {on}; bytes in vectors: what the busiest rank sends, and what all send to other nodes\n"
    sys.stdout.write(notes + text)
    return 0


def _row(algorithm: Algorithm, on: Grid) -> tuple[str, ...]:
    parameters = " ".join(parameter.name for parameter in algorithm.parameters)
    restriction = algorithm.restriction
    try:
        costs = BoundAlgorithm(algorithm.name, on, algorithm, _defaults(algorithm)).costs()
    except UsageError as error:
        return (algorithm.name, parameters, "-", "-", "-", algorithm.summary, str(error))
    if costs is None:
        return (algorithm.name, parameters, "-", "-", "-", algorithm.summary, restriction)
    figures = (str(costs.rounds), _vectors(costs.sent), _vectors(costs.between_nodes))
    return (algorithm.name, parameters, *figures, algorithm.summary, restriction)


def _defaults(algorithm: Algorithm) -> dict[str, object]:
    return {parameter.name: parameter.default for parameter in algorithm.parameters}


def _vectors(amount: Fraction) -> str:
    """Return an exact amount in vectors as people read it: 7/4 is 1.75."""
    return f"{float(amount):.4g}"


def _aligned(rows: Sequence[tuple[str, ...]], right: set[int]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        pairs = enumerate(zip(row, widths, strict=True))
        lines.append("  ".join(cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in pairs))
    return [line.rstrip() for line in lines]


def proof(text: str, ranks: str | None, grid: str | None) -> int:
    """Prove the algorithm `text` and write its figures; return 1, with the reason, when it is refused."""
    bound = resolve(text, grid_of(ranks, grid, written_grid(text) or Grid((EXAMPLE.size,))))
    if bound.vendor:
        raise UsageError(f"algorithm {text!r} is a vendor's own code: there is no schedule to prove")
    try:
        lines = [_proved(one) for one in bound.explore or (bound,)]
    except ProofError as error:
        sys.stderr.write(f"ddlbench: {text} on {bound.grid} is refused: {error}\n")
        return error.exit_status
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _check_memory(bound: BoundAlgorithm) -> None:
    """Refuse a proof whose tables would not fit into memory; raises `UsageError` with both amounts."""
    ranks = bound.grid.size
    tables = [lower(bound, [rank]).table for rank in (0, ranks - 1)]
    adds = max(int(table["nchunks"][table["kind"] == ADD].sum()) for table in tables) * ranks / bound.chunks
    rows = max(map(len, tables)) * ranks
    need, room = rows * STEP.itemsize * WORKING_COPIES + adds * ranks / 8, available_nbytes()
    if room is not None and need > room:
        gib = 1 << 30
        raise UsageError(
            f"proving {bound.name} on {ranks} ranks takes about {need / gib:.0f} GiB, "
            f"{room / gib:.0f} are free here: ask for fewer ranks"
        )


def _proved(bound: BoundAlgorithm) -> str:
    _check_memory(bound)
    start = time.perf_counter()
    schedule = lower(bound)
    found = verify(schedule)
    seconds = time.perf_counter() - start
    sent = _vectors(stats(schedule).sent)
    return (
        f"{bound.name}: right on {found.ranks} ranks (grid {bound.grid}): {found.rounds} rounds, {found.moves} moves,"
        f" {sent} vectors sent by the busiest rank; proved in {seconds:.3f} s"
    )
