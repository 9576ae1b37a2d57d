"""What messages take while every rank is awake: who sends to whom, and the figures that follow."""

from dataclasses import replace

import pytest

from ddlbench.links import crowd, fit
from ddlbench.links.crowd import Crowd
from ddlbench.links.fit import LEAST_AMOUNTS
from ddlbench.links.machine import described, large_from
from ddlbench.links.machine import fit as fitted
from ddlbench.links.pairs import Places
from ddlbench.links.survey import Survey
from ddlbench.links.timing import Curve
from ddlbench.schedule.move import KEEP, SEND
from made_links import curve, topology

SIZES = tuple(float(1 << bits) for bits in (17, 18, 19, 20, 21))
RATE, LATENCY, BUSY = 1e8, 40e-6, 8e-6


def times(factor):
    """The times of a round of each size: what its bytes need, so many times over."""
    return Curve(SIZES, tuple((factor(x) * x / RATE,) * 5 for x in SIZES))


def test_ranks_send_around_and_each_receives_from_the_one_before():
    on = topology(4, 2, one_machine=True)
    assert crowd.shifted(on, 3, 1) == {0: (2, 4), 2: (4, 0), 4: (0, 2)}
    everyone = crowd.shifted(on, 4, 2)
    assert sorted(everyone) == list(range(8))
    assert all(everyone[to][1] == rank for rank, (to, _) in everyone.items())


def test_nodes_exchange_in_pairs_and_one_of_an_odd_number_rests():
    assert crowd.exchanged(topology(5, 1)) == {0: (1, 1), 1: (0, 0), 2: (3, 3), 3: (2, 2)}


def test_who_has_no_part_has_no_steps():
    steps = crowd.table(2, [(3, 1)], 4)
    assert steps["kind"].tolist() == [SEND, KEEP] * 4
    assert steps["peer"].tolist() == [3, 1] * 4
    assert len(crowd.table(2, [], 4)) == 0


def test_a_rank_sends_to_more_and_more_nodes_at_once_and_what_comes_lies_apart():
    steps = crowd.table(2, [(3, 1), (0, 0)], 2)
    assert steps["round"].tolist() == [0] * 4 + [1] * 4
    assert sorted(steps["peer"][:4].tolist()) == [0, 0, 1, 3]
    assert steps["chunk"][(steps["kind"] == KEEP) & (steps["round"] == 0)].tolist() == [0, 1]


def test_small_messages_are_those_of_every_rank_to_more_and_more_nodes():
    asked = [sum(map(len, layers)) for layers in crowd._between(topology(4, 2, one_machine=True))]
    assert asked == [8, 16, 24]
    assert [len(layers) for layers in crowd._between(topology(3, 2, one_machine=True))] == [1, 1, 2]
    *_, last = crowd._between(topology(4, 1, one_machine=True))
    assert sorted(layer[0] for layer in last) == [(1, 3), (2, 2), (3, 1)]


def test_only_nodes_of_one_machine_share_its_processors():
    assert crowd.shares_processors(topology(3, 1, one_machine=True))
    assert not crowd.shares_processors(topology(2, 4, one_machine=True))
    assert not crowd.shares_processors(topology(8, 1))


def test_messages_are_large_from_where_all_larger_ones_are_slow():
    around, exchange = times(lambda x: 1.0 if x < 1 << 20 else 1.25), times(lambda x: 1.05 if x < 1 << 19 else 1.5)
    found = large_from(around, exchange, RATE, 0.0)
    assert found["large"].value == 1 << 19
    assert found["one_way"].value == pytest.approx(RATE / 1.25, rel=1e-4)
    assert found["both_ways"].value == pytest.approx(2 * RATE / 1.5, rel=1e-4)
    assert (found["one_way"].low, found["one_way"].high) == (pytest.approx(RATE / 1.25, rel=1e-4), RATE)


def test_messages_that_are_as_fast_as_the_card_are_never_large():
    assert large_from(times(lambda _: 1.0), times(lambda x: 1.3 if x < 1 << 19 else 1.0), RATE, 0.0) == {}


class Runs:
    """Rounds that take a second for each MiB."""

    def seconds(self, _way, nbytes, _trips, samples):
        return [nbytes / (1 << 20)] * samples


def test_sizes_that_take_too_long_are_left_out():
    found = crowd._large(Runs(), {})
    assert found.x == (SIZES[0],)
    cut = Curve(SIZES[:2], tuple((2 * x / RATE,) * 5 for x in SIZES[:2]))
    assert large_from(times(lambda _: 1.5), cut, RATE, 0.0)["both_ways"].value == pytest.approx(RATE, rel=1e-4)


def test_latency_is_no_part_of_what_bytes_take():
    late = Curve(SIZES, tuple((x / RATE + 10e-3,) * 5 for x in SIZES))
    assert large_from(late, late, RATE, 0.0)["large"].value == SIZES[0]
    assert large_from(late, late, RATE, 10e-3) == {}


def survey(awake):
    places = Places(topology(4, 1, one_machine=True))
    alone = {pair: curve(lambda n: 1e-5 + n / RATE, sizes=(1, 64, *map(int, SIZES))) for pair in ((0, 1), (2, 3))}
    whole = Crowd(2, awake, None, times(lambda _: 1.3), times(lambda _: 1.5))
    return Survey(
        places,
        alone,
        both={"nic": times(lambda _: 1.0)},
        bursts={"nic": curve(lambda k: 1e-5 + 1e-6 * k, sizes=(0, 1, 3))},
        reductions=[curve(lambda n: n / 1e10, sizes=(4096, 16384, 65536))],
        crowd=whole,
    )


def machine_of(measured):
    return described(measured, fitted(measured, []), "lab", "a test")


def test_latency_and_processors_are_those_with_every_rank_awake(monkeypatch):
    monkeypatch.setattr(fit, "RESAMPLES", 5)
    found = machine_of(survey(curve(lambda over: LATENCY + BUSY * over, sizes=(0, 0.5, 1.0))))
    assert found.nic.latency.value == pytest.approx(LATENCY, rel=0.02)
    assert "awake" in found.nic.latency.source
    assert found.processors.count.value == 2
    assert found.processors.message.value == pytest.approx(BUSY, rel=0.1)
    assert found.processors.large.value == 1 << 17
    assert found.nic.bandwidth.value == pytest.approx(RATE, rel=0.01)


def test_too_few_messages_at_once_say_nothing_of_processors(monkeypatch):
    monkeypatch.setattr(fit, "RESAMPLES", 5)
    measured = survey(curve(lambda _: LATENCY, sizes=(0.0, 0.5)))
    assert len(set(measured.crowd.between.x)) < LEAST_AMOUNTS
    assert machine_of(measured).processors is None
    assert machine_of(replace(measured, crowd=None)).nic.latency.value == pytest.approx(1e-5, rel=0.02)
