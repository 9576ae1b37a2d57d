"""The course of a predicted run, as a trace that Perfetto opens and as a picture."""

import json
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise

import pytest

from ddlbench.algorithms import resolve
from ddlbench.cli import main
from ddlbench.cost.described import dumps
from ddlbench.cost.network import Placement
from ddlbench.errors import UsageError
from ddlbench.timeline import course as course_module
from ddlbench.timeline.course import course, under_way
from ddlbench.timeline.picture import marks, picture, time_text
from ddlbench.timeline.trace import lanes, trace
from machines import LATENCY, RATE, machine, price

NBYTES = 1 << 20
SVG = "{http://www.w3.org/2000/svg}"


def followed(text="ring", nodes=4, each=1, nbytes=NBYTES, segments=1, **more):
    on = machine(nodes, each, **more)
    place = Placement.on(on, nodes)
    return course(resolve(text, place.grid), on, place, nbytes, segments=segments)


def test_a_chunk_goes_round_the_ring_and_arrives_before_it_is_sent_on():
    found = followed()
    assert len(found.messages) == 4 * 6
    for chunk in range(4):
        way = sorted((one for one in found.messages if one.chunk == chunk), key=lambda one: one.round)
        assert [one.target for one in way] == [(way[0].source + step) % 4 for step in range(1, 7)]
        assert all(before.arrived <= after.left for before, after in pairwise(way))
        assert [one.adds for one in way] == [True] * 3 + [False] * 3
    first = min(found.messages, key=lambda one: one.left)
    assert (first.left, first.nbytes, first.link) == (0, NBYTES / 4, "nic")
    assert first.arrived == pytest.approx(LATENCY + NBYTES / 4 / RATE)


@pytest.mark.parametrize("text", ["ring", "halving-doubling", "double-binary-tree", "hierarchical", "direct"])
@pytest.mark.parametrize("segments", [1, 3])
def test_a_course_ends_when_the_prediction_says_and_ticks_follow_each_other(text, segments):
    on = machine(4, 2, overhead=1e-6)
    found = followed(text, 4, 2, segments=segments, overhead=1e-6)
    assert found.seconds == pytest.approx(price(text, on, NBYTES, segments=segments))
    assert max(span.ended for span in found.spans) == pytest.approx(found.seconds)
    for rank in range(8):
        own = [span for span in found.spans if span.rank == rank]
        assert all(a.ended <= b.begun + 1e-12 for a, b in pairwise(own))
    counted = Counter((one.segment, one.round, one.source, one.target, one.chunk) for one in found.messages)
    assert set(counted.values()) == {1}
    moved = Counter(one.segment for one in found.messages)
    assert len(set(moved.values())) == 1
    assert len(moved) == segments


def test_segments_start_one_round_apart():
    assert under_way(2, rounds=6, segments=3) == ((0, 2), (1, 1), (2, 0))
    assert under_way(7, rounds=6, segments=3) == ((2, 5),)


def test_a_shaped_links_course_begins_at_zero():
    on = followed(nic_both_ways=None)
    assert min(one.left for one in on.messages) == 0


def events(found):
    return json.loads(trace(found))["traceEvents"]


def test_the_trace_has_nodes_as_processes_ranks_as_threads_and_microseconds():
    found = followed("hierarchical", 2, 2)
    made = events(found)
    names = {(one["pid"], one["args"]["name"]) for one in made if one["name"] == "process_name"}
    assert names == {(0, "node 0"), (1, "node 1")}
    ticks = [one for one in made if one.get("cat") == "tick"]
    assert {(one["pid"], one["tid"]) for one in ticks} == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert max(one["ts"] + one["dur"] for one in ticks) == pytest.approx(1e6 * found.seconds, rel=1e-6)
    assert json.loads(trace(found))["otherData"]["kind"] == "predicted"


