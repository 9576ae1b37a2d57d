"""Whether figures mean what they say: an algorithm against itself, clocks, and starts in windows."""

import dataclasses
import sys

import numpy as np
import pytest

from ddlbench.bench.clock import BURSTS, EXCHANGES, ClockModel, GlobalClock, fit
from ddlbench.bench.timer import LATE_NS, BarrierTimer, WindowTimer, choose_timer, window_ns
from ddlbench.records import load
from ddlbench.statistics import summarise

TWINS = """
from dataclasses import replace
from ddlbench.algorithms.ring import ALGORITHM
first, second = replace(ALGORITHM, name="first"), replace(ALGORITHM, name="second")
"""


@pytest.fixture
def communicator(comm):
    from ddlbench import Communicator

    with Communicator(comm) as opened:
        yield opened


def test_an_algorithm_is_indistinguishable_from_itself(mpirun, tmp_path):
    """The A/A test: the same ring under two names, 36 points; the intervals overlap in at least nine of ten."""
    (tmp_path / "twins.py").write_text(TWINS)
    done = mpirun(
        2, sys.executable, "-m", "ddlbench", "sweep", "-a", "./twins.py:first,./twins.py:second", "-b", "8", "-e",
        "1M", "-f", "2", "--in-place", "both", "--max-seconds", "0.1", "--out", "out", cwd=tmp_path,
    )  # fmt: skip
    assert done.status == 0, done.stderr
    seen = {}
    for point in load(tmp_path / "out").points:
        seen.setdefault((point.nbytes, point.in_place), []).append(summarise(point.samples_ns, point.passes))
    assert len(seen) == 36
    overlaps = [a.ci_low_us <= b.ci_high_us and b.ci_low_us <= a.ci_high_us for a, b in seen.values()]
    assert np.mean(overlaps) >= 0.9


@pytest.mark.mpi(2, 3, 5)
def test_ranks_of_one_node_share_its_clock(communicator):
    clock = GlobalClock(communicator)
    assert clock.model == ClockModel()
    clock.check()
    assert clock.summary().to_json() == {
        "method": "shared", "error_before_us": 0.0, "error_after_us": 0.0, "drift_ppm": [0.0]
    }  # fmt: skip


@pytest.mark.mpi(2, 3, 5)
def test_clocks_that_differ_are_brought_together(communicator, monkeypatch):
    """Each rank is made a node of its own, with a clock that is off by seconds and drifts by up to 50 ppm."""
    from ddlbench import _clock

    apart = 1_500_000_000 * communicator.rank
    drift = 1e-5 * communicator.rank
    zero = communicator.comm.bcast(_clock.now())
    ask = _clock.ask

    def wrong(now):
        return now + apart + np.rint((now - zero) * drift).astype(np.int64)

    def asking(handle, peer, exchanges, yielding):
        times, offsets, trips = ask(handle, peer, exchanges, yielding)
        mine, theirs = wrong(times), times + 1_500_000_000 * peer + np.rint((times - zero) * 1e-5 * peer).astype("i8")
        return mine, offsets + theirs - mine, trips

    monkeypatch.setattr(_clock, "ask", asking)
    communicator.topology = dataclasses.replace(communicator.topology, node_of=tuple(range(communicator.size)))
    clock = GlobalClock(communicator)
    later = np.array([_clock.now() + 1_000_000_000])
    error = abs(int(clock.model.to_global(wrong(later))[0] - later[0]))
    errors = communicator.comm.allgather(error)
    if communicator.size == 2:  # on more ranks than cores an exchange waits for its turn on a core
        assert max(errors) < 20_000
    assert max(errors) < 2_000_000
    assert clock.summary().method == "hca"
    ppm = clock.summary().drift_ppm
    if communicator.size == 2:
        assert ppm[1] == pytest.approx(-10, abs=2)


def test_a_line_through_offsets_finds_offset_and_drift_and_ignores_slow_exchanges():
    random = np.random.default_rng(3)
    at = np.arange(BURSTS)[:, None] * 20_000_000 + np.arange(EXCHANGES) * 2_000
    trips = 1_000 + random.integers(0, 50, at.shape)
    trips[:, 1:] += random.integers(100, 100_000, (BURSTS, EXCHANGES - 1))
    offsets = 5_000_000 + np.rint(at * 25e-6).astype(np.int64) + (trips - 1_000) // 2
    model = fit(at, offsets, trips)
    assert model.drift == pytest.approx(25e-6, rel=0.02)
    assert model.to_global(np.array([0]))[0] == pytest.approx(5_000_000, abs=100)
    assert model.error_ns < 1_000


def test_models_are_inverted_and_chained():
    first, second = ClockModel(10**12, 5e6, 3e-5, 10.0), ClockModel(4 * 10**12, -7e8, -2e-5, 20.0)
    local = np.array([10**12, 10**12 + 10**10])
    assert np.all(np.abs(first.to_local(first.to_global(local)) - local) <= 1)
    chained = first.after(second)
    assert np.all(np.abs(chained.to_global(local) - second.to_global(first.to_global(local))) <= 2)
    assert chained.error_ns == 30.0


@pytest.mark.mpi(2)
def test_a_window_starts_all_ranks_together_and_tells_who_was_late(communicator):
    clock = GlobalClock(communicator)
    values = np.zeros(2, np.float32)
    with communicator.plan(values, values.copy(), algorithm="recursive-doubling") as plan:
        taken = WindowTimer(communicator, clock).batch(plan, 40, window_ns(5e-6, 1.0))
        assert taken.durations.shape == taken.late.shape == (40,)
        on_time = ~np.logical_or(*communicator.comm.allgather(taken.late))
        if on_time.any():
            assert taken.durations[on_time].min() > 0
        starts = np.array([clock.now() - 10**6, clock.now() + 10**6])
        begun, done = plan.time_windows(starts)
        assert begun[0] > starts[0] + LATE_NS  # a start in the past is begun at once, and late
        assert begun[1] >= starts[1]
        assert np.all(done > begun)


@pytest.mark.mpi(2, 3)
def test_windows_are_the_default_where_each_rank_has_a_core(communicator):
    clock = GlobalClock(communicator)
    timer, why = choose_timer(communicator, clock, "auto", "warm")
    if communicator.yielding:
        assert (timer.sync, why) == ("barrier", "ranks share processors")
    else:
        assert (timer.sync, why) == ("window", "")
        assert choose_timer(communicator, clock, "auto", "cold")[0].sync == "barrier"
    assert choose_timer(communicator, clock, "barrier", "warm")[0].sync == "barrier"
    assert choose_timer(communicator, clock, "window", "warm")[0].sync == "window"


@pytest.mark.mpi(2)
def test_both_timers_agree_on_a_long_operation(communicator):
    values = np.zeros(1 << 20, np.float32)
    result = values.copy()
    with communicator.plan(values, result, algorithm="ring") as plan:
        plan.time_samples(5)
        barrier = np.median(BarrierTimer().batch(plan, 30, 0).durations)
        batch = WindowTimer(communicator, GlobalClock(communicator)).batch(plan, 30, window_ns(barrier * 1e-9, 2.0))
    assert 0.2 < np.median(batch.durations) / barrier < 5
