"""The parts of the page about single points and about many ranks, in a real browser."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import synthetic
from browse import IN_BROWSER, look
from ddlbench.records import Loaded
from ddlbench.report import html as html_module

pytestmark = IN_BROWSER

NAMES, SIZES = ["ring", "hierarchical", "mpi"], [8, 1024, 2**20]
CHOSEN = """
  const plain = (words) => words.replace(/\\s/g, " ");
  const words = () => plain(text("#samples .note"));
  const option = (id) => plain(document.getElementById(id).selectedOptions[0].textContent);
  const chosen = () => ["sample-algorithm", "sample-size"].map(option);
"""


def passes(point, shift: float = 1.2):
    """The point in two passes, the second slower by a factor, with the ranks' own times: rank 1 is the slowest."""
    half = len(point.samples_ns) // 2
    samples = [*point.samples_ns[:half], *(int(time * shift) for time in point.samples_ns[half:])]
    own = [[int(time * share) for time in samples] for share in (0.9, 1.0, 0.8, 0.95)]
    return replace(
        point,
        samples_ns=tuple(samples),
        passes=(half, len(samples) - half),
        per_rank_ns=tuple(map(tuple, own)),
        late=4 if point.algorithm == "ring" else 0,
        stopped="interval",
    )


@pytest.fixture(scope="module")
def run():
    """Points of two passes, late samples and the ranks' own times, by algorithm and size."""
    found = map(passes, synthetic.points(NAMES, SIZES))
    return {(point.algorithm, point.nbytes): point for point in found}


@pytest.fixture(scope="module")
def points(made, run) -> Path:
    return made("points", run.values())


def test_the_winner_of_the_largest_size_is_shown_first(points):
    probe = 'return { chosen: chosen(), order: traces("order"), spread: traces("spread"), words: words() };'
    found = look(points, CHOSEN + probe)
    assert found["chosen"] == ["ring", "1 MiB"]
    assert found["order"] == 3, "the samples, and the median of each pass"
    assert found["spread"] == 3, "the three algorithms at this size"
    assert "40 samples" in found["words"]
    assert "It ended because its interval was narrow enough." in found["words"]
    assert "4 samples (9.1 %) were left out" in found["words"]
    assert "The medians of its 2 passes lie between" in found["words"]


def test_the_samples_drawn_are_those_that_were_taken(points, run):
    probe = """const [dots, first, second] = find("#order .plot").data;
        const { x, y } = find("#spread .plot").data.at(-1);
        return { order: dots.y, medians: [first.y[0], second.y[0]], x, y };"""
    found = look(points, probe)
    samples = np.array(run["ring", 2**20].samples_ns) / 1e3
    np.testing.assert_allclose(found["order"], samples, rtol=1e-3)
    np.testing.assert_allclose(found["medians"], [np.median(samples[:20]), np.median(samples[20:])], rtol=1e-3)
    np.testing.assert_allclose(found["x"], sorted(samples), rtol=1e-3)
    np.testing.assert_allclose(found["y"], np.arange(1, 41) / 40)


def test_a_point_is_chosen_by_the_menus(points):
    probe = 'choose("sample-algorithm", 0); choose("sample-size", 8); return [chosen(), words()];'
    found = look(points, CHOSEN + probe)
    assert found[0] == ["hierarchical", "8 B"]
    assert found[1].startswith("hierarchical at 8 B")


def test_a_point_is_chosen_by_a_click_on_it(points):
    probe = """const plot = find("#time .plot");
        const { xaxis, yaxis } = plot._fullLayout;
        const vendor = plot.data.find((trace) => trace.line.color === colourOf("--vendor"));
        const box = plot.getBoundingClientRect();
        const clientX = box.left + xaxis._offset + xaxis.d2p(1024);
        const clientY = box.top + yaxis._offset + yaxis.d2p(vendor.y[1]);
        point(plot.querySelector(".nsewdrag"), { clientX, clientY });
        return [chosen(), document.activeElement.id];"""
    assert look(points, CHOSEN + probe) == [["mpi", "1 KiB"], "sample-algorithm"]


