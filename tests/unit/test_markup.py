"""Tables for GitHub and for LaTeX: what they hold, and that every text stays text."""

import re
import shutil
import subprocess

import pytest
from markdown_it import MarkdownIt

import synthetic
from ddlbench.records import Loaded, Stated
from ddlbench.report.markup import (
    FORMS,
    LATEX_SPECIAL,
    TextTable,
    latex,
    latex_text,
    markdown,
    markdown_text,
    results_tables,
    results_text,
)

HOSTILE = [
    "multi_ring_2|x",
    "a|b\\|c",
    "*bold* _it_ __b__ ~~gone~~",
    "`code` ``x``",
    "<script>alert(1)</script> &lt; &amp;",
    "[text](https://example.org) ![x](y)",
    "# title",
    "- item",
    "trailing \\",
    "$x^2$ 100% #1 {a} ~b",
]


def loaded(points, **changes) -> Loaded:
    return Loaded(synthetic.run(**changes), tuple(points), [])


def cells(text: str) -> list[list[str]]:
    """The cells of the table in a Markdown text as plain text; fails when there is anything but text in one."""
    rows: list[list[str]] = []
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows:
            kinds = {child.type for child in token.children or []}
            assert kinds <= {"text", "text_special"}, (token.content, kinds)
            rows[-1].append("".join(child.content for child in token.children or []))
    return rows


def test_every_text_in_a_markdown_cell_stays_the_text_it_is():
    table = TextTable(("name", "x"), frozenset({1}), [(text, "1") for text in HOSTILE])
    assert [row[0] for row in cells(markdown(table))[1:]] == HOSTILE


def test_a_markdown_table_aligns_its_columns_and_has_its_caption_above():
    table = TextTable(("name", "time"), frozenset({1}), [("ring", "1.5")], "float32 sum, 4 ranks_")
    assert markdown(table) == ("float32 sum, 4 ranks\\_\n\n| name | time |\n| :--- | ---: |\n| ring | 1.5 |\n")


def test_a_line_break_in_a_name_breaks_no_row():
    table = TextTable(("name",), frozenset(), [("a\nb\r\nc\u2028d",)])
    assert cells(markdown(table))[1:] == [["a b c d"]]
    assert "a b c d \\\\" in latex(table).splitlines()


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("multi_ring", r"multi\_ring"),
        ("a & b", r"a \& b"),
        ("50 %", r"50 \%"),
        ("#1 $x$", r"\#1 \$x\$"),
        ("{x}", r"\{x\}"),
        (r"a\b", r"a\textbackslash{}b"),
        ("x^2~y", r"x\textasciicircum{}2\textasciitilde{}y"),
        ("<i>|", r"\textless{}i\textgreater{}\textbar{}"),
        ("a--b---c", "a-{}-b-{}-{}-c"),
        ("``x''", r"\textasciigrave{}\textasciigrave{}x\textquotesingle{}\textquotesingle{}"),
        ("12\u00a0µs", r"12~\textmu{}s"),
        ("multi-ring:2", "multi-ring:2"),
    ],
)
def test_what_means_something_to_latex_is_written_as_text(text, written):
    assert latex_text(text) == written


def test_no_sign_of_latex_is_left_bare():
    """Every special sign of the output belongs to a command or a brace that the escapes themselves wrote."""
    left = latex_text("".join(LATEX_SPECIAL) * 2)
    for written in sorted(set(LATEX_SPECIAL.values()), key=len, reverse=True):
        left = left.replace(written, "")
    assert left == ""


def test_control_characters_do_not_reach_latex():
    assert latex_text("a\x1b[2J\x00b") == "a{[}2Jb"


