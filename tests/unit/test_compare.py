"""Comparing two runs: the interval, the test, the verdicts, what is refused, and the exit status of the guard."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest

import synthetic
from ddlbench.cli import main
from ddlbench.compare import COLUMNS, Margin, compare, comparison_table
from ddlbench.compare import shift as shift_module
from ddlbench.compare.comparison import SIGNIFICANCE, _adjusted
from ddlbench.compare.pairing import pairs
from ddlbench.compare.shift import interval_rank, shift
from ddlbench.errors import UsageError
from ddlbench.records import Loaded, Stated

KIB, MIB = 2**10, 2**20
FIVE = Margin(0.05)


def noisy(random, count, *, spread=0.03, memory=0.0, slow=0.0, time_us=100.0):
    """Samples in nanoseconds about `time_us`: a skewed spread, with the `memory` of a first-order process.

    `slow` is the share of time the machine spends in slow spells, 30 % slower, of about 20 samples each.
    """
    state = random.normal(size=count)
    for at in range(1, count):
        state[at] = memory * state[at - 1] + math.sqrt(1 - memory**2) * state[at]
    skewed = np.exp(spread * state) + spread * np.maximum(state, 0)
    if slow:
        flips = random.random(count)
        in_spell = random.random() < slow
        for at in range(count):
            in_spell = flips[at] > 0.05 if in_spell else flips[at] < 0.05 * slow / (1 - slow)
            skewed[at] *= 1.3 if in_spell else 1.0
    return tuple(int(value) for value in time_us * 1000 * skewed)


def run_of(points, problems=(), **changes):
    return Loaded(synthetic.run(**changes), tuple(points), list(problems))


def sweep(seed, sizes=8, factor=None, **noise):
    """A run of one algorithm over some sizes; `factor` says by how much a size is slower."""
    random = np.random.default_rng(seed)
    made = []
    for at in range(sizes):
        times = (factor or {}).get(at, 1.0) * 100
        made.append(synthetic.point(nbytes=8 << at, samples_ns=noisy(random, time_us=times, **noise)))
    return run_of(made)


def verdicts(base, new, margin=FIVE, **options):
    return [finding.verdict for finding in compare(base, new, margin, **options).findings]


# The ratio, its interval and the test


def test_the_ratio_is_that_of_the_medians():
    found = shift([3000, 1000, 2000, 9000, 2500, 1500, 2200, 1800], [6000, 2000, 4000, 4400, 5000, 3000, 40000, 3600])
    assert found.ratio == pytest.approx(4200 / 2100)


@pytest.mark.parametrize(("base", "new", "rank"), [(5, 5, 3), (8, 8, 14), (10, 10, 24), (12, 12, 38), (8, 12, 23)])
def test_the_interval_takes_the_differences_that_the_published_tables_of_the_rank_sum_test_give(base, new, rank):
    assert interval_rank(base, new) == interval_rank(new, base) == rank


def test_the_interval_holds_the_ratio_and_is_the_same_again():
    random = np.random.default_rng(1)
    for count in (8, 9, 13, 40, 300):
        base, new = noisy(random, count), noisy(random, count + 3)
        found = shift(base, new)
        assert found.low <= found.ratio <= found.high
        assert shift(base, new) == found


def test_swapping_the_runs_inverts_the_ratio_and_keeps_the_test():
    random = np.random.default_rng(2)
    base, new = noisy(random, 50), noisy(random, 70, time_us=104)
    there, back = shift(base, new), shift(new, base)
    assert (back.ratio, back.low, back.high) == pytest.approx((1 / there.ratio, 1 / there.high, 1 / there.low))
    assert back.p == pytest.approx(there.p)


def test_under_eight_samples_only_the_ratio_is_told():
    few, many = [1000] * 7, [2000] * 50
    assert [shift(few, many).known, shift(many, few).known] == [False, False]
    assert shift(few, many).ratio == 2
    assert shift([*few, 1000], many).known


def test_without_samples_there_is_no_ratio():
    assert math.isnan(shift([], [1]).ratio)
    assert math.isnan(shift([1], []).ratio)


@pytest.mark.parametrize(
    ("base", "new", "ratio", "p"),
    [([0] * 20, [0] * 30, 1, 1), ([500] * 20, [500] * 20, 1, 1), ([2] * 8, [1000] * 8, 500, 0)],
)
def test_samples_without_any_spread_are_equal_or_certainly_different(base, new, ratio, p):
    found = shift(base, new)
    assert (found.ratio, found.low, found.high, found.p) == pytest.approx((ratio, ratio, ratio, p))


def coverage(seed, runs=500, **noise):
    """How often the interval holds a ratio of 1.1, and how often equal times pass for different ones."""
    random = np.random.default_rng(seed)
    held, alarms, naive = [], [], []
    from scipy.stats import mannwhitneyu

    for _ in range(runs):
        base = np.array(noisy(random, **noise))
        slower, alike = (np.array(noisy(random, **noise)) for _ in range(2))
        found = shift(base, np.rint(slower * 1.1).astype(int))
        held.append(found.low <= 1.1 <= found.high)
        alarms.append(shift(base, alike).p < 0.05)
        naive.append(mannwhitneyu(base, alike).pvalue < 0.05)
    return np.mean(held), np.mean(alarms), np.mean(naive)


@pytest.mark.parametrize("count", [12, 20, 100])
def test_the_interval_holds_the_true_ratio_of_independent_samples_as_often_as_it_says(count):
    held, alarms, _ = coverage(3, count=count)
    assert 0.93 <= held <= 0.995
    assert alarms <= 0.06


@pytest.mark.parametrize(
    "noise", [{"count": 100, "memory": 0.7}, {"count": 300, "memory": 0.9}, {"count": 300, "slow": 0.3}]
)
def test_the_interval_and_the_test_hold_for_samples_that_resemble_their_neighbours(noise):
    held, alarms, naive = coverage(4, **noise)
    assert 0.92 <= held <= 0.99
    assert alarms <= 0.08
    assert naive > 0.25, "data that fool nobody test nothing"


def test_the_interval_of_independent_samples_is_hardly_wider_than_the_differences_of_their_medians_spread():
    random = np.random.default_rng(5)
    found = [shift(noisy(random, 100), noisy(random, 100)) for _ in range(200)]
    spread = np.std([math.log(one.ratio) for one in found])
    width = np.median([math.log(one.high / one.low) for one in found]) / 2
    assert 1.8 * spread < width < 2.8 * spread


# Many points


def test_p_values_are_adjusted_as_benjamini_and_hochberg_published_it():
    published = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719]
    published += [0.6528, 0.7590, 1.0000]
    assert sum(p < SIGNIFICANCE for p in _adjusted(published)) == 4
    assert _adjusted([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04] * 4)


def false_alarms(**noise):
    """How many of 100 comparisons of equal runs call any point different."""
    alarms = 0
    for seed in range(100):
        base, new = (sweep(seed + start, sizes=6, **{"count": 120, **noise}) for start in (1000, 2000))
        alarms += bool({"slower", "faster"} & set(verdicts(base, new, Margin(0.01))))
    return alarms


@pytest.mark.parametrize("noise", [{"memory": 0.0}, {"memory": 0.8}, {"slow": 0.2, "count": 300}])
def test_equal_runs_on_a_noisy_machine_are_called_different_in_at_most_one_of_twenty_comparisons(noise):
    assert false_alarms(**noise) <= 5


def test_that_promise_is_kept_by_minding_how_samples_resemble_their_neighbours(monkeypatch):
    blind = shift_module._Series
    monkeypatch.setattr(shift_module, "_Series", lambda logs, medians, *_: blind(logs, medians))
    assert false_alarms(memory=0.9) > 20


def test_the_same_algorithm_under_two_names_is_the_same_in_nine_of_ten_points():
    found = verdicts(sweep(1, sizes=40, count=200, memory=0.5), sweep(2, sizes=40, count=200, memory=0.5))
    assert found.count("same") >= 36
    assert set(found) <= {"same", "unclear"}


@pytest.mark.parametrize("noise", [{"count": 20}, {"count": 200, "memory": 0.6}, {"count": 1000, "slow": 0.2}])
def test_a_slowdown_of_a_tenth_at_one_point_of_many_is_found(noise):
    found = verdicts(sweep(1, sizes=30, **noise), sweep(2, sizes=30, factor={7: 1.15}, **noise))
    assert [at for at, verdict in enumerate(found) if verdict == "slower"] == [7]


def test_a_slowdown_of_a_tenth_at_every_point_is_found():
    base, new = sweep(1, count=60), sweep(2, factor=dict.fromkeys(range(8), 1.1), count=60)
    assert verdicts(base, new) == ["slower"] * 8
    assert verdicts(new, base) == ["faster"] * 8


# Verdicts


def test_a_difference_within_the_margin_is_the_same_even_when_it_is_certain():
    base, new = (
        sweep(1, count=400, spread=0.005),
        sweep(2, count=400, spread=0.005, factor=dict.fromkeys(range(8), 1.02)),
    )
    found = compare(base, new, FIVE).findings
    assert {one.verdict for one in found} == {"same"}
    assert max(one.p for one in found) < 0.001


def test_an_interval_wider_than_the_margin_shows_neither_difference_nor_equality():
    found = compare(sweep(1, count=20, spread=0.3), sweep(2, count=20, spread=0.3), FIVE).findings
    assert {(one.verdict, one.why) for one in found} == {("unclear", "interval reaches beyond 5 %")}


def test_a_certain_difference_about_as_large_as_the_margin_is_unclear_and_says_so():
    base, new = sweep(1, count=200, spread=0.02), sweep(2, count=200, spread=0.02, factor=dict.fromkeys(range(8), 1.05))
    doubts = {one.why for one in compare(base, new, FIVE).findings if one.verdict == "unclear"}
    assert doubts == {"slower, perhaps by less than 5 %"}


def test_a_difference_that_its_test_does_not_bear_out_among_many_points_is_unclear():
    """Of forty points, one reaches p = 0.006 by chance in every fourth comparison."""
    noise = {"count": 8, "spread": 0.02}
    base, new = (sweep(seed, sizes=40, factor=slow, **noise) for seed, slow in ((1, {}), (2, {3: 1.25})))
    odd = compare(base, new, FIVE).findings[3]
    assert odd.shift.low > 1.05
    assert odd.shift.p < 0.01
    assert (odd.verdict, odd.why) == ("unclear", "may be chance among so many points")
    alone = compare(run_of(base.points[3:4]), run_of(new.points[3:4]), FIVE).findings[0]
    assert alone.verdict == "slower"


def test_a_time_twice_as_long_is_slower_even_on_a_machine_that_drifts_all_the_while():
    drifting = synthetic.point(samples_ns=tuple(range(10_000, 10_200, 10)))
    base = run_of([replace(drifting, nbytes=8 << at) for at in range(30)])
    new = run_of([*base.points[:-1], *slower(base.points[-1:], 2)])
    assert verdicts(base, new)[-1] == "slower"


def test_slower_and_faster_need_the_whole_interval_beyond_the_margin():
    factors = dict(enumerate(np.linspace(0.88, 1.14, 27)))
    base = sweep(1, sizes=27, count=100, spread=0.02)
    found = compare(base, sweep(2, sizes=27, count=100, spread=0.02, factor=factors), FIVE).findings
    seen = {verdict: [one for one in found if one.verdict == verdict] for verdict in ("slower", "faster", "unclear")}
    assert all(seen.values())
    assert min(one.shift.low for one in seen["slower"]) > 1.05
    assert max(one.shift.high for one in seen["faster"]) < 1 / 1.05
    assert any(one.shift.ratio > 1.05 > one.shift.low for one in seen["unclear"])
    assert any(one.shift.ratio < 1 / 1.05 < one.shift.high for one in seen["unclear"])


def test_the_margin_is_the_same_both_ways():
    assert 1 / FIVE.low == pytest.approx(FIVE.high) == pytest.approx(1.05)


# Which points are compared


def test_points_are_paired_by_their_setting_and_sorted_by_size_then_algorithm():
    made = [
        synthetic.point(algorithm, nbytes, dtype=dtype, in_place=place)
        for dtype in ("int32", "float32")
        for algorithm in ("swing", "ring")
        for nbytes in (4096, 64)
        for place in (False, True)
    ]
    found = pairs(made, reversed(made))
    assert all(pair.base == pair.new for pair in found)
    assert [(pair.point.nbytes, pair.point.algorithm) for pair in found[::4]] == [
        (64, "ring"),
        (64, "swing"),
        (4096, "ring"),
        (4096, "swing"),
    ]
    assert len(found) == 16


def test_warm_and_cold_times_of_one_run_are_kept_apart():
    warm, cold = synthetic.point(cache="warm"), synthetic.point(cache="cold")
    assert [(pair.base, pair.new) for pair in pairs([warm, cold], [cold, warm])] == [(cold, cold), (warm, warm)]


def test_of_a_point_measured_twice_the_later_counts():
    first, second = synthetic.point(samples_ns=(1,)), synthetic.point(samples_ns=(2,))
    (pair,) = pairs([first, second], [first])
    assert (pair.base, pair.new) == (second, first)


def test_the_transport_may_be_what_is_compared_but_never_mixes_within_a_run():
    messages, memory = synthetic.point(transport="p2p"), synthetic.point(transport="direct")
    assert len(pairs([messages], [memory])) == 1
    both = pairs([messages, memory], [memory, messages])
    assert [(pair.base, pair.new) for pair in both] == [(memory, memory), (messages, messages)]
    unplanned = synthetic.point(transport="", status="failed", samples_ns=())
    assert len(pairs([unplanned, messages], [memory])) == 1
    assert [(pair.base, pair.new) for pair in pairs([messages, memory], [memory])] == [
        (memory, memory),
        (messages, None),
    ]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (None, "missing in NEW"),
        ({"status": "failed", "reason": "MPI_ERR_TRUNCATE", "samples_ns": ()}, "failed in NEW: MPI_ERR_TRUNCATE"),
        ({"status": "wrong", "reason": "", "wrong": 3}, "wrong in NEW"),
        ({"status": "skipped", "reason": "no bfloat16", "samples_ns": ()}, "skipped in NEW: no bfloat16"),
    ],
)
def test_a_point_that_is_right_in_one_run_only_is_lost_or_gained(changes, why):
    kept, good = synthetic.point(nbytes=8), synthetic.point(nbytes=64)
    bad = [] if changes is None else [replace(good, **changes)]
    there = compare(run_of([kept, good]), run_of([kept, *bad]), FIVE).findings[1]
    back = compare(run_of([kept, *bad]), run_of([kept, good]), FIVE).findings[1]
    assert (there.verdict, there.why) == ("lost", why)
    assert (back.verdict, back.why) == ("gained", why.replace("NEW", "BASE"))


@pytest.mark.parametrize("anyway", [False, True])
def test_a_point_whose_starts_fell_back_on_barriers_is_neither_lost_nor_compared(anyway):
    kept, window = synthetic.point(nbytes=8, sync="window"), synthetic.point(nbytes=64, sync="window")
    barrier = replace(window, sync="barrier", transport="direct", samples_ns=(9,) * len(window.samples_ns))
    found = compare(run_of([kept, window]), run_of([kept, barrier]), FIVE, anyway=anyway).findings
    assert [(one.verdict, one.pair.base.sync, one.pair.new.sync) for one in found] == [
        ("same", "window", "window"),
        ("unclear", "window", "barrier"),
    ]
    assert found[1].why == "starts from a window in BASE, from a barrier in NEW"
    failed = replace(barrier, status="failed", reason="no room", samples_ns=())
    lost = compare(run_of([kept, window]), run_of([kept, failed]), FIVE).findings[1]
    assert (lost.verdict, lost.why) == ("lost", "failed in NEW: no room")


def test_both_ways_to_start_in_one_run_are_two_points():
    window, barrier = synthetic.point(sync="window"), synthetic.point(sync="barrier")
    other = synthetic.point(nbytes=8, sync="window")
    assert [pair.torn for pair in pairs([window, barrier, other], [barrier, other])] == [False, False, False]


def test_a_point_that_is_right_in_neither_run_is_only_counted():
    kept, bad = synthetic.point(), synthetic.point("swing", status="failed", samples_ns=())
    found = compare(run_of([kept, bad]), run_of([kept, bad]), FIVE)
    assert (len(found.findings), found.neither) == (1, 1)


def test_imported_means_have_a_ratio_and_no_verdict():
    def imported(mean_us):
        return synthetic.point(kind="imported", sync="", samples_ns=(), stated=Stated(mean_us=mean_us))

    measured = synthetic.point(samples_ns=(10_000,) * 20)
    for base, new, ratio in (
        (imported(10), imported(15), 1.5),
        (measured, imported(20), 2),
        (imported(5), measured, 2),
    ):
        (found,) = compare(run_of([base]), run_of([new]), FIVE).findings
        assert (found.verdict, found.why) == ("unclear", "no samples")
        assert found.shift.ratio == pytest.approx(ratio)
        assert not found.shift.known


def test_too_few_samples_are_named_with_how_many_it_takes():
    few = synthetic.point(samples_ns=(1000,) * 5)
    (found,) = compare(run_of([few]), run_of([synthetic.point()]), FIVE).findings
    assert (found.verdict, found.why) == ("unclear", "too few samples: 5 and 20, 8 are needed")


# Which runs are compared

TOPOLOGY = synthetic.run().topology
ENVIRONMENT = synthetic.run().environment


@pytest.mark.parametrize(
    ("changes", "point", "parts"),
    [
        ({}, {"ranks": 8}, ("ranks: 4 in BASE, 8 in NEW",)),
        ({}, {"nodes": 4}, ("nodes: 2 in BASE, 4 in NEW",)),
        ({}, {"ranks_per_node": "4"}, ("ranks per node: 2 in BASE, 4 in NEW",)),
        ({}, {"sync": "window"}, ("synchronisation: barrier in BASE, window in NEW",)),
        ({}, {"device": "gpu"}, ("device: cpu in BASE, gpu in NEW",)),
        ({}, {"cache": "cold"}, ("cache: warm in BASE, cold in NEW",)),
        ({"topology": TOPOLOGY | {"node_of": [0, 1, 0, 1]}}, {}, ("placement", "0 0 1 1", "0 1 0 1")),
        ({"topology": TOPOLOGY | {"cpus": [[0], [1], [0], [1]]}}, {}, ("processors for a rank: 2 in BASE, 1 in NEW",)),
        ({"topology": TOPOLOGY | {"cpus": [[0, 1, 2, 3]] * 4}}, {}, ("node: 2 in BASE, 4 in NEW",)),
        ({"environment": ENVIRONMENT | {"processors": 64}}, {}, ("first host: 32 in BASE, 64 in NEW",)),
        ({"environment": ENVIRONMENT | {"processor": "POWER8"}}, {}, ("AMD EPYC 7543 in BASE, POWER8 in NEW",)),
        ({"mpi": {"library": "MPICH", "version": "5.0.2"}}, {}, ("MPI library: Open MPI in BASE, MPICH in NEW",)),
    ],
)
def test_runs_that_measured_something_else_are_refused_naming_the_difference_unless_anyway(changes, point, parts):
    base = run_of(synthetic.points(["ring"], [8, 64]))
    new = run_of(synthetic.points(["ring"], [8, 64], **point), **changes)
    with pytest.raises(UsageError, match="not comparable: ") as refused:
        compare(base, new, FIVE)
    assert [part for part in (*parts, "--anyway") if part not in str(refused.value)] == []
    assert len(verdicts(base, new, anyway=True)) == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"ddlbench": "9.9.9"}, "ddlbench: 0.1.0 in BASE, 9.9.9 in NEW"),
        ({"mpi": {"library": "Open MPI", "version": "6.0.0"}}, "MPI version: 5.0.11 in BASE, 6.0.0 in NEW"),
        ({"mpi": {"library": "Open MPI v6.0.0, package: x", "version": "5.0.11"}}, None),
        ({"topology": TOPOLOGY | {"hosts": ["n7", "n7", "n8", "n8"]}}, "hosts: node0, node1 in BASE, n7, n8 in NEW"),
        ({"topology": TOPOLOGY | {"cpus": [[2, 3]] * 4}}, None),
        ({"topology": {}, "environment": {}, "mpi": {}}, "OMP_NUM_THREADS: 1 in BASE, not set in NEW"),
        (
            {
                "environment": ENVIRONMENT
                | {"variables": {"OMP_NUM_THREADS": "1", "UCX_TLS": "tcp", "SLURM_JOB_ID": "7"}}
            },
            "UCX_TLS: not set in BASE, tcp in NEW",
        ),
    ],
)
def test_what_may_be_the_very_thing_compared_is_allowed_and_told(changes, told):
    found = compare(run_of([synthetic.point()]), run_of([synthetic.point()], **changes), FIVE)
    assert [str(change) for change in found.likeness.changes] == ([] if told is None else [told])


def test_points_that_could_be_confused_are_refused_even_anyway():
    base = run_of([synthetic.point(ranks=2), synthetic.point(ranks=4)])
    with pytest.raises(UsageError, match="ranks 2 and 4"):
        compare(base, run_of([synthetic.point(ranks=8)]), FIVE, anyway=True)


def test_runs_without_a_point_in_common_are_refused_naming_what_they_have():
    with pytest.raises(UsageError, match="algorithm ring in BASE, swing in NEW"):
        compare(run_of([synthetic.point("ring")]), run_of([synthetic.point("swing")]), FIVE)


def test_a_base_without_a_right_result_is_refused():
    failed = synthetic.point(status="failed", samples_ns=())
    for base in ([], [failed]):
        with pytest.raises(UsageError, match="BASE has no right result"):
            compare(run_of(base), run_of([synthetic.point()]), FIVE)


# Means and tables


def test_the_geometric_mean_of_an_algorithm_is_that_of_its_ratios():
    base = run_of([synthetic.point(name, nbytes) for name in ("ring", "swing") for nbytes in (8, 64)])
    factors = {("ring", 8): 2, ("ring", 64): 8, ("swing", 8): 1, ("swing", 64): 1}
    new = run_of(
        replace(point, samples_ns=tuple(factors[point.algorithm, point.nbytes] * s for s in point.samples_ns))
        for point in base.points
    )
    found = compare(base, new, FIVE)
    ring, swing = found.means()
    assert (ring.algorithm, ring.points, ring.ratio) == ("ring", 2, pytest.approx(4))
    assert (swing.algorithm, swing.ratio) == ("swing", pytest.approx(1))
    shifts = [finding.shift for finding in found.findings if finding.point.algorithm == "ring"]
    assert (ring.low, ring.high) == pytest.approx(
        (math.sqrt(shifts[0].low * shifts[1].low), math.sqrt(shifts[0].high * shifts[1].high))
    )


def test_a_mean_over_a_point_without_an_interval_has_none():
    base, few = synthetic.point(nbytes=8), synthetic.point(nbytes=64, samples_ns=(1000, 1000))
    (mean,) = compare(run_of([base, few]), run_of([base, few]), FIVE).means()
    assert mean.ratio == pytest.approx(1)
    assert math.isnan(mean.low)
    assert math.isnan(mean.high)


def test_the_table_has_a_row_for_each_point_and_figures_as_numbers():
    base = run_of([synthetic.point("ring", nbytes) for nbytes in (8, 64)])
    new = run_of([replace(base.points[0], samples_ns=tuple(2 * s for s in base.points[0].samples_ns))])
    table = comparison_table(compare(base, new, FIVE))
    assert tuple(table.columns) == COLUMNS
    assert table["ratio"][0] == pytest.approx(2)
    assert table["verdict"].tolist() == ["slower", "lost"]
    assert math.isnan(table["time_us_new"][1])


# The command


@pytest.fixture
def stored(tmp_path):
    """Give `stored(name, points, **changes)`: the directory of a run, as text."""
    return lambda name, points, **changes: str(synthetic.store(tmp_path / name, points, **changes))


def slower(points, factor):
    return [replace(point, samples_ns=tuple(int(factor * s) for s in point.samples_ns)) for point in points]


@pytest.fixture
def runs(stored):
    """Four runs of the same sweep: two alike, one with a slow algorithm, one that lost a point."""
    sizes = [KIB, MIB]
    first = synthetic.points(["ring", "swing"], sizes, seed=1, count=60)
    again = synthetic.points(["ring", "swing"], sizes, seed=2, count=60)
    return {
        "base": stored("base", first),
        "alike": stored("alike", again),
        "slow": stored("slow", [*again[:3], *slower(again[3:], 1.2)]),
        "fast": stored("fast", slower(again, 0.8)),
        "lost": stored(
            "lost", [*again[:3], replace(again[3], status="failed", reason="out\nof memory", samples_ns=())]
        ),
    }


@pytest.mark.parametrize(
    ("new", "limit", "status", "said"),
    [
        ("alike", "5%", 0, ""),
        ("fast", "5%", 0, ""),
        ("slow", "0.05", 1, "ddlbench: 1 point slower than BASE by more than 5 %: swing 1 MiB: 1.1"),
        ("slow", "50%", 0, ""),
        ("lost", "50%", 1, "ddlbench: 1 point lost since BASE: swing 1 MiB: failed in NEW: out of memory\n"),
    ],
)
def test_the_guard_fails_on_a_regression_and_says_which(runs, capsys, new, limit, status, said):
    assert main(["compare", runs["base"], runs[new], "--fail-if-slower", limit]) == status
    err = capsys.readouterr().err
    assert err.startswith(said)
    assert bool(err) == bool(said)


@pytest.mark.parametrize("new", ["alike", "slow", "lost"])
def test_without_the_guard_a_regression_is_shown_and_the_status_is_0(runs, capsys, new):
    assert main(["compare", runs["base"], runs[new]]) == 0
    assert capsys.readouterr().err == ""


def test_a_run_without_points_fails_the_guard_as_all_are_lost(runs, stored, capsys):
    assert main(["compare", runs["base"], stored("empty", []), "--fail-if-slower", "5%"]) == 1
    assert "4 points lost since BASE" in capsys.readouterr().err


def test_a_guard_that_can_see_nothing_is_refused(stored, capsys):
    few = [synthetic.point(samples_ns=(1000,) * 7)]
    base, new = stored("base", few), stored("new", few)
    assert main(["compare", base, new]) == 0
    capsys.readouterr()
    assert main(["compare", base, new, "--fail-if-slower", "5%"]) == 2
    assert "no point has samples enough" in capsys.readouterr().err


def test_a_guard_that_cannot_see_some_points_says_how_many(stored, capsys):
    points = [synthetic.point(), synthetic.point(nbytes=8, samples_ns=(1000,) * 7)]
    assert main(["compare", stored("base", points), stored("new", points), "--fail-if-slower", "5%"]) == 0
    assert capsys.readouterr().err == "ddlbench: warning: 1 point without what a verdict takes\n"


@pytest.mark.parametrize("text", ["5", "0", "-5%", "five", "", "5%%", "nan", "inf", "1e-2", "0%", "2000%", "٥%"])
@pytest.mark.parametrize("option", ["--fail-if-slower", "--margin"])
def test_a_wrong_fraction_is_refused_by_name(runs, capsys, option, text):
    assert main(["compare", runs["base"], runs["alike"], f"{option}={text}"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"ddlbench: error: {option} {text}")


@pytest.mark.parametrize(
    ("text", "fraction"),
    [("5%", 0.05), ("0.05", 0.05), (" 5 % ", 0.05), (".5%", 0.005), ("2.5%", 0.025), ("150%", 1.5)],
)
def test_a_fraction_is_read_as_it_is_written(text, fraction):
    assert Margin.parse(text, "--margin").fraction == pytest.approx(fraction)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--margin", "5%", "--fail-if-slower", "5%"], "give either"),
        (["--table", "markdwon"], "did you mean 'markdown'"),
        (["--csv", "no/such/folder/x.csv"], "no/such/folder"),
    ],
)
def test_other_mistakes_are_one_line(runs, capsys, arguments, part):
    assert main(["compare", runs["base"], runs["alike"], *arguments]) in (1, 2)
    err = capsys.readouterr().err
    assert part in err
    assert err.count("\n") == 1


def test_different_topologies_have_status_2_and_one_line(runs, stored, capsys):
    other = stored("other", synthetic.points(["ring"], [KIB], ranks=8), topology=TOPOLOGY | {"ranks": 8})
    assert main(["compare", runs["base"], other]) == 2
    assert "ranks: 4 in BASE, 8 in NEW" in capsys.readouterr().err
    assert main(["compare", runs["base"], other, "--anyway"]) == 0
    assert "# compared anyway: ranks: 4 in BASE, 8 in NEW" in capsys.readouterr().out


def test_the_screen_shows_a_row_for_each_point_and_the_worst_by_name(runs, capsys):
    assert main(["compare", runs["base"], runs["slow"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")][1:]
    assert [(row[0], row[1], row[2]) for row in rows] == [
        ("1", "KiB", "ring"),
        ("1", "KiB", "swing"),
        ("1", "MiB", "ring"),
        ("1", "MiB", "swing"),
    ]
    assert rows[3][-1] == "slower"
    assert any(line.startswith("# slower: swing 1 MiB: 1.") for line in lines)
    assert "\x1b" not in "".join(lines)


def test_the_worst_regression_is_named_first(stored, capsys):
    base = [synthetic.point(nbytes=8 << at) for at in range(8)]
    new = [slower([point], 1 + at / 5)[0] for at, point in enumerate(base)]
    assert main(["compare", stored("base", base), stored("new", new)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# slower:")]
    assert line.startswith("# slower: ring 1 KiB: 2.4")
    assert line.endswith("; and 2 more")


def test_a_terminal_gets_colours(runs, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert main(["compare", runs["base"], runs["slow"]]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.rstrip("\x1b[0m").endswith("slower")]
    assert row.startswith("\x1b[1;31m")


def test_a_name_that_would_steer_a_terminal_is_only_shown(stored, capsys):
    points = [synthetic.point("\x1b[2Jring\nx")]
    assert main(["compare", stored("base", points), stored("new", points)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[2Jring x" in out


def test_broken_lines_are_named_and_the_rest_is_compared(runs, capsys, tmp_path):
    with (tmp_path / "slow" / "points.jsonl").open("a") as lines:
        lines.write('{"version": 1, "ki')
    assert main(["compare", runs["base"], runs["slow"]]) == 0
    assert "points.jsonl line 5: cut off" in capsys.readouterr().err


def test_what_speaks_against_a_run_is_told(stored, capsys):
    points = [synthetic.point()]
    new = stored("new", points, trust=synthetic.flags(), finished=False)
    assert main(["compare", stored("base", points), new]) == 0
    out = capsys.readouterr().out
    assert "# to mind in NEW: oversubscribed: 4 ranks on 2 cores" in out
    assert "# to mind in NEW: the run did not finish; 1 point stored" in out


def test_the_csv_has_the_columns_it_says_and_plain_figures(runs, tmp_path):
    assert main(["compare", runs["base"], runs["lost"], "--csv", str(tmp_path / "out.csv")]) == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert (rows[0]["in_place"], rows[0]["samples_base"], rows[0]["verdict"]) == ("false", "60", "same")
    assert float(rows[0]["ratio_ci_low"]) < float(rows[0]["ratio"]) < float(rows[0]["ratio_ci_high"])
    assert (rows[3]["ratio"], rows[3]["verdict"], rows[3]["why"]) == ("", "lost", "failed in NEW: out of memory")


@pytest.mark.parametrize(("form", "row"), [("markdown", "| 1 MiB | swing |"), ("latex", "1 MiB & swing &")])
def test_the_table_can_be_had_for_a_page_or_a_paper(runs, capsys, form, row):
    assert main(["compare", runs["base"], runs["slow"], "--table", form]) == 0
    out = capsys.readouterr().out
    assert sum(line.startswith(row) for line in out.splitlines()) == 1
    assert "slower" in out
