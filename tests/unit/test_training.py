"""An iteration of training, by hand: buckets, overlap, compute times, upgrades, and what others published."""

import pytest

from ddlbench.bench.workload import SHIPPED
from ddlbench.cost.network import Placement
from ddlbench.errors import UsageError
from ddlbench.training import published
from ddlbench.training.compute import given, read
from ddlbench.training.compute import published as published_time
from ddlbench.training.iteration import Bucket, buckets, iterate
from ddlbench.training.upgrades import upgrades
from machines import machine

COMPUTE = given(1.0, 4.0, 32)
ROWS = read(SHIPPED / "compute_times.tsv")


def test_tensors_become_ready_one_by_one_and_a_bucket_with_its_last():
    # Tensors of 10, 30, 20 and 40 elements in two buffers of 40 and 60.
    assert buckets([10, 30, 20, 40], [40, 60], 4) == [Bucket(160, 0.5), Bucket(240, 1.0)]
    assert buckets([10, 30, 20, 40], [40, 60], 4, "size") == [Bucket(160, 0.4), Bucket(240, 1.0)]
    assert [part.ready for part in buckets([1, 1, 1, 1], [1, 1, 1, 1], 4)] == [0.25, 0.5, 0.75, 1.0]


def test_communication_that_ends_before_the_last_gradient_is_hidden():
    # Forward ends at 1; buckets are ready at 2, 3, 4 and 5, and each takes 0.5: only the last is exposed.
    parts = buckets([1, 1, 1, 1], [1, 1, 1, 1], 4)
    found = iterate(parts, COMPUTE, lambda _: 0.5)
    assert (found.seconds, found.communication_s, found.exposed_s) == (5.5, 2.0, 0.5)


def test_communication_that_is_slower_than_the_gradients_queues_up():
    # Ready at 2, done at 4, 6, 8 and 10.
    found = iterate(buckets([1, 1, 1, 1], [1, 1, 1, 1], 4), COMPUTE, lambda _: 2.0)
    assert (found.seconds, found.exposed_s) == (10.0, 5.0)


def test_without_overlap_all_communication_is_exposed():
    found = iterate(buckets([1, 1], [1, 1], 4), COMPUTE, lambda _: 0.5, overlap=False)
    assert (found.seconds, found.exposed_s) == (6.0, 1.0)


def test_no_communication_takes_the_time_of_the_computation():
    assert iterate(buckets([1], [1], 4), COMPUTE, lambda _: 0.0).seconds == COMPUTE.seconds == 5.0


def test_a_published_time_is_taken_with_its_source_and_its_assumption():
    found = published_time(ROWS, "resnet50", "Tesla P100", None)
    assert found.batch == 64
    assert found.seconds == pytest.approx(64 * 4.566e-3)
    assert found.backward_s / found.seconds == pytest.approx(68.54 / (35.03 + 68.54))
    assert "source C" in found.source
    assert "66% of it backward, as on Pascal Titan X" in found.source


def test_a_published_time_of_another_batch_is_scaled_and_says_so():
    assert published_time(ROWS, "resnet50", "Tesla P100", 32).seconds == pytest.approx(32 * 5.128e-3)
    scaled = published_time(ROWS, "resnet50", "Tesla P100", 128)
    assert scaled.seconds == pytest.approx(128 * 4.566e-3)
    assert "scaled from 64 samples to 128" in scaled.source


def test_where_nobody_measured_the_passes_apart_two_thirds_are_backward_and_called_an_estimate():
    found = published_time(ROWS, "mobilenet_v2", "RTX 3090", None)
    assert found.backward_s == pytest.approx(found.seconds * 2 / 3)
    assert "(estimate)" in found.source


def test_a_time_that_nobody_published_is_not_made_up():
    with pytest.raises(UsageError, match=r"'resnet101' on 'Tesla P100' is known; there are times of it on GTX 1080 Ti"):
        published_time(ROWS, "resnet101", "Tesla P100", None)
    with pytest.raises(UsageError, match=r"'gpt2' on this machine, whose topology names no device.*--forward-ms"):
        published_time(ROWS, "gpt2", "", None)


def test_a_table_of_compute_times_that_is_none_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "none.tsv")
    (tmp_path / "bad.tsv").write_text("model\tgpu\nresnet50\tP100\n")
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "bad.tsv")


def test_the_upgrade_that_pays_is_the_one_that_binds():
    on = machine(8, 2, adding=1e12, node_bandwidth=1e12, nic_bandwidth=1e9, overhead=1e-6)
    parts, compute = [Bucket(10_000_000, 1.0)], given(0.0, 1e-3, 1)
    placement = Placement.on(on, 8, 2)
    found = upgrades(on, placement, ["hierarchical"], lambda seconds: iterate(parts, compute, seconds))
    assert {found[0].name, found[1].name} == {"nic.bandwidth", "nic.count"}
    assert (found[0].now, found[0].then) in (("1 GB/s", "2 GB/s"), ("1", "2"))
    names = {upgrade.name for upgrade in found}
    assert names >= {"nic.latency", "node.bandwidth", "rank.reduction", "rank.message_overhead"}
    assert not any(name.startswith("shape") for name in names)


def test_published_results_are_those_of_the_table_and_no_more():
    rows = published.of_model(published.read(), "resnet50")
    assert {row.model for row in rows} == {"ResNet-50"}
    (efficiency,) = [row for row in rows if row.system == "PowerAI DDL" and row.is_efficiency]
    assert (efficiency.value, efficiency.gpus, efficiency.nodes) == ("95", "256", "64")
    assert all(row.source for row in rows)
    assert published.of_model(published.read(), "mobilenet_v2") == []


def test_a_table_of_published_results_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none.csv' cannot be read"):
        published.read(tmp_path / "none.csv")
