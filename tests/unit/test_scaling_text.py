"""The scaling-efficiency table as text: what is shown, what is left out, its notes, and the command that writes it."""

import re

import pytest
from markdown_it import MarkdownIt

import synthetic
from ddlbench.cli import main
from ddlbench.records import Loaded, Stated
from ddlbench.report import scalings
from ddlbench.report.markup import FORMS, TextTable, latex, markdown
from ddlbench.report.plain import fitting, plain
from ddlbench.report.runs import Runs
from ddlbench.report.scaling_table import SHARED
from ddlbench.report.scaling_text import MOST_ROWS, scaling_tables

MIB = 2**20
REPORT = "ddlbench report DIR --baseline"
GRID = ((1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2))


def loaded(points, **changes) -> Loaded:
    return Loaded(synthetic.run(**changes), tuple(points), [])


def timed(algorithm: str, nbytes: int, nodes: int, each: int, time_us: float, **changes):
    layout = {"nodes": nodes, "ranks_per_node": str(each), "ranks": nodes * each}
    return synthetic.point(
        algorithm, nbytes, **({"samples_ns": (round(1000 * time_us),) * 20} | layout | {"bound_us": 10.0} | changes)
    )


def swept(shapes=GRID, sizes=(8, 1024, MIB), names=("ring", "swing", "mpi")) -> list:
    """A sweep in which `swing` is the fastest, `ring` the slowest."""
    order = {"swing": 1, "mpi": 2, "ring": 3}
    return [
        timed(name, nbytes, nodes, each, order[name] * nbytes * nodes * each)
        for nodes, each in shapes
        for nbytes in sizes
        for name in names
    ]


def table(points, baseline: str | None = None, every: bool = False, **changes) -> TextTable:
    found = scalings(Runs.of(loaded(points, **changes)), baseline)
    (only,) = scaling_tables(found, asked=baseline is not None, every=every)
    return only


def column(made: TextTable, title: str) -> list[str]:
    return [row[made.titles.index(title)] for row in made.rows]


def notes(points, baseline: str | None = None) -> str:
    return "\n".join(table(points, baseline).notes)


# What is shown


def test_the_fastest_on_the_largest_shape_and_mpi_are_shown_and_each_is_named_once():
    made = table(swept())
    assert [name for name in column(made, "Algorithm") if name] == ["swing", "mpi"] * 3
    assert [size.replace("\u00a0", " ") for size in column(made, "Size") if size] == ["8 B", "1 KiB", "1 MiB"]
    assert column(made, "Nodes")[:6] == ["1", "1", "2", "2", "4", "4"]
    assert column(made, "Per node")[:6] == ["1", "2", "1", "2", "1", "2"]
    assert column(made, "Ranks")[:6] == ["1", "2", "2", "4", "4", "8"]


def test_all_is_shown_when_it_is_asked_for():
    made = table(swept(), every=True)
    assert [name for name in column(made, "Algorithm") if name] == ["swing", "mpi", "ring"] * 3
    assert "Shown" not in "".join(made.notes)


@pytest.mark.parametrize("shapes", [2, 6, 20])
def test_with_many_sizes_and_shapes_the_table_stays_short_and_says_what_it_leaves_out(shapes):
    grid = [(nodes, each) for nodes in (2, 4, 8, 16, 32) for each in (1, 2, 4, 8)][:shapes]
    sizes = [8 * 2**power for power in range(24)]
    made = table(swept(grid, sizes))
    assert len(made.rows) <= MOST_ROWS
    named = [size.replace("\u00a0", " ") for size in column(made, "Size") if size]
    assert named[-1] == "64 MiB", "large vectors tell most of the network"
    assert made.notes[-1].startswith(f"Shown is of {len(named)} of 24 sizes the fastest on ")
    assert made.notes[-1].endswith("scaling.csv has all of 3 algorithms and 24 sizes.")


def test_nothing_is_said_to_be_left_out_where_all_is_shown():
    assert "Shown" not in notes(swept(names=("swing", "mpi")))


