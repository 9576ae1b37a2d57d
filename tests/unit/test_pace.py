"""How many samples a point takes: at least twenty, in turns, within its time."""

import pytest

from ddlbench.bench.pace import BATCH_SECONDS, LEAST_SAMPLES, MOST_SAMPLES, PASSES, Pace


def taken(pace, per_sample, limit=10_000):
    """Return the batches that a point takes whose samples always last `per_sample` seconds."""
    batches = []
    while (batch := pace.batch(sum(batches), per_sample)) and len(batches) < limit:
        batches.append(batch)
    return batches


@pytest.mark.parametrize("per_sample", [1e-9, 1e-6, 1e-3, 0.03, 1.0, 60.0])
def test_a_point_has_between_twenty_and_a_thousand_samples(per_sample):
    assert LEAST_SAMPLES <= sum(taken(Pace(None, 0.5), per_sample)) <= MOST_SAMPLES


@pytest.mark.parametrize("per_sample", [0.5 / 900, 0.5 / 100, 0.5 / 25])
def test_samples_fill_the_time_when_that_is_more_than_the_least(per_sample):
    seconds = sum(taken(Pace(None, 0.5), per_sample)) * per_sample
    assert 0.5 - per_sample <= seconds <= 0.5 + per_sample


@pytest.mark.parametrize("iterations", [1, 3, 30, 5000])
def test_a_number_of_iterations_is_kept_exactly(iterations):
    assert sum(taken(Pace(iterations, 0.5), 1e-3)) == iterations


def test_samples_come_in_turns():
    assert len(taken(Pace(None, 0.5), 1e-6)) == PASSES


@pytest.mark.parametrize("per_sample", [0.1, 0.9, 30.0])
def test_a_batch_is_short_enough_to_be_interrupted(per_sample):
    assert max(taken(Pace(None, 0.5), per_sample)) * per_sample <= max(BATCH_SECONDS, per_sample)


def test_an_unknown_speed_is_found_out_with_one_sample():
    assert Pace(None, 0.5).batch(0, None) == 1


def test_a_point_that_turns_out_slower_stops_at_the_least():
    pace = Pace(None, 0.5)
    assert pace.batch(0, 1e-6) == 250
    assert pace.batch(250, 1.0) == 0