@pytest.mark.parametrize("text", ["ring", "double-binary-tree", "direct"])
def test_every_arrow_begins_and_ends_within_a_tick_of_its_rank(text):
    made = events(followed(text, 4, 2, segments=2))
    spans = [(one["tid"], one["ts"], one["ts"] + one["dur"]) for one in made if one.get("cat") == "tick"]
    arrows = [one for one in made if one["ph"] in "sf"]
    assert Counter(one["ph"] for one in arrows) == {"s": len(arrows) // 2, "f": len(arrows) // 2}
    assert arrows
    for one in arrows:
        assert any(tid == one["tid"] and a - 1e-3 <= one["ts"] <= b + 1e-3 for tid, a, b in spans)


def test_slices_of_a_thread_do_not_overlap():
    made = [one for one in events(followed("direct", 4, 2)) if one["ph"] == "X"]
    for tid in {one["tid"] for one in made}:
        own = sorted((one["ts"], one["ts"] + one["dur"]) for one in made if one["tid"] == tid)
        assert all(a[1] <= b[0] + 1e-3 for a, b in pairwise(own))


def test_messages_that_overlap_have_lanes_of_their_own():
    placed = lanes([one for one in followed("direct", 4).messages if one.target == 0 and one.round == 0])
    assert sorted(lane for lane, _ in placed) == [0, 1, 2]


def test_the_picture_is_an_svg_with_a_bar_for_each_message_and_the_limit():
    found = followed()
    root = ET.fromstring(picture(found, "1 MiB < 2 MiB", ("cards", 1e-3)))
    bars = [one for one in root.iter(f"{SVG}rect") if one.get("class") in ("adds", "keeps") and len(one)]
    assert len(bars) == len(found.messages)
    assert "no algorithm ends before 1 ms: cards" in "".join(root.itertext())
    assert sum(one.get("class") == "way" for one in root.iter(f"{SVG}path")) == len(found.messages)


def test_too_many_messages_are_refused_and_a_trace_is_named(monkeypatch):
    monkeypatch.setattr("ddlbench.timeline.picture.MOST_MESSAGES", 10)
    with pytest.raises(UsageError, match=r"up to 10 messages, these are 24.*\.json"):
        picture(followed(), "")
    monkeypatch.setattr(course_module, "MOST_MESSAGES", 10)
    with pytest.raises(UsageError, match="sends 24 messages"):
        followed()


def test_marks_are_round_times_and_times_have_units():
    assert marks(1e-3) == pytest.approx([k * 125e-6 * 1.6 for k in range(6)])
    assert [time_text(one) for one in (2.5e-6, 1.25e-3, 3.0)] == ["2.5 µs", "1.25 ms", "3 s"]
    assert marks(0) == [0.0]


@pytest.fixture
def topology(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(dumps(machine(8, 2)))
    return str(file)


@pytest.mark.parametrize("name", ["run.svg", "run.json"])
def test_the_command_writes_the_file_and_says_where(capsys, topology, tmp_path, name):
    file = tmp_path / name
    words = ["predict", "ring", "--topology", topology, "--nodes", "2", "--sizes", "1M", "--timeline", str(file)]
    assert main(words) == 0
    assert f"timeline: {file}" in capsys.readouterr().out
    assert file.read_text()[0] in "<{"
    assert main(words) == 2
    assert "exists; --overwrite" in capsys.readouterr().err
    assert main([*words, "--overwrite"]) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["ring", "--nodes", "2", "--sizes", "1M", "--timeline", "run.png"], "ends in .svg"),
        (["ring,direct", "--nodes", "2", "--sizes", "1M", "--timeline", "run.svg"], "2 algorithms and placements"),
        (["ring", "--nodes", "2,4", "--sizes", "1M", "--timeline", "run.svg"], "2 algorithms and placements"),
        (["ring", "--nodes", "2", "--sizes", "1M,2M", "--timeline", "run.svg"], "2 sizes"),
    ],
)
def test_what_is_not_one_run_is_refused(capsys, topology, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    assert main(["predict", *words, "--topology", topology]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert told in said
    assert not (tmp_path / "run.svg").exists()
