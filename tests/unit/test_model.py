"""Predictions held against measurements: errors, choices, the files that keep the two kinds apart."""

import csv
import io
from dataclasses import replace

import pytest

from ddlbench.cost.network import Placement
from ddlbench.errors import DdlbenchError, UsageError
from ddlbench.lab.spec import Rate
from ddlbench.model import launches, writing
from ddlbench.model.launches import Shape, pairs
from ddlbench.model.pairing import Measured, Pair, Predicted, agreements
from ddlbench.model.tables import Seen, by_size, summary, verdict, worst
from ddlbench.records import Point
from machines import machine, price

GIGABIT = Rate.parse("1gbit")


def pair(algorithm, measured, predicted, nbytes=1024, shape="4x1"):
    seen = Measured(measured, 0.9 * measured, 1.1 * measured, 20)
    return Pair(shape, algorithm, nbytes, seen, Predicted(predicted, {"latency": 3.0, "cards": 5.0}))


MADE = [
    pair("ring", 100.0, 110.0),
    pair("direct", 104.0, 90.0),  # chosen, and 4 % behind the best: right
    pair("ring", 200.0, 150.0, 4096),  # chosen, and a third behind: wrong
    pair("direct", 150.0, 160.0, 4096),
    pair("ring", 50.0, 50.0, shape="8x1"),
]


def test_errors_are_of_what_was_measured_and_choices_of_what_was_predicted():
    first, second, whole = agreements(MADE)
    assert [one.shape for one in (first, second, whole)] == ["4x1", "8x1", "all"]
    assert sorted(round(one.error, 4) for one in first.pairs) == [-0.25, -0.1346, 0.0667, 0.1]
    assert first.median == pytest.approx((0.1 + 14 / 104) / 2)
    assert first.bias == pytest.approx((1 / 15 - 14 / 104) / 2)
    assert (first.worst.algorithm, first.worst.nbytes) == ("ring", 4096)
    assert [(one.predicted, one.measured, one.right) for one in first.choices] == [
        ("direct", "ring", True),
        ("ring", "direct", False),
    ]
    assert (first.chosen, second.chosen, whole.chosen) == (0.5, 1.0, pytest.approx(2 / 3))


@pytest.mark.parametrize(
    ("made", "reached"),
    [
        ([pair("ring", 100.0, 109.0)], True),
        ([pair("ring", 100.0, 111.0)], False),  # the median
        (
            [pair("ring", 100.0, 100.0), pair("ring", 100.0, 100.0, 8), pair("ring", 100.0, 69.0, 16)],
            False,
        ),  # the worst
        ([pair("ring", 100.0, 99.0), pair("direct", 94.0, 100.0)], False),  # the choice
    ],
)
def test_goals_are_reached_together_or_not_at_all(made, reached):
    assert agreements(made)[-1].reached is reached


def test_nothing_to_compare_is_no_agreement():
    with pytest.raises(DdlbenchError, match="no point was both measured and predicted"):
        agreements([])


def seen():
    return Seen(agreements(MADE), {"4x1": machine(4), "8x1": machine(8)})


def test_every_time_has_a_row_of_its_kind():
    rows = list(csv.DictReader(io.StringIO(writing.points_csv(MADE))))
    assert [row["kind"] for row in rows] == ["measured", "predicted"] * len(MADE)
    assert all(row["statistic"] == ("median" if row["kind"] == "measured" else "predicted") for row in rows)
    assert not any(row["samples"] or row["time_us_ci_low"] for row in rows if row["kind"] == "predicted")
    assert (rows[1]["bound_us"], rows[1]["binds"], rows[1]["bound_latency_us"]) == ("5.000", "cards", "3.000")
    joined = list(csv.DictReader(io.StringIO(writing.errors_csv(MADE))))
    assert joined[0]["measured_us"] == "100.000"
    assert (joined[0]["predicted_us"], joined[0]["error"]) == ("110.000", "0.1000")


def test_the_tables_name_shape_goal_and_worst():
    assert "not reached" in verdict(seen())
    rows = {row[0]: row for row in summary(seen()).rows}
    assert rows["4x1"][6].startswith("ring, 4")
    assert rows["all"][1] == "5"
    assert [row[5] for row in by_size(seen()).rows] == ["yes", "no", "yes"]
    assert worst(seen()).rows[0][6] == "-25.0 %"


def test_the_page_shows_what_was_fitted_and_draws_the_errors(tmp_path):
    files = writing.write(seen(), tmp_path, ["busy: <load> of 9"])
    page = files[-1].read_text()
    assert "links as fitted on 8x1" in page
    assert "busy: &lt;load&gt; of 9" in page
    assert '"y":[10.0' in page.replace(" ", "")
    assert "</script>" in page


POINT = Point(
    algorithm="ring",
    nbytes=1 << 20,
    count=1 << 18,
    dtype="float32",
    op="sum",
    in_place=False,
    nodes=4,
    ranks_per_node="1",
    ranks=4,
    device="cpu",
    transport="p2p",
    sync="barrier",
    status="ok",
    samples_ns=(7_000_000,) * 8,
    passes=(8,),
)


def test_a_point_is_priced_with_the_fitted_links_of_its_shape():
    (one,) = pairs("4x1", machine(4), [POINT])
    assert one.measured.median_us == pytest.approx(7000)
    assert one.predicted.model_us == pytest.approx(1e6 * price("ring", machine(4), 1 << 20))
    assert one.predicted.binds == "bandwidth"


@pytest.mark.parametrize(
    "changes",
    [{"status": "wrong", "reason": "3 wrong elements"}, {"transport": "direct"}],
)
def test_what_is_wrong_or_was_no_messages_is_not_compared(changes, monkeypatch, tmp_path):
    (tmp_path / "small").mkdir()
    loaded = type("Loaded", (), {"points": [replace(POINT, **changes)]})
    monkeypatch.setattr(launches, "load", lambda _: loaded)
    with pytest.raises(DdlbenchError, match="ring at 1048576 B"):
        launches.points(tmp_path)


@pytest.mark.parametrize("text", ["4", "4x", "x2", "0x1", "4x2x1", "1x4", "four x 1"])
def test_a_shape_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="shape"):
        Shape.parse(text, GIGABIT)


def test_each_shape_is_fitted_before_it_is_measured_by_messages_alone(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(launches, "run", lambda command, *_, **__: ran.append(command))
    launches.measure(Shape.parse("4x2", GIGABIT), [1024, 1 << 20], 5, tmp_path / "4x2", lambda _: None)
    fit, small, large = ran
    assert fit[fit.index("--") :][4:6] == ["ddlbench", "fit"]
    assert all("--transport p2p" in " ".join(one) for one in (small, large))
    assert ("1024" in small, str(1 << 20) in large) == (True, True)
    assert all(one[one.index("--ranks-per-node") + 1] == "2" for one in ran)


def test_an_unfitted_topology_is_refused_by_its_path(tmp_path):
    with pytest.raises(UsageError, match=r"topology\.toml"):
        launches.topology(tmp_path)


def test_a_machine_with_more_ranks_than_the_launch_is_no_obstacle():
    (one,) = pairs("4x1", machine(8, 2), [POINT])
    assert one.predicted.model_us > 0
    assert Placement.on(machine(8, 2), 4, 1).ranks == POINT.ranks
