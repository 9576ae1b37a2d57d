"""Whether figures mean what they say: an algorithm against itself, clocks, and starts in windows."""

import dataclasses
import sys
import time

import numpy as np
import pytest

from ddlbench.bench import clock as clocks
from ddlbench.bench import cold
from ddlbench.bench.clock import BURSTS, EXCHANGES, ClockModel, GlobalClock, fit
from ddlbench.bench.cold import ColdPlan
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
    if communicator.size == 2 and clock.error_us < 20:  # a busy machine may disturb all but a few bursts
        assert ppm[1] == pytest.approx(-10, abs=2)


@pytest.mark.mpi(2, 3)
def test_clocks_whose_drift_changes_are_followed(communicator, monkeypatch):
    """Each rank is made a node of its own; after the clocks were measured they begin to run apart by 5 %."""
    from ddlbench import _clock

    ask, turn = _clock.ask, []

    def wrong(times, rank):
        return times + np.rint(np.maximum(times - (turn or [times.max()])[0], 0) * 0.05 * rank).astype(np.int64)

    def asking(handle, peer, exchanges, yielding):
        times, offsets, trips = ask(handle, peer, exchanges, yielding)
        mine = wrong(times, communicator.rank)
        return mine, offsets + wrong(times, peer) - mine, trips

    def apart(after_s):
        now = np.array([_clock.now() + int(after_s * 1e9)])
        error = abs(int(clock.model.to_global(wrong(now, communicator.rank))[0] - now[0]))
        return max(communicator.comm.allgather(error))

    monkeypatch.setattr(_clock, "ask", asking)
    communicator.topology = dataclasses.replace(communicator.topology, node_of=tuple(range(communicator.size)))
    clock = GlobalClock(communicator)
    clock.keep()
    assert clock.summary().error_after_us is None  # the models are not old yet
    turn.append(communicator.comm.bcast(_clock.now()))
    assert apart(0.5) > 20_000_000
    monkeypatch.setattr(clocks, "KEPT_NS", 100_000_000)
    monkeypatch.setattr(clocks, "DISTURBED", 1e9)
    for _ in range(2):
        time.sleep(0.15)
        clock.keep()
    assert clock.summary().error_after_us > 1000
    if communicator.size == 2:  # on more ranks than cores an exchange waits for its turn on a core
        assert apart(0.1) < 5_000_000
        assert clock.summary().drift_ppm[1] == pytest.approx(-48_000, abs=15_000)


@pytest.mark.mpi(2)
def test_windows_keep_the_clock(communicator, monkeypatch):
    communicator.topology = dataclasses.replace(communicator.topology, node_of=tuple(range(communicator.size)))
    clock = GlobalClock(communicator)
    before = clock.model
    monkeypatch.setattr(clocks, "KEPT_NS", -1)
    monkeypatch.setattr(clocks, "DISTURBED", 1e9)
    values = np.zeros(2, np.float32)
    with communicator.plan(values, values.copy(), algorithm="ring") as plan:
        WindowTimer(communicator, clock).batch(plan, 4, window_ns(5e-6, 1.0))
    assert (clock.model.at_ns > before.at_ns) == (communicator.rank > 0)


@pytest.mark.mpi(3)
def test_some_of_the_ranks_keep_a_clock_of_their_own_and_what_it_finds_counts(comm, communicator, monkeypatch):
    """The third rank is left out: it answers nobody, and nobody waits for it."""
    from ddlbench import Communicator

    communicator.topology = dataclasses.replace(communicator.topology, node_of=(0, 1, 2))
    clock = GlobalClock(communicator)
    assert clock.kept_by(communicator) is clock
    monkeypatch.setattr(clocks, "KEPT_NS", -1)
    two = comm.Split(int(comm.rank == 2), comm.rank)
    if comm.rank < 2:
        with Communicator(two) as part:
            part.topology = dataclasses.replace(part.topology, node_of=(0, 1))
            values = np.zeros(2, np.float32)
            with part.plan(values, values.copy(), algorithm="ring") as plan:
                WindowTimer(part, clock).batch(plan, 4, window_ns(5e-6, 1.0))
    monkeypatch.setattr(GlobalClock, "_measured_again", None)  # the part did that
    clock.check()
    seen = set(comm.allgather((clock.summary().error_before_us, clock.summary().error_after_us)))
    assert len(seen) == 1
    assert all(after > 0 for _, after in seen)


@pytest.mark.mpi(2)
def test_exchanges_that_are_all_held_up_move_no_clock(communicator, monkeypatch):
    from ddlbench import _clock

    communicator.topology = dataclasses.replace(communicator.topology, node_of=tuple(range(communicator.size)))
    clock, ask = GlobalClock(communicator), _clock.ask

    def held_up(*arguments):
        times, offsets, trips = ask(*arguments)
        return times, offsets + 10**9, trips + 10**10

    monkeypatch.setattr(_clock, "ask", held_up)
    monkeypatch.setattr(clocks, "KEPT_NS", -1)
    before = clock.model
    clock.keep()
    assert clock.model == before
    assert clock.summary().error_after_us > 900_000


def test_a_renewed_model_goes_on_with_the_drift_between_two_measurements():
    first = ClockModel(10**9, 5000.0, 1e-6, 100.0)
    assert first.renewed(ClockModel(3 * 10**9, 9000.0, 0.0, 150.0)) == ClockModel(3 * 10**9, 9000.0, 2e-6, 150.0)


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


def test_a_drift_that_too_few_bursts_tell_is_stated_as_an_error():
    at = np.arange(BURSTS)[:, None] * 20_000_000 + np.arange(EXCHANGES) * 2_000
    trips = np.full(at.shape, 900_000)
    trips[4], trips[11] = 1_000, 1_200
    model = fit(at, np.zeros_like(at), trips)
    assert (model.drift, model.error_ns) == (0.0, 500 + 50_000)
    assert fit(at[:1], np.zeros_like(at[:1]), trips[4:5]).error_ns == 500


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


@pytest.mark.mpi(2)
@pytest.mark.parametrize("llc", [1 << 12, 1 << 20], ids=["buffers take turns", "caches are emptied"])
def test_cold_caches_can_be_timed_from_agreed_starts(communicator, monkeypatch, llc):
    monkeypatch.setattr(cold, "last_level_nbytes", lambda: llc)
    values = np.ones(256, np.float32)
    plans = [communicator.plan(values.copy(), np.empty_like(values), algorithm="ring") for _ in range(9)]
    plan = ColdPlan(plans, 2048)
    assert plan.scrubs == (llc > 1 << 12)
    happened, clear = [], plan.clear

    def recorded(run):
        return lambda starts: happened.append(len(starts)) or run(starts)

    monkeypatch.setattr(plan, "clear", lambda: happened.append("cleared") or clear())
    for one in plans:
        monkeypatch.setattr(one, "time_windows", recorded(one.time_windows))
    taken = WindowTimer(communicator, GlobalClock(communicator)).batch(plan, 12, window_ns(50e-6, 2.0))
    assert taken.durations.shape == taken.late.shape == (12,)
    assert happened == (["cleared", 1] * 12 if plan.scrubs else [1] * 12)
    plan.close()
