"""Schedule files: what is written is read again and runs the same; what is wrong is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddlbench.algorithms import available, resolve
from ddlbench.dtypes import dtype_named
from ddlbench.errors import ProofError, UsageError
from ddlbench.schedule import Grid, Schedule, lower, stats, verify
from ddlbench.schedule.format import COLUMNS, FIELDS, load_algorithm, load_grid, to_json, to_text
from ddlbench.schedule.move import SEND
from ddlbench.schedule.reference import execute

NAMES = [algorithm.name for algorithm in available()]
GRIDS = [Grid((1,)), Grid((2,)), Grid((7,)), Grid((8,)), Grid((3, 4)), Grid((2, 2, 2))]


def schedule_of(text: str, *dims: int) -> Schedule:
    return lower(resolve(text, Grid(dims)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "schedule.json"


def reread(schedule: Schedule, file: Path) -> Schedule:
    """Return the schedule by way of a file."""
    file.write_text(to_text(schedule))
    return lower(resolve(str(file), load_grid(file)))


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("name", [*NAMES, "multi-ring:3", "hierarchical:across=recursive-doubling"])
def test_every_schedule_survives_a_file(file, name, grid):
    schedule = lower(resolve(name, grid))
    again = reread(schedule, file)
    verify(again)
    assert stats(again) == stats(schedule)
    assert (again.grid, again.chunks, again.rounds) == (grid, schedule.chunks, schedule.rounds)
    assert to_json(again) == to_json(schedule) | {"name": "schedule.json"}


@pytest.mark.parametrize("name", NAMES)
def test_results_are_the_same_to_the_last_bit(file, name):
    schedule = schedule_of(name, 3, 2)
    random = np.random.default_rng(8)
    inputs = [random.standard_normal(29).astype(np.float32) for _ in range(6)]
    dtype = dtype_named("float32")
    results = [np.stack(execute(s, inputs, dtype, "sum")) for s in (schedule, reread(schedule, file))]
    assert np.array_equal(results[0].view(np.uint32), results[1].view(np.uint32))


def test_a_rank_takes_its_part_of_a_file(file):
    again = reread(schedule_of("direct", 5), file)
    for rank in range(5):
        alone = lower(resolve(str(file), Grid((5,))), [rank])
        assert np.array_equal(alone.table, again.program(rank).table)


def test_the_file_is_what_the_docstring_says():
    value = json.loads(to_text(schedule_of("ring", 2)))
    assert list(value) == list(FIELDS)
    assert (value["format"], value["version"], value["name"], value["grid"]) == ("ddlbench-schedule", 1, "ring", "2")
    assert (value["chunks"], value["rounds"], value["columns"]) == (2, 2, COLUMNS)
    assert value["moves"] == [
        [0, 1, 0, 0, 1, "add", 0],
        [0, 0, 1, 1, 1, "add", 0],
        [1, 1, 0, 1, 1, "keep", 0],
        [1, 0, 1, 0, 1, "keep", 0],
    ]


def test_a_move_is_a_line():
    assert '\n  [0, 1, 0, 0, 1, "add", 0],\n' in to_text(schedule_of("ring", 2))
    assert to_text(schedule_of("ring", 1)).endswith('"moves": [\n\n]\n}\n')


def test_a_file_written_by_hand_runs(file):
    """Rank 1 gives its vector to rank 0 and gets the sum back."""
    moves = [[0, 1, 0, 0, 1, "add", 0], [1, 0, 1, 0, 1, "keep", 0]]
    head = {"format": "ddlbench-schedule", "version": 1, "name": "there and back", "grid": "2"}
    file.write_text(json.dumps(head | {"chunks": 1, "rounds": 2, "columns": COLUMNS, "moves": moves}))
    assert load_algorithm(file).name == "there and back"
    schedule = lower(resolve(str(file), Grid((2,))))
    assert verify(schedule).moves == 2
    results = execute(schedule, [np.array([1, 2]), np.array([30, 40])], dtype_named("int64"), "sum")
    assert [result.tolist() for result in results] == [[31, 42], [31, 42]]


def test_a_schedule_that_is_no_allreduce_is_read_and_then_refused_by_the_proof(file):
    value = to_json(schedule_of("ring", 4))
    value["moves"][0][5] = "keep"
    file.write_text(json.dumps(value))
    with pytest.raises(ProofError, match="at the end"):
        verify(lower(resolve(str(file), Grid((4,)))))


def test_moves_that_do_not_pair_up_cannot_be_written():
    schedule = schedule_of("ring", 4)
    schedule.table["peer"][np.flatnonzero(schedule.table["kind"] == SEND)[0]] = 3
    with pytest.raises(ProofError, match="has no counterpart"):
        to_text(schedule)


# ---- What is refused -------------------------------------------------------------------------------------------------


def refusal(file: Path) -> str:
    """Return what is said about the file, which is one line that names it."""
    for read in (load_grid, load_algorithm):
        with pytest.raises(UsageError) as refused:
            read(file)
    assert str(refused.value).startswith(f"schedule file {str(file)!r}")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def edited(**fields: Any) -> str:
    """Return the text of a ring of 4 ranks with other fields; None takes a field away."""
    value = to_json(schedule_of("ring", 4)) | fields
    return json.dumps({name: field for name, field in value.items() if field is not None})


def with_move(**columns: Any) -> str:
    """Return the text of a ring of 4 ranks whose third move has other columns."""
    value = to_json(schedule_of("ring", 4))
    for name, content in columns.items():
        value["moves"][2][COLUMNS.index(name)] = content
    return json.dumps(value)


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_refused(file, field):
    file.write_text(edited(**{field: None}))
    assert f"missing field '{field}'; the fields are format, version, name" in refusal(file)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"segment": 1}, "unknown field 'segment'; the fields are format, version"),
        ({"format": "msccl"}, "format is 'msccl', expected 'ddlbench-schedule'"),
        ({"version": 2}, "version 2 is not known here (this ddlbench reads version 1)"),
        ({"version": "1"}, "version '1' is not known here"),
        ({"version": True}, "version True is not known here"),
        ({"columns": COLUMNS[:-1]}, "columns are ['round', 'src'"),
        ({"columns": COLUMNS[::-1]}, "columns are ['lane', 'what'"),
        ({"name": 3}, "name is 3, expected a text"),
        ({"grid": 4}, "grid is 4, expected a text"),
        ({"grid": "4by2"}, "grid '4by2': expected ranks per dimension joined by x"),
        ({"grid": "0x4"}, "grid '0x4': expected one or more dimensions of at least 1"),
        ({"grid": "9999x9999"}, "grid 9999x9999 has more than 16777216 ranks"),
        ({"grid": "99999x99999"}, "grid '99999x99999': holds more than 2147483647 ranks"),
        ({"chunks": 0}, "chunks is 0, expected a whole number from 1 to 16777216"),
        ({"chunks": -4}, "chunks is -4, expected a whole number from 1"),
        ({"chunks": 4.0}, "chunks is 4.0, expected a whole number"),
        ({"chunks": "4"}, "chunks is '4', expected a whole number"),
        ({"chunks": True}, "chunks is True, expected a whole number"),
        ({"chunks": 10**12}, "chunks is 1000000000000, expected a whole number from 1 to 16777216"),
        ({"rounds": -1}, "rounds is -1, expected a whole number from 0"),
        ({"rounds": 10**12}, "rounds is 1000000000000, expected"),
        ({"moves": 5}, "moves is 5, expected a list"),
        ({"moves": {}}, "moves is {}, expected a list"),
        ({"moves": [5]}, "move 0 is 5, expected round, src, dst, chunk"),
        ({"moves": [[0, 1, 0, 0, 1, "add"]]}, "move 0 is [0, 1, 0, 0, 1, 'add'], expected round"),
        ({"moves": [[0, 1, 0, 0, 1, "add", 0, 0]]}, "move 0 is [0, 1, 0, 0, 1, 'add', 0, 0], expected"),
        ({"rounds": 5}, "but there are 5 rounds, 4 ranks and 4 chunks"),
        ({"grid": "3"}, "but there are 6 rounds, 3 ranks and 4 chunks"),
        ({"chunks": 3}, "but there are 6 rounds, 4 ranks and 3 chunks"),
    ],
)
def test_a_wrong_field_is_refused_with_its_value(file, fields, message):
    file.write_text(edited(**fields))
    assert message in refusal(file)


@pytest.mark.parametrize(
    "columns",
    [
        {"round": 6},
        {"round": -1},
        {"round": 0.5},
        {"round": "0"},
        {"round": True},
        {"round": None},
        {"src": 4},
        {"dst": 4},
        {"dst": -1},
        {"chunk": 4},
        {"chunk": -1},
        {"chunk": 10**30},
        {"nchunks": 0},
        {"nchunks": 5},
        {"nchunks": 2_000_000_000},
        {"what": "copy"},
        {"what": 1},
        {"what": ["add"]},
        {"lane": -1},
        {"lane": 40_000},
    ],
    ids=str,
)
def test_a_wrong_move_is_refused_with_its_number_and_what_it_is(file, columns):
    file.write_text(with_move(**columns))
    move = json.loads(file.read_text())["moves"][2]
    assert f"move 2 is {move!r}, " in refusal(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON: Expecting value"),
        ("{", "is not JSON: Expecting property name"),
        ("[]", "the file holds a list, expected an object with format, version"),
        ("null", "the file holds a NoneType, expected an object"),
        ('"text"', "the file holds a str, expected an object"),
        ('{"chunks": 4, "chunks": 5}', ": a field stands twice among chunks, chunks"),
        ("[" * 100_000, "is not JSON: "),
        (b"\xff\xfe{}", "is not JSON: 'utf-8' codec"),
    ],
)
def test_what_is_no_schedule_file_is_refused(file, text, message):
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert message in refusal(file)


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path):
    assert refusal(tmp_path / "none.json").endswith(": No such file or directory")
    assert refusal(tmp_path).endswith(": Is a directory")
