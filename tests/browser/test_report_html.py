"""The page in a real browser: what it draws, what it says, and how it answers to pointing and keys."""

from pathlib import Path

import pytest

import synthetic
from browse import IN_BROWSER, look
from ddlbench.records import TrustFlag

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">%{x}&amp;"

pytestmark = IN_BROWSER


@pytest.fixture(scope="module")
def rich(made) -> Path:
    return made("rich", synthetic.rich_points(), trust=synthetic.flags())


def test_the_page_draws_its_charts_and_tables(rich):
    found = look(
        rich,
        """return {
          headline: text("#headline"), charts: ["speedup", "time", "busbw", "distance"].map(traces),
          best: rows("#best"), all: rows("#all"), issues: rows("#issues"),
          ticks: [...document.querySelectorAll("#time .xtick text")].map((tick) => tick.textContent),
          shown: ["speedup", "time", "busbw", "distance"].map((name) => shown(find(`#${name} .main-svg`))),
          late: shown(find("#late")), map: shown(find("#map")),
        };""",
    )
    assert "wins up to" in found["headline"]
    assert found["charts"] == [6, 7, 7, 6], "six algorithms, and the bound where there is one"
    assert found["shown"] == [True] * 4
    assert not found["late"], "no sample was late"
    assert found["map"], "there are two rank counts"
    assert found["best"] == len(synthetic.SIZES)
    assert found["all"] == len(synthetic.SIZES) * 6 + 2
    assert found["issues"] == 3
    assert {"32\u00a0B", "1\u00a0KiB", "1\u00a0MiB"} <= set(found["ticks"])


def test_over_memory_that_was_not_measured_no_ratio_to_the_bound_is_shown(made):
    sizes = (8, 1024, 2**20)
    points = [synthetic.point("ring", n, bound_us=None, transport="direct") for n in sizes]
    points += [synthetic.point("mpi", n, bound_us=5.0, samples_ns=(20000,) * 20) for n in sizes]
    points += [synthetic.point("mpi", 2**21, bound_us=5.0, samples_ns=(20000,) * 20)]
    found = look(
        made("unbound", points),
        """const column = (section, title) => {
          const at = all(`${section} thead th`).findIndex((head) => head.textContent === title);
          return all(`${section} tbody tr`).map((row) => row.children[at].textContent);
        };
        return { best: column("#best", "Times the bound"), all: column("#all", "Bound"),
                 distance: traces("distance"), bounds: viewOf(0).sizes.map((nbytes) => viewOf(0).bound(nbytes)) };""",
    )
    assert found["best"] == ["n/a"] * 3 + ["4.00×"]
    assert sorted(found["all"]) == ["5.00"] * 4 + ["n/a"] * 3
    assert found["distance"] == 1, "mpi alone"
    assert found["bounds"] == [None, None, None, 5], "no line where one took part that has no bound"


def test_the_page_fetches_nothing(rich):
    assert look(rich, 'return performance.getEntriesByType("resource").map((entry) => entry.name);') == []


def test_the_menu_changes_headline_charts_and_tables(rich):
    found = look(
        rich,
        """const before = text("#setting");
        const picker = document.getElementById("picker");
        picker.value = [...picker.options].findIndex((option) => option.text.startsWith("bfloat16"));
        picker.dispatchEvent(new Event("change"));
        return { before, after: text("#setting"), headline: text("#headline"), all: rows("#all"),
                 time: shown(document.querySelector("#time")), best: shown(document.querySelector("#best")) };""",
    )
    assert found["before"].startswith("float32 sum, out of place, 4 ranks")
    assert found["after"].startswith("bfloat16")
    assert found["headline"] == "No algorithm gave a right result here."
    assert found["all"] == len(synthetic.SIZES)
    assert (found["time"], found["best"]) == (False, False)


def test_an_algorithm_can_be_hidden_and_shown_again(rich):
    found = look(
        rich,
        """const button = [...document.querySelectorAll("#legend button")].find((one) => one.textContent === "ring");
        button.click();
        const hidden = [traces("time"), button.getAttribute("aria-pressed")];
        button.click();
        return [...hidden, traces("time"), button.getAttribute("aria-pressed")];""",
    )
    assert found == [6, "false", 7, "true"]


def test_all_values_at_a_size_can_be_read_with_the_keyboard(rich):
    found = look(
        rich,
        """const plot = document.querySelector("#time .plot");
        plot.focus();
        press(plot, "ArrowRight"); press(plot, "ArrowRight");
        const second = document.querySelector("#tip strong").textContent;
        const cells = (row) => [...row.cells].map((cell) => cell.textContent);
        const lines = [...document.querySelectorAll("#tip tr")].map(cells);
        const marks = document.querySelectorAll(".cursor").length;
        press(plot, "Escape");
        const gone = document.getElementById("tip").hidden;
        return { focused: document.activeElement === plot, second, lines, marks, gone };""",
    )
    assert found["focused"]
    assert found["second"] == "16\u00a0B"
    assert len(found["lines"]) == 7
    assert all(value.endswith("µs") for _, value, _ in found["lines"])
    assert found["marks"] == 4, "a line at the same size in every chart"
    assert found["gone"]


