"""What a run stores of its surroundings: an allow list, and the reasons not to trust its figures."""

import json
from dataclasses import replace

import pytest

from ddlbench.bench import environment as module
from ddlbench.bench.environment import TUNING, Ticks, allowed, clock_apart, environment, late, stolen, ticks, trust
from ddlbench.topology import Topology


def on_one_node(*cpus):
    return Topology(("node0",) * len(cpus), (0,) * len(cpus), tuple(cpus))


def flags(topology, load=0.0):
    return {flag.flag: flag.detail for flag in trust(topology, [load] * topology.ranks)}


def test_only_listed_variables_are_stored():
    secret = {"AWS_SECRET_ACCESS_KEY": "x", "HOME": "/root", "OMPI_MCA_orte_hnp_uri": "x", "PATH": "/bin"}
    listed = {"OMPI_MCA_coll_tuned_use_dynamic_rules": "1", "OMP_NUM_THREADS": "1", "SLURM_JOB_ID": "7"}
    assert allowed(secret | listed) == listed


def test_the_environment_is_json_and_says_what_was_run_on():
    stored = json.loads(json.dumps(environment({"OMP_NUM_THREADS": "1", "HOME": "/root"})))
    assert stored["variables"] == {"OMP_NUM_THREADS": "1"}
    assert stored["packages"]["numpy"]
    assert stored["processor"]


def test_pinned_ranks_on_a_quiet_machine_are_trusted():
    assert flags(on_one_node((0,), (1,))) == {}


@pytest.mark.parametrize(
    ("cpus", "detail"),
    [
        ([(0, 1)] * 4, "4 ranks on 2 cores of node0"),
        ([(0,), (0,)], "2 ranks on 1 core of node0"),
    ],
)
def test_more_ranks_than_cores_are_flagged(cpus, detail):
    assert flags(on_one_node(*cpus))["oversubscribed"] == detail


def test_ranks_that_may_move_are_flagged_with_the_way_out():
    detail = flags(on_one_node((0, 1), (2,)))["unpinned"]
    assert detail == f"1 rank of 2 may move between cores: pin each to one ({module.PINNING})"
    assert "--bind-to core" in module.PINNING


def test_where_there_is_nothing_to_pin_ranks_to_only_the_crowd_is_flagged():
    assert list(flags(on_one_node(*[(0, 1)] * 3))) == ["oversubscribed"]
    lab = Topology(("node0", "node1", "node2"), (0, 1, 2), ((0, 1),) * 3, machine_of=(0,) * 3)
    assert list(flags(lab)) == ["oversubscribed"]


def test_the_hardware_threads_of_one_core_are_no_freedom_to_move():
    bound = replace(on_one_node((0, 2), (1, 3)), physical=((0,), (1,)))
    assert flags(bound) == {}
    assert list(flags(replace(bound, physical=()))) == ["unpinned"]


def test_with_a_hardware_thread_for_each_rank_but_no_core_ranks_can_be_pinned_to_threads():
    both = (0, 1)
    loose = replace(on_one_node(*[(0, 1, 2, 3)] * 4), physical=(both,) * 4)
    assert list(flags(loose)) == ["unpinned"]
    assert flags(replace(on_one_node((0,), (1,), (2,), (3,)), physical=((0,), (1,)) * 2, host_cores=(2,) * 4)) == {}


def test_ranks_that_are_pinned_to_one_core_while_others_are_free_are_flagged():
    threads = replace(on_one_node((0,), (2,)), physical=((0,), (0,)), host_cores=(2, 2))
    assert flags(replace(threads, host_cores=(1, 1))) == {}
    detail = flags(threads)["shared-core"]
    assert detail == f"2 ranks (0-1) are pinned to core 0 of node0: give each its own ({module.PINNING})"
    assert list(flags(replace(on_one_node((0,), (0,)), host_cores=(2, 2)))) == ["oversubscribed", "shared-core"]
    assert list(flags(on_one_node((0,), (0,), (1, 2)))) == ["unpinned", "shared-core"]


def test_ranks_that_share_cores_because_there_are_too_few_are_not_told_to_take_others():
    evenly = replace(on_one_node((0,), (1,), (0,), (1,)), host_cores=(2,) * 4)
    assert list(flags(evenly)) == ["oversubscribed"]


def test_a_machine_that_was_at_work_is_flagged():
    assert "load of 3.0 on 2 cores of node0" in flags(on_one_node((0,), (1,)), load=3.0)["busy"]


def test_each_node_is_looked_at_and_flagged_once():
    topology = Topology(("a", "b", "a", "b"), (0, 1, 0, 1), ((0,), (0,), (1,), (0,)))
    found = [flag.detail for flag in trust(topology, [0.0] * 4) if flag.flag == "oversubscribed"]
    assert found == ["2 ranks on 1 core of b"]


def test_tuning_is_told_from_the_job():
    variables = {"OMPI_MCA_pml": "ob1", "SLURM_JOB_ID": "7", "OMPI_COMM_WORLD_SIZE": "2"}
    assert allowed(variables) == variables
    assert allowed(variables, TUNING) == {"OMPI_MCA_pml": "ob1"}


STAT = """cpu  100 0 100 1000 0 0 0 30 9 9
cpu0 50 1 50 400 2 3 4 10 5 0
cpu1 50 0 50 500 0 0 0 20 4 9
intr 12 13
"""


def test_ticks_are_those_of_the_ranks_own_processors(monkeypatch):
    monkeypatch.setattr(module, "_lines", lambda path: STAT.splitlines() if path.name == "stat" else [])
    assert ticks([0]) == Ticks(10, 520)
    assert ticks([0, 1]) == Ticks(30, 1140)
    assert ticks([10]) == Ticks(0, 0)


def test_ticks_are_counted_here():
    assert ticks(range(4096)).all > 0
    assert 0 <= ticks(range(4096)).share_since(Ticks(0, 0)) <= 1
    assert Ticks(0, 0).share_since(Ticks(0, 0)) == 0


def test_time_that_other_guests_had_is_flagged_once_for_each_node():
    topology = Topology(("a", "a", "b", "b"), (0, 0, 1, 1), ((0,),) * 4)
    assert list(stolen(topology, [0.0, 0.009, 0.0, 0.0])) == []
    found = [flag.detail for flag in stolen(topology, [0.0, 0.05, 0.012, 0.034])]
    assert found == [
        "other guests had 5.0% of the processors' time on a",
        "other guests had 3.4% of the processors' time on b",
    ]


def test_many_late_samples_are_flagged():
    assert list(late(0, 0)) == list(late(10, 100)) == []
    assert [flag.detail for flag in late(25, 100)] == [
        "25% of the samples were left out: a rank was not ready at their start"
    ]


def test_clocks_that_are_apart_are_flagged_where_starts_rest_on_them():
    assert list(clock_apart("window", 0.9, 1.0)) == list(clock_apart("barrier", 9.0, 1.0)) == []
    assert [flag.flag for flag in clock_apart("window", 3.25, 1.0)] == ["clock"]