def test_a_point_is_chosen_by_enter_at_its_size(points):
    probe = 'const plot = find("#time .plot"); press(plot, "ArrowRight"); press(plot, "Enter"); return chosen();'
    assert look(points, CHOSEN + probe) == ["ring", "8 B"]


def test_every_sample_can_be_read_with_the_keyboard(points):
    probe = """const plot = find("#order .plot");
        for (let at = 0; at < 21; at++) press(plot, "ArrowRight");
        const read = text("#tip");
        press(plot, "Escape");
        return [read, find("#tip").hidden, plot.tabIndex];"""
    found = look(points, probe)
    assert found[0].endswith("sample 21, pass 2")
    assert found[1:] == [True, 0]


def test_the_lateness_of_ranks_is_drawn_told_and_read(points, run):
    probe = """const plot = find("#lateness .plot");
        const { z } = plot.data[0];
        press(plot, "ArrowRight"); press(plot, "ArrowUp");
        return { z, said: text("#lateness p"), read: text("#tip") };"""
    found = look(points, probe)
    own = np.array(run["ring", 2**20].per_rank_ns) / 1e3
    greatest = (own - own.min(axis=0)).max()
    np.testing.assert_allclose(found["z"], own - own.min(axis=0), atol=greatest / 2000)
    assert "Rank 1 was the slowest most often, in 100" in found["said"]
    assert found["read"].endswith("rank 1, sample 1")


def test_the_map_of_lateness_is_not_there_without_the_ranks_own_times(scaled):
    assert look(scaled, 'return shown(find("#lateness"));') is False


def test_a_page_with_pictures_in_it_still_fetches_nothing(points):
    fetched = look(points, 'return performance.getEntriesByType("resource").map((entry) => entry.name);')
    assert [name for name in fetched if not name.startswith("data:")] == []


def test_the_share_of_late_samples_is_drawn_where_there_are_any(points):
    found = look(points, 'return [shown(find("#late")), find("#late .plot").data.map((trace) => trace.y)];')
    assert found[0]
    np.testing.assert_allclose(found[1], [[0] * 3, [4 / 44] * 3, [0] * 3], rtol=1e-4)


def test_thinned_points_show_their_passes_and_say_what_is_missing(made, monkeypatch):
    found = [replace(passes(point), per_rank_ns=None) for point in synthetic.points(["ring", "mpi"], SIZES, count=2000)]
    everything = made("whole", found).stat().st_size
    monkeypatch.setattr(html_module, "LIMIT", everything - 12_000)
    probe = """return { order: find("#order .plot").data[0].y.length, words: words(),
        hint: text("#samples .hint"), spread: find("#spread .plot").data.at(-1).y };"""
    told = look(made("thinned", found), CHOSEN + probe)
    assert told["order"] == 2, "a median for each pass"
    assert "order statistics" in told["words"]
    assert "of 6 points with many it keeps order statistics" in told["hint"]
    assert (told["spread"][0], told["spread"][-1]) == (0, 1)


def test_failures_have_no_samples_to_show(made):
    page = made("failed", [synthetic.point(status="failed", samples_ns=(), wrong=None)])
    assert look(page, 'return shown(find("#samples"));') is False


# Several ranks


def test_the_map_says_who_wins_at_each_size_and_rank_count(scaled):
    probe = r"""const texts = (found) => found.map((one) => one.innerText.replace(/\s+/g, " "));
        const won = find("#map td.won");
        return { heads: texts(all("#map thead th")), cells: texts([...find("#map tbody tr").cells]), rows: rows("#map"),
                 colour: getComputedStyle(won, "::before").backgroundColor, next: won.title,
                 pressed: text('#map [aria-pressed="true"]') };"""
    found = look(scaled, probe)
    assert found["heads"] == ["Size", "2 ranks 1 node", "4 ranks 1 node", "8 ranks 2 nodes"]
    assert found["rows"] == len(synthetic.SIZES)
    assert [cell[:4] for cell in found["cells"]] == ["8 B", "mpi ", "mpi ", "mpi "]
    assert found["colour"] == "rgb(90, 96, 104)"
    assert found["pressed"].startswith("8 ranks"), "the page opens with the most ranks"
    assert found["next"] == "next: recursive-doubling"


