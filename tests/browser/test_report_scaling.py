"""The section on scaling efficiency in a real browser: its chart, its table, and what a reader can choose."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import synthetic
from browse import IN_BROWSER, look
from ddlbench.records import Loaded
from ddlbench.report import scaling_table

pytestmark = IN_BROWSER

SHAPES = ((1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (4, 2))
NAMES, SIZES = ["ring", "hierarchical", "swing", "mpi"], [8, 1024, 2**20]
TOOLS = """
  const plain = (words) => words.replace(/\\s+/g, " ").trim();
  const cells = (row) => [...row.cells].map((cell) => plain(cell.textContent));
  const offered = (id) => [...document.getElementById(id).options].map((option) => plain(option.text));
  const pick = (id, words) => choose(id, document.getElementById(id).options[offered(id).indexOf(words)].value);
  const body = (at) => [...all("#scaling tbody")[at].rows].map(cells);
  const named = () => all("#scaling tbody th").map((head) => plain(head.textContent));
"""


def points(shapes=SHAPES, sizes=SIZES, **changes) -> list:
    """A sweep over shapes; the network is 50 times slower than a node, and hierarchical needs less of it."""
    found = []
    for seed, (nodes, each) in enumerate(shapes, 1):
        layout = {"nodes": nodes, "ranks_per_node": str(each), "ranks": nodes * each}
        slow = 50 if nodes > 1 else 1
        for point in synthetic.points(NAMES, sizes, seed=seed, **layout, **changes):
            factor = (
                slow if point.algorithm == "hierarchical" else slow * each * (1.2 if point.algorithm == "mpi" else 1)
            )
            found.append(replace(point, samples_ns=tuple(int(factor * time) for time in point.samples_ns)))
    return found


@pytest.fixture(scope="module")
def shaped(made) -> Path:
    return made("shaped", points())


def test_the_table_has_the_fastest_and_mpi_with_a_row_for_each_shape(shaped):
    found = look(shaped, TOOLS + "return { heads: cells(find('#scaling thead tr')), rows: body(0), named: named() };")
    assert found["named"] == ["hierarchical", "mpi"]
    assert found["heads"] == [
        *(
            "Algorithm",
            "Nodes",
            "Per node",
            "Ranks",
            "Time",
            "95 % interval",
            "Bus bandwidth",
            "Speed-up",
            "Efficiency",
        ),
        *("Times the bound", "Remark"),
    ]
    assert [row[-10:-7] for row in found["rows"]] == [[str(n), str(each), str(n * each)] for n, each in SHAPES]
    assert found["rows"][0][0] == "hierarchical", "named once, in the first of its rows"
    assert [row[-1] for row in found["rows"]] == ["one rank uses no link", "inside one node", "", "", "", ""]
    assert found["rows"][0][6:9] == ["n/a"] * 3
    assert [row[-3] for row in found["rows"]][2] == "N₀"


def test_the_figures_are_those_of_the_csv(shaped):
    table = scaling_table(Loaded(synthetic.run(), tuple(points()), []))
    rows = table[(table["algorithm"] == "mpi") & (table["nbytes"] == 1024)]
    probe = """pick("scaling-size", "1 KiB");
        const layouts = page.scaling.family.layouts;
        const found = layouts.map((_, at) => page.scaling.scaled(data.baseline, at));
        const names = ["time", "busbw", "speedup", "efficiency", "least", "most"];
        return Object.fromEntries(names.map((name) => [name, found.map((one) => one[name] ?? null)]));"""
    found = look(shaped, TOOLS + probe)
    columns = ["time_us", "busbw_gb_per_s", "speedup", "efficiency", "efficiency_low", "efficiency_high"]
    for name, column in zip(found, columns, strict=True):
        values = [np.nan if value is None else value for value in found[name]]
        np.testing.assert_allclose(values, rows[column], rtol=1e-3)


def test_all_algorithms_are_shown_when_asked_for(shaped):
    probe = """const before = named();
        find("#scaling .more button").click();
        const after = named();
        const focused = document.activeElement === find("#scaling .more button");
        find("#scaling .more button").click();
        return [before.length, after, named().length, focused];"""
    table = scaling_table(Loaded(synthetic.run(), tuple(points()), []))
    order = list(dict.fromkeys(table[table["nbytes"] == 2**20]["algorithm"]))
    assert order[0] == "hierarchical"
    assert look(shaped, TOOLS + probe) == [2, order, 2, True]


def test_the_baseline_can_be_chosen_and_the_note_says_what_is_not_comparable(shaped):
    probe = """const [before, options] = [text("#scaling .note"), offered("scaling-base")];
        pick("scaling-base", "1x2 (1 node of 2 ranks)");
        return { before, options, after: text("#scaling .note"), y: find("#efficiency .plot").data[0].y,
                 base: cells(find("#scaling .base")).at(-3), remarks: body(0).map((row) => row.at(-1)) };"""
    found = look(shaped, TOOLS + probe)
    assert found["options"][0] == "1x2 (1 node of 2 ranks)", "one rank is no baseline"
    assert "N₀ = 2x1 (2 nodes of 1 rank), same algorithm, vectors of 1 MiB:" in found["before"], "paper has no menus"
    assert "1x2: inside one node, where nothing crosses the network; not comparable with N₀." in found["before"]
    assert "N₀ is inside one node" in found["after"]
    assert "N₀ = 2x1 compares networks alone." in found["after"]
    assert found["base"] == "N₀"
    assert found["y"][0] == 1
    assert max(found["y"][1:]) < 0.1
    assert found["remarks"][1:] == [""] * 5


def test_the_chart_leaves_out_what_is_inside_one_node_and_says_so(shaped):
    probe = """const told = () => [find("#efficiency .plot").data[0].x, text("#scaling .note").includes("leaves out")];
        const nodes = [offered("scaling-line"), ...told()];
        pick("scaling-line", "nodes of 1 rank");
        return [...nodes, ...told()];"""
    found = look(shaped, TOOLS + probe)
    assert found[1:] == [[2, 4], True, [2, 4], False]
    assert found[0] == ["nodes of 2 ranks", "nodes of 1 rank", "ranks on 2 nodes", "ranks on 4 nodes"]


def test_the_chart_has_the_values_of_the_table_for_every_algorithm(shaped):
    probe = """pick("scaling-line", "nodes of 1 rank");
        const plot = find("#efficiency .plot");
        return { traces: traces("efficiency"), y: plot.data.map(({ y }) => y), high: plot.data[0].error_y.array };"""
    found = look(shaped, TOOLS + probe)
    assert found["traces"] == 4
    assert [y[0] for y in found["y"]] == [1] * 4
    table = scaling_table(Loaded(synthetic.run(), tuple(points()), []))
    row = table[(table["nbytes"] == 2**20) & (table["nodes"] == 4) & (table["ranks"] == 4)].set_index("algorithm")
    assert found["y"][0][1] == pytest.approx(row["efficiency"]["hierarchical"], rel=1e-3)
    assert found["high"][1] == pytest.approx(row["efficiency_high"]["hierarchical"] - found["y"][0][1], rel=1e-2)


def test_a_shape_asked_for_on_the_command_line_is_the_baseline(made, tmp_path):
    from ddlbench.report import write_html

    page = tmp_path / "page.html"
    write_html(Loaded(synthetic.run(), tuple(points()), []), page, "2x2")
    assert look(page, TOOLS + 'return text("#scaling .note");').startswith("Bus bandwidth over that of N₀ = 2x2")


def test_points_without_figures_say_why(made):
    broken = [
        replace(point, status="failed", samples_ns=(), reason="no memory")
        if (point.algorithm, point.nbytes) == ("mpi", 2**20) and point.nodes == (2 if point.ranks == 2 else 0)
        else point
        for point in points()
        if (point.algorithm, point.nbytes, point.ranks) != ("hierarchical", 2**20, 8)
    ]
    probe = """find("#scaling .more button").click();
        const of = (name) => all("#scaling tbody").find((one) => plain(one.querySelector("th").textContent) === name);
        const told = (name) => [...of(name).rows].map(cells).map((row) => [row.at(-3), row.at(-1)]);
        const zeros = all("#scaling td").filter((one) => one.textContent === "0").length;
        return { mpi: told("mpi"), hierarchical: told("hierarchical"), zeros };"""
    found = look(made("broken", broken), TOOLS + probe)
    assert found["mpi"][2] == ["n/a", "failed"]
    assert found["mpi"][5] == ["n/a", "N₀: failed"]
    assert found["hierarchical"][5] == ["n/a", "not measured"]
    assert found["zeros"] == 0


def test_a_workload_is_in_the_menu_and_comes_first(made):
    often = {8: 100, 1024: 40, 2**20: 7}
    config = {"workload": {"name": "resnet50"}, "fuse": None}
    gradients = [replace(point, multiplicity=often[point.nbytes]) for point in points()]
    page = made("gradients", gradients, config=config)
    probe = """const chosen = document.getElementById("scaling-size").selectedOptions[0].text;
        return { chosen, named: named(), rows: body(0), note: text("#scaling .note"), traces: traces("efficiency") };"""
    found = look(page, TOOLS + probe)
    assert found["chosen"] == "resnet50 (147 tensors)"
    assert "same algorithm, all 147 tensors of resnet50:" in found["note"]
    assert found["named"] == ["best of each size", "hierarchical", "mpi"]
    table = scaling_table(Loaded(synthetic.run(config=config), tuple(gradients), []))
    rows = table[(table["workload"] == "resnet50") & (table["algorithm"] == "best of each size")]
    percents = [f"{100 * value:.0f} %" for value in rows["efficiency"][3:]]
    assert [row[-3] for row in found["rows"]][3:] == percents
    assert found["traces"] == 4


def test_a_click_on_the_chart_of_a_workload_shows_its_setting(made):
    page = made("clicked", [replace(point, multiplicity=2) for point in points()])
    probe = """const plot = find("#efficiency .plot");
        press(plot, "ArrowRight"); press(plot, "Enter");
        return [text("#setting"), offered("scaling-size").at(-1)];"""
    found = look(page, TOOLS + probe)
    assert found[0].endswith("4 ranks on 2 nodes, 2 on each")
    assert found[1] == "workload (6 tensors)"


def test_one_rank_and_two_have_a_table_and_no_chart(made):
    page = made("small", points(((1, 1), (1, 2))))
    probe = """const parts = ["#efficiency", "#scaling .legend", "#scaling-line"];
        return { table: rows("#scaling"), shown: parts.filter((part) => shown(find(part))) };"""
    assert look(page, TOOLS + probe) == {"table": 4, "shown": []}


def test_a_setting_without_the_baseline_says_so(tmp_path):
    from ddlbench.report import write_html

    page = tmp_path / "page.html"
    few = points(((2, 1), (4, 1)), dtype="float16")
    write_html(Loaded(synthetic.run(), (*points(), *few), []), page, "2x2")
    probe = """pick("picker", "float16 sum, out of place, 4 ranks on 4 nodes, 1 on each");
        return [text("#scaling .note"), body(0).map((row) => row.at(-1)), text("#efficiency .plot")];"""
    note, remarks, chart = look(page, TOOLS + probe)
    assert note.startswith("The baseline that was asked for was not measured")
    assert set(remarks) == {"the baseline was not measured"}
    assert chart.startswith("No algorithm was measured")


def test_efficiency_of_several_runs_is_drawn_along_ranks_and_nodes(scaled):
    probe = """const first = [find("#efficiency .plot").data[0].x, text("#scaling .note")];
        pick("scaling-line", "ranks on 1 node"); pick("scaling-size", "8 B");
        const { x, y } = find("#efficiency .plot").data.at(-1);
        return { first, x, y, along: offered("scaling-line"), traces: traces("efficiency") };"""
    found = look(scaled, TOOLS + probe)
    assert found["along"] == ["nodes of 4 ranks", "ranks on 1 node"]
    assert found["first"][0] == [1, 2]
    assert "N₀ = 1x2 (1 node of 2 ranks)" in found["first"][1]
    assert (found["traces"], found["x"], found["y"][0]) == (6, [2, 4], 1)
    times = [
        np.median(synthetic.points(ranks=ranks, nodes=1, ranks_per_node=str(ranks))[5].samples_ns) for ranks in (2, 4)
    ]
    assert found["y"][1] == pytest.approx(times[0] / times[1] * 1.5, rel=1e-3)


def test_efficiency_is_read_with_the_keyboard_and_leads_to_the_samples(scaled):
    probe = """const plot = find("#efficiency .plot");
        press(plot, "ArrowLeft");
        const [read, marks] = [text("#tip strong"), all(".cursor").length];
        press(plot, "ArrowLeft"); press(plot, "Enter");
        const size = document.getElementById("sample-size").selectedOptions[0].text;
        return [read, marks, text("#setting"), plain(size)];"""
    found = look(scaled, TOOLS + probe)
    assert found[0] == "2 nodes"
    assert found[1] == 1, "the other charts have another axis"
    assert found[2].endswith("(p4)")
    assert found[3] == "64 MiB"


@pytest.mark.parametrize("width", [390, 1000])
def test_the_page_needs_no_sideways_scrolling(shaped, width):
    assert look(shaped, "return [innerWidth, document.documentElement.scrollWidth];", width=width) == [width, width]


def test_hostile_names_stay_text(made):
    evil = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">%{x}<b>"
    hostile = [
        synthetic.point(name, 1024, nodes=nodes, ranks=nodes, ranks_per_node=evil, sync=evil)
        for name in (evil, "mpi")
        for nodes in (2, 4)
    ]
    page = made("hostile", hostile, config={"workload": {"name": evil}})
    probe = """return { title: document.title, images: document.images.length, bold: all("b").length,
                 places: [text("#scaling table"), offered("scaling-base").join(), offered("scaling-size").join()] };"""
    found = look(page, TOOLS + probe)
    assert not found["title"].startswith("owned")
    assert (found["images"], found["bold"]) == (0, 0)
    assert [evil in place for place in found["places"]] == [True] * 3