def test_a_workload_stands_for_its_sizes_with_the_best_of_each_size_first():
    points = [
        timed(point.algorithm, point.nbytes, 2 * at, 1, 5 * at, multiplicity=3)
        for at in (1, 2)
        for point in swept()[:9]
    ]
    made = table(points, config={"workload": {"name": "resnet50"}})
    assert [name for name in column(made, "Workload") if name] == ["resnet50"]
    assert next(filter(None, column(made, "Algorithm"))) == "best of each size"
    assert "the whole workload" in made.notes[-1]
    assert "3 sizes" in made.notes[-1]


def test_figures_that_do_not_apply_are_told_as_such_with_the_reason_and_never_as_0():
    points = [*swept(), timed("swing", MIB, 4, 2, 1, status="failed", samples_ns=(), reason="no memory")]
    points = [
        point for point in points if not (point.ranks == 8 and point.status == "ok" and point.algorithm == "swing")
    ]
    made = table(points, every=True)
    rows = {(size, *row[1:5]): row for size, row in zip(_filled(column(made, "Size")), made.rows, strict=True)}
    (failed,) = [row for row in made.rows if row[-1] == "failed: no memory"]
    assert failed[5:-1] == ("n/a",) * 6
    (alone, *_) = rows.values()
    assert dict(zip(made.titles, alone, strict=True))["Efficiency"] == "n/a"
    assert alone[-1] == "one rank uses no link"
    assert "0" not in {cell for row in made.rows for cell in row}


def _filled(cells: list[str]) -> list[str]:
    """Cells with the one above where they are empty."""
    return [next(cell for cell in reversed(cells[: at + 1]) if cell) for at in range(len(cells))]


def test_a_column_in_which_nothing_stands_is_left_out():
    points = [timed("mpi", 8, nodes, 1, 10, samples_ns=(9000, 10000), bound_us=None) for nodes in (2, 4)]
    assert table(points).titles == (
        *("Size", "Algorithm", "Nodes", "Per node", "Ranks", "Time (µs)", "busbw (GB/s)", "Speed-up", "Efficiency"),
    )


def test_times_that_are_no_medians_say_what_they_are():
    assert "Statistic" not in table(swept()).titles
    stated = {"kind": "imported", "samples_ns": (), "sync": ""}
    points = [timed("mpi", 8, nodes, 1, 10, **stated, stated=Stated(mean_us=10.0)) for nodes in (2, 4)]
    assert column(table(points), "Statistic") == ["mean", "mean"]


def test_the_row_of_the_baseline_says_that_it_is_it():
    made = table(swept(((2, 1), (4, 1))))
    assert [cell.replace("\u00a0", " ") for cell in column(made, "Efficiency")[:2]] == ["N₀", "75 %"]
    assert column(made, "Speed-up")[:2] == ["1.00", "1.50"]


# Notes


def test_the_baseline_and_what_the_figures_are_is_said_in_every_table():
    assert f"N₀ is 2x1 (2 nodes of 1 rank): the fewest ranks above one; {REPORT} takes another." in notes(swept())
    assert "N₀ is 4x1 (4 nodes of 1 rank): as asked for." in notes(swept(), "4x1")
    assert "Efficiency: busbw over that of N₀" in notes(swept())


def test_a_baseline_inside_one_node_is_told_apart_from_several_nodes_with_the_way_out():
    told = notes(swept(((1, 2), (2, 2), (4, 2))))
    assert "N₀ is 1x2" in told
    assert "N₀ is inside one node, where nothing crosses the network" in told
    assert f"{REPORT} 2x2 compares networks alone." in told
    assert "not comparable with N₀" not in told, "that would be said of each row against itself"
    assert "--baseline" not in notes(swept(((1, 2), (2, 2)))).replace(f"{REPORT} takes another", ""), (
        "there is no other"
    )


def test_shapes_inside_one_node_are_told_apart_from_a_baseline_over_several():
    made = table(swept())
    assert "1x2: inside one node, where nothing crosses the network; not comparable with N₀." in made.notes
    assert column(made, "Remark")[:6] == ["one rank uses no link", "inside one node", "", "", "", ""]


def test_nothing_is_said_of_links_where_all_is_over_the_network():
    assert "inside" not in notes(swept(((2, 1), (4, 1))))


