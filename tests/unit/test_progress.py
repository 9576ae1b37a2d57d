"""What rank 0 shows: an aligned table, whatever becomes of a point, and progress that does not get into it."""

import io

import pytest

from ddlbench.bench import progress
from ddlbench.bench.axes import Cell
from ddlbench.bench.progress import Screen, Table, Totals
from ddlbench.bench.sweep import Group, Layout
from ddlbench.dtypes import DTYPES
from ddlbench.records import Point


def point(**changed):
    fields = {
        "algorithm": "ring", "nbytes": 1 << 20, "count": 1 << 18, "dtype": "float32", "op": "sum", "in_place": False,
        "nodes": 1, "ranks_per_node": "4", "ranks": 4, "device": "cpu", "transport": "p2p", "sync": "barrier",
        "samples_ns": (100_000,) * 20, "status": "ok", "wrong": 0,
    }  # fmt: skip
    return Point(**(fields | changed))


def table(*, places=False):
    return Table(["float32"], ["sum"], ["ring", "double-binary-tree"], places=places)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def shown(points, out, err):
    group = Group(DTYPES["float32"], "sum", Cell(2, 8), in_place=False, algorithms=(), layout=Layout(4, 1, "4", 4))
    with Screen(table(), len(points), out=out, err=err) as screen:
        for each in points:
            screen.begin(group, "pass 1 of 1")
            screen.row(each)
            screen.advance()


def test_a_row_has_the_median_and_both_bandwidths():
    row = table().row(point(samples_ns=(1, 100_000, 900_000))).split()
    assert row == ["1048576", "262144", "float32", "sum", "ring", "100.00", "10.486", "15.729", "0"]


def test_one_rank_has_no_bus_bandwidth_rather_than_none_of_it():
    assert table().row(point(ranks=1)).split()[-2:] == ["-", "0"]


def test_an_empty_vector_has_a_time_and_no_bandwidth():
    assert table().row(point(nbytes=0, count=0)).split()[-4:] == ["100.00", "-", "-", "0"]


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({"wrong": None}, "-"),
        ({"status": "wrong", "wrong": 12, "reason": "12 of 24"}, "12  wrong: 12 of 24"),
        ({"status": "skipped", "samples_ns": (), "wrong": None, "reason": "no bfloat16"}, "-  skipped: no bfloat16"),
        ({"reason": "chose multi-ring:4x2"}, "0  chose multi-ring:4x2"),
    ],
)
def test_a_row_ends_with_what_became_of_the_point(changed, end):
    assert table().row(point(**changed)).endswith(end)


@pytest.mark.parametrize("places", [False, True])
def test_columns_stand_under_their_names(places):
    this = table(places=places)
    names, rows = this.heading()[0], [this.row(point()), this.row(point(algorithm="double-binary-tree", in_place=True))]
    for title in ("time", "algbw", "busbw", "wrong"):
        end = names.index(title) + len(title)
        assert [row[end - 1].isdigit() and row[end : end + 1] in ("", " ") for row in rows] == [True, True]
    assert all(line.startswith("#") for line in this.heading())


def test_rows_go_to_one_stream_and_progress_to_the_other(monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0)
    out, err = io.StringIO(), io.StringIO()
    shown([point(), point()], out, err)
    assert len(out.getvalue().splitlines()) == 4
    assert "# 1 of 2 points after" in err.getvalue()
    assert "ring" not in err.getvalue()


def test_plain_progress_is_rare():
    out, err = io.StringIO(), io.StringIO()
    shown([point()] * 50, out, err)
    assert err.getvalue() == ""


def test_a_terminal_gets_a_bar_and_a_redirected_table_stays_clean():
    out, err = io.StringIO(), Terminal()
    shown([point(), point()], out, err)
    assert "\x1b" not in out.getvalue()
    assert len(out.getvalue().splitlines()) == 4
    assert err.getvalue()


def test_on_one_terminal_rows_are_written_above_the_bar_whole_and_unmarked():
    screen = Terminal()
    shown([point(status="wrong", wrong=3, reason="[bold]3[/bold] of " + "8" * 200)], screen, screen)
    assert "wrong: [bold]3[/bold] of " + "8" * 200 in screen.getvalue()


def test_totals_count_each_tensor_of_a_size():
    totals = Totals()
    totals.add(point(algorithm="ring", multiplicity=3))
    totals.add(point(algorithm="ring", multiplicity=1))
    totals.add(point(algorithm="mpi", multiplicity=3))
    totals.add(point(algorithm="mpi", samples_ns=(), status="failed", reason="out of memory", wrong=None))
    head, *rows = totals.lines("resnet50")
    assert "resnet50" in head
    assert [row.split() for row in rows] == [
        ["ring", "float32", "sum", "0.400", "ms"],
        ["mpi", "float32", "sum", "-", "ms"],
    ]
