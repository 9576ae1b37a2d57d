"""Schedules as files: JSON that people and other programs can write, and that runs as an algorithm.

Version history
    1   format, version, name, grid, chunks, rounds, columns, moves

A move is a row of `columns`: round, src, dst, chunk, nchunks, what ("keep" or "add"), lane. Moves of one round between
the same two ranks meet in the order of the file. An unknown or missing field is refused.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ddlbench.errors import UsageError
from ddlbench.schedule.algorithm import Algorithm
from ddlbench.schedule.grid import Grid
from ddlbench.schedule.lower import Schedule
from ddlbench.schedule.move import ADD, KEEP, SEND, STEP, Phase, Table
from ddlbench.schedule.verify import raise_moves

FORMAT, VERSION = "ddlbench-schedule", 1
COLUMNS = ["round", "src", "dst", "chunk", "nchunks", "what", "lane"]
FIELDS = ("format", "version", "name", "grid", "chunks", "rounds", "columns", "moves")
_WHAT = {"keep": KEEP, "add": ADD}


def to_json(schedule: Schedule) -> dict[str, Any]:
    """Return `schedule` (the tables of all ranks) as a JSON value."""
    moves = raise_moves(schedule.table, schedule.ranks)
    received = schedule.table[moves.receive]
    names = {kind: name for name, kind in _WHAT.items()}
    rows = [
        [int(s["round"]), int(s["peer"]), int(s["rank"]), int(s["chunk"]), int(s["nchunks"]), names[int(s["kind"])],
         int(s["lane"])]
        for s in received
    ]  # fmt: skip
    head = {"format": FORMAT, "version": VERSION, "name": schedule.name, "grid": str(schedule.grid)}
    return {**head, "chunks": schedule.chunks, "rounds": schedule.rounds, "columns": COLUMNS, "moves": rows}


def load_algorithm(path: Path) -> Algorithm:
    """Read a schedule file as an algorithm for its number of ranks; `UsageError` names the file and the fault."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"schedule file {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"schedule file {str(path)!r} is not JSON: {error}") from error
    try:
        return _algorithm(value)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"schedule file {str(path)!r}: {error}") from error


def _algorithm(value: Any) -> Algorithm:
    _check_fields(value)
    grid, rounds, chunks = Grid.parse(value["grid"]), _count(value, "rounds"), _count(value, "chunks")
    table = _table(value["moves"])

    def phases(_: Grid, ranks: npt.ArrayLike) -> Iterator[Phase]:
        yield Phase(rounds, (table[np.isin(table["rank"], ranks)],))

    def why_not(at: Grid) -> str:
        return "" if at.size == grid.size else f"the file holds a schedule for {grid.size} ranks"

    return Algorithm(
        value["name"], "schedule from a file", "", lambda _: chunks, phases, why_not=why_not, costs=None
    )  # fmt: skip


def _check_fields(value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError("expected an object")
    unknown, missing = set(value) - set(FIELDS), set(FIELDS) - set(value)
    if unknown or missing:
        kind, names = ("unknown", unknown) if unknown else ("missing", missing)
        raise ValueError(f"{kind} field {sorted(names)[0]!r}; the fields are {', '.join(FIELDS)}")
    if value["format"] != FORMAT:
        raise ValueError(f"format is {value['format']!r}, expected {FORMAT!r}")
    if value["version"] != VERSION:
        raise ValueError(f"version {value['version']!r} is not known here (this ddlbench reads version {VERSION})")
    if value["columns"] != COLUMNS:
        raise ValueError(f"columns are {value['columns']!r}, expected {COLUMNS!r}")


def _count(value: dict[str, Any], name: str) -> int:
    found = value[name]
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(f"{name} is {found!r}, expected a whole number")
    return found


def _table(moves: Any) -> Table:
    """Return both halves of all moves."""
    table = np.zeros((2, len(moves)), STEP)
    for at, move in enumerate(moves):
        if not isinstance(move, list) or len(move) != len(COLUMNS) or move[5] not in _WHAT:
            raise ValueError(f"move {at} is {move!r}, expected {COLUMNS!r} with what 'keep' or 'add'")
        round_, source, target, chunk, nchunks, what, lane = move
        table[0, at] = (round_, source, target, chunk, nchunks, lane, SEND, 0)
        table[1, at] = (round_, target, source, chunk, nchunks, lane, _WHAT[what], 0)
    return table.reshape(-1)