def test_that_ranks_of_a_node_share_its_link_is_said_where_there_are_several():
    assert SHARED in table(swept(((2, 1), (2, 2)))).notes
    assert SHARED in table(swept(((2, 2), (4, 2)))).notes
    assert "share" not in notes(swept(((2, 1), (4, 1))))
    assert "share" not in notes(swept(((1, 2), (1, 4)))), "nothing crosses the network"


def test_starts_that_were_not_aligned_alike_are_told():
    points = [timed("mpi", 8, 2, 1, 5, sync="window"), timed("mpi", 8, 4, 1, 5, sync="barrier")]
    assert "by barrier and by window" in notes(points)
    assert "aligned" not in notes(swept())
    imported = {"kind": "imported", "samples_ns": (), "sync": "", "stated": Stated(mean_us=10.0)}
    points = [timed("mpi", 8, 2, 1, 5), timed("mpi", 8, 4, 1, 5, **imported)]
    assert "Not all times are of one kind: mean and median." in notes(points)


def test_over_memory_that_was_not_measured_there_is_no_ratio_to_the_bound_and_the_notes_say_why():
    points = [timed("ring", 8, 1, each, 10, transport="direct", bound_us=None) for each in (2, 4)]
    points += [timed("mpi", 8, 1, each, 20) for each in (2, 4)]
    made = table(points)
    assert column(made, "Times the bound") == ["n/a", "n/a", "2.00×", "2.00×"]
    assert "Not all times have a bound: what memory that ranks share allows was not measured" in notes(points)
    assert "bound:" not in notes(points[2:])


def test_a_virtual_cluster_is_told_in_the_table():
    made = table(swept(), environment={"variables": {"DDLBENCH_LAB": "4 nodes, 1gbit each"}})
    said = "Not a cluster: the nodes are network namespaces on one machine (4 nodes, 1gbit each)."
    assert said in made.notes
    assert "Not a cluster" not in notes(swept())


# Forms

HOSTILE = "a_b|c*<i>\\x$&%#[x](y)~"


def test_markdown_and_latex_show_hostile_names_as_they_are():
    points = [timed(HOSTILE, 8, nodes, 1, 5 * nodes, dtype="x|y_z") for nodes in (2, 4)]
    made = table(points)
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown(made))
    texts = ["".join(child.content for child in token.children or []) for token in tokens if token.type == "inline"]
    kinds = {child.type for token in tokens if token.type == "inline" for child in token.children or []}
    assert kinds <= {"text", "text_special"}
    assert texts[0] == "Scaling efficiency: x|y_z sum, out of place"
    assert HOSTILE in texts
    assert [note for note in made.notes if note not in texts] == []
    written = latex(made)
    assert r"a\_b\textbar{}c{*}\textless{}i\textgreater{}\textbackslash{}x\$\&\%\#{[}x](y)\textasciitilde{}" in written
    assert "₀" not in written


@pytest.mark.parametrize("form", ["markdown", "latex"])
def test_the_forms_have_a_row_for_each_row_and_the_notes_below(form):
    made = table(swept())
    text = FORMS[form](made)
    assert text.count("swing") >= 3
    assert len([line for line in text.splitlines() if line.startswith("|") or line.endswith(r"\\")]) >= len(made.rows)
    last = text.splitlines()[-1]
    assert "scaling.csv" in last


def test_the_plain_table_has_its_notes_below_as_comments():
    lines = plain(table(swept())).splitlines()
    assert lines[0] == "# Scaling efficiency: float32 sum, out of place"
    assert lines[-1].startswith("# Shown is")
    assert len([line for line in lines if not line.startswith("#")]) == 1 + 36


def test_signs_that_an_encoding_lacks_are_written_otherwise():
    text = "N₀ 1.5× 3 µs 2 – 4\n"
    assert fitting(text, "utf-8") == text
    assert fitting(text, "ascii") == "N0 1.5x 3 us 2 - 4\n"
    assert fitting("a£", "ascii") == "a?"
    assert fitting("µ₀", None) == "u0"


# The command


@pytest.fixture
def directory(tmp_path):
    return synthetic.store(tmp_path / "run", swept())


