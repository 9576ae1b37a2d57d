"""The samples that a page holds: what they read back as, and what is left of them when there are too many."""

import math

import numpy as np
import pytest

import synthetic
from ddlbench.records import Loaded
from ddlbench.report import html as html_module
from ddlbench.report.html import render
from ddlbench.report.payload import samples_payload
from ddlbench.report.runs import Runs
from ddlbench.report.samples import FEWEST, LEVELS, SIGNS, ceiling, encoded, kept, lateness
from report_page import Page

CODES = {sign: code for code, sign in enumerate(SIGNS.tobytes().decode())}
PLENTY = 10**7


def decoded(text: str) -> np.ndarray:
    """The numbers between 0 and 1 in a text, as the page's script reads them."""
    pairs = zip(text[::2], text[1::2], strict=True)
    return np.array([64 * CODES[high] + CODES[low] for high, low in pairs]) / (LEVELS - 1)


def times(text: str, point) -> np.ndarray:
    """The samples in nanoseconds that a text of `drawn` stands for."""
    fastest, slowest = min(point.samples_ns), max(point.samples_ns)
    return fastest * (slowest / fastest) ** decoded(text)


def sampled(samples_ns, **changes):
    return synthetic.point(samples_ns=tuple(map(int, samples_ns)), **changes)


def test_levels_read_back_to_a_part_in_four_thousand():
    levels = np.linspace(0, 1, 1000)
    np.testing.assert_allclose(decoded(encoded(levels)), levels, atol=0.5 / (LEVELS - 1) + 1e-12)
    assert encoded(np.array([0.0, 1.0])) == "AA__"


def test_samples_read_back_in_order_to_a_thousandth_however_long_the_tail():
    samples = np.random.default_rng(1).exponential(1e4, 500) + 1000
    samples[7] = 1e6
    point = sampled(samples)
    np.testing.assert_allclose(times(kept([point], PLENTY).drawn[0], point), point.samples_ns, rtol=1e-3)


def test_samples_that_are_all_alike_or_nothing_read_back():
    assert decoded(kept([sampled([5000] * 3)], PLENTY).drawn[0]).tolist() == [0, 0, 0]
    assert decoded(kept([sampled([0, 0])], PLENTY).drawn[0]).tolist() == [0, 0]
    assert kept([sampled([])], PLENTY).drawn == [""]


@pytest.mark.parametrize(
    ("sizes", "budget", "cap"),
    [
        ([], 5, 0),
        ([3, 4], 7, 4),
        ([3, 4], 6, 3),
        ([1, 10, 10], 11, 5),
        ([100, 1, 1, 1], 13, 10),
        ([5, 5], 0, 0),
        ([5], -9, 0),
    ],
)
def test_the_ceiling_is_the_highest_that_keeps_to_the_budget(sizes, budget, cap):
    assert ceiling(sizes, budget) == cap


def test_the_ceiling_never_exceeds_the_budget_and_leaves_no_room_for_one_more():
    random = np.random.default_rng(3)
    for _ in range(200):
        sizes = random.integers(0, 50, random.integers(1, 12)).tolist()
        budget = int(random.integers(0, sum(sizes) + 1))
        cap = ceiling(sizes, budget)
        spent = [sum(min(size, most) for size in sizes) for most in (cap, cap + 1)]
        assert spent[0] <= budget
        assert cap == max(sizes) or spent[1] > budget


def test_points_with_many_samples_keep_order_statistics_and_the_quartiles_of_passes():
    few = sampled(range(1000, 1020))
    long = sampled([*range(1000, 2000), *range(3000, 4000)], passes=(1000, 1000))
    held = kept([few, long], 240)
    assert (held.thinned, held.dropped) == (1, 0)
    assert len(held.drawn[0]) == 2 * 20
    assert held.quartiles[0] == ""
    statistics = times(held.drawn[1], long)
    assert (statistics[0], statistics[-1]) == pytest.approx((1000, 3999))
    assert np.all(np.diff(statistics) > 0)
    share = np.arange(len(statistics)) / (len(statistics) - 1)
    np.testing.assert_allclose(statistics, np.quantile(long.samples_ns, share), rtol=2e-2)
    np.testing.assert_allclose(
        times(held.quartiles[1], long), [1249.75, 1499.5, 1749.25, 3249.75, 3499.5, 3749.25], rtol=1e-3
    )


def test_without_room_a_point_keeps_nothing_and_is_counted():
    points = [sampled(range(1000, 1100))] * 5
    held = kept(points, 2 * 5 * (FEWEST - 1))
    assert (held.dropped, held.thinned) == (5, 0)
    assert held.drawn == [""] * 5
    assert kept(points, 0).dropped == 5


