"""Pictures of schedules: what they show is what moves, in the terminal, as SVG, and by `ddlbench show`."""

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from ddlbench.algorithms import available, resolve
from ddlbench.cli import main
from ddlbench.cli.picture import prose
from ddlbench.errors import ProofError
from ddlbench.schedule import Grid, Schedule, lower, verify
from ddlbench.schedule.draw import MOST_RANKS, MOST_ROUNDS, PLAIN, View, bars, scene, spans, text, view
from ddlbench.schedule.format import load_grid, to_json
from ddlbench.schedule.lower import lower_phase
from ddlbench.schedule.move import ADD, FROM_INPUT, KEEP, SEND, Phase, steps
from ddlbench.schedule.svg import svg

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
MADE_BY = {
    "ring-8.svg": ["ring", "--ranks", "8"],
    "multi-ring-4x2.svg": ["multi-ring:4x2"],
    "double-binary-tree-8.svg": ["double-binary-tree", "--ranks", "8"],
    "halving-doubling-8.svg": ["halving-doubling", "--ranks", "8"],
}
ON_MINSKY = ["--topology", "minsky", "--nodes", "8", "--ranks-per-node", "1", "--sizes", "1M"]
PREDICTED = {"timeline-ring.svg": ["ring", *ON_MINSKY]}
NAMES = [algorithm.name for algorithm in available()]
TEXTS = [*NAMES, "multi-ring:3", "hierarchical:across=double-binary-tree", "parameter-server:3"]
GRIDS = [Grid((2,)), Grid((5,)), Grid((8,)), Grid((2, 3)), Grid((4, 2))]


def schedule_of(text_: str, *dims: int) -> Schedule:
    return lower(resolve(text_, Grid(dims)))


def drawing(schedule: Schedule, width: int = 1000, **part: range) -> str:
    return text(scene(schedule, view(schedule, **part)), width)


def picture(schedule: Schedule, **part: range) -> ET.Element:
    return ET.fromstring(svg(scene(schedule, view(schedule, **part)), "caption"))


# ---- What is followed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("text_", TEXTS)
def test_what_a_scene_holds_is_how_many_contributions_have_arrived(text_, grid):
    schedule = lower(resolve(text_, grid))
    drawn = scene(schedule, view(schedule))
    held = [[{rank} for _ in range(schedule.chunks)] for rank in range(grid.size)]
    for round_ in range(schedule.rounds):
        before = [[set(values) for values in row] for row in held]
        for _, source, target, chunk, nchunks, what, _ in (m for m in to_json(schedule)["moves"] if m[0] == round_):
            for at in range(chunk, chunk + nchunks):
                held[target][at] = before[source][at] | (held[target][at] if what == "add" else set())
        assert drawn.held[round_].tolist() == [[len(values) for values in row] for row in held]
    assert (drawn.held[schedule.rounds - 1] == grid.size).all()
    assert (drawn.held[-1] == 1).all()


def test_a_scene_follows_what_the_proof_refuses():
    schedule = schedule_of("ring", 3)
    schedule.table["kind"][np.flatnonzero(schedule.table["kind"] == ADD)[0]] = 1
    with pytest.raises(ProofError):
        verify(schedule)
    assert scene(schedule, view(schedule)).held[0].min() == 1
    assert "█" in drawing(schedule)


def test_moves_outside_ranks_and_chunks_are_left_out_of_the_picture():
    schedule = schedule_of("ring", 3)
    schedule.table["chunk"][schedule.table["round"] == 0] = 9
    assert "→" in drawing(schedule)
    assert not len(scene(schedule, view(schedule)).moves[0])


def test_moves_that_do_not_pair_up_cannot_be_drawn():
    schedule = schedule_of("ring", 3)
    with pytest.raises(ProofError, match="has no counterpart"):
        scene(replace(schedule, table=schedule.table[1:]), view(schedule))


# ---- The terminal ----------------------------------------------------------------------------------------------------