def test_pointing_at_a_chart_shows_the_values_there(rich):
    found = look(
        rich,
        """const area = document.querySelector("#busbw .nsewdrag");
        const box = area.getBoundingClientRect();
        const at = { bubbles: true, clientX: box.right - 8, clientY: box.top + 40 };
        for (const kind of ["mouseover", "mousemove"]) area.dispatchEvent(new MouseEvent(kind, at));
        return [text("#tip strong"), text("#tip tr")];""",
    )
    assert found[0] == "64 MiB"
    assert "GB/s" in found[1]


def test_every_control_is_reached_by_the_tab_key(rich):
    found = look(
        rich,
        """const reachable = [...document.querySelectorAll("button, select, summary, [tabindex]")].filter(shown);
        const missed = reachable.filter((one) => one.tabIndex < 0 && !one.closest("svg"));
        return missed.map((one) => one.outerHTML.slice(0, 80));""",
    )
    assert found == []


def test_a_heading_sorts_the_full_table(rich):
    found = look(
        rich,
        """document.querySelector('#all th[data-key="time"] button').click();
        const first = text("#all tbody tr th");
        document.querySelector('#all th[data-key="time"] button').click();
        return [first, text("#all tbody tr td"), document.querySelector("#all th[aria-sort]").dataset.key];""",
    )
    assert found == ["mpi", "64 MiB", "time"]


@pytest.mark.parametrize("width", [390, 600, 1000, 1600])
def test_the_page_needs_no_sideways_scrolling_at_any_width(rich, width):
    found = look(rich, "return [innerWidth, document.documentElement.scrollWidth];", width=width)
    assert found == [width, width]


def test_dark_and_light_follow_the_system(rich):
    probe = """return [getComputedStyle(document.documentElement).backgroundColor,
                       document.querySelector("#time .plot").data[0].line.color, colourOf("--series-0")];"""
    light = look(rich, probe, "--blink-settings=preferredColorScheme=1")
    dark = look(rich, probe, "--blink-settings=preferredColorScheme=0")
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] == "rgb(20, 23, 27)"
    assert light[1] == light[2] != dark[1] == dark[2]


def test_algorithms_differ_in_colour_dash_or_marker(rich):
    looks = look(
        rich, "return Array.from({ length: 20 }, (_, at) => { data.ours = 20; return JSON.stringify(lookOf(at)); });"
    )
    assert len(set(looks)) == 20


def test_hostile_names_stay_text(made):
    points = [
        synthetic.point(name, nbytes, dtype=HOSTILE, reason=HOSTILE, bound_us=2.0, samples_ns=(time,) * 9)
        for nbytes in (8, 1024, 2**20)
        for name, time in ((HOSTILE, 9000), ("<b>bold</b>", 8000), ("mpi", 9500))
    ]
    points.append(synthetic.point(HOSTILE, status="failed", reason=HOSTILE))
    page = made(
        "hostile",
        points,
        topology={"hosts": [HOSTILE]},
        trust=(TrustFlag(HOSTILE, HOSTILE),),
        mpi={"library": HOSTILE},
        environment={HOSTILE: HOSTILE},
    )
    found = look(
        page,
        """const plot = document.querySelector("#time .plot");
        plot.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        const bold = document.querySelectorAll("b").length;
        return { title: document.title, images: document.images.length, bold, scripts: document.scripts.length,
                 tip: text("#tip"), legend: text("#legend"), facts: text(".facts") };""",
    )
    assert not found["title"].startswith("owned")
    assert (found["images"], found["bold"]) == (0, 0)
    assert found["scripts"] == 6, "four of the page and two of this test"
    for place in ("tip", "legend", "facts"):
        assert HOSTILE in found[place]


def test_a_workload_is_summed_up(made):
    points = synthetic.points(["ring", "mpi"], [256, 4096, 2**20], multiplicity=7)
    found = look(
        made("workload", points),
        'return [shown(document.querySelector("#workload")), text("#workload .note"), rows("#workload")];',
    )
    assert found[0]
    assert found[1].startswith("21 tensors")
    assert found[2] == 3


def test_one_rank_has_no_bus_bandwidth_and_says_why(made):
    page = made("one", synthetic.points(["ring"], ranks=1, nodes=1))
    found = look(page, 'return [text("#busbw .plot"), shown(document.querySelector("#speedup")), traces("time")];')
    assert found == ["One rank uses no link, so there is no bus bandwidth.", False, 2]


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([], "This run holds no points."),
        ([synthetic.point(status="failed", samples_ns=(), wrong=None)], "No algorithm gave a right result here."),
        ([synthetic.point(nbytes=0)], "Only ring gave results, so there is nothing to compare it with."),
    ],
)
def test_a_run_with_nothing_to_compare_says_so(made, points, said):
    assert look(made("nothing", points), 'return text("#headline");') == said


def test_ten_thousand_points_are_drawn(made):
    names = [f"algorithm-{number}" for number in range(9)] + ["mpi"]
    page = made("large", synthetic.points(names, [8 * number for number in range(1, 1001)], count=6))
    found = look(
        page,
        """const limited = rows("#all");
        document.querySelector("#all .more button").click();
        return [traces("time"), limited, rows("#all"), rows("#best")];""",
    )
    assert found == [11, 400, 10_000, 1000]
