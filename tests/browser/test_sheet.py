"""A page of tables and charts in a real browser: its charts are drawn, and nothing is asked of a network."""

from browse import IN_BROWSER, look
from ddlbench.report.markup import TextTable
from ddlbench.report.sheet import Chart, sheet

pytestmark = IN_BROWSER


def test_charts_are_drawn_with_their_axes_and_tables_stand_below(tmp_path):
    curve = {"name": "ring <1>", "x": [1e9, 4e9], "y": [2e-3, 1e-3], "mode": "lines+markers"}
    chart = Chart("8 MiB", [curve], "nic.bandwidth", "time", "", "xy", {1e9: "1 GB/s", 4e9: "4 GB/s"}, seconds=True)
    table = TextTable(("Size", "Time"), frozenset({1}), [("8 MiB", "1 ms")], "what if", ("A note.",))
    file = tmp_path / "page.html"
    file.write_text(sheet("What if", "Test", ["An answer."], [("Figure", "x")], [chart, table], "ddlbench"))
    found = look(
        file,
        """
        return { drawn: all(".plot .scatterlayer .trace").length, x: text(".plot .xaxislayer-above"),
                 y: all(".plot .ytick").map((tick) => tick.textContent), legend: all(".legendtext").length,
                 rows: rows("table"), title: text("h1"), wide: document.documentElement.scrollWidth <= innerWidth };
        """,
    )
    assert (found["drawn"], found["rows"], found["title"], found["wide"]) == (1, 1, "What if", True)
    assert "1 GB/s" in found["x"]
    assert "1ms" in found["y"]