def test_a_ring_of_three_in_full():
    assert drawing(schedule_of("ring", 3)).splitlines() == [
        "2→1 in column 0: rank 0 sends chunk 2 to rank 1.  + adds what arrives, = keeps it.",
        "▁ to █: how much of the sum each chunk holds after the round.",
        "",
        " round  rank 0     rank 1     rank 2",
        " start  ▂▂▂        ▂▂▂        ▂▂▂",
        "     0  2→1 +1←2   0→2 +2←0   1→0 +0←1",
        "        ▂▅▂        ▂▂▅        ▅▂▂",
        "     1  1→1 +0←2   2→2 +1←0   0→0 +2←1",
        "        █▅▂        ▂█▅        ▅▂█",
        "     2  0→1 =2←2   1→2 =0←0   2→0 =1←1",
        "        █▅█        ██▅        ▅██",
        "     3  2→1 =1←2   0→2 =2←0   1→0 =0←1",
        "        ███        ███        ███",
    ]


def told(drawn: str, ranks: int, chunks: int) -> Iterator[tuple[int, str, int, int, int]]:
    """Yield round, sign (→ + =), rank, other rank and chunk of all that a picture in one block tells."""
    lines = drawn.splitlines()
    (head,) = (line for line in lines if line.startswith(" round"))
    columns = [head.index(f"rank {rank}") for rank in range(ranks)]
    round_ = -1
    for line in lines[lines.index(head) + 2 :]:
        round_ = int(line[:6]) if line[:6].strip() else round_
        for rank, (start, end) in enumerate(zip(columns, [*columns[1:], None], strict=True)):
            for sign, what, arrow, others in re.findall(
                r"([+=]?)([\dj-]+|all)([→←])([\dj,-]+(?: ×\d+)?|others)", line[start:end]
            ):
                peers = expanded(others.split(" ")[0], [peer for peer in range(ranks) if peer != rank])
                for peer in peers:
                    for chunk in [peer] if what == "j" else expanded(what, list(range(chunks))):
                        yield round_, sign or arrow, rank, peer, chunk