def test_a_column_of_the_map_shows_its_setting(scaled):
    probe = """find("#map thead button").click();
        const focused = document.activeElement.textContent;
        return [text("#setting"), text('#map [aria-pressed="true"]'), find("#picker").value, focused];"""
    found = look(scaled, probe)
    assert found == ["float32 sum, out of place, 2 ranks (p2)", "2 ranks1 node", "0", "2 ranks1 node"]


def test_hiding_an_algorithm_hides_it_in_both_legends_and_all_charts(scaled):
    probe = """const buttons = () => all(".legend button").filter((one) => one.textContent === "ring");
        buttons()[1].click();
        const pressed = buttons().map((one) => one.getAttribute("aria-pressed"));
        return [pressed, ...["time", "efficiency", "spread"].map(traces)];"""
    assert look(scaled, probe) == [["false", "false"], 6, 5, 5]


def test_one_rank_count_has_neither_map_nor_efficiency(points):
    assert look(points, 'return ["#map", "#scaling"].map((name) => shown(find(name)));') == [False, False]


def test_a_phone_needs_no_sideways_scrolling(scaled, points):
    for page in (scaled, points):
        assert look(page, "return [innerWidth, document.documentElement.scrollWidth];", width=390) == [390, 390]


def test_what_there_is_to_judge_by_is_told(points):
    told = look(points, 'return text("#trust");')
    assert "9 by interval" in told
    assert "3.2 % of 372 samples, at most 9.1 %" in told


def test_a_large_map_shows_a_part_until_all_is_asked_for(made):
    sizes = [8 * number for number in range(1, 101)]
    found = {ranks: tuple(synthetic.points(["ring", "mpi"], sizes, ranks=ranks)) for ranks in (2, 4)}
    page = made("large", {f"p{ranks}": Loaded(synthetic.run(), points, []) for ranks, points in found.items()})
    probe = """const before = rows("#map");
        find("#map .more button").click();
        return [before, rows("#map"), find("#map .more").textContent];"""
    assert look(page, probe) == [40, 100, ""]


def test_printing_draws_the_charts_as_large_and_light_as_paper_has_them(scaled):
    probe = """const drawn = () => Number(find("#time .main-svg").getAttribute("height"));
        const size = () => [find("#time .plot").clientHeight, drawn()];
        dispatchEvent(new Event("beforeprint"));
        const paper = { size: size(), ink: colourOf("--ink"), line: find("#time .plot").data[0].line.color };
        dispatchEvent(new Event("afterprint"));
        return { paper, size: size(), line: find("#time .plot").data[0].line.color };"""
    found = look(scaled, probe, "--blink-settings=preferredColorScheme=0")
    assert found["paper"]["size"] == [192, 192]
    assert found["paper"]["ink"] == "#16191d"
    assert found["size"] == [352, 352]
    assert found["line"] != found["paper"]["line"]


def test_hostile_names_of_runs_and_algorithms_stay_text(made):
    evil = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">%{x}<b>"
    layouts = {evil: 2, "other": 4}
    runs = {
        name: Loaded(
            synthetic.run(clock={"method": evil, "sync": evil, "why": evil}),
            tuple(passes(synthetic.point(one, ranks=ranks, nodes=1, ranks_per_node=evil)) for one in (evil, "mpi")),
            [f"points.jsonl line 3: {evil}"],
        )
        for name, ranks in layouts.items()
    }
    probe = """find("#map thead button").click();
        for (const name of ["time", "order", "spread", "lateness"]) press(find(`#${name} .plot`), "ArrowRight");
        const seen = text("#tip");
        const menus = ["picker", "sample-algorithm"].map((id) => document.getElementById(id).textContent);
        return { title: document.title, images: document.images.length, bold: all("b").length, seen,
                 places: [text("#map"), text("#trust"), text("#print"), text(".notices"), ...menus] };"""
    found = look(made("hostile", runs), probe)
    assert not found["title"].startswith("owned")
    assert (found["images"], found["bold"]) == (0, 0)
    assert [evil in place for place in found["places"]] == [True] * 6
