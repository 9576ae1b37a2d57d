"""How many samples a point takes: at least twenty, in passes and turns, until its interval or its time says enough."""

import pytest

from ddlbench.bench.pace import BATCH_SECONDS, LEAST_SAMPLES, MOST_LATE, MOST_SAMPLES, TURNS, Pace, Progress


def play(pace, per_sample, width=lambda _: 1.0, late=False):
    """Return the batches of each pass and what ended the point, for samples that last `per_sample` seconds."""
    passes, done, taken, seconds = [], 0, 0, 0.0
    for number in range(pace.passes):
        batches, in_pass = [], 0
        while batch := pace.batch(Progress(done, in_pass, taken, seconds, per_sample, width(done)), number):
            batches.append(batch)
            taken, seconds = taken + batch, seconds + batch * per_sample
            done, in_pass = (done, in_pass) if late else (done + batch, in_pass + batch)
            assert len(batches) < 10_000
        passes.append(batches)
    return passes, pace.stopped(Progress(done, in_pass, taken, seconds, per_sample, width(done)))


def total(passes):
    return sum(map(sum, passes))


@pytest.mark.parametrize("per_sample", [1e-9, 1e-6, 1e-3, 0.03, 1.0, 60.0])
def test_a_point_has_between_twenty_and_two_thousand_samples(per_sample):
    passes, stop = play(Pace(None, 0.05, 0.5, 5), per_sample)
    assert LEAST_SAMPLES <= total(passes) <= MOST_SAMPLES
    assert stop == ("samples" if per_sample < 1e-4 else "time")


def test_every_pass_takes_its_share():
    passes, _ = play(Pace(None, 0.05, 0.9, 3), 1e-3)
    assert [sum(batches) for batches in passes] == pytest.approx([300, 300, 300], abs=1)
    assert all(len(batches) >= TURNS for batches in passes)


def test_a_narrow_interval_leaves_each_pass_its_least_samples():
    passes, stop = play(Pace(None, 0.05, 10.0, 5), 1e-3, width=lambda _: 0.01)
    assert stop == "interval"
    assert [sum(batches) for batches in passes] == [4] * 5


def test_an_interval_that_becomes_narrow_late_ends_it_late():
    passes, stop = play(Pace(None, 0.05, 10.0, 5), 1e-3, width=lambda done: 0.01 if done > 900 else 0.2)
    assert stop == "interval"
    assert 900 < total(passes) < 1600
    assert all(sum(batches) >= LEAST_SAMPLES / 5 for batches in passes)


@pytest.mark.parametrize("iterations", [1, 3, 30, 5000])
def test_a_number_of_iterations_is_kept_exactly(iterations):
    passes, stop = play(Pace(iterations, 0.05, 0.5, 3), 1e-3, width=lambda _: 0.0)
    assert (total(passes), stop) == (iterations, "samples")


def test_a_slow_point_takes_no_more_than_the_least():
    assert total(play(Pace(None, 0.05, 0.5, 5), 5.0)[0]) == LEAST_SAMPLES


@pytest.mark.parametrize("per_sample", [0.1, 0.9, 30.0])
def test_a_batch_is_short_enough_to_be_interrupted(per_sample):
    passes, _ = play(Pace(None, 0.05, 60.0, 3), per_sample)
    assert max(batch for batches in passes for batch in batches) * per_sample <= max(BATCH_SECONDS, per_sample)


def test_an_unknown_speed_is_found_out_with_one_sample():
    assert Pace(None, 0.05, 0.5, 3).batch(Progress(), 0) == 1


@pytest.mark.parametrize("iterations", [None, 100])
def test_samples_that_are_all_late_end_the_point(iterations):
    passes, _ = play(Pace(iterations, 0.05, 0.5, 3), 1e-3, late=True)
    assert 3 * LEAST_SAMPLES < total(passes) <= MOST_LATE + 100


@pytest.mark.parametrize(("done", "stop"), [(100, "samples"), (99, "time")])
def test_a_number_of_iterations_that_was_not_reached_is_not_said_to_have_been(done, stop):
    assert Pace(100, 0.05, 0.5, 3).stopped(Progress(done, 9, done + MOST_LATE, 9.0, 1e-3, width=0.01)) == stop


def test_a_point_whose_last_batch_makes_it_narrow_is_ended_by_its_interval():
    assert (
        Pace(None, 0.05, 0.5, 3).stopped(Progress(MOST_SAMPLES, 9, MOST_SAMPLES, 0.4, 1e-4, width=0.05)) == "interval"
    )
