"""A survey with known links becomes a topology that predict reads, a file of pairs and a picture."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from ddlbench.cli.fitted import found, picture, told, verdict
from ddlbench.cost.described import dumps, read
from ddlbench.errors import UsageError
from ddlbench.links import fit, record
from ddlbench.links.machine import check_shape
from ddlbench.links.pairs import Places
from ddlbench.links.survey import Survey
from ddlbench.links.timing import Curve
from made_links import curve, topology

WITHIN, BETWEEN = (1e-6, 1e-10), (20e-6, 8e-9)
"""Latency and seconds a byte: 10 GB/s inside nodes, 125 MB/s between them."""
OVERHEAD, REDUCTION = 0.2e-6, 5e-11
LARGE = (4096, 16384, 65536, 262144, 1 << 20)


def link(latency, per_byte, share=1, *, seed=1, factor=1.0):
    """Return times of `share` pairs at once that share `per_byte`, as x is what they move together."""
    made = curve(lambda n: factor * (latency + per_byte * share * n), seed=seed, samples=8, sizes=(1, 64, *LARGE))
    return Curve(tuple(share * x for x in made.x), made.samples)


def survey(nodes=4, each=2, slow=None):
    places = Places(topology(nodes, each))
    pings = {}
    for pair in (pair for pairs in places.pairs() for pair in pairs):
        on = {places.topology.node_of[rank] for rank in pair}
        worse = 3.0 if slow in on and len(on) == 2 else 1.0
        pings[pair] = link(*(BETWEEN if len(on) == 2 else WITHIN), seed=sum(pair), factor=worse)
    return Survey(
        places,
        pings,
        both={"node": link(1e-6, 0.6e-10, 2), "nic": link(20e-6, 5e-9, 2)},
        bursts={kind: curve(lambda k: 1e-6 + OVERHEAD * k, sizes=(0, 1, 3, 7, 15)) for kind in ("node", "nic")},
        shared={"nic": link(20e-6, 4e-9, 2)},
        shared_both={"nic": link(20e-6, 3e-9, 4)},
        reductions=[curve(lambda n: 1e-7 + REDUCTION * n, sizes=LARGE, seed=rank) for rank in range(8)],
    )


def quickly(measured):
    """Return the survey and what it comes to, with intervals of few resamples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "RESAMPLES", 15)
        return measured, found(measured, "mine", "by a test")


@pytest.fixture(scope="module")
def sound():
    return quickly(survey())


@pytest.fixture(scope="module")
def ill():
    return quickly(survey(slow=2))


def test_predict_reads_what_was_fitted_and_every_figure_says_so_with_its_interval(sound, tmp_path):
    (tmp_path / "mine.toml").write_text(dumps(sound[1].machine))
    machine = read(tmp_path / "mine.toml")
    truth = {
        "rank.reduction": 1 / REDUCTION,
        "rank.message_overhead": OVERHEAD,
        "node.latency": 1e-6,
        "node.bandwidth": 1e10,
        "node.both_ways": 1 / 0.6e-10,
        "nic.latency": 20e-6,
        "nic.bandwidth": 1 / 4e-9,
        "nic.both_ways": 1 / 3e-9,
        "nic.per_rank": 1 / 8e-9,
    }
    figures = dict(machine.figures())
    assert {name for name in figures if not name.startswith("shape") and name != "nic.count"} == set(truth)
    for name, value in truth.items():
        assert figures[name].value == pytest.approx(value, rel=0.05), name
        assert figures[name].source.startswith("fitted: "), name
        assert figures[name].low < figures[name].high, name
    assert (machine.nodes, machine.ranks_per_node) == (4, 2)


def test_a_card_that_one_rank_fills_carries_what_the_pairs_say(sound):
    measured, seen = sound
    full = replace(measured, shared={"nic": link(20e-6, 8e-9, 2)})
    machine = quickly(full)[1].machine
    assert machine.nic.bandwidth == seen.machine.nic.per_rank
    assert machine.nic.per_rank is None


def test_a_slow_node_is_named_everywhere_and_the_topology_does_not_rest_on_it(ill, sound):
    measured, seen = ill
    assert {(slow.node, slow.what) for slow in seen.slow} == {(2, "latency"), (2, "bandwidth")}
    assert seen.machine.nic.latency.value == pytest.approx(sound[1].machine.nic.latency.value, rel=0.05)
    assert "12 pairs of slow nodes left out" not in sound[1].machine.summary
    assert "13 pairs of slow nodes left out" in seen.machine.summary
    line = "slow node: node2 (ranks 4, 5): "
    assert verdict(measured, seen)[0].startswith(line)
    assert line in told(measured, seen, "MPI")
    assert line in picture(measured, seen)


def test_nothing_is_named_in_a_sound_launch(sound):
    assert verdict(*sound) == ["no node and no link stands out as slow"]


def test_the_file_of_the_pairs_has_them_all_with_times_and_what_is_slow(ill, tmp_path):
    measured, seen = ill
    path = tmp_path / "mine.links.json"
    path.write_text(record.dumps(record.to_data(measured, seen.pairs, seen.slow, "2026-01-01")))
    data = record.read(path)
    assert len(data["pairs"]) == 28
    assert data["pairs"][0]["times"][0]["nbytes"] == 1
    assert [slow["node"] for slow in data["slow"]] == [2, 2]
    path.write_text(json.dumps(data | {"version": 2}))
    with pytest.raises(UsageError, match="expected format 'ddlbench-links', version 1"):
        record.read(path)


def test_the_picture_has_a_cell_for_each_ordered_pair_and_an_edge_around_what_is_slow(ill):
    root = ET.fromstring(picture(*ill))
    cells = [shape for shape in root.iter() if shape.get("class") == "pair"]
    assert len(cells) == 2 * 2 * 28
    assert len([shape for shape in root.iter() if shape.get("class") == "slow"]) == 2 * 2
    told_of = {cell[0].text.partition(":")[0]: float(cell.get("fill-opacity")) for cell in cells}
    assert told_of["ranks 0 and 4"] > 2 * told_of["ranks 0 and 2"]
    assert told_of["ranks 0 and 1"] < 0.2, "inside a node is another class, and sound"


@pytest.mark.parametrize(
    ("ranks", "refusal"),
    [
        ((1,), "one rank has no links: start it with several"),
        ((2, 1), "as many ranks on each node, here they have 2, 1"),
    ],
)
def test_a_launch_that_no_topology_describes_is_refused_by_name(ranks, refusal):
    with pytest.raises(UsageError, match=refusal):
        check_shape(ranks)
