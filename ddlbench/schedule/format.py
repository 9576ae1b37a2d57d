"""Schedules as files: JSON that people and other programs can write, and that runs as an algorithm.

Version history
    1   format, version, name, grid, chunks, rounds, columns, moves

A move is a row of `columns`: round, src, dst, chunk, nchunks, what ("keep" or "add"), lane. Moves of one round between
the same two ranks meet in the order of the file. An unknown or missing field is refused.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
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
MOST = 1 << 24
"""The most ranks, chunks or rounds that a file may ask for: far beyond use, and no mistake in it takes all memory."""
_WHAT = {"keep": KEEP, "add": ADD}
MOST_LANE = int(np.iinfo(np.int16).max)


def to_json(schedule: Schedule) -> dict[str, Any]:
    """Return `schedule` (the tables of all ranks) as a JSON value; raises `ProofError` where moves do not pair up."""
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


def to_text(schedule: Schedule) -> str:
    """Return `schedule` as the text of a file, one move a line; raises as `to_json` does."""
    value = to_json(schedule)
    moves = ",\n".join("  " + json.dumps(move) for move in value.pop("moves"))
    head = "".join(f"{json.dumps(name)}: {json.dumps(field)},\n" for name, field in value.items())
    return f'{{\n{head}"moves": [\n{moves}\n]\n}}\n'


def load_algorithm(path: Path) -> Algorithm:
    """Read a schedule file as an algorithm for its number of ranks; `UsageError` names the file and the fault."""
    return _read(path).algorithm()


def load_grid(path: Path) -> Grid:
    """Return the grid of a schedule file; raises as `load_algorithm` does."""
    return _read(path).grid


@dataclass(frozen=True)
class _Stored:
    """What a file holds; `table` has both halves of all moves."""

    name: str
    grid: Grid
    chunks: int
    rounds: int
    table: Table

    def algorithm(self) -> Algorithm:
        return Algorithm(
            self.name, "schedule from a file", "", lambda _: self.chunks, self._phases, why_not=self._why_not
        )

    def _phases(self, _: Grid, ranks: npt.ArrayLike) -> Iterator[Phase]:
        yield Phase(self.rounds, (self.table[np.isin(self.table["rank"], ranks)],))

    def _why_not(self, at: Grid) -> str:
        return "" if at.size == self.grid.size else f"the file holds a schedule for {self.grid.size} ranks"


def _read(path: Path) -> _Stored:
    where = f"schedule file {str(path)!r}"
    try:
        return _stored(json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_fields_once))
    except OSError as error:
        raise UsageError(f"{where}: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    except (UsageError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError(f"a field stands twice among {', '.join(names)}")
    return dict(pairs)


def _stored(value: Any) -> _Stored:
    _check_fields(value)
    grid, chunks, rounds = Grid.parse(_text(value, "grid")), _count(value, "chunks", 1), _count(value, "rounds", 0)
    if grid.size > MOST:
        raise ValueError(f"grid {grid} has more than {MOST} ranks")
    table = _table(value["moves"])
    _check_limits(table, value["moves"], {"round": rounds, "rank": grid.size, "peer": grid.size}, chunks)
    return _Stored(_text(value, "name"), grid, chunks, rounds, table.reshape(-1))


def _check_fields(value: Any) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"the file holds a {type(value).__name__}, expected an object with {', '.join(FIELDS)}")
    unknown, missing = set(value) - set(FIELDS), set(FIELDS) - set(value)
    if unknown or missing:
        kind, names = ("unknown", unknown) if unknown else ("missing", missing)
        raise ValueError(f"{kind} field {sorted(names)[0]!r}; the fields are {', '.join(FIELDS)}")
    if value["format"] != FORMAT:
        raise ValueError(f"format is {value['format']!r}, expected {FORMAT!r}")
    if value["version"] != VERSION or isinstance(value["version"], bool):
        raise ValueError(f"version {value['version']!r} is not known here (this ddlbench reads version {VERSION})")
    if value["columns"] != COLUMNS:
        raise ValueError(f"columns are {value['columns']!r}, expected {COLUMNS!r}")


def _text(value: dict[str, Any], name: str) -> str:
    found = value[name]
    if not isinstance(found, str):
        raise ValueError(f"{name} is {found!r}, expected a text")
    return found


def _count(value: dict[str, Any], name: str, least: int) -> int:
    found = value[name]
    if type(found) is not int or not least <= found <= MOST:
        raise ValueError(f"{name} is {found!r}, expected a whole number from {least} to {MOST}")
    return found


def _table(moves: Any) -> Table:
    """Return both halves of all moves, (2, moves)."""
    if not isinstance(moves, list):
        raise ValueError(f"moves is {moves!r}, expected a list")
    rows = [_row(at, move) for at, move in enumerate(moves)]
    columns = np.array(rows, np.int64).reshape(-1, len(COLUMNS)).T
    table = np.zeros((2, len(moves)), STEP)
    for half, names in enumerate((("rank", "peer"), ("peer", "rank"))):
        for name, column in zip(("round", *names, "chunk", "nchunks", "kind", "lane"), columns, strict=True):
            table[half][name] = column
    table["kind"][0] = SEND
    return table


def _check_limits(table: Table, moves: list[Any], limits: dict[str, int], chunks: int) -> None:
    """Refuse moves outside the rounds, ranks and chunks; whether the others make an allreduce is for the proof."""
    outside = (table["nchunks"][0] < 1) | (table["chunk"][0].astype(np.int64) + table["nchunks"][0] > chunks)
    for name, limit in limits.items():
        outside |= table[name][0] >= limit
    if outside.any():
        at = int(np.argmax(outside))
        there_are = f"{limits['round']} rounds, {limits['rank']} ranks and {chunks} chunks"
        raise ValueError(f"move {at} is {moves[at]!r}, but there are {there_are}")


def _row(at: int, move: Any) -> tuple[int, ...]:
    """Return a move as numbers."""
    if isinstance(move, list) and len(move) == len(COLUMNS) and move[5] in ("keep", "add"):
        numbers = (*move[:5], move[6])
        if all(type(number) is int and 0 <= number <= MOST for number in numbers) and move[6] <= MOST_LANE:
            return (*move[:5], _WHAT[move[5]], move[6])
    raise ValueError(f"move {at} is {move!r}, expected {', '.join(COLUMNS)} as numbers, with what 'keep' or 'add'")
