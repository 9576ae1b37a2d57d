"""`ddlbench fit` on ranks of one node: what it writes, predict reads; what makes no sense is refused by one rank."""

import sys
from functools import partial
from itertools import combinations

import numpy as np
import pytest

from ddlbench.bench.sleeping import apart
from ddlbench.cost.described import read
from ddlbench.links import record, timing
from ddlbench.links.survey import Surveyor, find_places
from ddlbench.links.timing import Channel
from ddlbench.watch.board import Board

FIT = (sys.executable, "-m", "ddlbench", "fit")
SMALL = ("--sizes", "1,64,4K,32K,256K", "--max-seconds", "2")


def test_links_that_were_fitted_are_a_topology_that_predict_reads(mpirun, tmp_path):
    done = mpirun(2, *FIT, *SMALL, "--out", "mine.toml", cwd=tmp_path)
    assert done.status == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.links.json", "mine.links.svg", "mine.toml"]
    machine = read(tmp_path / "mine.toml")
    assert (machine.nodes, machine.ranks_per_node) == (1, 2)
    figures = dict(machine.figures())
    for name in ("rank.reduction", "rank.message_overhead", "node.latency", "node.bandwidth", "node.both_ways"):
        assert figures[name].source.startswith("fitted: ")
        assert 0 < figures[name].low <= figures[name].value <= figures[name].high
    [pair] = record.read(tmp_path / "mine.links.json")["pairs"]
    assert (pair["ranks"], pair["kind"]) == ([0, 1], "node")
    assert [time["nbytes"] for time in pair["times"]][:3] == [1, 64, 4096]
    assert "node.bandwidth" in done.stdout
    assert done.stdout.splitlines()[-3:] == ["mine.toml", "mine.links.json", "mine.links.svg"]


@pytest.mark.mpi(2)
def test_what_is_timed_carries_the_bytes_that_it_counts(comm):
    from ddlbench import _engine

    channel = Channel(comm, 1 - comm.rank, comm.rank == 0, yielding=True, network=False, board=Board())
    cases = {
        "ping-pong": (timing.ping_pong(channel, 3), 1, [slice(None)] * 2),
        "exchange": (timing.exchange(channel), 1, [slice(None)] * 2),
        "messages": (timing.ping_pong(channel, 1, 4), 4, [slice(None)] * 2),
        "flood": (timing.flood(channel), 1024, [slice(1023 * 4, None), slice(0, 1023 * 4)]),
    }
    for name, (table, chunks, arrives) in cases.items():
        source, target = np.full(4096, comm.rank + 1, np.uint8), np.zeros(4096, np.uint8)
        engine = _engine.Engine(
            comm.py2f(), table, chunks, 1, source, target, timing.UINT8, timing.SUM, channel.yielding
        )
        engine.execute()
        engine.close()
        expected = np.zeros(4096, np.uint8)
        expected[arrives[comm.rank]] = 2 - comm.rank
        assert np.array_equal(target, expected), name


@pytest.mark.mpi(5)
def test_every_pair_is_measured_and_what_the_pairs_of_a_node_share(comm):
    from ddlbench import Communicator

    sizes = (1, 64, 4096, 8192, 16384)
    with Communicator(comm) as communicator:
        places = find_places(communicator)
        surveyor = Surveyor(communicator, places, partial(apart, comm), Board())
        survey = surveyor.run(sizes, 0.1, lambda _: None)
    if comm.rank == 0:
        assert sorted(survey.pings) == list(combinations(range(5), 2))
        assert {curve.x for curve in survey.pings.values()} == {tuple(map(float, sizes))}
        assert len(survey.reductions) == 5
    assert set(survey.both) == set(survey.bursts) == {"node"}
    assert survey.both["node"].x == (8192.0, 16384.0, 32768.0)
    assert survey.shared["node"].x == (2 * 1023 * 4.0, 2 * 1023 * 8.0, 2 * 1023 * 16.0)
    assert survey.shared_both["node"].x == (16384.0, 32768.0, 65536.0)


@pytest.mark.parametrize(
    ("ranks", "given", "refusal"),
    [
        (2, ("--sizes", "8,1M"), "--sizes 8,1M: a fit needs 4 different sizes or more, these are 2"),
        (1, (), "one rank has no links: start it with several, as in mpirun -n 4 ddlbench fit"),
    ],
)
def test_a_request_that_makes_no_sense_ends_with_one_line_of_one_rank(mpirun, tmp_path, ranks, given, refusal):
    done = mpirun(ranks, *FIT, *given, cwd=tmp_path)
    assert done.status == 2
    assert [line for line in done.stderr.splitlines() if "ddlbench" in line] == [f"ddlbench: error: {refusal}"]
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