def test_a_latex_table_is_a_tabular_with_rules():
    table = TextTable(("name", "time"), frozenset({1}), [("ring", "1.5")], "4 ranks_")
    assert latex(table) == (
        "\\noindent 4 ranks\\_\\par\\medskip\n\n\\begin{tabular}{lr}\n\\hline\nname & time \\\\\n\\hline\n"
        "ring & 1.5 \\\\\n\\hline\n\\end{tabular}\n"
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex on PATH")
def test_latex_itself_sets_the_tables(tmp_path):
    points = [synthetic.point(text, 64 << at, transport="") for at, text in enumerate(HOSTILE)]
    body = results_text(loaded(points), "latex") + latex(
        TextTable(("x",), frozenset(), [("[1]",), ("*",), ("µ×…–'\"",)])
    )
    source = "\\documentclass{article}\n\\begin{document}\n"
    (tmp_path / "x.tex").write_text(f"{source}{body}\\end{{document}}\n")
    line = ["pdflatex", "-draftmode", "-halt-on-error", "-interaction=nonstopmode", "x.tex"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_tables_that_differ_in_nothing_but_how_starts_were_aligned_say_it():
    points = [synthetic.point("ring", 8, sync="window"), synthetic.point("ring", 16, sync="barrier")]
    both = [table.caption for table in results_tables(loaded(points))]
    assert both == [
        f"float32 sum, out of place, 4 ranks on 2 nodes, 2 on each, by {sync}" for sync in ("window", "barrier")
    ]
    (one,) = results_tables(loaded(points[:1]))
    assert "window" not in one.caption


def test_where_there_can_be_no_bound_the_table_says_so_and_why():
    points = [synthetic.point("mpi", 8, bound_us=4.0), synthetic.point("ring", 8, bound_us=None, transport="direct")]
    (table,) = results_tables(loaded(points))
    assert [row[table.titles.index("Bound (µs)")] for row in table.rows] == ["4", "n/a"]
    (note,) = table.notes
    assert note.startswith("n/a: what memory that ranks share allows was not measured")
    (plain,) = results_tables(loaded(points[:1]))
    assert plain.notes == ()


def test_the_results_have_a_table_for_each_setting_sorted_by_size_and_algorithm():
    points = [
        synthetic.point(name, nbytes, dtype=dtype)
        for dtype in ("float32", "int32")
        for nbytes in (2**20, 64)
        for name in ("swing", "ring")
    ]
    first, second = results_tables(loaded(points))
    assert (first.caption, second.caption) == (
        "float32 sum, out of place, 4 ranks on 2 nodes, 2 on each",
        "int32 sum, out of place, 4 ranks on 2 nodes, 2 on each",
    )
    assert first.titles == (
        "Size",
        "Algorithm",
        "Median (µs)",
        "95 % interval (µs)",
        "Samples",
        "algbw (GB/s)",
        "busbw (GB/s)",
    )
    assert [tuple(row[:3]) for row in first.rows] == [
        ("64\u00a0B", "ring", "10"),
        ("64\u00a0B", "swing", "10"),
        ("1\u00a0MiB", "ring", "10"),
        ("1\u00a0MiB", "swing", "10"),
    ]
    assert first.rows[0][3:5] == ("9.95 – 10.0", "20")


def test_points_that_are_not_ok_say_why():
    points = [
        synthetic.point(),
        synthetic.point("swing", status="failed", samples_ns=(), reason="MPI_ERR | x", wrong=None),
    ]
    (table,) = results_tables(loaded(points))
    assert [row[-1] for row in table.rows] == ["ok", "failed: MPI_ERR | x"]
    assert cells(markdown(table))[2][-1] == "failed: MPI_ERR | x"


def test_imported_means_are_told_apart_from_medians():
    imported = synthetic.point("osu", kind="imported", sync="barrier", samples_ns=(), stated=Stated(mean_us=7))
    (table,) = results_tables(loaded([imported, synthetic.point("ring")]))
    rows = [dict(zip(table.titles, row, strict=True)) for row in table.rows]
    assert [(row["Time (µs)"], row["Statistic"]) for row in rows] == [("7", "mean"), ("10", "median")]
    assert rows[0]["95 % interval (µs)"] == ""


@pytest.mark.parametrize("form", FORMS)
def test_all_kinds_of_points_can_be_written_and_every_row_is_as_wide_as_the_head(form):
    text = results_text(loaded(synthetic.rich_points()), form)
    bar = r"(?<!\\)\|" if form == "markdown" else r"(?<!\\)&"
    widths = [len(re.findall(bar, line)) for line in text.splitlines() if re.search(bar, line)]
    assert len(widths) > len(synthetic.rich_points())
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("form", FORMS)
def test_a_run_without_points_gives_no_table(form):
    assert results_text(loaded([]), form) == ""


def test_escapes_leave_names_readable():
    assert markdown_text("multi-ring:4x8x2") == latex_text("multi-ring:4x8x2") == "multi-ring:4x8x2"
