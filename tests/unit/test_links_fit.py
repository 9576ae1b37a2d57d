"""Lines through times whose parameters are known: recovered under noise, outliers, bursts and bad pairs."""

import pytest

from ddlbench.errors import DdlbenchError
from ddlbench.links.fit import Estimate, fitted
from ddlbench.links.timing import Curve, merged
from made_links import curve

ALPHA, BETA = 2e-6, 1e-10
"""2 us and 10 GB/s."""


def line(x):
    return ALPHA + BETA * x


def shaped(x, burst=250e3):
    return 30e-6 + max(x * 1e-9, 8e-9 * (x - burst))


def holds(estimate, truth, slack=0.01):
    """Whether the interval holds the truth: the lower quartile of noisy times lies a little below it."""
    return estimate.low * (1 - slack) <= truth <= estimate.high * (1 + slack) and estimate.low < estimate.high


@pytest.mark.parametrize("outliers", [0.0, 0.3])
def test_latency_and_bandwidth_are_recovered_though_a_third_of_the_times_are_far_too_long(outliers):
    found = fitted([curve(line, seed=seed, outliers=outliers) for seed in range(4)])
    assert found.start.value == pytest.approx(ALPHA, rel=0.03)
    assert found.slope.value == pytest.approx(BETA, rel=0.03)
    assert holds(found.start, ALPHA)
    assert holds(found.slope, BETA)
    assert (found.amounts, found.samples) == (10, 800)


def test_one_size_that_is_off_does_not_pull_the_line():
    found = fitted([curve(lambda x: line(x) * (5 if x == 16384 else 1))], resamples=0)
    assert found.start.value == pytest.approx(ALPHA, rel=0.05)
    assert found.slope.value == pytest.approx(BETA, rel=0.05)


def test_one_slow_pair_of_six_does_not_pull_the_line():
    curves = [curve(lambda x, k=k: line(x) * (3 if k == 2 else 1), seed=k) for k in range(6)]
    assert fitted(curves, resamples=0).slope.value == pytest.approx(BETA, rel=0.1)


def test_intervals_hold_what_differs_between_pairs():
    curves = [curve(lambda x, k=k: line(x) * (1 + 0.1 * k), seed=k) for k in range(4)]
    slope = fitted(curves, resamples=40).slope
    assert slope.high / slope.low > 1.1


def test_the_rate_of_a_shaped_link_is_that_after_the_burst():
    found = fitted([curve(shaped, seed=seed) for seed in range(3)], shaped=True)
    assert found.slope.value == pytest.approx(8e-9, rel=0.03)
    assert found.burst == pytest.approx(250e3, rel=0.1)
    assert holds(found.slope, 8e-9)
    plain = fitted([curve(shaped)], resamples=0)
    assert abs(plain.slope.value / 8e-9 - 1) > 0.05, "a single line must be wrong here, or this shows nothing"


def test_no_burst_is_seen_where_there_is_none():
    found = fitted([curve(line, seed=seed) for seed in range(3)], shaped=True, resamples=0)
    assert found.burst == 0
    assert found.slope.value == pytest.approx(BETA, rel=0.03)


def test_times_of_too_few_sizes_are_refused_with_the_way_out():
    with pytest.raises(DdlbenchError, match=r"3 sizes or more, the time was enough for 2: allow more --max-seconds"):
        fitted([curve(line, sizes=(1, 4096))])


def test_a_figure_of_seconds_a_byte_turns_into_bytes_a_second_with_its_interval():
    assert Estimate(2e-10, 1e-10, 4e-10).inverse() == Estimate(5e9, 2.5e9, 1e10)


def test_a_second_look_adds_its_samples_and_may_come_further():
    first = Curve((1.0, 8.0), ((3.0,), (4.0,)))
    again = Curve((1.0, 8.0, 64.0), ((1.0,), (2.0,), (5.0,)))
    assert merged(first, again) == Curve((1.0, 8.0, 64.0), ((1.0, 3.0), (2.0, 4.0), (5.0,)))
