"""Links that let a burst pass, and processors that all nodes share: what they cost, worked out by hand."""

import tomllib
from dataclasses import replace

import numpy as np
import pytest

from ddlbench.cost.buckets import Buckets
from ddlbench.cost.described import dumps, from_data, to_data
from ddlbench.cost.limits import limits
from ddlbench.cost.machine import Processors
from ddlbench.cost.network import Placement
from ddlbench.cost.processors import processors_of
from ddlbench.cost.sharing import Sharing, crowds
from ddlbench.errors import UsageError
from machines import LATENCY, RATE, figure, machine, price


def shaped(nodes=4, burst=1e6, peak=10 * RATE, **more):
    found = machine(nodes, **more)
    return replace(found, nic=replace(found.nic, burst=figure(burst), peak=figure(peak)))


def sharing(count):
    """Messages that share one resource, number 1, of two."""
    return Sharing(np.ones((1, count), np.int64))


def bucket(level, burst=100.0, peak=np.inf):
    return Buckets(np.array([0.0, burst]), np.array([np.inf, peak]), np.array([0.0, level]), np.zeros(2))


def finish(level, nbytes, start=0.0, peak=100.0):
    held = bucket(level, peak=peak)
    amounts = np.atleast_1d(np.asarray(nbytes, float))
    starts = np.full(len(amounts), float(start))
    done = sharing(len(amounts)).finish(starts, amounts, np.array([np.inf, 10.0]), None, held)
    return done, held


def test_a_message_passes_at_the_peak_until_the_bucket_is_empty():
    # 45 tokens, spent at 100 − 10 a second: half a second, 50 bytes; the other 50 at 10 a second.
    done, held = finish(45.0, 100.0)
    assert done[0] == pytest.approx(0.5 + 5.0)
    assert held.level[1] == 0


def test_a_bucket_fills_while_nothing_passes_but_no_further_than_its_burst():
    done, held = finish(0.0, 10.0, start=1000.0)
    assert done[0] == pytest.approx(1000.1)
    assert held.level[1] == pytest.approx(100 - 10 + 1)  # one more comes in while the ten pass


def test_messages_that_share_a_bucket_share_its_tokens():
    done, _ = finish(90.0, [60.0, 60.0])
    # 90 tokens last a second at 100 a second; 20 bytes are left, at 10 a second.
    assert done == pytest.approx([3.0, 3.0])


def test_runs_one_after_the_other_get_the_rate_whatever_the_burst():
    n = 1 << 20
    barrier = 2 * LATENCY
    bound = 1.5 * n / RATE - barrier  # what comes in while ranks are in the barrier is spent
    assert price("ring", shaped(burst=1e9), n) == pytest.approx(bound, rel=0.02)
    assert price("ring", machine(4), n) == pytest.approx(1.5 * n / RATE + 6 * LATENCY + 0.75 * n / 4e9, rel=1e-6)


@pytest.mark.parametrize("nbytes", [4096, 1 << 20, 1 << 24])
@pytest.mark.parametrize("burst", [1e4, 1e6])
def test_what_passes_at_once_is_no_part_of_a_limit(nbytes, burst):
    on = shaped(burst=burst)
    found = limits(on, Placement.on(on, 4, 1), nbytes)
    assert found["cards"] == found["bandwidth"] == pytest.approx(max(0.0, 1.5 * nbytes - burst) / RATE)
    assert price("ring", on, nbytes) >= max(found.values())


def test_small_vectors_pass_at_the_peak():
    n = 4096
    assert price("ring", shaped(), n) == pytest.approx(price("ring", machine(4, nic_bandwidth=10 * RATE), n), rel=1e-3)


def test_a_burst_passes_both_ways_at_once():
    """What limits a card both ways together is no limit to a burst."""
    n, free = 4096, price("recursive-doubling", shaped(), 4096)
    assert price("recursive-doubling", shaped(nic_both_ways=2 * RATE), n) == pytest.approx(free, rel=1e-6)
    assert price("recursive-doubling", shaped(nic_per_rank=RATE), n) == pytest.approx(free, rel=1e-6)
    large = 8 << 20
    narrow, wide = (price("recursive-doubling", shaped(nic_both_ways=both), large) for both in (RATE, 2 * RATE))
    assert narrow - wide == pytest.approx(2 * large / RATE, rel=0.15)  # but for what the buckets held