def test_report_of_several_shapes_shows_the_table_and_writes_it_whole(directory, capsys):
    assert main(["report", str(directory)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# Scaling efficiency: float32 sum, out of place\n")
    assert out.splitlines()[-3:] == [f"{directory / name}" for name in ("results.csv", "scaling.csv", "report.html")]
    lines = (directory / "scaling.csv").read_text().splitlines()
    assert len(lines) == 1 + len(swept())


def test_of_several_settings_the_screen_has_the_first_and_says_where_the_others_are(tmp_path, capsys):
    halves = [timed("mpi", 8, nodes, 1, 10, dtype="float16") for nodes in (2, 4)]
    place = synthetic.store(tmp_path / "run", [*swept(), *halves])
    assert main(["report", str(place)]) == 0
    out = capsys.readouterr().out
    assert out.count("# Scaling efficiency") == 1
    assert f"# of 2 settings this is the first: ddlbench report {place} --scaling has all\n" in out
    assert main(["report", str(place), "--scaling"]) == 0
    assert capsys.readouterr().out.count("# Scaling efficiency") == 2


def test_report_of_one_shape_writes_no_scaling_table(tmp_path, capsys):
    place = synthetic.store(tmp_path / "run", swept(((2, 1),)))
    assert main(["report", str(place)]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{place / name}" for name in ("results.csv", "report.html")]
    assert not (place / "scaling.csv").exists()


def test_a_new_run_in_place_of_one_with_a_scaling_table_leaves_none_of_it(directory, capsys):
    assert main(["report", str(directory)]) == 0
    synthetic.Store.create(directory, synthetic.run(finished=False), overwrite=True).close()
    assert not (directory / "scaling.csv").exists()
    capsys.readouterr()


def test_the_baseline_holds_in_every_file_and_on_the_screen(directory, capsys):
    assert main(["report", str(directory), "--baseline", "4x1"]) == 0
    assert "N₀ is 4x1 (4 nodes of 1 rank): as asked for." in capsys.readouterr().out
    assert ",4x1," in (directory / "scaling.csv").read_text()
    assert ",2x1," not in (directory / "scaling.csv").read_text()
    assert re.search(r'"base":4\b', (directory / "report.html").read_text())


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["--scaling"], "# Scaling"),
        (["--scaling", "markdown"], "Scaling"),
        (["--scaling", "latex"], r"\noindent"),
        (["--scaling", "csv"], "workload,"),
    ],
)
def test_report_writes_the_scaling_table_to_standard_output(directory, words, start, capsys):
    assert main(["report", str(directory), *words]) == 0
    assert capsys.readouterr().out.startswith(start)
    assert not (directory / "scaling.csv").exists()


def test_several_runs_make_one_scaling_table(tmp_path, capsys):
    places = [str(synthetic.store(tmp_path / f"p{nodes}", swept(((nodes, 1),)))) for nodes in (2, 4)]
    assert main(["report", *places, "--scaling", "csv", "--baseline", "4x1"]) == 0
    assert capsys.readouterr().out.count(",4x1,") == 2 * 9


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--baseline", "3x1"], ["'3x1'", "1x2, 2x1, 2x2, 4x1, 4x2"]),
        (["--baseline", "1x1"], ["'1x1'", "one rank"]),
        (["--scaling", "cvs"], ["'cvs'", "'csv'"]),
        (["--all"], ["--all", "--scaling"]),
        (["--table", "--baseline", "2x1"], ["--baseline", "--scaling"]),
        (["--csv", "rows.csv", "--scaling", "--baseline", "3x1"], ["'3x1'"]),
    ],
)
def test_a_mistake_is_one_line_and_no_file_is_written(directory, words, parts, capsys, monkeypatch):
    monkeypatch.chdir(directory)
    assert main(["report", str(directory), *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert [part for part in parts if part not in err] == []
    assert sorted(file.name for file in directory.iterdir()) == ["points.jsonl", "run.json"]


def test_a_scaling_table_of_one_shape_is_refused_with_the_way_out(tmp_path, capsys):
    place = synthetic.store(tmp_path / "run", swept(((2, 1),)))
    assert main(["report", str(place), "--scaling"]) == 2
    assert "--nodes 1,2,4" in capsys.readouterr().err
