"""Lower bounds and predictions from links, and the line that the bytes of a stream follow."""

import json

import numpy as np
import pytest

from ddlbench.algorithms import resolve
from ddlbench.cost.closed import bound_seconds, bounds, memory_bounds, model_seconds, network_seconds
from ddlbench.cost.limits import binding
from ddlbench.cost.links import Link, Links, Memory
from ddlbench.cost.streams import MESSAGES, fitted, rounds
from ddlbench.schedule.grid import Grid

GBIT = 119.6e6
WITHIN, BETWEEN = Link(1e-6, 10e9, 8e9), Link(20e-6, GBIT, GBIT)
MIB = 1 << 20


def links(*rates, burst=0.0):
    return Links(len(rates), WITHIN, BETWEEN, 30e9, rates, burst)


FOUR = links(GBIT, GBIT, GBIT, GBIT)


@pytest.mark.parametrize(("nodes", "ranks"), [(4, 4), (4, 8)])
def test_over_nodes_the_bound_is_what_their_network_links_must_carry(nodes, ranks):
    assert bound_seconds(FOUR, nodes, ranks, 16 * MIB) == pytest.approx(1.5 * 16 * MIB / GBIT)
    assert bound_seconds(FOUR, 2, 2 * ranks // nodes, 16 * MIB) == pytest.approx(16 * MIB / GBIT)


def test_on_one_node_of_many_the_network_does_not_matter():
    assert bound_seconds(FOUR, 1, 2, 16 * MIB) == pytest.approx(16 * MIB / 10e9)
    assert bound_seconds(FOUR, 1, 2, 8) == pytest.approx(1e-6)
    assert model_seconds(FOUR, 1, 2, resolve("ring", Grid((2,))), 8) < 20e-6


def test_with_one_rank_on_each_node_the_link_inside_a_node_does_not_matter():
    assert bound_seconds(FOUR, 4, 4, 8) == pytest.approx(2 * 20e-6)
    assert bound_seconds(FOUR, 4, 8, 8) == pytest.approx(3 * 1e-6)
    assert bound_seconds(FOUR, 4, 8, 8, shared=True) == pytest.approx(2 * 20e-6)


@pytest.mark.parametrize("nodes", [1, 4])
def test_one_rank_has_no_bound(nodes):
    assert bound_seconds(FOUR, 1, 1, MIB) is None


@pytest.mark.parametrize("nodes", [1, 4])
def test_an_empty_vector_has_no_bound_for_nothing_is_sent(nodes):
    assert bound_seconds(FOUR, nodes, 8, 0) is None
    assert bound_seconds(FOUR, nodes, 8, 1) > 0


@pytest.mark.parametrize(("nbytes", "limit"), [(8, "latency"), (16 * MIB, "cards"), (0, "")])
def test_the_limit_that_binds_has_a_name(nbytes, limit):
    found = bounds(FOUR, 4, 8, nbytes)
    assert binding(found) == limit
    assert max(found.values(), default=None) == bound_seconds(FOUR, 4, 8, nbytes)
    assert binding(bounds(FOUR, 1, 2, 16 * MIB)) == "bandwidth", "on one node there are no cards"


def test_a_slow_node_must_still_send_the_vector_and_may_leave_the_rest_to_others():
    slow = links(GBIT, GBIT / 10, GBIT, GBIT)
    assert network_seconds(slow, 4, MIB) == pytest.approx(MIB / (GBIT / 10))
    somewhat = links(GBIT, GBIT / 1.1, GBIT, GBIT)
    assert network_seconds(somewhat, 4, MIB) == pytest.approx(6 * MIB / (3 * GBIT + GBIT / 1.1))


def test_only_the_nodes_of_the_shape_count():
    assert network_seconds(links(GBIT, GBIT, GBIT / 10), 2, MIB) == pytest.approx(MIB / GBIT)


def test_what_a_link_lets_pass_at_once_takes_no_time():
    shaped = links(GBIT, GBIT, burst=256 * 1024)
    assert bound_seconds(shaped, 2, 2, 64 * 1024) == pytest.approx(20e-6)
    assert bound_seconds(shaped, 2, 2, 16 * MIB) == pytest.approx((16 * MIB - 256 * 1024) / GBIT)


def test_a_rank_alone_may_be_slower_than_its_node_without_raising_the_bound():
    several = Links(2, WITHIN, Link(20e-6, GBIT / 3, GBIT / 3), 30e9, (GBIT, GBIT))
    assert bound_seconds(several, 2, 2, MIB) == pytest.approx(MIB / GBIT)


def test_links_are_had_back_from_their_record_also_from_one_without_nodes():
    stored = FOUR.to_json()
    assert Links.from_json(stored) == FOUR
    old = {name: stored[name] for name in ("nodes", "within", "between", "reduce_bytes_per_s")}
    assert Links.from_json(old) == Links(4, WITHIN, BETWEEN, 30e9)


def test_the_model_over_nodes_counts_a_nodes_traffic_once():
    ring = resolve("ring", Grid((2, 4)))
    assert model_seconds(FOUR, 4, 8, ring, 16 * MIB) == pytest.approx(14 * 20e-6 + 1.75 * 16 * MIB / GBIT, rel=0.01)
    assert model_seconds(FOUR, 4, 8, resolve("mpi", Grid((2, 4))), MIB) is None


# ---- Streams -------------------------------------------------------------------------------------------------------


def arrivals(rate, burst, chunk, delays=()):
    """Return when the chunks of a stream over a shaped link arrive; held up in `delays`: (from, to, until)."""
    nbytes = chunk * np.arange(1, MESSAGES + 1)
    times = np.maximum(nbytes - burst, 0) / rate
    for first, last, until in delays:
        times[first:last] = np.maximum(times[first:last], until)
    return times


@pytest.mark.parametrize("burst", [0, 256 * 1024])
def test_the_line_of_a_stream_has_the_rate_of_the_link_and_its_burst(burst):
    line = fitted(5.0, 5.0 + arrivals(GBIT, burst, 192 * 1024), 192 * 1024)
    assert line.bytes_per_s == pytest.approx(GBIT, rel=0.001)
    assert line.burst_nbytes == pytest.approx(burst, abs=192 * 1024)


def test_a_receiver_that_was_held_up_does_not_change_the_line():
    chunk = 192 * 1024
    held = arrivals(GBIT, 0, chunk, [(10, 20, 20 * chunk / GBIT), (40, 55, 55 * chunk / GBIT)])
    assert fitted(0.0, held, chunk).bytes_per_s == pytest.approx(GBIT, rel=0.01)


def test_streams_of_several_ranks_to_one_node_add_up():
    chunk = 192 * 1024
    both = np.concatenate([arrivals(GBIT / 2, 0, chunk)] * 2)
    assert fitted(0.0, both, chunk).bytes_per_s == pytest.approx(GBIT, rel=0.05)


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8])
def test_every_node_sends_and_receives_once_and_never_two_things_at_a_time(nodes):
    found = rounds(nodes)
    assert sorted(pair for part in found for pair in part) == [(node, (node + 1) % nodes) for node in range(nodes)]
    for part in found:
        assert len({node for pair in part for node in pair}) == 2 * len(part)
    assert len(found) == (2 if nodes % 2 == 0 else 3)


