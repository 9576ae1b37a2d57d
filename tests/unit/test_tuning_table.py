"""The file of a tuning table: written and read back whole, refused by name where it is wrong; and where it lies."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.tuning import Range, Rule, Source, Table, places
from ddlbench.tuning.table import VERSION, Machine, Shape, read, write

RANGES = (
    Range(from_nbytes=0, algorithm="direct", measured=(8, 64), clear=(8,)),
    Range(from_nbytes=4096, algorithm="ring", measured=(65536,), clear=()),
)


def rule(**changes):
    values = {
        "nodes": 1,
        "ranks_per_node": "2",
        "ranks": 2,
        "grid": "2",
        "virtual": False,
        "device": "cpu",
        "transport": "p2p",
        "dtype": "float32",
        "op": "sum",
        "in_place": False,
        "run": 0,
        "ranges": RANGES,
    }
    return Rule(**(values | changes))


def source(directory="reports/latest"):
    return Source(
        directory=directory,
        created="2026-03-02T09:41:07+00:00",
        ddlbench="0.1.0",
        mpi_version="5.0.11",
        hosts=("node0",),
        finished=True,
        cache="warm",
        trust=(),
    )


def table(*rules, runs=1, **changes):
    values = {
        "ddlbench": "0.1.0",
        "created": "2026-03-03T08:00:00+00:00",
        "processor": "AMD EPYC 7543",
        "mpi": "Open MPI",
        "runs": tuple(source(f"run{number}") for number in range(runs)),
        "rules": rules or (rule(),),
    }
    return Table(**(values | changes))


@pytest.fixture
def file(tmp_path):
    """Give a function that changes the JSON of a table, stores it and returns its path."""

    def stored(change):
        data = json.loads(json.dumps(table().to_json()))
        change(data)
        path = tmp_path / "table.json"
        path.write_text(json.dumps(data))
        return path

    return stored


def test_a_table_is_read_back_as_it_was_written(tmp_path):
    first = table(rule(), rule(dtype="bfloat16", in_place=True, run=1), runs=2)
    path = tmp_path / "deep" / "table.json"
    write(first, path)
    assert read(path) == first
    write(table(), path)
    assert read(path) == table()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(version=VERSION + 1), f"format version {VERSION + 1} is newer.*update ddlbench"),
        (lambda data: data.update(format="ddlbench-run"), "format is 'ddlbench-run', expected 'ddlbench-tuning'"),
        (lambda data: data.update(rule=[]), "unknown field 'rule': did you mean 'rules'"),
        (lambda data: data.pop("mpi"), "the field 'mpi' is missing"),
        (lambda data: data["rules"][0].update(ranks="2"), "ranks is '2', expected a whole number"),
        (lambda data: data["rules"][0].update(run=1), "1 node of 2 ranks, .*: run is 1, but there are 1 runs"),
        (lambda data: data["rules"][0].update(ranges=[]), r"from_nbytes is \[\], expected 0"),
        (lambda data: data["rules"][0]["ranges"].reverse(), r"from_nbytes is \[4096, 0\], expected 0"),
        (lambda data: data["rules"][0]["ranges"][0].update(from_nbytes=1), r"from_nbytes is \[1, 4096\]"),
        (lambda data: data["rules"][0].update(ranks_per_node="two"), "ranks_per_node is 'two', expected digits"),
    ],
)
def test_a_wrong_field_is_refused_by_name(file, change, said):
    path = file(change)
    with pytest.raises(UsageError, match=said) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_none_or_broken_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(UsageError, match="there is no such file; ddlbench tune DIR --out FILE makes one"):
        read(tmp_path / "none.json")
    for text in (b"{", b"\xff", b"[" * 100_000, b"[]"):
        (tmp_path / "broken.json").write_bytes(text)
        with pytest.raises(UsageError, match=r"broken\.json"):
            read(tmp_path / "broken.json")


def test_only_a_table_is_written_over(tmp_path):
    (tmp_path / "mine.json").write_text('{"format": "mine"}')
    with pytest.raises(UsageError, match="no table of ddlbench tune"):
        write(table(), tmp_path / "mine.json")
    assert (tmp_path / "mine.json").read_text() == '{"format": "mine"}'
    with pytest.raises(DdlbenchError, match=r"cannot create .*ENOTDIR|cannot create .*EEXIST"):
        write(table(), tmp_path / "mine.json" / "table.json")


def test_a_part_of_a_table_has_the_rules_of_its_ranks_and_their_runs():
    two = {"nodes": 2, "ranks": 4, "grid": "2x2", "run": 1}
    whole = table(rule(), rule(**two), rule(**two, virtual=True), rule(**two, op="max"), runs=2)
    part = whole.only(2, "2", 4, virtual=False)
    assert [(one.op, one.run) for one in part.rules] == [("sum", 0), ("max", 0)]
    assert [one.directory for one in part.runs] == ["run1"]
    assert [str(shape) for shape in whole.shapes()] == [
        "1 node of 2 ranks", "2 nodes of 2 ranks", "2 virtual nodes of 2 ranks"
    ]  # fmt: skip


# ---- Where tables lie ----------------------------------------------------------------------------------------------

SHAPE = Shape(nodes=2, ranks_per_node="4", ranks=8, grid="4x2")


def test_a_file_of_its_own_for_each_processor_mpi_library_and_shape():
    def name(shape, processor="AMD EPYC 7543 32-Core", mpi="Open MPI"):
        return places.default(Machine(processor=processor, mpi=mpi), shape, {"XDG_CONFIG_HOME": "/settings"})

    folder = Path("/settings/ddlbench/tuning")
    assert name(SHAPE) == folder / "amd-epyc-7543-32-core/open-mpi/2-nodes-of-4-ranks.json"
    assert name(replace(SHAPE, grid="2x2x2")) == name(SHAPE)
    uneven = replace(SHAPE, ranks_per_node="", ranks=5)
    assert name(uneven, mpi="MPICH") == folder / "amd-epyc-7543-32-core/mpich/2-nodes-with-5-ranks.json"
    assert name(replace(SHAPE, virtual=True)).name == "2-virtual-nodes-of-4-ranks.json"
    assert name(SHAPE, processor="../../etc", mpi="") == folder / "etc/unknown/2-nodes-of-4-ranks.json"


def test_without_an_absolute_folder_for_settings_it_is_the_usual_one(monkeypatch, tmp_path):
    machine = Machine(processor="POWER8", mpi="Open MPI")
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = tmp_path / ".config/ddlbench/tuning/power8/open-mpi/2-nodes-of-4-ranks.json"
    assert places.default(machine, SHAPE, {}) == expected
    assert places.default(machine, SHAPE, {"XDG_CONFIG_HOME": "relative"}) == expected


def test_without_a_home_the_way_out_is_named(monkeypatch):
    def homeless():
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(UsageError, match="no home directory for the table: say where with --out FILE"):
        places.default(Machine(processor="POWER8", mpi="Open MPI"), SHAPE, {})
