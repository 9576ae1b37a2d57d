"""Predictions against SimGrid, which follows every message through one clock: `make test-simgrid`.

Both get the same schedule and the same machine; they share no code but the lowering. Without contention they must agree
within 5 %, with ranks that share cards, uplinks and receivers within 15 %.
"""

import json
import subprocess
import sys
from functools import lru_cache
from itertools import permutations
from pathlib import Path

import pytest

from ddlbench.algorithms import resolve
from ddlbench.cost.machine import Machine
from ddlbench.cost.network import NIC, NODE, RACK, Placement
from ddlbench.cost.rounds import prepare
from ddlbench.cost.simulate import seconds
from ddlbench.schedule import lower
from ddlbench.schedule.move import ADD, COPY, LATE, SEND
from machines import machine

ACTORS = Path(__file__).with_name("actors.py")
NBYTES = 4 << 20


@lru_cache(maxsize=1)
def python() -> str:
    """A Python that can import simgrid: this one, or the system's; skips where there is none."""
    for program in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run([program, "-c", "import simgrid"], capture_output=True, check=False)
        if done.returncode == 0:
            return program
    pytest.skip("no Python here imports simgrid: apt-get install python3-simgrid")
    return ""


def platform(on: Machine, place: Placement) -> str:
    """The machine as SimGrid's XML: a pair of links for each port, card and uplink, and a route for each pair."""
    links = {}
    pairs = permutations(range(place.ranks), 2)
    routes = [(a, b, way(on, place, a, b, links)) for a, b in pairs]
    speed = on.rank.reduction.value
    hosts = "".join(f'<host id="r{rank}" speed="{speed}f"/>' for rank in range(place.ranks))
    told = "".join(f'<link id="{name}" bandwidth="{rate}Bps" latency="0s"/>' for name, rate in links.items())
    for level, link in ((NODE, on.node), (NIC, on.nic), (RACK, on.rack)):
        if link is not None:
            far = f'bandwidth="1e15Bps" latency="{link.latency.value}s" sharing_policy="FATPIPE"'
            told += f'<link id="far{level}" {far}/>'
    paths = "".join(
        f'<route src="r{a}" dst="r{b}" symmetrical="NO">{"".join(f"<link_ctn id={name!r}/>" for name in names)}</route>'
        for a, b, names in routes
    )
    head = '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform version="4.1">'
    return f'{head}<zone id="all" routing="Full">{hosts}{told}{paths}</zone></platform>'


def way(on, place, a, b, links):
    """The links between two ranks, which are put into `links` with their rates."""
    x, rack = place.ranks_per_node, place.rack or place.nodes
    if a // x == b // x:
        found, rate, level = [f"port{a}out", f"port{b}in"], on.node.bandwidth.value, NODE
    else:
        cards = [int(place.card_of(rank)) for rank in (a, b)]
        found, rate, level = [f"card{cards[0]}out", f"card{cards[1]}in"], on.nic.bandwidth.value, NIC
    links.update(dict.fromkeys(found, rate))
    racks = (a // x // rack, b // x // rack)
    if racks[0] != racks[1]:
        up = [f"rack{racks[0]}up", f"rack{racks[1]}down"]
        links.update(dict.fromkeys(up, on.rack.uplink.value))
        found, level = found + up, RACK
    return [*found, f"far{level}"]


def job(text, place, nbytes, segments):
    """The ranks' ticks: for each, what they send and what arrives, the first segment's first."""
    schedule = lower(resolve(text, place.grid))
    table = schedule.table[schedule.table["kind"] != COPY]
    ticks = [[([], []) for _ in range(schedule.rounds + segments - 1)] for _ in range(place.ranks)]
    chunk = nbytes / segments / schedule.chunks
    for segment in range(segments):
        for row in table:
            sends, arrivals = ticks[row["rank"]][row["round"] + segment]
            size = float(row["nchunks"] * chunk)
            if row["kind"] == SEND:
                sends.append([int(row["peer"]), size])
            else:
                late = bool(row["flags"] & LATE)
                arrivals.append([int(row["peer"]), size if row["kind"] == ADD else 0.0, late])
    return ticks


def both(tmp_path, text, on, segments):
    """The seconds that ddlbench and SimGrid say."""
    program, place = python(), Placement.on(on, on.nodes)
    (tmp_path / "job.json").write_text(json.dumps(job(text, place, NBYTES, segments)))
    (tmp_path / "platform.xml").write_text(platform(on, place))
    argv = [program, str(ACTORS), str(tmp_path / "job.json"), str(tmp_path / "platform.xml")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    ours = seconds(prepare(resolve(text, place.grid), place), on, NBYTES, segments=segments)
    return ours, float(done.stdout.split()[-1])


@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize("ranks", [8, 13, 32, 64])
@pytest.mark.parametrize("text", ["ring", "recursive-doubling", "halving-doubling", "swing", "double-binary-tree"])
def test_without_contention_both_agree_within_a_twentieth(tmp_path, text, ranks, segments):
    ours, theirs = both(tmp_path, text, machine(ranks), segments)
    assert ours == pytest.approx(theirs, rel=0.05)


CONTENDED = {
    "a card for 4 ranks": machine(8, 4, node_bandwidth=8e9, node_latency=1e-6),
    "2 cards for 4 ranks": machine(4, 4, node_bandwidth=3e9, nic_count=2),
    "racks": machine(8, 2, rack=4, node_bandwidth=8e9, rack_uplink=2e9),
    "uneven racks": machine(6, 2, rack=4, node_bandwidth=8e9, rack_uplink=1.5e9),
}
TEXTS = (
    *("ring", "multi-ring", "multi-ring:4", "hierarchical", "leader", "recursive-doubling", "halving-doubling"),
    *("direct", "double-binary-tree", "swing", "parameter-server", "parameter-server:4"),
)


@pytest.mark.parametrize("segments", [1, 4])
@pytest.mark.parametrize("on", CONTENDED.values(), ids=CONTENDED)
@pytest.mark.parametrize("text", TEXTS)
def test_with_contention_both_agree_within_three_twentieths(tmp_path, text, on, segments):
    ours, theirs = both(tmp_path, text, on, segments)
    assert ours == pytest.approx(theirs, rel=0.15)