# ---- Memory that ranks share ----------------------------------------------------------------------------------------

TWO = Memory(2, 0.1e-6, ((1000, 0.3e-6), (4000, 0.8e-6), (16000, 4.8e-6)))


@pytest.mark.parametrize(
    ("nbytes", "seconds"),
    [
        (4000, 0.7e-6),  # as it was measured, but for one of its two handoffs
        (2000, 0.3e-6),  # at the rate of 4000 bytes, the better one
        (8000, 1.5e-6),  # that again
        (32000, 9.5e-6),  # above the largest its own rate
    ],
)
def test_memory_allows_the_better_rate_of_both_sizes_beside(nbytes, seconds):
    assert TWO.least_seconds(nbytes) == pytest.approx(seconds)


def test_memory_bounds_only_as_many_ranks_as_were_measured():
    known = Links(1, WITHIN, None, 30e9, memory=(TWO,))
    assert memory_bounds(known, 2, 4000) == {"latency": 0.1e-6, "memory": pytest.approx(0.7e-6)}
    assert binding(memory_bounds(known, 2, 8)) == "latency", "ranks must hear of each other"
    assert memory_bounds(known, 2, 0) == memory_bounds(known, 4, 4000) == {}


def test_links_with_memory_are_read_back_from_their_record_and_without_from_an_older_one():
    known = Links(1, WITHIN, None, 30e9, memory=(TWO, Memory(4, 1e-6, ((16384, 1e-5),))))
    stored = json.loads(json.dumps(known.to_json()))
    assert Links.from_json(stored) == known
    del stored["memory"]
    assert Links.from_json(stored).memory == ()