def expanded(numbers: str, everything: list[int]) -> list[int]:
    if numbers in ("all", "others", "j"):
        return everything
    parts = [part.split("-") for part in numbers.split(",")]
    return [number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("text_", TEXTS)
def test_the_picture_tells_every_move_on_both_sides(text_, grid):
    schedule = lower(resolve(text_, grid))
    drawn = drawing(schedule)
    assert " more" not in drawn
    sides = []
    for round_, source, target, chunk, nchunks, what, _ in to_json(schedule)["moves"]:
        for at in range(chunk, chunk + nchunks):
            sides.append((round_, "→", source, target, at))
            sides.append((round_, "+" if what == "add" else "=", target, source, at))
    assert Counter(told(drawn, grid.size, schedule.chunks)) == Counter(sides)


def test_many_different_messages_of_a_rank_are_counted():
    """A server of chunk 0 that also gets others' chunks would need a line for each."""
    schedule = schedule_of("parameter-server:4", 16)
    lines = drawing(schedule, rounds=range(1), ranks=range(1, 2)).splitlines()
    assert [line for line in lines if "more" in line] == ["        … 2 more"]


def test_ranks_that_get_the_same_chunk_are_listed_in_runs():
    to = np.array([1, 2, 4])
    table = lower_phase(Phase(1, (steps(SEND, 0, 0, to, 0, 1), steps(KEEP, 0, to, 0, 0, 1))), np.arange(6), 2)
    assert "0→1-2,4" in drawing(Schedule("some", Grid((6,)), 2, 1, table))


def test_bars_rise_with_the_contributions_and_are_full_only_when_complete():
    schedule = schedule_of("parameter-server", 16)
    drawn = scene(schedule, view(schedule))
    drawn.held[0][0, 0] = 0
    signs = []
    for count in range(1, 17):
        drawn.held[0][0, 0] = count
        signs.append(bars(drawn, 0, 0))
    assert "".join(signs) == "▁▁▁▂▂▃▃▄▄▅▅▆▆▇▇█"


def test_many_chunks_share_a_sign_that_is_full_when_all_are():
    schedule = schedule_of("ring", 64)
    drawn = scene(schedule, view(schedule, rounds=range(125, 126)))
    assert bars(drawn, 124, 0).count("█") == 31
    assert bars(drawn, 125, 0) == "█" * 32


def test_long_schedules_are_folded_and_say_so():
    schedule = schedule_of("ring", 64)
    shown = view(schedule)
    assert (len(shown.rounds), len(shown.ranks)) == (MOST_ROUNDS, MOST_RANKS)
    assert shown.rounds[0] == 0
    assert shown.rounds[-1] == schedule.rounds - 1
    lines = drawing(schedule).splitlines()
    assert lines[-2:] == [
        "# rounds 24 to 113 are left out: --rounds 24-113",
        "# ranks 16 to 63 are left out: --only 16-63",
    ]
    assert sum(line.startswith("before") for line in lines) == 1


def test_short_schedules_are_not_folded():
    schedule = schedule_of("ring", 16)
    assert view(schedule) == View(tuple(range(30)), tuple(range(16)))
    assert "left out" not in drawing(schedule)


def test_the_part_that_is_asked_for_is_drawn():
    lines = drawing(schedule_of("ring", 8), rounds=range(3, 5), ranks=range(2, 4)).splitlines()
    assert lines[3] == " round  rank 2     rank 3"
    assert [line[:6].strip() for line in lines[4:9]] == ["before", "3", "", "4", ""]
    assert lines[-4:] == [
        "# rounds 0 to 2 are left out: --rounds 0-2",
        "# rounds 5 to 13 are left out: --rounds 5-13",
        "# ranks 0 to 1 are left out: --only 0-1",
        "# ranks 4 to 7 are left out: --only 4-7",
    ]


def test_one_that_is_left_out_is_named_alone():
    lines = drawing(schedule_of("ring", 3), rounds=range(1, 4), ranks=range(2)).splitlines()
    assert lines[-2:] == ["# round 0 is left out: --rounds 0", "# rank 2 is left out: --only 2"]


@pytest.mark.parametrize("width", [20, 40, 80, 100, 200])
def test_lines_fit_the_width_and_all_ranks_are_drawn(width):
    schedule = schedule_of("hierarchical", 4, 4)
    body = drawing(schedule, width).split("\n\n", 1)[1]
    assert max(map(len, body.splitlines())) <= max(width, 8 + 20)
    assert [int(rank) for rank in re.findall(r"rank (\d+)", body)] == list(range(16))


def test_blocks_are_whole_nodes_where_those_fit():
    heads = [line for line in drawing(schedule_of("multi-ring:4x4", 16), 150).splitlines() if "rank " in line][1:]
    assert [re.findall(r"rank (\d+)", head)[0] for head in heads] == ["0", "4", "8", "12"]


def test_nodes_are_named_and_ruled():
    lines = drawing(schedule_of("ring", 2, 2)).splitlines()
    assert lines[3].split() == ["node", "0", "│", "node", "1"]
    assert all(line.count("│") == 1 for line in lines[3:])
    assert len({line.index("│") for line in lines[3:]}) == 1
    assert "│" not in drawing(schedule_of("ring", 4))


def test_in_ascii_nothing_is_lost():
    for name in TEXTS:
        drawing(schedule_of(name, 2, 3)).translate(PLAIN).encode("ascii")
    assert "2>1 +1<2" in drawing(schedule_of("ring", 3)).translate(PLAIN)


def test_spans_are_runs():
    assert list(spans([])) == []
    assert list(spans([0, 1, 2, 5, 7, 8])) == [(0, 2), (5, 5), (7, 8)]


# ---- SVG -------------------------------------------------------------------------------------------------------------

SVG = "{http://www.w3.org/2000/svg}"


def paths(root: ET.Element, kind: str) -> list[ET.Element]:
    return [path for path in root.iter(f"{SVG}path") if kind in path.get("class", "").split()]


def texts(root: ET.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("name", sorted(MADE_BY))
def test_the_pictures_in_the_docs_are_what_the_command_makes(name, tmp_path, capsys):
    made = tmp_path / name
    assert main(["show", *MADE_BY[name], "--svg", str(made)]) == 0
    assert capsys.readouterr().out == f"{made}\n"
    assert made.read_text() == (PICTURES / name).read_text(), f"ddlbench show {' '.join(MADE_BY[name])} --svg FILE"


@pytest.mark.parametrize("name", sorted(PREDICTED))
def test_the_timelines_in_the_docs_are_what_the_command_makes(name, tmp_path):
    made = tmp_path / name
    assert main(["predict", *PREDICTED[name], "--timeline", str(made)]) == 0
    words = " ".join(PREDICTED[name])
    assert made.read_text() == (PICTURES / name).read_text(), f"ddlbench predict {words} --timeline FILE"


def test_every_picture_in_the_docs_is_made_by_a_command():
    assert {path.name for path in PICTURES.glob("*.svg")} == {*MADE_BY, *PREDICTED}


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("text_", TEXTS)
def test_there_is_an_arrow_for_every_move_solid_where_it_is_added(text_, grid):
    schedule = lower(resolve(text_, grid))
    arrows = [path for path in paths(picture(schedule), "move") if "C" in path.get("d", "")]
    moves = to_json(schedule)["moves"]
    drawn = Counter()
    for path in arrows:
        drawn["keep" if "keep" in path.get("class", "") else "add"] += path.get("d", "").count("M")
    assert drawn == Counter(move[5] for move in moves)


def test_an_arrow_goes_from_the_chunks_that_are_sent_to_where_they_arrive():
    schedule = schedule_of("halving-doubling", 4)
    root = picture(schedule)
    (strip,) = paths(root, "strip")[:1]
    lefts = sorted({float(x) for x in re.findall(r"M([\d.]+),", strip.get("d", ""))})[:4]
    chunk = 45 / schedule.chunks
    wanted = Counter()
    for _, source, target, first, count, _, _ in to_json(schedule)["moves"]:
        middle = (first + count / 2) * chunk
        wanted[round(lefts[source] + middle, 1), round(lefts[target] + middle, 1)] += 1
    curves = [re.findall(r"M([\d.]+),[\d.]+C\S+ \S+ ([\d.]+),", path.get("d", "")) for path in paths(root, "move")]
    assert Counter((float(start), float(end)) for found in curves for start, end in found) == wanted


@pytest.mark.parametrize("text_", ["multi-ring:3", "double-binary-tree", "ring"])
def test_lanes_have_their_colours_and_stand_in_the_legend(text_):
    schedule = schedule_of(text_, 4)
    lanes = sorted(set(schedule.table["lane"].tolist()))
    root = picture(schedule)
    colours = {path.get("stroke") for path in paths(root, "move")}
    assert colours == {f"var(--lane{lane})" for lane in lanes}
    named = [words for words in texts(root) if words.startswith("lane ")]
    assert named == ([f"lane {lane}" for lane in lanes] if len(lanes) > 1 else [])


def test_the_last_strips_are_complete_and_no_earlier_ones():
    schedule = schedule_of("halving-doubling", 4)
    (whole,) = paths(picture(schedule), "all")
    bottoms = Counter(re.findall(r"M[\d.]+,([\d.]+)v", whole.get("d", "")))
    full = [float(bottom) for bottom, count in bottoms.items() if count == 4]
    assert max(float(bottom) for bottom in bottoms) in full
    widths = re.findall(rf"M[\d.]+,{max(full):g}v-16h([\d.]+)v", whole.get("d", ""))
    assert widths == ["45"] * 4


def test_ranks_rounds_and_nodes_are_text():
    words = texts(picture(schedule_of("ring", 2, 2)))
    assert words[:2] == ["ring on 4 ranks", "caption"]
    for wanted in ("rank 0", "rank 3", "round 0", "round 5", "node 0", "node 1", "sent and added", "sent and kept"):
        assert wanted in words
    assert "node 0" not in texts(picture(schedule_of("ring", 4)))


def test_everything_lies_inside_the_picture():
    for text_, dims in (("ring", (8,)), ("direct", (2, 3)), ("multi-ring:7", (2,)), ("recursive-doubling", (1,))):
        root = picture(schedule_of(text_, *dims))
        _, _, width, height = map(float, root.get("viewBox", "").split())
        for element in root.iter(f"{SVG}text"):
            x, y = float(element.get("x", "nan")), float(element.get("y", "nan"))
            assert 0 <= x < width - 10
            assert 0 < y < height


def test_the_picture_is_as_wide_as_its_words():
    for name, caption in (("x" * 200, ""), ("x", "y" * 200)):
        schedule = replace(schedule_of("ring", 2), name=name)
        root = ET.fromstring(svg(scene(schedule, view(schedule)), caption))
        assert float(root.get("width", "0")) > 6 * 200


def test_it_is_self_contained_and_knows_dark_pages():
    made = svg(scene(schedule_of("ring", 4), view(schedule_of("ring", 4))))
    assert "@media (prefers-color-scheme: dark)" in made
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|href|<script|<image", made) == []


def test_a_name_with_signs_of_xml_is_text():
    evil = "<b>&\"'</b>"
    schedule = replace(schedule_of("ring", 2), name=evil)
    root = ET.fromstring(svg(scene(schedule, view(schedule)), evil))
    assert texts(root)[:2] == [f"{evil} on 2 ranks", evil]


def test_what_is_left_out_is_said():
    words = texts(picture(schedule_of("ring", 32)))
    assert "rounds 24 to 49 are left out" in words
    assert "16 of 32 ranks are drawn" in words
    assert "round 24" not in words


def test_one_rank_has_a_picture_of_its_own_value():
    root = picture(schedule_of("ring", 1))
    assert texts(root)[0] == "ring on 1 rank"
    assert len(paths(root, "all")) == 1


# ---- ddlbench show ---------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def shown(capsys, *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_show_has_figures_proof_and_picture(capsys):
    lines = shown(capsys, "hierarchical", "--grid", "4x2").splitlines()
    assert lines[0] == "hierarchical on 8 ranks, grid 4x2"
    assert lines[1].startswith("reduce-scatter in the node, allreduce across, all-gather in the node (")
    assert lines[3:9] == [
        "                               counted   closed form",
        "rounds                               8             8",
        "sent by a rank, at most         1.75 n         7/4 n",
        "added by a rank, at most       0.875 n         7/8 n",
        "sent by all ranks                 14 n          14 n",
        "of that, between nodes             2 n           2 n",
    ]
    assert lines[10:12] == [
        "Proved to be an allreduce, with equal bits on all ranks.",
        "n is the vector's bytes; it is cut into 8 chunks.",
    ]
    assert any(line.startswith("        node 0") for line in lines)


@pytest.mark.parametrize("text_", NAMES)
def test_show_draws_every_algorithm_for_8_ranks_unless_told_otherwise(capsys, text_):
    assert f"{text_} on 8 ranks, grid 8" in shown(capsys, text_)
    assert f"{text_} on 6 ranks, grid 3x2" in shown(capsys, text_, "--grid", "3x2")
    assert f"{text_} on 1 rank, grid 1" in shown(capsys, text_, "--ranks", "1")


def test_show_takes_the_grid_that_the_algorithm_names(capsys):
    assert shown(capsys, "multi-ring:3x2").startswith("multi-ring:3x2 on 6 ranks, grid 3x2\n")
    assert shown(capsys, "r:2x2x2").startswith("r:2x2x2 on 8 ranks, grid 2x2x2\n")


def test_one_rank_moves_nothing(capsys):
    assert shown(capsys, "ring", "--ranks", "1").endswith("\nNothing moves.\n")


def test_lanes_are_counted(capsys):
    assert "it is cut into 16 chunks, on 2 lanes." in shown(capsys, "multi-ring", "--ranks", "8")


@pytest.mark.parametrize("algorithm", available(), ids=lambda algorithm: algorithm.name)
def test_explain_gives_the_words_of_the_algorithms_own_file(algorithm):
    module = algorithm.name.replace("-", "_")
    wanted = sys.modules[f"ddlbench.algorithms.{module}"].__doc__
    assert prose(algorithm).split() == wanted.split()


def test_explain_is_printed_with_its_pictures(capsys):
    assert "    rank 0 ──► rank 1 ──► rank 2 ──► rank 3      The vector is cut" in shown(capsys, "ring", "--explain")


def test_a_file_s_schedule_is_shown_and_verified_for_its_own_grid(tmp_path, capsys):
    file = tmp_path / "six.json"
    assert shown(capsys, "hierarchical", "--grid", "3x2", "--json", str(file)) == f"{file}\n"
    assert json.loads(file.read_text())["name"] == "hierarchical"
    assert load_grid(file) == Grid((3, 2))
    out = shown(capsys, str(file))
    assert out.startswith("six.json on 6 ranks, grid 3x2\nschedule from a file\n")
    assert "rounds                               6             -" in out
    assert "comes without an explanation" in shown(capsys, str(file), "--explain")
    assert main(["verify", str(file)]) == 0
    assert "six.json: right on 6 ranks (grid 3x2)" in capsys.readouterr().out


def test_a_closed_form_that_differs_is_marked(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = (
        "from dataclasses import replace\nfrom ddlbench.algorithms.ring import ALGORITHM, costs\n"
        "other = lambda grid: replace(costs(grid), rounds=3, between_nodes=costs(grid).sent)\n"
        "wrong = replace(ALGORITHM, costs=other)\n"
    )
    (tmp_path / "mine.py").write_text(source)
    lines = shown(capsys, "./mine.py:wrong", "--ranks", "2").splitlines()
    assert [line for line in lines if line.endswith("differs")] == [
        "rounds                               2             3   differs",
        "of that, between nodes             0 n           1 n   differs",
    ]


def test_a_refused_schedule_is_drawn_with_the_reason_and_status_1(tmp_path, capsys):
    value = to_json(schedule_of("ring", 3))
    value["moves"][0][5] = "keep"
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(value))
    assert main(["show", str(file)]) == 1
    out, err = capsys.readouterr()
    reason = "at the end, rank 0, chunk 1: 2 of 3 contributions have arrived"
    assert f"NOT an allreduce: {reason}" in out
    assert "=1←2" in out
    assert err == f"ddlbench: {file} on 3 is refused: {reason}\n"


def test_files_of_a_refused_schedule_are_written_too(tmp_path, capsys):
    value = to_json(schedule_of("ring", 3))
    value["moves"][0][5] = "keep"
    (tmp_path / "wrong.json").write_text(json.dumps(value))
    assert main(["show", str(tmp_path / "wrong.json"), "--svg", str(tmp_path / "wrong.svg")]) == 1
    ET.parse(tmp_path / "wrong.svg")


def test_a_terminal_without_the_signs_gets_ascii(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    assert main(["show", "ring", "--ranks", "2"]) == 0
    sys.stdout.flush()
    assert b"     0  1>1 +0<1   0>0 +1<0\n        84         48\n" in raw.getvalue()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnig"], "unknown algorithm 'rnig': did you mean 'ring'?"),
        (["mpi"], "algorithm 'mpi' is a vendor's own code: there is no schedule to draw"),
        (["p:4x2"], "mode 'p:4x2' tries 9 schedules; show one of them, such as multi-ring:4x2:base=ring/ring"),
        (["ring", "--ranks", "2000"], "grid 2000 has 2000 ranks; up to 1024 can be drawn"),
        (["ring", "--grid", "4x2", "--ranks", "9"], "grid 4x2 holds 8 ranks, but there are 9"),
        (["multi-ring:4x2", "--ranks", "9"], "grid 4x2 holds 8 ranks, but there are 9"),
        (["ring", "--rounds", "14"], "--rounds '14': expected rounds from 0 to 13, one or as FIRST-LAST"),
        (["ring", "--rounds", "3-2"], "--rounds '3-2': expected rounds from 0 to 13"),
        (["ring", "--rounds", "a-b"], "--rounds 'a-b': expected rounds from 0 to 13"),
        (["ring", "--rounds", "1-"], "--rounds '1-': expected rounds from 0 to 13"),
        (["ring", "--only", "7-8"], "--only '7-8': expected ranks from 0 to 7, one or as FIRST-LAST"),
        (["ring", "--ranks", "1", "--rounds", "0"], "--rounds '0': there are no rounds"),
        (["ring", "--svg", "no/such/folder.svg"], "cannot write 'no/such/folder.svg': No such file or directory"),
        (["ring", "--json", "."], "cannot write '.': Is a directory"),
        (["no.json"], "schedule file 'no.json': No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(arguments, message, capsys):
    assert main(["show", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("ddlbench: error: ")
    assert message in err


def test_the_flags_are_those_of_real_schedules():
    """The scene needs neither flags nor copies: both belong to the lowering."""
    schedule = schedule_of("ring", 4)
    assert (schedule.table["flags"][schedule.table["kind"] == SEND] & FROM_INPUT).any()
    stripped = replace(schedule, table=schedule.table.copy())
    stripped.table["flags"] = 0
    assert drawing(stripped) == drawing(schedule)
