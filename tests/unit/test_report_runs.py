"""Reports of several runs: told apart, side by side, and how efficiency falls as ranks are added."""

import io
import math

import pandas as pd
import pytest

import synthetic
from ddlbench.cli import main
from ddlbench.records import Loaded, TrustFlag
from ddlbench.report import COLUMNS, write_csv
from ddlbench.report import html as html_module
from ddlbench.report.contest import settings
from ddlbench.report.html import render
from ddlbench.report.markup import results_tables
from ddlbench.report.notices import notices
from ddlbench.report.payload import payload
from ddlbench.report.plain import plain
from ddlbench.report.runs import Runs, run_names
from ddlbench.report.scaling import efficiency, families
from ddlbench.report.trust import shared_facts, trust_table
from report_page import Page

MIB = 2**20


def loaded(points, **changes) -> Loaded:
    return Loaded(synthetic.run(**changes), tuple(points), [])


def timed(algorithm, nbytes, time_us, **changes):
    """A point of 20 samples that all take the same."""
    return synthetic.point(algorithm, nbytes, samples_ns=(round(time_us * 1000),) * 20, **changes)


def laid_out(ranks: int, nodes: int = 1, time_us: float = 100, sizes=(MIB,), **changes) -> list:
    layout = {"ranks": ranks, "nodes": nodes, "ranks_per_node": str(ranks // nodes)}
    return [
        timed(name, nbytes, time_us * (1 + at), **layout, **changes)
        for nbytes in sizes
        for at, name in enumerate(("ring", "mpi"))
    ]


def family_of(runs: Runs):
    """The only family of the runs' settings."""
    found = list(settings(runs.table))
    (family,) = families([setting for setting, _ in found], [len(rows) for _, rows in found])
    return family


def family(*layouts: tuple[int, int], **changes):
    """The family of settings with these ranks and nodes."""
    points = [point for ranks, nodes in layouts for point in laid_out(ranks, nodes, **changes)]
    return family_of(Runs.of(loaded(points)))


def lines(*layouts: tuple[int, int]):
    return [(line.unit, line.fixed, line.at) for line in family(*layouts).lines]


# Runs


def test_names_are_as_much_of_the_path_as_tells_runs_apart(tmp_path):
    assert run_names(["a/p2", "a/p4"]) == ["p2", "p4"]
    assert run_names(["a/run", "b/run", "b/other"]) == ["a/run", "b/run", "b/other"]
    assert run_names([str(tmp_path / "x")]) == ["x"]


def test_settings_of_different_runs_are_told_apart_and_not_compared():
    runs = Runs.of({"before": loaded([timed("ring", 8, 10)]), "after": loaded([timed("mpi", 8, 9)])})
    found = [setting for setting, _ in settings(runs.table)]
    assert [(setting.run, setting.label.endswith(f"({setting.run})")) for setting in found] == [
        ("before", True),
        ("after", True),
    ]


def test_one_run_of_a_mapping_needs_no_name():
    runs = Runs.of({"only": loaded([timed("ring", 8, 10)])})
    assert not runs.several
    assert [setting.run for setting, _ in settings(runs.table)] == [""]


def test_warm_and_cold_caches_are_two_settings():
    points = [timed("ring", 8, 10), timed("mpi", 8, 20, cache="cold")]
    found = [setting.label for setting, _ in settings(Runs.of(loaded(points)).table)]
    assert [label.endswith(", cold caches") for label in found] == [False, True]


def test_the_csv_of_several_runs_has_the_columns_of_one_and_the_run(tmp_path):
    runs = {"p2": loaded(laid_out(2)), "p4": loaded(laid_out(4, 2)), "none": loaded([])}
    write_csv(runs, tmp_path / "all.csv")
    table = pd.read_csv(io.StringIO((tmp_path / "all.csv").read_text()))
    assert list(table.columns) == [*COLUMNS, "run"]
    assert table[["run", "ranks", "algorithm"]].to_numpy().tolist() == [
        ["p2", 2, "ring"],
        ["p2", 2, "mpi"],
        ["p4", 4, "ring"],
        ["p4", 4, "mpi"],
    ]


def test_the_tables_of_several_runs_say_of_which_each_is():
    captions = [table.caption for table in results_tables({"a": loaded(laid_out(2)), "b": loaded(laid_out(4))})]
    assert captions == ["float32 sum, out of place, 2 ranks (a)", "float32 sum, out of place, 4 ranks (b)"]


def test_a_plain_table_is_aligned_and_cannot_move_the_cursor():
    points = [timed("ring", 8, 10), timed("long\x1b[2J", 2**20, 1000)]
    (table,) = results_tables(loaded(points))
    caption, *rows = plain(table).splitlines()
    assert caption.startswith("# float32 sum")
    assert "\x1b" not in plain(table)
    assert len({row.index("   20") for row in rows[1:]}) == 1, "the samples stand below each other"


# Notices and facts


def test_what_is_true_of_some_runs_says_of_which():
    flag = TrustFlag("oversubscribed", "4 ranks on 2 cores")
    runs = {"a": loaded(laid_out(2)), "b": loaded(laid_out(2), trust=(flag,))}
    assert [notice.detail for notice in notices(Runs.of(runs))] == ["4 ranks on 2 cores (b)"]
    runs["a"] = loaded(laid_out(2), trust=(flag,))
    assert [notice.detail for notice in notices(Runs.of(runs))] == ["4 ranks on 2 cores"]


def test_one_doubt_about_many_runs_is_one_notice():
    flags = {f"p{ranks}": TrustFlag("oversubscribed", f"{ranks} ranks on 2 cores") for ranks in (4, 8, 16, 32)}
    (notice,) = notices(Runs.of({name: loaded(laid_out(2), trust=(flag,)) for name, flag in flags.items()}))
    assert notice.detail == (
        "4 ranks on 2 cores (p4); 8 ranks on 2 cores (p8); 16 ranks on 2 cores (p16); and in 1 more runs"
    )


def test_runs_of_different_machines_are_a_doubt():
    a, b = ({"hosts": [host] * 2, "ranks": 2, "nodes": 1} for host in "ab")
    mpi = {"library": "MPICH", "version": "5"}
    (notice,) = notices(Runs.of({"x": loaded(laid_out(2), topology=a), "y": loaded(laid_out(2), topology=b, mpi=mpi)}))
    assert notice.detail == "they differ in hosts, MPI"
    more = {"hosts": ["a", "b"], "ranks": 2, "nodes": 2}
    (fine,) = notices(Runs.of({"x": loaded(laid_out(2), topology=a), "y": loaded(laid_out(2), topology=more)}))
    assert fine.weight == "fine", "more nodes of one machine"


def test_an_empty_run_among_others_is_named():
    (notice,) = notices(Runs.of({"a": loaded(laid_out(2)), "b": loaded([])}))
    assert (notice.title, notice.detail.endswith("(b)")) == ("No points", True)


def test_facts_are_those_of_all_runs_and_the_table_has_the_rest():
    topologies = [{"hosts": ["a"] * ranks, "ranks": ranks, "nodes": 1} for ranks in (2, 4)]
    runs = Runs.of({f"p{t['ranks']}": loaded(laid_out(t["ranks"]), topology=t) for t in topologies})
    assert dict(shared_facts(runs)) | {"Command": ""} == {
        "Runs": "p2, p4",
        "Hosts": "a",
        "MPI": "Open MPI 5.0.11",
        "Date": "2\u00a0March 2026, 09:41 UTC",
        "Program": "ddlbench 0.1.0",
        "Command": "",
    }
    assert trust_table(runs)[0] == ("Ranks", ["2 ranks on 1 node", "4 ranks on 1 node"])


# Efficiency


def test_efficiency_is_the_ratio_of_bus_bandwidths():
    assert efficiency(150, 4, 100, 2) == pytest.approx(1.0), "2(p - 1)/p is 1 on 2 ranks and 1.5 on 4"
    assert efficiency(200, 2, 100, 2) == pytest.approx(0.5)
    assert efficiency(100 * 1.75 / 1.5, 8, 100, 4) == pytest.approx(1.0)
    assert math.isnan(efficiency(100, 4, 100, 1)), "one rank has no bus bandwidth"


def test_columns_stand_by_ranks_whatever_the_order_of_the_runs():
    found = family((8, 2), (2, 1), (4, 1))
    assert found.places == (1, 2, 0)
    assert found.heads == (("2 ranks", "1 node"), ("4 ranks", "1 node"), ("8 ranks", "2 nodes"))


def test_nodes_are_not_told_where_there_is_only_one():
    assert family((2, 1), (4, 1)).heads == (("2 ranks", ""), ("4 ranks", ""))


def test_a_family_with_one_rank_count_has_nothing_to_map():
    assert not family((4, 2)).spread
    assert not family((4, 2), (4, 1)).spread
    assert family((4, 2), (2, 1)).spread


def test_efficiency_is_told_along_nodes_of_as_many_ranks_and_along_ranks_on_as_many_nodes():
    assert lines((2, 1), (4, 1), (8, 1)) == [("rank", "on 1 node", (2, 4, 8))]
    assert lines((4, 1), (8, 2), (16, 4)) == [("node", "of 4 ranks", (1, 2, 4))]
    assert lines((2, 1), (4, 1), (8, 2), (16, 4)) == [("node", "of 4 ranks", (1, 2, 4)), ("rank", "on 1 node", (2, 4))]


def test_where_ranks_and_nodes_both_change_efficiency_is_told_along_ranks():
    assert lines((2, 1), (12, 3)) == [("rank", "on different numbers of nodes", (2, 12))]


def test_one_rank_is_no_baseline():
    assert lines((1, 1), (2, 2), (4, 4)) == [("node", "of 1 rank", (2, 4))]
    assert lines((1, 1), (2, 1)) == []


def test_of_two_runs_of_one_layout_the_later_is_on_the_line_and_both_are_on_the_map():
    runs = Runs.of({"a": loaded(laid_out(2)), "b": loaded(laid_out(4)), "c": loaded(laid_out(4))})
    found = family_of(runs)
    assert found.heads == (("2 ranks", ""), ("4 ranks", "b"), ("4 ranks", "c"))
    assert [line.places for line in found.lines] == [(0, 2)]


def test_columns_whose_starts_were_aligned_otherwise_say_so():
    points = laid_out(2) + laid_out(4, sync="window")
    found = family_of(Runs.of(loaded(points)))
    assert found.heads == (("2 ranks", "barrier"), ("4 ranks", "window"))


def test_a_few_points_whose_starts_were_aligned_otherwise_are_no_column_of_their_own():
    few = [timed("swing", 8, 10, ranks=4, nodes=1, ranks_per_node="4", sync="barrier")]
    runs = Runs.of(loaded([*few, *laid_out(2, sync="window"), *laid_out(4, sync="window")]))
    found = family_of(runs)
    assert (found.members, found.places) == ((0, 1, 2), (1, 2))
    assert [line.places for line in found.lines] == [(1, 2)]
    labels = [setting["label"] for setting in payload(runs)["settings"]]
    assert [label.partition(", by ")[2] for label in labels] == ["barrier", "", "window"]


def test_the_page_says_how_far_efficiency_has_fallen_below_its_headline():
    points = laid_out(2, 1, 100, (8, MIB)) + laid_out(4, 2, 300, (8, MIB))
    data = payload(Runs.of(loaded(points)))
    last = data["settings"][1]
    said = "".join(word if isinstance(word, str) else data["algorithms"][word] for word in last["lede"][-1])
    assert said.replace("\u00a0", " ") == "On 2 nodes ring reaches 50 % of its bus bandwidth inside one (1 MiB)."
    assert len(data["settings"][0]["lede"]) == len(last["lede"]) - 1
    assert data["first"] == 1, "of settings with as many right results, that with the most ranks"


def test_over_several_nodes_efficiency_has_fallen_since_the_fewest_of_several():
    points = laid_out(2, 1, 1) + laid_out(4, 2, 100) + laid_out(8, 4, 233)
    data = payload(Runs.of(loaded(points)))
    said = "".join(
        word if isinstance(word, str) else data["algorithms"][word] for word in data["settings"][2]["lede"][-1]
    )
    assert said.replace("\u00a0", " ") == "On 4 nodes ring reaches 50 % of its bus bandwidth on 2 (1 MiB)."


def test_nothing_is_said_of_efficiency_where_an_end_has_no_result():
    points = laid_out(2, 1) + laid_out(4, 2, status="failed")
    assert payload(Runs.of(loaded(points)))["settings"][1]["lede"] == []


def test_runs_without_any_point_make_a_page_that_says_so(monkeypatch):
    monkeypatch.setattr(html_module, "_plotly", lambda: "")
    assert "These runs hold no points." in Page(render({"a": loaded([]), "b": loaded([])})).text


# The command


@pytest.fixture
def two(tmp_path):
    """Return the directories of two stored runs."""
    return [str(synthetic.store(tmp_path / f"p{ranks}", laid_out(ranks))) for ranks in (2, 4)]


def test_report_writes_the_files_that_are_asked_for_and_no_others(two, tmp_path, capsys):
    page, rows = tmp_path / "all.html", tmp_path / "all.csv"
    assert main(["report", *two, "--html", str(page), "--csv", str(rows)]) == 0
    assert capsys.readouterr().out.split() == [str(page), str(rows)]
    assert [setting["label"][-4:] for setting in Page(page.read_text()).data()["settings"]] == ["(p2)", "(p4)"]
    assert rows.read_text().splitlines()[-1].endswith(",p4")
    assert sorted(file.name for file in (tmp_path / "p2").iterdir()) == ["points.jsonl", "run.json"]


def test_report_of_one_run_writes_both_files_beside_it(two, tmp_path):
    assert main(["report", two[0]]) == 0
    assert {"report.html", "results.csv"} <= {file.name for file in (tmp_path / "p2").iterdir()}


@pytest.mark.parametrize(
    ("words", "start"),
    [(["--table"], "# float32"), (["--table", "markdown"], "float32"), (["--table", "latex"], "\\noindent")],
)
def test_report_writes_tables_to_standard_output(two, words, start, capsys):
    assert main(["report", *two, *words]) == 0
    out = capsys.readouterr().out
    assert out.startswith(start)
    assert ("(p2)" in out, "(p4)" in out) == (True, True)


def test_a_run_given_twice_is_one(two, capsys):
    assert main(["report", two[0], two[0] + "/.", "--table"]) == 0
    assert capsys.readouterr().out.count("#") == 1


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["--html FILE", "--table"]),
        (["--table", "latx"], ["'latx'", "'latex'"]),
        (["--html", "some/run.json"], ["some/run.json", "another file"]),
        (["no-such-folder", "--table"], ["no-such-folder"]),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_written(two, words, parts, capsys):
    assert main(["report", *two, *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert [part for part in parts if part not in err] == []


def test_a_link_to_itself_is_one_line_that_names_it(tmp_path, capsys):
    (tmp_path / "loop").symlink_to("loop")
    for words in ([], ["--table", "plain"]):
        assert main(["report", str(tmp_path / "loop"), *words]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("ddlbench: error: ")
        assert str(tmp_path / "loop") in line


def test_lines_that_cannot_be_read_are_named_with_their_run_and_make_the_status_1(two, tmp_path, capsys):
    with (tmp_path / "p4" / "points.jsonl").open("a") as file:
        file.write('{"version": 3, "kind": ')
    page = tmp_path / "all.html"
    assert main(["report", *two, "--html", str(page)]) == 1
    assert f"{two[1]}: points.jsonl line 3: cut off" in capsys.readouterr().err
    text = Page(page.read_text()).text
    assert "p4: Parts of the record that could not be read" in " ".join(text.split())
    assert "points.jsonl line 3" in text