def together(nodes=4, **changes):
    figures = {name: figure(value) for name, value in ({"count": 2, "message": 4e-6} | changes).items()}
    found = machine(nodes)
    return replace(found, processors=Processors(**figures))


def test_messages_wait_for_the_processors_that_all_nodes_share():
    # Four leave at once, two processors: each is held up by one more, 4 µs in each of the 6 rounds.
    alone, crowded = price("ring", machine(4), 4), price("ring", together(), 4)
    assert crowded - alone == pytest.approx(6 * 4e-6, rel=1e-4)
    assert price("ring", together(count=4), 4) == pytest.approx(alone)


def test_a_message_is_held_up_by_those_that_leave_within_its_latency():
    own = processors_of(together(count=1))
    waits = own.waits(np.array([0.0, 10e-6, 12e-6]), np.full(3, 2), np.full(3, 5e-6))
    assert waits == pytest.approx([0.0, 4e-6, 4e-6])
    waits = own.waits(np.array([12e-6, 0.0, 10e-6]), np.full(3, 2), np.full(3, 11e-6))
    assert waits == pytest.approx([4e-6, 4e-6, 8e-6]), "the one in between meets both"


def test_inside_nodes_a_message_keeps_a_processor_for_its_own_time():
    own = processors_of(together(count=1, inside=1e-6))
    waits = own.waits(np.zeros(3), np.array([1, 1, 2]), np.full(3, 1e-6))
    assert waits == pytest.approx([5e-6, 5e-6, 2e-6])


def test_large_messages_of_all_nodes_at_once_get_what_was_measured():
    n = 4 << 20
    on = together(count=8, large=n / 4, one_way=RATE / 2, both_ways=RATE / 2)
    extra = 1.5 * n / RATE
    assert price("ring", on, n) - price("ring", machine(4), n) == pytest.approx(extra, rel=1e-6)
    small = n / 2
    assert price("ring", on, small) == pytest.approx(price("ring", machine(4), small))
    # Exchanges of n/2 are held up four times as long, those of n/4 as well.
    assert price("halving-doubling", on, n) - price("halving-doubling", machine(4), n) == pytest.approx(3 * extra)


def test_figures_of_shaped_links_and_shared_processors_are_written_and_read():
    for found in (shaped(), together(large=1e6, one_way=1e8, both_ways=1e8, inside=1e-6)):
        again = from_data(tomllib.loads(dumps(found)))
        assert to_data(again) == to_data(found)


def test_a_burst_without_its_peak_is_refused():
    with pytest.raises(UsageError, match=r"nic\.burst and nic\.peak"):
        machine(4, nic_burst=1e6)


def test_messages_that_share_nothing_are_no_crowd_and_links_of_links_are():
    used = np.array([[1, 1, 2, 3, 5], [4, 2, 9, 9, 6]])  # 9: nothing shared
    assert crowds(used, 9).tolist() == [0, 0, 0, 1, 2]


def test_what_ends_in_one_crowd_is_no_event_for_another(monkeypatch):
    """Two pairs on two resources: each pair shares its own, whatever the other does."""
    used = np.array([[1, 1, 2, 2]])
    starts, amounts = np.array([0.0, 1.0, 0.0, 7.0]), np.array([30.0, 10.0, 40.0, 10.0])
    capacity = np.array([np.inf, 10.0, 10.0])
    done = Sharing(used).finish(starts, amounts, capacity)
    assert done == pytest.approx([4.0, 3.0, 4.0, 8.0])
    monkeypatch.setattr("ddlbench.cost.sharing.EVENTS", 2)  # crowds of two are still exact
    assert Sharing(used).finish(starts, amounts, capacity) == pytest.approx(done)


@pytest.mark.parametrize(("text", "nodes"), [("swing", 7), ("halving-doubling", 6), ("leader", 7)])
def test_following_a_few_of_a_large_crowd_is_near_following_all(monkeypatch, text, nodes):
    on = machine(nodes, 4)
    every = price(text, on, 1 << 22, segments=4)
    monkeypatch.setattr("ddlbench.cost.sharing.EVENTS", 20)
    assert price(text, on, 1 << 22, segments=4) == pytest.approx(every, rel=0.1)