def test_what_is_kept_stays_within_the_room():
    random = np.random.default_rng(5)
    points = [
        sampled(
            random.integers(1000, 9000, count),
            per_rank_ns=tuple(map(tuple, random.integers(1, 900, (8, count)).tolist())),
        )
        for count in (10, 100, 1000, 300)
    ]
    for room in (0, 100, 1000, 5000, 20_000, 10**6):
        held = kept(points, room)
        spent = sum(map(len, held.drawn)) + sum(map(len, held.quartiles))
        assert spent + sum(len(found[3]) for found in held.maps if found) <= room
    assert held.thinned == held.unmapped == 0


# Lateness


def test_lateness_is_the_time_over_that_of_the_fastest_rank():
    rows, columns, greatest, cells, laggard, share = lateness(np.array([[1000.0, 5000], [3000, 1000]]), 240)
    assert (rows, columns, greatest) == (2, 2, 4.0)
    np.testing.assert_allclose(greatest * decoded(cells) ** 2, [0, 4, 2, 0], rtol=1e-3)
    assert share == 0.5
    assert laggard == 0


def test_the_rank_that_is_slowest_most_often_is_named():
    late = np.full((5, 100), 1000.0)
    late[3, :60] = 2000
    late[1, 60:] = 1500
    assert lateness(late, 240)[4:] == [3, 0.6]
    assert lateness(np.full((5, 100), 1000.0), 240)[4:] == [0, 0.0], "nobody is slower than anybody"


def test_many_samples_are_drawn_as_means_and_many_ranks_as_the_latest_of_several():
    late = np.ones((128, 480))
    late[5, 10] = 9001
    rows, columns, greatest, cells, *_ = lateness(late, 240)
    assert (rows, columns) == (64, 240)
    levels = (greatest * decoded(cells) ** 2).reshape(rows, columns)
    assert levels[2, 5] == pytest.approx(9.0 / 2, rel=1e-3)
    assert np.count_nonzero(levels) == 1


@pytest.mark.parametrize("lists", [None, (), ((1, 2),), ((1, 2), (3,)), ((), ())])
def test_times_of_ranks_that_are_not_all_there_make_no_map(lists):
    held = kept([sampled([1000, 2000], per_rank_ns=lists)], PLENTY)
    assert held.maps == [None]
    assert held.unmapped == 0


def test_maps_without_room_are_counted():
    point = sampled([1000] * 50, per_rank_ns=((1000,) * 50,) * 8)
    assert kept([point] * 20, 400).unmapped == 20


# In the page


def test_the_samples_stand_in_the_order_of_the_rows():
    points = [
        sampled([3000] * 6, algorithm="swing", nbytes=8, passes=(6,)),
        sampled([9000, 18_000], algorithm="ring", nbytes=64, passes=(1, 1)),
        sampled([5000] * 6, algorithm="ring", nbytes=8, passes=(6,)),
    ]
    runs = Runs.of(Loaded(synthetic.run(), tuple(points), []))
    found = samples_payload(runs, kept(runs.points, PLENTY))
    (setting,) = found["settings"]
    assert setting["drawn"] == ["A" * 12, "A" * 12, "AA__"]
    assert [found["passes"][at] for at in setting["passes"]] == [(6,), (6,), (1, 1)]
    assert (setting["quartiles"], setting["maps"]) == (None, None)


def page(points, monkeypatch, limit: int) -> Page:
    monkeypatch.setattr(html_module, "_plotly", lambda: "")
    monkeypatch.setattr(html_module, "LIMIT", limit)
    source = render(Loaded(synthetic.run(), tuple(points), []))
    assert len(source.encode()) <= max(limit, 150_000)
    return Page(source)


def test_a_page_with_room_has_all_samples_and_says_nothing_of_it(monkeypatch):
    found = page(synthetic.points(count=50), monkeypatch, 10**6)
    assert all(len(text) == 100 for text in found.data("held")["settings"][0]["drawn"])
    assert "leaves out samples" not in found.text


def test_a_page_without_room_thins_its_samples_and_says_so(monkeypatch):
    points = synthetic.points(count=400)
    found = page(points, monkeypatch, 200_000)
    lengths = {len(text) for text in found.data("held")["settings"][0]["drawn"]}
    assert 2 * FEWEST <= max(lengths) < 800
    assert f"of {len(points)} points with many it keeps order statistics" in " ".join(found.text.split())


def test_an_overfull_page_leaves_samples_out_and_says_so(monkeypatch):
    points = synthetic.points(count=40)
    found = page(points, monkeypatch, 1000)
    assert set(found.data("held")["settings"][0]["drawn"]) == {""}
    assert f"Of {len(points)} points it keeps none." in " ".join(found.text.split())


def test_the_slowest_sample_stands_with_the_rows():
    points = [sampled([1000, 2000, 7000])]
    runs = Runs.of(Loaded(synthetic.run(), tuple(points), []))
    assert runs.table["time_us_max"].tolist() == [7.0]
    assert math.isnan(Runs.of(Loaded(synthetic.run(), (sampled([]),), [])).table["time_us_max"][0])
